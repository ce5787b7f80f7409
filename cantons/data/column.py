"""One column of a table, and how its values become numbers: as they are, filled where they are missing, or one-hot."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from cantons.data.checks import as_array, is_real
from cantons.errors import InputError, shown


class Column(NamedTuple):
    """One column of the source, in an order in which each has its features beside each other.

    Of numbers, there is one feature; of text, one for each of its `values`, which is 1 where a row has that value and
    0 elsewhere, so that a value which is none of them has zeros only.
    """

    name: str
    values: tuple[str, ...] | None = None  # of text: those that training rows have; None: it holds numbers
    fill: float | None = None  # what a missing number becomes, and 0 for text; None: no value may be missing
    indicator: bool = False  # a feature more is 1 where the value is missing

    @property
    def plain(self) -> bool:
        """Is its one feature the number itself?"""
        return self.values is None and self.fill is None and not self.indicator

    @property
    def features(self) -> list[str]:
        """What each feature is called."""
        own = [self.name] if self.values is None else [f"{self.name} = {value}" for value in self.values]
        return [*own, f"{self.name} is missing"] if self.indicator else own

    @property
    def quantities(self) -> list[bool]:
        """Which features are numbers of the source, and not marks."""
        return [self.values is None] + [False] * (len(self.features) - 1) if self.features else []

    def encode(self, values: np.ndarray) -> np.ndarray:
        """The features of these values, as `read_numbers` or `read_words` gave them: [rows, features]."""
        missing = is_missing(values)
        if self.values is None:
            own = np.where(missing, np.nan if self.fill is None else self.fill, values)[:, None]
        else:
            own = (values[:, None] == np.array(self.values, dtype=np.str_)[None]) if self.values else np.zeros(
                (len(values), 0))
        return np.concatenate([own, missing[:, None]], axis=1, dtype=np.float64) if self.indicator else own.astype(
            np.float64)

    def unseen(self, values: np.ndarray) -> np.ndarray:
        """Which values are text that no training row has: bool, one for each row."""
        if self.values is None:
            return np.zeros(len(values), bool)
        return ~np.isin(values, np.array(self.values, dtype=np.str_)) & ~is_missing(values)

    def check(self) -> None:
        """Raise ValueError for what no column is."""
        if not isinstance(self.name, str) or not all(isinstance(value, str) for value in self.values or ()):
            raise ValueError(f"the column {shown(self.name)} or one of its values is no word")
        if self.fill is not None and not np.isfinite(self.fill):
            raise ValueError(f"the column {shown(self.name)} fills in {self.fill}")


def is_missing(values: np.ndarray) -> np.ndarray:
    """Which values are not there: NaN among numbers, "" among words."""
    return np.isnan(values) if values.dtype.kind == "f" else values == "" if values.dtype.kind == "U" else np.zeros(
        len(values), bool)


def read_numbers(values: Any, which: str) -> np.ndarray:
    """Values of any kind as numbers; NaN for None, and for what a file has where it has no number."""
    array = as_array(which, values)
    if array.dtype.kind in "OUT":  # as pandas has numbers beside other things, and files have digits
        try:
            array = np.array([np.nan if _lacks(value) else float(value) for value in array.tolist()])
        except (TypeError, ValueError) as error:
            raise InputError(f"{which} cannot be made numbers: {error}.") from error
    if not is_real(array.dtype):
        raise InputError(f"{which} {'hold' if which == 'the rows' else 'holds'} values of type {array.dtype}; give "
                         "numbers.")
    return array


def read_words(values: Any, which: str) -> np.ndarray:
    """Values of any kind as text, "" for those that are not there; a whole number is its digits, as a float too."""
    array = as_array(which, values)
    if array.dtype.kind == "U":
        return array
    if array.ndim != 1:
        raise InputError(f"{which} has shape {array.shape}; give one value per row.")
    return np.array([_word(value) for value in array.tolist()], dtype=np.str_)


MISSING = ("", "na", "n/a", "nan", "null")  # how files say, in any case, that they have no number


def _lacks(value: Any) -> bool:
    """Is it no number because there is none? pandas has two kinds of nothing, which are no truth values."""
    return (value is None or type(value).__name__ in ("NAType", "NaTType")
            or (isinstance(value, str) and value.strip().lower() in MISSING))


def _word(value: Any) -> str:
    if value is None or type(value).__name__ in ("NAType", "NaTType") or value != value:
        return ""
    return str(int(value)) if isinstance(value, float) and value == int(value) else str(value)
