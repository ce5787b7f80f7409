"""How raw rows become the inputs that a model was trained on, and what its labels are called.

An encoding is a plain value: it goes to a file as JSON and comes back the same. Whoever has it encodes new rows exactly
as the training rows were encoded, without the training rows.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from math import prod
from typing import Any, NamedTuple

import numpy as np

from cantons.data.checks import Where, as_array, check_numbers, is_real
from cantons.data.column import Column, is_missing, read_numbers, read_words
from cantons.errors import InputError, Notice, listed, shown

VERSION = 1  # of the JSON
Label = str | int | bool


class Scaling(NamedTuple):
    """(inputs - shift) / size, each of one number, or of the shape of an input."""

    how: str  # the option that fitted it, for people
    shift: np.ndarray  # float64
    size: np.ndarray  # float64, never 0
    clients: Mapping[str, tuple[np.ndarray, np.ndarray]] = {}  # the (shift, size) of those that have their own

    def apply(self, inputs: np.ndarray) -> np.ndarray:
        result = inputs.dtype if inputs.dtype.kind == "f" else np.float32
        return ((inputs - self.shift) / self.size).astype(result)

    def of(self, client: str | None) -> Scaling:
        """The scaling of one client's rows: its own, or that of all clients together."""
        shift, size = self.clients.get(client or "", (self.shift, self.size))
        return Scaling(self.how, shift, size)


def count_from_0(row: int) -> str:
    """Where a row of an array is, in words."""
    return f"row {row} (from 0)"


