"""Tables: one row of inputs and one target per example, before anybody owns them."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from cantons.data.checks import Where, as_float32
from cantons.data.column import Column
from cantons.data.encoding import Encoding, as_labels
from cantons.errors import InputError

EXACT = 2**53  # beyond it neighbouring whole numbers are the same float64


Missing = Literal["refuse", "mean"]  # what is done where a row has no value


class RawColumn(NamedTuple):
    """A column of the inputs as its source has it: numbers, NaN for missing ones, or words, "" for missing ones."""

    name: str
    values: np.ndarray
    words: str  # it, in a message


class Table(NamedTuple):
    """The examples of a file, or of several that belong together."""

    inputs: np.ndarray
    targets: np.ndarray  # labels 0..K-1, or float32 for regression
    classes: np.ndarray | None  # the K labels as the file has them, sorted; None for regression
    clients: np.ndarray | None = None  # an id per row
    test: np.ndarray | None = None  # bool: the rows that the source sets aside for testing
    times: np.ndarray | None = None  # float64: when each row arrived
    vocabulary: tuple[str, ...] | None = None  # where inputs are numbers of things: what 0, 1, ... stands for
    where: Where | None = None  # the number of a row -> where its source has it, if that can be said
    columns: tuple[Column, ...] | None = None  # where each number of an input is a column of its own
    target: str | None = None  # the name of the targets
    raw: tuple[RawColumn, ...] | None = None  # columns that are still to be encoded: inputs are the numbers of rows

    @property
    def encoding(self) -> Encoding:
        classes = None if self.classes is None else as_labels(self.classes)
        return Encoding(columns=self.columns, classes=classes, target=self.target)


def as_row(row: int) -> str:
    """Where a row is, if nothing better is known."""
    return f"row {row} (from 0)"


def with_labels(table: Table, regression: bool, source: str | Path) -> Table:
    """Number the targets as the file has them 0..K-1, or make them float32 for regression."""
    values = table.targets
    if len(table.inputs) == 0:
        raise InputError(f"{source} holds no rows; give a file with at least one example.")
    if regression:
        if values.dtype.kind not in "iuf":
            raise InputError(f"targets in {source} are of type {values.dtype}; regression needs numbers.")
        return table._replace(targets=as_float32(f"targets in {source}", values, table.where or as_row))
    if values.dtype.kind not in "biufUSOM":
        raise InputError(f"targets in {source} are of type {values.dtype}; give numbers or words as labels.")
    if values.size == 0:
        raise InputError(f"targets in {source} have shape {values.shape}; give every example a label.")
    if values.dtype.kind == "f":
        odd = values[~np.isfinite(values) | (values != np.round(values))]
        if odd.size:
            raise InputError(f"targets in {source} hold {odd[0]}, which is no label; "
                             "give regression = true.")
        large = values[np.abs(values.astype(np.float64)) > EXACT]
        if large.size:
            raise InputError(f"targets in {source} hold {large[0]}; floats above 2**53 are not exact, so labels that "
                             "large must be whole numbers or words.")
        values = values.astype(np.int64)
    try:
        kinds, labels = np.unique(values, return_inverse=True)
    except TypeError as error:  # objects of several kinds have no order
        raise InputError(f"targets in {source} are no labels: {error}; give numbers or words.") from error
    if len(kinds) < 2:
        raise InputError(f"targets in {source} are all {kinds[0]}; classification needs at least two labels.")
    return table._replace(targets=labels.astype(np.int32), classes=kinds)
