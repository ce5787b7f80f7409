"""Comma-separated files: a header with the columns' names, then one line per example."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from csv import Error, reader
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cantons.data.column import MISSING
from cantons.data.federation import Federation
from cantons.data.provenance import recorded
from cantons.data.read.columns import Columns, as_table
from cantons.data.read.files import Paths, find_files, is_pattern, reading
from cantons.data.split.divide import Division, from_table
from cantons.data.table import EXACT, Missing, Table
from cantons.errors import InputError
from cantons.memory import require
from cantons.options import Flat

LARGE = re.compile(r"\s*[-+]?\d+\s*")  # whole, and read as a float because it does not fit into an integer


@recorded
def csv(
    path: str | Path | list[str | Path],
    *,
    targets: str,
    inputs: str | list[str] | None = None,
    ignore: list[str] | None = None,
    client: str | None = None,
    separator: str = ",",
    regression: bool = False,
    categorical: list[str] | None = None,
    missing: Missing = "refuse",
    division: Flat[Division] = Division(test=0.2),
) -> Federation:
    """CSV files with a header, divided by their column `client`, by file, or into `clients` by another partition.

    path: a file; or one file for each client, as a list, a folder or a pattern such as "sites/*.csv".
    targets: the column to predict.
    inputs: the columns to learn from; all that are not named elsewhere if not given.
    ignore: columns to leave alone.
    client: the column that says whose each row is; of several files, each is a client named after it if not given.
    separator: the character between two columns.
    regression: targets are numbers; otherwise they are labels.
    categorical: columns of numbers to encode one-hot, as columns of text always are.
    missing: of an input without a value, "refuse" the file, or fill in the "mean" of all training rows and mark such
        rows in a feature of their own.
    """
    table = read_csv(path, inputs=inputs, targets=targets, client=client, ignore=ignore, separator=separator,
                     regression=regression, categorical=categorical or (), missing=missing)
    if client is None and division.partition != "natural":  # a partition makes its own clients of all rows together
        table = table._replace(clients=None)
    return from_table(table, division, name=_name(path), missing=missing)


def read_csv(path: Paths, *, targets: str, inputs: str | list[str] | None = None, client: str | None = None,
             time: str | None = None, ignore: Sequence[str] | None = None, separator: str = ",",
             regression: bool = False, categorical: Sequence[str] | None = None,
             missing: Missing = "refuse") -> Table:
    """Read a CSV file, or several with the same columns, each a client's; times may be numbers or dates.

    With `categorical`, columns to be encoded one-hot, text and missing values are read too: the table's `raw` columns.
    """
    files = find_files(path, ".csv")
    several = not _is_one(path)
    parts = []
    for file in files:
        with reading(file), open(file, encoding="utf-8-sig", newline="") as lines:
            parts.append(_parse_file(lines, file, separator))
    columns = _join(parts, _folder(files) if several else files[0])
    with nullcontext() if several else reading(files[0]):
        table = as_table(columns, inputs=inputs, targets=targets, client=client, time=time, ignore=ignore or (),
                         regression=regression, categorical=categorical, missing=missing)
    if client is not None or not several:
        return table
    return table._replace(clients=np.repeat(_client_names(files), [len(part.lines) for part in parts]))


class _Part(NamedTuple):
    """One file: its cells by column, and the line that each row begins in."""

    path: str | Path
    cells: dict[str, tuple[str, ...]]
    lines: list[int]


def cells(lines: Iterable[str], path: str | Path, separator: str, header: list[str] | None = None) -> Columns:
    """The columns of separated values; their names are the first line if not given."""
    return _join([_parse_file(lines, path, separator, header)], path)


def _parse_file(lines: Iterable[str], path: str | Path, separator: str, header: list[str] | None = None) -> _Part:
    parsed = _parse(lines, separator)
    rows, starts = [], []
    try:
        names = next(parsed, []) if header is None else header
        begins = parsed.line_num + 1
        for row in parsed:
            if row and len(row) != len(names):
                raise InputError(f"line {begins} of {path} has {len(row)} values for {len(names)} columns "
                                 f"({', '.join(names)}); give every line one value for each.")
            if row:
                rows.append(row)
                starts.append(begins)
            begins = parsed.line_num + 1
    except Error as error:
        raise InputError(f"cannot read line {parsed.line_num} of {path}: {error}.") from error
    if len(set(names)) < len(names):
        raise InputError(f"the header of {path} is {', '.join(names)}; give every column a name of its own.")
    if not rows:
        raise InputError(f"{path} holds no rows; give a file with at least one example.")
    return _Part(path, dict(zip(names, zip(*rows, strict=True), strict=True)), starts)


def _join(parts: Sequence[_Part], source: str | Path) -> Columns:
    """The columns of all files, the rows of one file after those of another."""
    ends = np.cumsum([len(part.lines) for part in parts])

    def read(name: str) -> np.ndarray:
        for part in parts:
            if name not in part.cells:
                there = next(other for other in parts if name in other.cells)
                raise InputError(f"{part.path} has no column {name!r}, which {there.path} has; give every file the "
                                 "same columns, or leave this one out by inputs or ignore.")
        return _values(tuple(chain.from_iterable(part.cells[name] for part in parts)), f"column {name!r} in {source}")

    def where(row: int) -> str:
        number = int(np.searchsorted(ends, row, "right"))
        part = parts[number]
        line = f"line {part.lines[row - (int(ends[number]) - len(part.lines))]}"
        return line if len(parts) == 1 else f"{line} of {part.path}"

    return Columns(source, list(dict.fromkeys(name for part in parts for name in part.cells)), read, text=True,
                   where=where)


def _is_one(path: Paths) -> bool:
    """Is it a file, rather than several, of which each may be a client's?"""
    return isinstance(path, str | Path) and not is_pattern(path) and not Path(path).is_dir()


def _folder(files: Sequence[Path]) -> Path:
    """The folder that all of them are in."""
    return Path(os.path.commonpath([file.absolute().parent for file in files]))


def _name(path: Paths) -> str:
    return Path(str(path)).stem if _is_one(path) else _folder(find_files(path, ".csv")).name


def _client_names(files: Sequence[Path]) -> list[str]:
    """Clients are called as their files are; where two files agree, the folders that they are in tell them apart."""
    stems = [file.stem for file in files]
    if len(set(stems)) == len(stems):
        return stems
    return [file.absolute().relative_to(_folder(files)).with_suffix("").as_posix() for file in files]


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
    """Whole numbers if all cells are, else numbers, NaN for a missing one, else words.

    Whole numbers that no float holds exactly are words too.
    """
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
    there = ~np.isin(np.strings.lower(np.strings.strip(words)), MISSING)
    if there.all() or not there.any():
        return words
    known = _values([cell for cell, own in zip(cells, there, strict=True) if own], which)
    if known.dtype.kind not in "if":
        return words
    values = np.full(len(cells), np.nan)
    values[there] = known
    return values
