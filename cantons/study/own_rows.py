"""Rows of a run's own data are encoded already: given as raw ones, they would be scaled a second time, in silence."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from cantons.errors import InputError

LOOKED_AT = 3  # rows that encoding changes; raw ones that all happen to be in the data as well are not met


def refuse_own_rows(data: Any, rows: Any, inputs: Any) -> None:
    """Refuse `rows`, which became `inputs`, if they are in the data of the run as they stand."""
    numbers = isinstance(rows, np.ndarray | jax.Array) and rows.dtype.kind in "biuf"
    if data is None or not numbers or np.shape(rows) != np.shape(inputs):
        return
    flat = _flat(rows)
    changed = np.flatnonzero((flat != _flat(inputs)).any(axis=1))[:LOOKED_AT]
    if len(changed) and all(any(_holds(known, flat[row]) for known in _sets(data)) for row in changed):
        raise InputError("these rows are of the data that the run was given, which are scaled already, and here they "
                         "would be scaled again; say encoded=True, or give rows as they are in the file.")


def _sets(data: Any) -> Iterator[np.ndarray]:
    """The inputs of all examples, set by set."""
    sets = [data.validation, *(part for population in (data.clients, data.new) if population is not None
                               for part in (population.train, population.test))]
    return (_flat(examples.inputs) for examples in sets if examples is not None and hasattr(examples.inputs, "shape"))


def _holds(known: np.ndarray, row: np.ndarray) -> bool:
    if known.shape[1:] != row.shape:
        return False
    telling = np.abs(row).argmax()  # a number that few others have: the rest is compared for these alone
    return bool((known[known[:, telling] == row[telling]] == row).all(axis=1).any())


def _flat(rows: Any) -> np.ndarray:
    """One line for each row, in the precision in which any of them may have been before."""
    with np.errstate(over="ignore"):
        return np.asarray(rows).reshape(len(rows), -1).astype(np.float32)
