"""A model that cantons has exported, with NumPy alone: Model(folder).predict(rows)."""

import json
from pathlib import Path

import numpy as np


def is_missing(value):
    """Is there no value? None, NaN and pandas' two kinds of nothing, which are no truth values."""
    return value is None or type(value).__name__ in ("NAType", "NaTType") or value != value


def as_number(value, name, row):
    """A number, or NaN for what files have where they have none."""
    if is_missing(value) or (isinstance(value, str) and value.strip().lower() in ("", "na", "n/a", "nan", "null")):
        return np.nan
    try:
        return float(value)
    except (TypeError, ValueError):
        raise ValueError(f"column {name!r} holds {value!r} in row {row} (from 0), where a number belongs.") from None


def as_word(value):
    """Text, and of a whole number its digits; "" for what is not there."""
    whole = isinstance(value, float | np.floating) and value.is_integer()
    return "" if is_missing(value) else str(int(value) if whole else value)


def features(column, values):
    """One column as the model takes it: text one-hot, missing numbers filled in, a mark where a value is missing."""
    name, array = column["name"], np.asarray(values)
    if column["values"] is None:
        numbers = array if array.dtype.kind in "biuf" else [as_number(*each) for each in zip(
            values, [name] * len(array), range(len(array)), strict=True)]
        own = np.asarray(numbers, float)[:, None]
        missing = np.isnan(own[:, 0])
        if np.isinf(own).any():
            raise ValueError(f"column {name!r} is infinite in row {np.isinf(own).argmax()} (from 0).")
        own = np.where(np.isnan(own), column["fill"] or 0.0, own)
    else:
        words = [as_word(value) for value in values]
        missing = np.array([word == "" for word in words], bool)
        own = np.array([[word == known for known in column["values"]] for word in words], float)
        own = own.reshape(len(words), len(column["values"]))
    if missing.any() and column["fill"] is None:
        raise ValueError(f"column {name!r} has no value in row {missing.argmax()} (from 0); fill one in.")
    return np.column_stack([own, missing]) if column["indicator"] else own


class Model:
    def __init__(self, folder="."):
        self.about = json.loads((Path(folder) / "model.json").read_text("utf-8"))
        data = (Path(folder) / "model.safetensors").read_bytes()
        start = 8 + int.from_bytes(data[:8], "little")
        arrays = {name: array for name, array in json.loads(data[8:start]).items() if name != "__metadata__"}
        self.arrays = {name: np.frombuffer(data[start:][slice(*array["data_offsets"])], {"F32": "<f4", "F64": "<f8"}[
            array["dtype"]]).reshape(array["shape"]) for name, array in arrays.items()}

    def encode(self, rows):
        """Raw rows as the model takes them: {column: values}, as a data frame also is; dicts or lists; an array."""
        how = self.about["encoding"]
        names = [column["name"] for column in how["columns"] or []]
        if names and not hasattr(rows, "keys") and len(rows) and hasattr(rows[0], "keys"):  # as csv.DictReader gives
            rows = {name: [row[name] for row in rows] for name in names if all(name in row for row in rows)}
        if names and hasattr(rows, "keys"):
            if missing := [name for name in names if name not in rows]:
                raise ValueError(f"the rows have no column {missing[0]!r}; give {', '.join(names)}.")
            rows = [rows[name] for name in names]
        elif names:
            if any(np.shape(row) != (len(names),) for row in rows):
                raise ValueError(f"give {', '.join(names)} in each row.")
            rows = rows.T if hasattr(rows, "T") else list(zip(*rows, strict=True)) or [()] * len(names)
        if names:
            rows = np.column_stack([features(*each) for each in zip(how["columns"], rows, strict=True)])
        rows = np.asarray(rows)
        if rows.ndim == 0 or rows[:1].size != np.prod(how["shape"]):
            raise ValueError(f"the rows have shape {rows.shape}; give {', '.join(names) or how['shape']} in each.")
        rows, scaling = rows.reshape(len(rows), *how["shape"]), how["scaling"]
        if scaling:
            rows = (rows.astype(how["dtype"]) - np.asarray(scaling["shift"])) / np.asarray(scaling["size"])
        return rows.astype(self.about["inputs"]["dtype"])

    def outputs(self, rows):
        """What the model computes for raw rows, such as logits."""
        if self.about["networks"] is None:
            raise ValueError("this model is not made of dense layers alone: load model.jax with jax.export instead.")
        inputs, total = self.encode(rows), 0
        for network in self.about["networks"]:
            columns = slice(None) if network["columns"] is None else network["columns"]
            values = inputs.reshape(len(inputs), -1)[:, columns]
            for number, layer in enumerate(network["layers"]):
                values = (np.maximum(values, 0) if number else values) @ self.arrays[layer["weight"]]
                values = values + (self.arrays[layer["bias"]] if layer["bias"] else 0)
            total = total + values
        return total if self.about["outputs"] in ("logits", "scores") else total[:, 0]

    def predict(self, rows):
        """The label of each raw row; or a number, where the model predicts numbers."""
        return self.answer(self.outputs(rows))

    def answer(self, outputs):
        """The labels that outputs stand for."""
        if self.about["outputs"] in ("logits", "scores"):
            return np.array(self.about["classes"])[np.argmax(outputs, axis=-1)]
        return outputs if self.about["classes"] is None else np.array(self.about["classes"])[(outputs > 0).astype(int)]

    def probabilities(self, outputs):
        """The probability of each class, where outputs are logits, or the log odds of the second of two."""
        logits = outputs if self.about["outputs"] == "logits" else np.stack([0 * outputs, outputs], axis=-1)
        powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
        return powers / powers.sum(axis=-1, keepdims=True)
