"""Inputs to predict on, from a file without labels."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from cantons.errors import InputError


def read_inputs(path: Path, name: str = "x") -> np.ndarray:
    """An .npy array, the array `name` of an .npz, or a .csv of numbers, with or without a header."""
    try:
        if path.suffix == ".npy":
            return np.load(path, allow_pickle=False)
        if path.suffix == ".npz":
            with np.load(path, allow_pickle=False) as file:
                if name not in file:
                    raise InputError(f"{path} has no array {name!r}; it has {', '.join(file.files)}.")
                return file[name]
        if path.suffix == ".csv":
            with path.open() as file:
                first = file.readline().split(",")[0]
            return np.loadtxt(path, delimiter=",", skiprows=int(not _is_number(first)), ndmin=2, dtype=np.float32)
    except (OSError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"cannot read {path}: {error}.") from error
    raise InputError(f"cannot read {path}: give a .npy, .npz or .csv file.")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
