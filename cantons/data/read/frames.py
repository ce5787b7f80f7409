"""Tables in memory: pandas and polars frames and Arrow tables as columns with names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from cantons.data.read.columns import Columns
from cantons.data.table import as_row
from cantons.errors import InputError, listed


def names_in(rows: Any) -> list[Any] | None:
    """The names of the columns of a frame or an Arrow table; None for what is neither."""
    if not hasattr(rows, "__getitem__") or isinstance(rows, Mapping):
        return None
    names = next((getattr(rows, name) for name in ("column_names", "columns") if hasattr(rows, name)), None)
    return None if names is None or callable(names) else list(names)


def join_frames(frames: Mapping[str, Any]) -> tuple[Columns, np.ndarray]:
    """The columns of all clients' frames, the rows of one client after those of another, and whose each row is."""
    names = {client: names_in(frame) or [] for client, frame in frames.items()}
    for client, own in names.items():
        if len(set(own)) < len(own) or not all(isinstance(name, str) for name in own):
            raise InputError(f"the columns of client {client!r} are {listed(list(map(str, own)))}; give every column a "
                             "name of its own, as a string.")
    sizes = [len(frame) for frame in frames.values()]
    owners = np.repeat(np.array(list(frames), dtype=np.str_), sizes)
    starts = np.cumsum(sizes) - sizes

    def where(row: int) -> str:
        number = int(np.searchsorted(starts, row, "right")) - 1
        return f"{as_row(row - int(starts[number]))} of client {list(frames)[number]!r}"

    def read(name: str) -> np.ndarray:
        for client, own in names.items():
            if name not in own:
                there = next(other for other, columns in names.items() if name in columns)
                raise InputError(f"client {client!r} has no column {name!r}, which client {there!r} has; give all "
                                 "clients the same columns, or leave this one out by inputs or ignore.")
        parts = [values_of(frame[name]) for frame in frames.values()]
        if len({part.dtype.kind in "US" for part in parts if len(part)}) > 1:
            raise InputError(f"column {name!r} holds text of some clients and numbers of others; make them alike.")
        return np.concatenate(parts)

    return Columns("the frames", list(dict.fromkeys(name for own in names.values() for name in own)), read,
                   where=where), owners


def values_of(column: Any) -> np.ndarray:
    """One column of a frame or an Arrow table: numbers, NaN for missing ones, or words, "" for missing ones."""
    if hasattr(column, "to_numpy"):
        dtype = str(getattr(column, "dtype", ""))
        values = np.asarray(column.astype(object) if dtype == "category" else column.to_numpy())
    else:
        values = np.asarray(column)
    if values.dtype.kind not in "OT":  # T: the strings of variable length that NumPy has since version 2
        return values
    missing = np.array([value is None or _is_nan(value) for value in values], bool)
    known = [value for value, lacks in zip(values, missing, strict=True) if not lacks]
    if all(isinstance(value, str) for value in known):
        filled = np.full(len(values), "", dtype=np.array(known or [""], dtype=np.str_).dtype)
        filled[~missing] = known
        return filled
    try:
        rest = np.array(known)
    except ValueError as error:
        raise InputError(f"a column holds lists of unequal length: {error}.") from error
    if not missing.any() or rest.ndim > 1 or rest.dtype.kind not in "biuf":
        return rest if not missing.any() else values
    numbers = np.full(len(values), np.nan)
    numbers[~missing] = rest
    return numbers


def _is_nan(value: Any) -> bool:
    """NaN, and what pandas has for no value at all, which is no truth value when compared."""
    return type(value).__name__ in ("NAType", "NaTType") or (isinstance(value, float) and value != value)
