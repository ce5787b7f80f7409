"""Rows to predict on, brought into the form that the run was trained on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from csv import reader
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from cantons.data.checks import check_numbers
from cantons.data.prepare.scaling import scale_inputs
from cantons.data.ragged import from_sizes
from cantons.data.read.columns import numbers
from cantons.data.read.csv import cells
from cantons.data.read.files import reading
from cantons.errors import InputError
from cantons.study.folder import Folder, read_json
from cantons.study.inputs import read_inputs
from cantons.study.registry import make
from cantons.study.result import Trained


def rows_for(trained: Trained, folder: Path, path: Path, array: str) -> np.ndarray:
    """The rows of the file `path`, with the columns, the shape and the scale of the inputs in the run's data."""
    made_by = read_json(Folder(folder).study_file)["data"]["made_by"] or {}
    rows = _from_csv(path, made_by) if path.suffix == ".csv" else read_inputs(path, array)
    if rows.ndim == 0 or len(rows) == 0:
        raise InputError(f"{path} holds no rows; give at least one.")
    if rows.dtype.kind not in "biuf":
        raise InputError(f"{path} holds values of type {rows.dtype}; give numbers.")
    check_numbers("inputs", rows, lambda row: f"row {row} (from 0) of {path}")
    return _rescaled(_shaped(rows, trained, path), made_by)


def _from_csv(path: Path, made_by: Mapping[str, Any]) -> np.ndarray:
    """By the names in the header; a file of numbers without one is taken as it stands."""
    separator = made_by.get("separator", ",")
    names = header(path, separator)
    if all(_is_number(name) for name in names):
        names = [f"column {place}" for place in range(len(names))]
        wanted: Sequence[str] = names
    else:
        wanted = _trained_on(made_by, names)
    with reading(path), path.open(encoding="utf-8-sig", newline="") as lines:
        columns = cells(lines, path, separator, names if wanted is names else None)
    return np.stack([numbers(columns, name) for name in wanted], axis=1)


def _trained_on(made_by: Mapping[str, Any], names: Sequence[str]) -> Sequence[str]:
    """The input columns of the run's data if that was a CSV file too, otherwise all there are."""
    if made_by.get("name") != "csv":
        return names
    if made_by["inputs"] is not None:
        return [made_by["inputs"]] if isinstance(made_by["inputs"], str) else made_by["inputs"]
    source = Path(made_by["path"])
    before = header(source, made_by["separator"]) if source.exists() else names
    return [name for name in before if name not in (made_by["targets"], made_by["client"])]


def header(path: Path, separator: str) -> list[str]:
    """The first line."""
    with reading(path), path.open(encoding="utf-8-sig", newline="") as lines:
        return next(reader(lines, delimiter=separator, skipinitialspace=True), [])


def _shaped(rows: np.ndarray, trained: Trained, path: Path) -> np.ndarray:
    """As the model takes them; pictures may come as flat rows."""
    shape = (trained.problem.spec or {}).get("input_shape")
    if shape is None and trained.data is not None and hasattr(trained.data.train.inputs, "shape"):
        shape = trained.data.input_shape
    if shape is None:
        return rows
    if prod(rows.shape[1:]) != prod(shape):
        raise InputError(f"{path} has {prod(rows.shape[1:])} numbers in a row, and the model was trained on "
                         f"{prod(shape)}; give the same inputs.")
    return rows.reshape(len(rows), *shape)


def _rescaled(rows: np.ndarray, made_by: Mapping[str, Any]) -> np.ndarray:
    """As the run's data were: what was fitted to their training rows is fitted again."""
    how = made_by.get("scale", "none")
    if how == "none":
        return rows
    try:
        data = make("data", {**made_by, "scale": "none"})
    except InputError as error:
        raise InputError(f"the inputs of this run were scaled to {how!r}, and its data, which say by how much, are not "
                         f"there: {error}") from error
    asked = from_sizes(rows, np.zeros(len(rows)), np.array([len(rows)]))
    whole = scale_inputs(replace(data, central=asked), how)
    assert whole.central is not None
    return whole.central.inputs


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
