"""Run folders as others left them: every file is read and checked here, and named in whatever is wrong with it."""

from __future__ import annotations

import csv
import functools
import io
import json
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple, ParamSpec, TypeVar

import numpy as np

from cantons.data.read.files import decoding, read_text, reading
from cantons.errors import InputError

P = ParamSpec("P")
T = TypeVar("T")
WORDS = ("client", "group")  # columns of tables of clients that are names, though they may look like numbers
DEEPEST = 50  # tables in tables; more is an accident, or meant to exhaust whoever walks through them


class Kind(NamedTuple):
    """What may stand under a key."""

    words: str
    holds: Callable[[Any], bool]


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


TEXT = Kind("a word", lambda value: isinstance(value, str))
COUNT = Kind("a whole number from 0 on", lambda value: _number(value) and isinstance(value, int) and 0 <= value < 2**63)
TABLE = Kind("a table", lambda value: isinstance(value, dict))
MAYBE_TABLE = Kind("a table or null", lambda value: value is None or isinstance(value, dict))
MAYBE_FRACTION = Kind("a number between 0 and 1, or null", lambda value: value is None or (
    _number(value) and 0 < value < 1))
CHECKSUM = Kind("a checksum", lambda value: isinstance(value, str) or COUNT.holds(value))
PRECISION = Kind('"float32" or "float64"', lambda value: value in ("float32", "float64"))
LIST = Kind("a list of words", lambda value: isinstance(value, list) and all(isinstance(each, str) for each in value))
LIARS = Kind("null, or a table with an attack and the names of clients", lambda value: value is None or (
    isinstance(value, dict) and isinstance(value.get("attack"), dict) and TEXT.holds(value["attack"].get("name"))
    and LIST.holds(value.get("clients"))))

# What study.json must have to be shown, and what more to be run again; keys are dotted.
SHOWN = {"name": TEXT, "seed": COUNT, "rounds": COUNT, "algorithm": TABLE, "algorithm.name": TEXT, "data": TABLE,
         "data.name": TEXT, "data.population": COUNT, "data.examples": COUNT, "data.checksum": CHECKSUM}
LOADED = SHOWN | {"precision": PRECISION, "validation": MAYBE_FRACTION, "data.made_by": MAYBE_TABLE,
                  "problem": MAYBE_TABLE, "clock": TABLE, "clock.name": TEXT}
WHERE_THERE = {"data.notes": LIST, "byzantine": LIARS, "stages": TABLE}  # what it may have
PLACE = {"python": TEXT, "system": TEXT, "machine": TEXT, "versions": TABLE, "devices": LIST}


def read_study(folder: Path, needs: Mapping[str, Kind]) -> dict[str, Any]:
    """The study of a run, which holds at least what it `needs`."""
    file = folder / "study.json"
    if not file.exists():
        raise InputError(f"{folder} is not a run folder: it has no {file.name}.")
    study = read_table(file)
    _check(study, needs, file)
    _check(study, WHERE_THERE, file, optional=True)
    return study


def rebuilding(load: Callable[P, T]) -> Callable[P, T]:
    """Name study.json in whatever keeps a run from being made again: what is wrong in it may show anywhere.

    Parts that the caller gives are the caller's own: what they raise is left as it is.
    """
    @functools.wraps(load)
    def explain(*args: P.args, **given: P.kwargs) -> T:
        folder = Path(str(args[0] if args else given["folder"]))
        file = folder / "study.json"
        own = any(given.get(part) is not None for part in ("problem", "algorithm", "data"))
        try:
            with nullcontext() if own else decoding(file, "from which the run is made again"):
                return load(*args, **given)
        except InputError as error:
            if str(folder) in str(error):
                raise
            raise InputError(f"{file}: {error}") from error

    return explain


def read_environment(folder: Path) -> dict[str, Any]:
    """Where a run was made."""
    place = read_table(folder / "environment.json")
    _check(place, PLACE, folder / "environment.json")
    return place


def read_summary(folder: Path) -> dict[str, Any]:
    """How a run ended."""
    summary = read_table(folder / "summary.json")
    _check(summary, {"rounds": COUNT}, folder / "summary.json")
    _check(summary, {"advice": LIST}, folder / "summary.json", optional=True)
    return summary


