"""Comma-separated files: a header with the columns' names, then one line per example."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from csv import Error, reader
from pathlib import Path
from typing import Any

import numpy as np

from cantons.data.federation import Federation
from cantons.data.provenance import recorded
from cantons.data.read.columns import Columns, as_table
from cantons.data.read.files import reading
from cantons.data.split.divide import Division, from_table
from cantons.data.table import EXACT, Table
from cantons.errors import InputError
from cantons.memory import require
from cantons.options import Flat

LARGE = re.compile(r"\s*[-+]?\d+\s*")  # whole, and read as a float because it does not fit into an integer


@recorded
def csv(
    path: str | Path,
    *,
    targets: str,
    inputs: str | list[str] | None = None,
    client: str | None = None,
    separator: str = ",",
    regression: bool = False,
    division: Flat[Division] = Division(test=0.2),
) -> Federation:
    """A CSV file with a header, divided by its column `client`, or into `clients` by another partition.

    path: the file.
    targets: the column to predict.
    inputs: the columns of numbers to learn from; all but `targets` and `client` if not given.
    client: the column that says whose each row is.
    separator: the character between two columns.
    regression: targets are numbers; otherwise they are labels.
    """
    table = read_csv(path, inputs=inputs, targets=targets, client=client, separator=separator, regression=regression)
    return from_table(table, division, name=Path(path).stem)


def read_csv(path: str | Path, *, targets: str, inputs: str | list[str] | None = None, client: str | None = None,
             time: str | None = None, separator: str = ",", regression: bool = False) -> Table:
    """Read a CSV file; times may be numbers or dates."""
    with reading(path), open(path, encoding="utf-8-sig", newline="") as lines:
        columns = cells(lines, path, separator)
        return as_table(columns, inputs=inputs, targets=targets, client=client, time=time, regression=regression)


def cells(lines: Iterable[str], path: str | Path, separator: str, header: list[str] | None = None) -> Columns:
    """The columns of separated values; their names are the first line if not given."""
    parsed = _parse(lines, separator)
    rows = []
    try:
        names = next(parsed, []) if header is None else header
        for row in filter(None, parsed):
            if len(row) != len(names):
                raise InputError(f"line {parsed.line_num} of {path} has {len(row)} values for {len(names)} columns "
                                 f"({', '.join(names)}); give every line one value for each.")
            rows.append(row)
    except Error as error:
        raise InputError(f"cannot read line {parsed.line_num} of {path}: {error}.") from error
    if len(set(names)) < len(names):
        raise InputError(f"the header of {path} is {', '.join(names)}; give every column a name of its own.")
    if not rows:
        raise InputError(f"{path} holds no rows; give a file with at least one example.")
    found = dict(zip(names, zip(*rows, strict=True), strict=True))
    return Columns(path, names, lambda name: _values(found[name], f"column {name!r} in {path}"), text=True)


def header_of(lines: Iterable[str], path: str | Path, separator: str) -> list[str]:
    """The first line of separated values."""
    try:
        return next(_parse(lines, separator), [])
    except Error as error:
        raise InputError(f"cannot read the first line of {path}: {error}.") from error


def _parse(lines: Iterable[str], separator: str) -> Any:
    if len(separator) != 1 or separator in '\r\n"':
        raise InputError(f"separator is {separator!r}; give a single character.")
    return reader(lines, delimiter=separator, skipinitialspace=True, strict=True)


def _values(cells: Sequence[str], which: str) -> np.ndarray:
    """Whole numbers if all cells are, else numbers, else words; so are whole numbers that no float holds exactly."""
    require(4 * len(cells) * max(map(len, cells)), which)
    words = np.array(cells)
    for kind in (np.int64, np.float64):
        try:
            values = words.astype(kind)
        except (ValueError, OverflowError):
            continue
        large = np.flatnonzero(np.abs(values) > EXACT).tolist() if kind is np.float64 else []
        if not any(LARGE.fullmatch(cells[row]) for row in large):
            return values
    return words
