"""Files that keep every client's rows apart: a block for each, joined into one table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from cantons.data.checks import first_names
from cantons.data.table import Table
from cantons.errors import InputError


class Block(NamedTuple):
    """Some rows of one client."""

    client: str
    inputs: np.ndarray
    targets: np.ndarray
    test: bool


def join(blocks: Sequence[Block], source: str | Path) -> Table:
    """All rows in one table, its targets as the file has them. Training blocks have rows; test blocks may have none."""
    for client, inputs, targets, _ in blocks:
        if inputs.ndim == 0 or targets.ndim == 0 or len(inputs) != len(targets):
            raise InputError(f"inputs of client {client!r} in {source} have shape {inputs.shape} and its targets "
                             f"{targets.shape}; both need one row per example.")
    empty = [block.client for block in blocks if len(block.targets) == 0 and not block.test]
    if empty:
        raise InputError(f"no examples for {first_names(empty)} in {source}; leave such clients out or give them some.")
    full = [block for block in blocks if len(block.targets)]
    if not full:
        raise InputError(f"there are no clients in {source}; give at least one with examples.")
    _check_same_shapes(full, source)
    sizes = [len(block.targets) for block in full]
    test = np.repeat([block.test for block in full], sizes)
    return Table(
        np.concatenate([block.inputs for block in full]),
        np.concatenate([block.targets for block in full]),
        None,
        np.repeat([block.client for block in full], sizes),
        test if test.any() else None,
    )


def _check_same_shapes(blocks: Sequence[Block], source: str | Path) -> None:
    first = blocks[0]
    for block in blocks:
        for what, one, other in (("inputs", block.inputs, first.inputs), ("targets", block.targets, first.targets)):
            if one.shape[1:] != other.shape[1:] or (one.dtype.kind in "SU") != (other.dtype.kind in "SU"):
                raise InputError(f"{what} of client {block.client!r} in {source} are {_kind(one)} and those of "
                                 f"client {first.client!r} {_kind(other)}; all clients must agree.")


def _kind(values: np.ndarray) -> str:
    return f"{'words' if values.dtype.kind in 'SU' else 'numbers'} of shape {values.shape[1:]}"
