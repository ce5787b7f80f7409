"""Predictions for the rows of a file, as text."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import numpy as np

from cantons.data.read.files import reading
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


def as_text(model: ClientModel, outputs: np.ndarray, raw: bool = False) -> str:
    """CSV with a header: label and probability, or what there is of them; of sequences, a label for each place."""
    lines = io.StringIO()
    writer = csv.writer(lines, lineterminator="\n")
    if raw:
        writer.writerows(map(_plain, row) for row in outputs.reshape(len(outputs), -1).astype(float).tolist())
        return lines.getvalue()
    answers = model.answers(outputs)
    if answers.ndim > 1:
        columns = {f"{'prediction' if answers is outputs else 'label'}{place}": values
                   for place, values in enumerate(answers.reshape(len(answers), -1).T)}
    else:
        columns = {"prediction" if answers is outputs else "label": answers}
        if model.problem.outputs in ("logits", "log_odds"):
            columns["probability"] = model.probabilities(outputs).max(axis=-1).astype(float).round(4)
    writer.writerow(columns)
    writer.writerows(zip(*(map(_plain, values.tolist()) for values in columns.values()), strict=True))
    return lines.getvalue()


def save(out: Path, model: ClientModel, outputs: np.ndarray, raw: bool) -> None:
    """What would be printed, to a .csv file; the outputs, to any other."""
    if out.suffix == ".csv":
        write_text(out, as_text(model, outputs, raw))
    else:
        with writing(out) as file:
            np.save(file, outputs)


def separator_of(folder: Path) -> str:
    """What stands between two columns in the data of a run, if they are a CSV file."""
    separator = (read_study(folder, LOADED)["data"]["made_by"] or {}).get("separator", ",")
    return separator if isinstance(separator, str) else ","


def _plain(value: object) -> object:
    return f"{value:.6g}" if isinstance(value, float) else value
