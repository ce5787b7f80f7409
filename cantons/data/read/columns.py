"""Files whose columns have names: the user says which of them are inputs, targets, clients and times."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from pathlib import Path
from typing import NamedTuple

import numpy as np

from cantons.data.checks import Where
from cantons.data.column import Column, is_missing, read_words
from cantons.data.table import Missing, RawColumn, Table, as_row, with_labels
from cantons.errors import InputError, unknown

MOST_VALUES = 100  # different texts in a column, unless it is named: a name or a number of a person is no category


class Columns(NamedTuple):
    """A file: its name for messages, its columns, and how to read one."""

    source: str | Path
    names: Sequence[str]
    read: Callable[[str], np.ndarray]
    kind: str = "column"  # what its format calls them
    text: bool = False  # its numbers are written in digits, so words may be numbers too large for the others
    where: Where | None = None  # the number of a row -> where the file has it, if that can be said

    def place(self, row: int) -> str:
        """The row, in words."""
        return (self.where or as_row)(row)


def column(columns: Columns, name: str) -> np.ndarray:
    """One column by name."""
    if name not in columns.names:
        raise unknown(f"{columns.kind} in {columns.source}:", name, columns.names)
    values = columns.read(name)
    if values.ndim == 0:
        raise InputError(f"{columns.kind} {name!r} in {columns.source} has shape (); give it one row per example.")
    return values


def numbers(columns: Columns, name: str, whole: bool = True) -> np.ndarray:
    """One column by name, which must hold numbers; `whole`: none may be missing."""
    values = column(columns, name)
    if values.dtype.kind in "biuf":
        if whole and columns.text and np.isnan(values).any():
            raise InputError(f"{columns.kind} {name!r} in {columns.source} has no value in "
                             f"{columns.place(int(np.isnan(values).argmax()))}; remove such rows or fill in a number.")
        return values
    row = next((row for row, value in enumerate(values.flat) if not is_number(value)), 0)
    if columns.text and is_number(values[row]):
        return values.astype(np.float64)
    raise InputError(f"{columns.kind} {name!r} in {columns.source} holds {str(values.flat[row])[:40]!r} in "
                     f"{columns.place(row)}, where a number belongs; fill one in or leave the column out.")


def as_table(columns: Columns, *, inputs: str | Sequence[str] | None, targets: str, client: str | None = None,
             time: str | None = None, ignore: Sequence[str] = (), regression: bool = False,
             categorical: Sequence[str] | None = None, missing: Missing = "refuse") -> Table:
    """One input column keeps its shape; several, or all that are left (None), stand side by side as features.

    Columns to `ignore` must be there: a misspelt name would let a column in. With `categorical`, columns of numbers to
    be read as text, text and missing values are read too, to be encoded later.
    """
    for ignored in ignore:
        if ignored not in columns.names:
            raise unknown(f"{columns.kind} in {columns.source}:", ignored, columns.names)
        if ignored in (targets, client, time, *([inputs] if isinstance(inputs, str) else inputs or ())):
            raise InputError(f"ignore names {ignored!r}, which is also to be used; take it out of one of the two.")
    values = column(columns, targets)
    ids = None if client is None else column(columns, client)
    times = None if time is None else _seconds(columns, time)
    for name, beside in ((client, ids), (time, times)):
        if beside is not None and beside.ndim > 1:
            raise InputError(f"{columns.kind} {name!r} in {columns.source} has shape {beside.shape}; "
                             "give one value per example.")
    for name, beside in ((targets, values), (client, ids)):
        if columns.where is not None and beside is not None and beside.ndim == 1 and is_missing(beside).any():
            raise InputError(f"{columns.kind} {name!r} in {columns.source} has no value in "
                             f"{columns.place(int(is_missing(beside).argmax()))}; remove such rows or fill one in.")
    raw = None
    if isinstance(inputs, str):
        chosen = [inputs]
    else:
        left = [name for name in columns.names if name not in (targets, client, time, *ignore)]
        chosen = list(left if inputs is None else inputs)
    if categorical is not None:
        raw = _raw_columns(columns, chosen, categorical, missing)
    rows = (np.arange(len(raw[0].values)) if raw is not None else numbers(columns, inputs) if isinstance(inputs, str)
            else _side_by_side(columns, chosen))
    for name, beside in ((targets, values), (client, ids), (time, times)):
        if beside is not None and len(beside) != len(rows):
            raise InputError(f"{columns.kind} {name!r} in {columns.source} has shape {beside.shape} and the inputs "
                             f"{rows.shape}; both need one row per example.")
    single = columns.kind == "column" and prod(rows.shape[1:]) == len(chosen)
    named = tuple(map(Column, chosen)) if single or raw is not None else None
    table = Table(rows, values, None, ids, times=times, columns=named, target=targets, where=columns.where,
                  raw=raw)
    return with_labels(table, regression, columns.source)


def _raw_columns(columns: Columns, names: Sequence[str], categorical: Sequence[str],
                 missing: Missing) -> tuple[RawColumn, ...] | None:
    """The columns as they are; None if all of them hold numbers, and none is missing or ever may be."""
    for name in categorical:
        if name not in names:
            raise unknown(f"{columns.kind} of the inputs, in categorical:", name, names)
    if not names:
        return None
    found = []
    for name in names:
        values, words = column(columns, name), f"{columns.kind} {name!r} in {columns.source}"
        if values.ndim > 1:
            if categorical:
                raise InputError(f"{words} has shape {values.shape}; columns beside categorical ones hold one value "
                                 "per row.")
            return None
        text = name in categorical or (values.dtype.kind in "US" and _is_text(values))
        values = read_words(values, words) if text else numbers(columns, name, whole=False)
        different = len(np.unique(values)) if text else 0
        if different > MOST_VALUES and name not in categorical:
            raise InputError(f"{words} holds {different} different texts; leave it out by ignore, or name it in "
                             "categorical if each of them is to be a feature.")
        found.append(RawColumn(name, values, words))
    lengths = {len(one.values) for one in found}
    plain = missing == "refuse" and not any(
        one.values.dtype.kind == "U" or is_missing(one.values).any() for one in found)
    return None if plain or len(lengths) > 1 else tuple(found)


def _is_text(values: np.ndarray) -> bool:
    """Are most of them no numbers? One word among numbers is a mistake, to be told with its line."""
    there = values[values != ""]
    return 2 * sum(map(is_number, there.tolist())) < len(there) or not len(there)


def _side_by_side(columns: Columns, names: Sequence[str]) -> np.ndarray:
    if not names:
        raise InputError(f"no {columns.kind} of {columns.source} is left for the inputs; name at least one.")
    features = [values.reshape(len(values), prod(values.shape[1:]))
                for values in (numbers(columns, name) for name in names)]
    lengths = {name: len(values) for name, values in zip(names, features, strict=True)}
    if len(set(lengths.values())) > 1:
        raise InputError(f"in {columns.source} {columns.kind}s for the inputs differ in length: "
                         f"{', '.join(f'{name} has {length}' for name, length in lengths.items())}; "
                         "give one row per example.")
    return np.concatenate(features, axis=1, dtype=np.result_type(np.float32, *features))


def _seconds(columns: Columns, name: str) -> np.ndarray:
    """Numbers as they are; dates, and words that are dates, as seconds since 1970."""
    values = column(columns, name)
    if values.dtype.kind not in "UM":
        return numbers(columns, name).astype(np.float64)
    try:
        # NumPy has no time zones; Z says that there is none to mind.
        dates = (np.strings.rstrip(values, "Z") if values.dtype.kind == "U" else values).astype("datetime64[us]")
    except (ValueError, OverflowError) as error:
        raise InputError(f"{columns.kind} {name!r} in {columns.source} holds neither numbers nor dates such as "
                         f"2026-01-31T12:00: {error}.") from error
    if np.isnat(dates).any():
        raise InputError(f"{columns.kind} {name!r} in {columns.source} has no date in "
                         f"{columns.place(int(np.isnat(dates).argmax()))}; remove such rows or fill one in.")
    return dates.astype(np.int64) / 1e6


def is_number(value: object) -> bool:
    """Whether this, or what it spells, is one real number.

    >>> [is_number(value) for value in ("007", 1.5, "north", 1j)]
    [True, True, False, False]
    """
    if isinstance(value, complex | np.complexfloating | np.void):
        return False
    try:
        float(value)  # type: ignore[arg-type]
    except (ValueError, TypeError, OverflowError):
        return False
    return True
