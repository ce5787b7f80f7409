"""Tables: one row of inputs and one target per example, before anybody owns them."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

from cantons.errors import InputError


class Table(NamedTuple):
    """The examples of a file, or of several that belong together."""

    inputs: np.ndarray
    targets: np.ndarray  # labels 0..K-1, or float32 for regression
    classes: np.ndarray | None  # the K labels as the file has them, sorted; None for regression
    clients: np.ndarray | None = None  # an id per row
    test: np.ndarray | None = None  # bool: the rows that the source sets aside for testing
    times: np.ndarray | None = None  # float64: when each row arrived
    vocabulary: tuple[str, ...] | None = None  # where inputs are numbers of things: what 0, 1, ... stands for


def with_labels(table: Table, regression: bool, source: str | Path) -> Table:
    """Number the targets as the file has them 0..K-1, or make them float32 for regression."""
    values = table.targets
    if len(table.inputs) == 0:
        raise InputError(f"{source} holds no rows; give a file with at least one example.")
    if regression:
        if values.dtype.kind not in "iuf":
            raise InputError(f"targets in {source} are of type {values.dtype}; regression needs numbers.")
        return table._replace(targets=values.astype(np.float32))
    if values.dtype.kind == "f":
        odd = values[~np.isfinite(values) | (values != np.round(values))]
        if odd.size:
            raise InputError(f"targets in {source} hold {odd[0]}, which is no label; "
                             "give regression = true.")
        values = values.astype(np.int64)
    kinds, labels = np.unique(values, return_inverse=True)
    if len(kinds) < 2:
        raise InputError(f"targets in {source} are all {kinds[0]}; classification needs at least two labels.")
    return table._replace(targets=labels.astype(np.int32), classes=kinds)
