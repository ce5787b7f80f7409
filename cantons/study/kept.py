"""What a run folder keeps of its data, so that a model may leave without them: the encoding, and the clients' names.

It is a file beside the study: the study says what is computed, and the folders of older versions have no such file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from cantons.data import Federation
from cantons.data.encoding import Encoding
from cantons.errors import InputError
from cantons.files import write_text
from cantons.study.reading import LIST, MAYBE_TABLE, read_table

NAME = "encoding.json"


class Kept(NamedTuple):
    """What is known of the data without the data."""

    encoding: Encoding | None  # None: how raw rows become inputs is not known
    names: tuple[str, ...] | None  # of the clients; None: they are not known
    held_out: Mapping[str, Any]  # what was not trained on, in words
    folder: Path | None = None
    new_names: tuple[str, ...] = ()  # of the clients that were held out of training


def describe_data(data: Federation, validation: float | None = None) -> dict[str, Any]:
    """The encoding, the clients, and what was held out of training: plain values."""
    return {
        "encoding": None if data.encoding is None else data.encoding.to_json(),
        "clients": list(data.clients.names),
        "new_clients": [] if data.new is None else list(data.new.names),
        "held_out": _held_out(data.test_set, validation),
    }


def write_kept(folder: Path, data: Federation, study: Mapping[str, Any]) -> None:
    text = json.dumps(describe_data(data, study.get("validation")), indent=2)
    write_text(folder / NAME, text + "\n")


def read_kept(folder: Path, study: Mapping[str, Any]) -> Kept:
    """What a folder has kept; of one that was written before it kept anything, what its study says."""
    file = folder / NAME
    if not file.exists():
        return Kept(_from_study(study), None, _held_out(study["data"].get("test_set"), study["validation"]))
    table = read_table(file)
    encoding, names, held_out = (table.get(key) for key in ("encoding", "clients", "held_out"))
    new: list[str] = table.get("new_clients", [])
    if names is None or not (LIST.holds(names) and LIST.holds(new) and MAYBE_TABLE.holds(encoding)
                             and MAYBE_TABLE.holds(held_out)):
        raise InputError(f"{file} is damaged: clients and new_clients should be lists of words, encoding and held_out "
                         "tables.")
    try:
        return Kept(None if encoding is None else Encoding.from_json(encoding), tuple(names), held_out or {}, folder,
                    tuple(new))
    except InputError as error:
        raise InputError(f"{file}: {error}") from error


def keep(data: Federation, study: Mapping[str, Any]) -> Kept:
    """The same, of data that are there."""
    return Kept(data.encoding, data.clients.names, _held_out(data.test_set, study.get("validation")))


def _held_out(test: str | None, validation: float | None) -> dict[str, Any]:
    return {"test": test, "validation": validation}


def _from_study(study: Mapping[str, Any]) -> Encoding | None:
    """The shape and the number of classes; None where rows were scaled: older folders do not say by how much."""
    problem, made_by = study.get("problem") or {}, study["data"]["made_by"] or {}
    if made_by.get("scale", "none") != "none":
        return None
    shape, classes = problem.get("input_shape"), problem.get("classes")
    return Encoding(shape=None if shape is None else tuple(shape),
                    classes=tuple(range(classes)) if isinstance(classes, int) else None)