@dataclass(frozen=True, eq=False)
class Encoding:
    """From raw rows to inputs, and from numbers of classes to labels."""

    columns: tuple[Column, ...] | None = None  # in the order of the inputs; None: they have no names
    shape: tuple[int, ...] | None = None  # of one input; None: inputs are several arrays, and are taken as they come
    dtype: str | None = None  # of inputs before they are scaled
    scaling: Scaling | None = None
    classes: tuple[Label, ...] | None = None  # the label of class 0, 1, ...; None for regression
    target: str | None = None  # the column to predict

    @property
    def column_names(self) -> tuple[str, ...] | None:
        return None if self.columns is None else tuple(column.name for column in self.columns)

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """What each number of an input is called."""
        return None if self.columns is None else tuple(chain.from_iterable(each.features for each in self.columns))

    def of(self, client: str | None) -> Encoding:
        """The encoding of one client's rows, where clients have a scale of their own; of nobody's: that of all."""
        return self if self.scaling is None else replace(self, scaling=self.scaling.of(client))

    def encode(self, rows: Any, where: Where = count_from_0) -> Any:
        """Raw rows as the model takes them: an array, a data frame, {column: values} or a list of {column: value}.

        Columns are found by their names, wherever they stand, and others are left out; rows without names have the
        columns of the training data in their order. `where` tells people which row a message is about.

        >>> encoding = Encoding((Column("age"), Column("height")), (2,), "float64",
        ...                     Scaling("unit", np.float64(0), np.array([100.0, 2.0])))
        >>> encoding.encode({"height": [1.0, 2.0], "name": ["ann", "bob"], "age": [50, 25]}).tolist()
        [[0.5, 0.5], [0.25, 1.0]]
        """
        return self.scale(self.unscaled(rows, where))

    def unscaled(self, rows: Any, where: Where = count_from_0) -> Any:
        """Raw rows as arrays of numbers, of which some may still be scaled."""
        if self.shape is None:
            return rows
        inputs = self._as_inputs(self._as_array(rows, where))
        check_numbers("the rows", inputs, where)
        return inputs.astype(self.dtype) if self.dtype is not None and np.dtype(self.dtype).kind == "f" else inputs

    def scale(self, inputs: Any) -> Any:
        return inputs if self.scaling is None or self.shape is None else self.scaling.apply(inputs)

    def decode(self, numbers: Any) -> np.ndarray:
        """The labels of these numbers of classes."""
        return np.asarray(numbers) if self.classes is None else np.array(self.classes)[np.asarray(numbers)]

    def describe(self) -> str:
        """What rows this takes, in half a sentence."""
        if self.shape is None:
            return "inputs as in the training data"
        if self.columns is not None:
            return f"the columns {listed(self.column_names or (), most=10)}"
        return f"rows of shape {self.shape}"

    def to_json(self) -> dict[str, Any]:
        """Plain values, from which `from_json` makes the same encoding."""
        return {
            "version": VERSION,
            "columns": None if self.columns is None else [column._asdict() for column in self.columns],
            "shape": None if self.shape is None else list(self.shape),
            "dtype": self.dtype,
            "scaling": self.scaling and {
                "how": self.scaling.how, "shift": self.scaling.shift.tolist(), "size": self.scaling.size.tolist(),
                "clients": {name: {"shift": shift.tolist(), "size": size.tolist()}
                            for name, (shift, size) in self.scaling.clients.items()}},
            "classes": None if self.classes is None else list(self.classes),
            "target": self.target,
        }

    @classmethod
    def from_json(cls, table: Mapping[str, Any]) -> Encoding:
        """The encoding that `to_json` gave this table."""
        version = table.get("version")
        if version != VERSION:
            raise InputError(f"the encoding is of version {shown(version)}, and this cantons knows version {VERSION}; "
                             "update cantons.")
        try:
            columns, shape, classes, scaling = (table.get(key) for key in ("columns", "shape", "classes", "scaling"))
            encoding = cls(
                columns=None if columns is None else tuple(map(_column, columns)),
                shape=None if shape is None else tuple(map(int, shape)),
                dtype=table.get("dtype"),
                scaling=None if scaling is None else Scaling(scaling["how"], *_affine(scaling), {
                    name: _affine(own) for name, own in scaling.get("clients", {}).items()}),
                classes=None if classes is None else tuple(classes),
                target=table.get("target"))
            encoding._check()
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise InputError(f"the encoding is damaged: {error}.") from error
        return encoding

    def _check(self) -> None:
        """Raise ValueError for values that no encoding has."""
        np.dtype(self.dtype)
        if self.scaling is not None:
            for shift, size in ((self.scaling.shift, self.scaling.size), *self.scaling.clients.values()):
                for numbers in (shift, size):
                    if numbers.shape and numbers.shape != self.shape:
                        raise ValueError(f"scaling has shape {numbers.shape}, and an input {self.shape}")
                if not (size != 0).all():
                    raise ValueError("scaling divides by 0")
        for column in self.columns or ():
            column.check()
        for label in self.classes or ():
            if not isinstance(label, Label):
                raise ValueError(f"the label {shown(label)} is neither a word nor a whole number")
        if self.target is not None and not isinstance(self.target, str):
            raise ValueError(f"the column {shown(self.target)} is no word")

    def _as_array(self, rows: Any, where: Where) -> np.ndarray:
        """The columns of the training data side by side, or an array as it was given."""
        if self.columns is not None:
            if isinstance(rows, Sequence) and rows and all(isinstance(row, Mapping) for row in rows):
                rows = {name: [row[name] for row in rows] for name in rows[0] if all(name in row for row in rows)}
            names = _names_in(rows)
            if not all(column.plain for column in self.columns):
                return self._as_features(rows, names, where)
            if names is not None:
                return np.stack([self._read(rows, names, column, where) for column in self.columns], axis=1)
        if isinstance(rows, Mapping):
            raise InputError(f"the rows have names, and this model was trained on {self.describe()}; give an array.")
        return _as_numbers(rows, "the rows", where)

    def _read(self, rows: Any, names: Sequence[str], column: Column, where: Where) -> np.ndarray:
        """One column by its name, as numbers."""
        _require(column, names, self)
        values = _as_numbers(rows[column.name], f"the column {column.name!r}", where)
        if values.ndim != 1:
            raise InputError(f"the column {column.name!r} has shape {values.shape}; give one number per row.")
        return values

    def _as_features(self, rows: Any, names: Sequence[str] | None, where: Where) -> np.ndarray:
        """The features of all columns side by side; values that no training row had are counted."""
        assert self.columns is not None
        if names is None:
            table = as_array("the rows", rows)
            if table.ndim != 2 or table.shape[1] != len(self.columns):
                raise InputError(f"the rows have shape {table.shape}, and this model was trained on {self.describe()}; "
                                 f"give {len(self.columns)} values in a row, in this order.")
            rows = {column.name: table[:, place] for place, column in enumerate(self.columns)}
            names = list(rows)
        found, unseen = [], {}
        for column in self.columns:
            _require(column, names, self)
            which = f"the column {column.name!r}"
            values = (read_numbers if column.values is None else read_words)(rows[column.name], which)
            if values.ndim != 1:
                raise InputError(f"{which} has shape {values.shape}; give one value per row.")
            missing = is_missing(values)
            if missing.any() and column.fill is None:
                raise InputError(f"{which} has no value in {where(int(missing.argmax()))}, and the training data "
                                 "had one in every row; fill one in.")
            unseen[column.name] = int(column.unseen(values).sum())
            found.append(column.encode(values))
        said = [f"{name} ({count} row{'' if count == 1 else 's'})" for name, count in unseen.items() if count]
        if said:
            warnings.warn(f"some rows have a value that no training row had, which counts as none of them: "
                          f"{', '.join(said)}.", Notice, stacklevel=4)
        return np.concatenate(found, axis=1)

    def _as_inputs(self, rows: np.ndarray) -> np.ndarray:
        """In the shape of inputs; pictures may come as flat rows."""
        assert self.shape is not None
        if rows.ndim == 0:
            raise InputError(f"the rows are the single value {rows}; give an array with one row per example.")
        width, wanted = prod(rows.shape[1:]), prod(self.shape)
        if width == wanted and len(rows):
            return rows.reshape(len(rows), *self.shape)
        if not len(rows):
            raise InputError("there are no rows; give at least one.")
        hint = (f"this may be a single row: give rows[None], of shape {(1, *rows.shape)}" if prod(rows.shape) == wanted
                else f"give {wanted} number{'s' if wanted > 1 else ''} in a row")
        raise InputError(f"the rows have shape {rows.shape}, and this model was trained on {self.describe()}; {hint}.")


