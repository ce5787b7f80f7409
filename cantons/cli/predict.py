"""Predictions for the rows of a file, as text."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from cantons.data.read.files import reading
from cantons.errors import InputError, unknown
from cantons.files import write_text, writing
from cantons.study.client_model import ClientModel, encode
from cantons.study.inputs import read_rows
from cantons.study.reading import LOADED, read_study


def outputs_for(model: ClientModel, path: Path, array: str, separator: str) -> np.ndarray:
    """What the model computes for the raw rows of a file."""
    rows, where = read_rows(path, array, separator)
    if isinstance(rows, dict) and model.encoding is not None and model.encoding.columns is None:
        rows = np.stack(list(rows.values()), axis=1)  # the training rows had no names, so the order counts
    with reading(path):
        return model.outputs(encode(model.encoding, rows, where), encoded=True)


def columns_to_keep(path: Path, separator: str, names: Sequence[str]) -> dict[str, np.ndarray]:
    """The columns of these names, as they stand in a CSV file with a header."""
    rows = read_rows(path, separator=separator).values if names else {}
    if not isinstance(rows, dict):
        raise InputError(f"{path} has no column {names[0]!r} to keep, because its columns have no names; give a .csv "
                         "file with a header.")
    for name in names:
        if name not in rows:
            raise unknown(f"column of {path}", name, rows)
    return {name: rows[name] for name in names}


def as_columns(model: ClientModel, outputs: np.ndarray, each: bool = False) -> dict[str, np.ndarray]:
    """Label and probability, or what there is of them; of sequences, a label for each place.

    With `each`, a probability for every class.
    """
    answers = model.answers(outputs)
    name = "prediction" if answers is outputs else "label"
    if answers.ndim > 1:
        if each:
            raise InputError("this model has several labels or numbers for a row; use --raw.")
        return {f"{name}{place}": values for place, values in enumerate(answers.reshape(len(answers), -1).T)}
    if not each and model.problem.outputs not in ("logits", "log_odds"):
        return {name: answers}
    chances = model.probabilities(outputs).astype(float).round(4)
    if not each:
        return {name: answers, "probability": chances.max(axis=-1)}
    return {name: answers, **{f"probability of {label}": chances[:, place]
                              for place, label in enumerate(model.labels(chances.shape[1]))}}


def as_text(kept: Mapping[str, np.ndarray], found: Mapping[str, np.ndarray]) -> str:
    """CSV with a header; what is found of a name that is kept, such as the true label, is called predicted."""
    columns = {**kept, **{f"predicted {name}" if name in kept else name: values for name, values in found.items()}}
    return _csv([list(columns), *zip(*(values.tolist() for values in columns.values()), strict=True)])


def as_raw_text(outputs: np.ndarray) -> str:
    """CSV without a header: the outputs as they are."""
    return _csv(outputs.reshape(len(outputs), -1).astype(float).tolist())


def save(out: Path, text: str, outputs: np.ndarray) -> None:
    """What would be printed, to a .csv file; the outputs, to any other."""
    if out.suffix == ".csv":
        write_text(out, text)
    else:
        with writing(out) as file:
            np.save(file, outputs)


def _csv(rows: Iterable[Iterable[object]]) -> str:
    lines = io.StringIO()
    csv.writer(lines, lineterminator="\n").writerows(map(_plain, rows))
    return lines.getvalue()


def separator_of(folder: Path) -> str:
    """What stands between two columns in the data of a run, if they are a CSV file."""
    separator = (read_study(folder, LOADED)["data"]["made_by"] or {}).get("separator", ",")
    return separator if isinstance(separator, str) else ","


def _plain(row: Iterable[object]) -> list[object]:
    return [f"{value:.6g}" if isinstance(value, float) else value for value in row]