def read_evaluations(folder: Path) -> list[dict[str, Any]]:
    """The evaluations of a run so far; a last line that is cut short was being written when its writer was killed."""
    file = folder / "metrics.jsonl"
    if not file.exists():
        return []
    *whole, _ = read_text(file).split("\n")
    rows: list[dict[str, Any]] = []
    for number, line in enumerate(whole, 1):
        where = f"line {number} of {file}"
        row = _table(line, file, where)
        round = row.get("round")
        if not COUNT.holds(round) or (rows and round <= rows[-1]["round"]):
            raise InputError(f"{where} has the round {json.dumps(round)}, where a whole number above the one before "
                             "belongs; go on with the run by --resume (in Python: resume=True), or remove the line.")
        rows.append(row)
    return rows


def read_clients(folder: Path) -> dict[str, list[str]]:
    """The columns of clients.csv: the latest evaluation of every client; none if there was no evaluation."""
    return _read_columns(folder / "clients.csv")


def read_new_clients(folder: Path) -> dict[str, list[str]]:
    """The columns of new_clients.csv: the same of every client who was held out of training; none if there are none."""
    return _read_columns(folder / "new_clients.csv")


def _read_columns(file: Path) -> dict[str, list[str]]:
    if not file.exists():
        return {}
    with decoding(file, "which should be CSV"):
        lines = csv.reader(io.StringIO(read_text(file), newline=""), strict=True)
        names, *rows = [row for row in lines if row] or [[]]
    if len(set(names)) < len(names) or "client" not in names:
        raise InputError(f"the header of {file} is {', '.join(names)[:200]!r}; it names every column once, and one of "
                         "them client.")
    for number, row in enumerate(rows):
        if len(row) != len(names):
            raise InputError(f"row {number} (from 0) of {file} has {len(row)} values for {len(names)} columns.")
    return {name: list(values) for name, values in zip(names, zip(*rows, strict=True), strict=True)} if rows else {}


def as_columns(table: Mapping[str, list[str]]) -> dict[str, Any]:
    """Columns of a table as they were before they were written: arrays of numbers, or words.

    >>> as_columns({"client": ["7", "8"], "test.personal.loss": ["0.5", "nan"]})
    {'client': ['7', '8'], 'test.personal.loss': array([0.5, nan], dtype=float32)}
    """
    return {name: values if name in WORDS else _as_written(values) for name, values in table.items()}


def _as_written(values: list[str]) -> Any:
    """In the first type of numbers that is written like this, so that no bit is lost."""
    for kind in (np.int64, np.float32, np.float64):
        try:
            found = np.array(values, kind)
        except (ValueError, OverflowError):
            continue
        if list(map(str, found)) == values:
            return found
    return values


def read_table(file: Path) -> dict[str, Any]:
    """The table in a JSON file."""
    return _table(read_text(file), file, str(file))


def as_number(value: Any, where: str) -> float:
    """A number, or NaN for none; `where` names the file and the place."""
    try:
        if value is None or _number(value) or isinstance(value, bool | str):
            return float("nan") if value is None else float(value)
    except (ValueError, OverflowError):
        pass
    raise InputError(f"{where} is {str(value)[:40]!r}, where a number belongs.")


def _table(text: str, file: Path, where: str) -> dict[str, Any]:
    with reading(file), decoding(file, f"{where} should be JSON" if where != str(file) else "which should be JSON"):
        value = json.loads(text)
        json.dumps(value, ensure_ascii=False).encode()  # half a character cannot be shown to anybody
    if not isinstance(value, dict):
        raise InputError(f"{where} holds {str(value)[:40]!r}, where a table {{...}} belongs.")
    if _too_deep(value, DEEPEST):
        raise InputError(f"{where} nests its tables more than {DEEPEST} deep.")
    return value


def _too_deep(value: Any, levels: int) -> bool:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return levels == 0 or any(_too_deep(each, levels - 1) for each in inner)


def _check(table: Mapping[str, Any], needs: Mapping[str, Kind], file: Path, optional: bool = False) -> None:
    """Every key is there, or `optional`, and holds what it should; a table is checked before what is in it."""
    for key, kind in needs.items():
        within, _, last = key.rpartition(".")
        holder = table[within] if within else table
        if last not in holder and optional:
            continue
        if last not in holder:
            raise InputError(f"{file.parent} is damaged: its {file.name} lacks {key}; run its study again.")
        if not kind.holds(holder[last]):
            raise InputError(f"{file}: {key} is {json.dumps(holder[last])[:60]}, where {kind.words} belongs.")
