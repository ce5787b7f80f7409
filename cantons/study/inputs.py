"""Inputs to predict on, from a file without labels."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from cantons.data.read.columns import column, numbers
from cantons.data.read.csv import cells, header_of
from cantons.data.read.files import decoding, reading
from cantons.data.read.npz import arrays
from cantons.errors import InputError


def read_inputs(path: Path, name: str = "x") -> np.ndarray:
    """An .npy array, the array `name` of an .npz, or a .csv of numbers, with or without a header."""
    if path.suffix not in (".npy", ".npz", ".csv"):
        raise InputError(f"cannot read {path}: give a .npy, .npz or .csv file.")
    with reading(path):
        if path.suffix == ".csv":
            return read_columns(path)
        with path.open("rb") as file:
            if path.suffix == ".npz":
                return column(arrays(file, path), name)
            with decoding(path, "which should be an array as np.save writes it"):
                return np.lib.format.read_array(file, allow_pickle=False)


def read_columns(path: Path, wanted: list[str] | None = None, separator: str = ",") -> np.ndarray:
    """The columns of a CSV file that are `wanted`, or all of them; a file of numbers needs no header."""
    names = read_header(path, separator)
    unnamed = all(_is_number(name) for name in names)
    if unnamed:
        names = [f"column {place}" for place in range(len(names))]
    with reading(path), path.open(encoding="utf-8-sig", newline="") as lines:
        columns = cells(lines, path, separator, names if unnamed else None)
        chosen = names if unnamed or wanted is None else wanted
        if not chosen:
            raise InputError(f"{path} has no column to predict from.")
        return np.stack([numbers(columns, name) for name in chosen], axis=1)


def read_header(path: Path, separator: str) -> list[str]:
    """The first line of a CSV file."""
    with reading(path), path.open(encoding="utf-8-sig", newline="") as lines:
        return header_of(lines, path, separator)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
