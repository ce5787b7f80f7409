"""Rows to predict on, brought into the form that the run was trained on."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from cantons.data.centres import kinds_of
from cantons.data.checks import check_numbers
from cantons.data.prepare.scaling import scale_inputs
from cantons.data.ragged import from_sizes
from cantons.data.read.files import reading
from cantons.errors import InputError
from cantons.study.inputs import read_columns, read_header, read_inputs
from cantons.study.read import check_part
from cantons.study.reading import LOADED, read_study
from cantons.study.registry import make
from cantons.study.result import Trained


def rows_for(trained: Trained, folder: Path, path: Path, array: str) -> np.ndarray:
    """The rows of the file `path`, with the columns, the shape and the scale of the inputs in the run's data."""
    made_by = read_study(folder, LOADED)["data"]["made_by"] or {}
    rows = (_from_csv(path, made_by, folder) if made_by.get("name") == path.suffix[1:] == "csv"
            else read_inputs(path, array))
    if rows.ndim == 0 or len(rows) == 0:
        raise InputError(f"{path} holds no rows; give at least one.")
    if rows.dtype.kind not in "biuf":
        raise InputError(f"{path} holds values of type {rows.dtype}; give numbers.")
    check_numbers("inputs", rows, lambda row: f"row {row} (from 0) of {path}")
    rows = _rescaled(_shaped(rows, trained, path), made_by, trained)
    with reading(path):
        trained.problem.check_inputs(rows)
    return rows


def _from_csv(path: Path, made_by: Mapping[str, Any], folder: Path) -> np.ndarray:
    """The input columns of the run's data, which were a CSV file too; whole numbers become floats as they did there."""
    made_by = check_part(str(folder / "study.json"), "data", made_by)
    separator, wanted = made_by.get("separator", ","), made_by.get("inputs")
    if wanted is None:
        source = Path(made_by["path"])
        before = read_header(source if os.path.exists(source) else path, separator)
        wanted = [name for name in before if name not in (made_by["targets"], made_by.get("client"))]
    rows = read_columns(path, [wanted] if isinstance(wanted, str) else wanted, separator)
    return rows.astype(np.result_type(np.float32, rows.dtype))


def _shaped(rows: np.ndarray, trained: Trained, path: Path) -> np.ndarray:
    """As the model takes them; pictures may come as flat rows."""
    shape = trained.input_shape
    if shape is None:
        return rows
    if prod(rows.shape[1:]) != prod(shape):
        raise InputError(f"{path} has {prod(rows.shape[1:])} numbers in a row, and the model was trained on "
                         f"{prod(shape)}; give the same inputs.")
    return rows.reshape(len(rows), *shape)


def _rescaled(rows: np.ndarray, made_by: Mapping[str, Any], trained: Trained) -> np.ndarray:
    """As the run's data were: what was fitted to their training rows is fitted again."""
    how = made_by.get("scale", "none")
    if how == "none":
        return rows
    if trained.data is None:
        raise InputError(f"the inputs of this run were scaled to {how!r}, and its data, which say by how much, are "
                         "gone or have changed; bring them back.")
    try:
        data = make("data", {**made_by, "scale": "none"})
    except InputError as error:
        raise InputError(f"the inputs of this run were scaled to {how!r}, and its data, which say by how much, are not "
                         f"there: {error}") from error
    asked = from_sizes(rows, np.zeros(len(rows)), np.array([len(rows)]))
    whole = scale_inputs(replace(data, central=asked), how)
    return kinds_of(whole.central)["central"].inputs