def _column(table: Mapping[str, Any]) -> Column:
    values = table.get("values")
    return Column(**{**table, "values": None if values is None else tuple(values)})


def _affine(table: Mapping[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    return np.asarray(table["shift"], np.float64), np.asarray(table["size"], np.float64)


def as_labels(kinds: np.ndarray) -> tuple[Label, ...]:
    """The labels of a file as plain values: whole numbers and truth values stay, all others are words."""
    return tuple(kinds.tolist() if kinds.dtype.kind in "biu" else map(str, kinds.tolist()))


def _require(column: Column, names: Sequence[str], encoding: Encoding) -> None:
    if column.name not in names:
        raise InputError(f"the rows have no column {column.name!r}; this model was trained on {encoding.describe()}, "
                         f"and the rows have {listed(names, most=10) or 'none'}.")


def _names_in(rows: Any) -> list[str] | None:
    """The names of the columns: of a dict, of a pandas or polars frame, or of an Arrow table."""
    if isinstance(rows, Mapping):
        return list(rows)
    names = next((getattr(rows, name) for name in ("column_names", "columns") if hasattr(rows, name)), None)
    return None if names is None or not all(isinstance(name, str) for name in names) else list(names)


def _as_numbers(values: Any, which: str, where: Where) -> np.ndarray:
    array = as_array(which, values)
    if array.dtype == object or array.dtype.kind == "U":  # numbers beside other things, or in words
        try:
            return array.astype(np.float64)
        except (TypeError, ValueError) as error:
            place, value = next((place, value) for place, value in enumerate(array.flat) if not _is_number(value))
            row = place // max(1, prod(array.shape[1:]))
            said = str(value) if isinstance(value, np.str_) else value
            raise InputError(f"{which} {_hold(which)} {shown(said)} in {where(row)}; give numbers.") from error
    if not is_real(array.dtype):
        raise InputError(f"{which} {_hold(which)} values of type {array.dtype}; give numbers.")
    return array


def _hold(which: str) -> str:
    return "hold" if which == "the rows" else "holds"


def _is_number(value: Any) -> bool:
    try:
        np.asarray(value).astype(np.float64)
    except (TypeError, ValueError):
        return False
    return True
