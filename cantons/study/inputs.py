"""Raw rows to predict on, from a file without labels."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cantons.data.checks import Where
from cantons.data.encoding import count_from_0
from cantons.data.read.columns import column, is_number
from cantons.data.read.csv import cells, header_of
from cantons.data.read.files import decoding, reading
from cantons.data.read.npz import arrays
from cantons.errors import InputError


class Rows(NamedTuple):
    """What a file holds, and where it has each row."""

    values: Any  # {name: values} of columns that have names, else an array
    where: Where = count_from_0


def read_rows(path: Path, array: str = "x", separator: str = ",") -> Rows:
    """An .npy array, the array `array` of an .npz, or the columns of a .csv."""
    if path.suffix not in (".npy", ".npz", ".csv"):
        raise InputError(f"cannot read {path}: give a .npy, .npz or .csv file.")
    with reading(path):
        if path.suffix == ".csv":
            return _read_columns(path, separator)
        with path.open("rb") as file:
            if path.suffix == ".npz":
                return Rows(column(arrays(file, path), array))
            with decoding(path, "which should be an array as np.save writes it"):
                return Rows(np.lib.format.read_array(file, allow_pickle=False))


def _read_columns(path: Path, separator: str) -> Rows:
    """All columns side by side have no names where the first line is of numbers, and so no header."""
    with path.open(encoding="utf-8-sig", newline="") as lines:
        names = header_of(lines, path, separator)
    unnamed = all(map(is_number, names))
    if unnamed:
        names = [f"column {place}" for place in range(len(names))]
    with path.open(encoding="utf-8-sig", newline="") as lines:
        columns = cells(lines, path, separator, names if unnamed else None)
        found = {name: column(columns, name) for name in names}
    return Rows(np.stack(list(found.values()), axis=1) if unnamed else found, columns.place)
