"""The fingerprint says what a result is a result of. Folders and checkpoints carry it, and whoever uses them compares.

    study     every option that decides what is computed
    data      how the data was made, its size, and a checksum of its bytes
    source    a checksum of the text of every part that is not ours
    engine    where it ran: the last digits depend on it
    versions  of cantons and of the packages it computes with

Another study, other data or other source make another result: such a run is refused. Another engine or other versions
change the last digits: the user is told, and must agree before a run goes on.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from cantons.errors import InputError
from cantons.study.plain import flat, plain

# What may differ between two runs of one study: how long it runs, and what it writes on its way.
FREE = ("rounds", "patience", "evaluate_every", "checkpoint_every", "keep", "name")
RESULT = ("study", "data", "source")  # sections that make another result
SAID = 3  # differences that a refusal names
FOLLOWING = ("data.checksum", "data.examples", "data.population")  # of data that were made otherwise
DIGITS = ("engine", "versions")  # sections that change the last digits


class Fingerprint(NamedTuple):
    """Five flat tables."""

    study: Mapping[str, Any]
    data: Mapping[str, Any]
    source: Mapping[str, Any]
    engine: Mapping[str, Any]
    versions: Mapping[str, Any]


def fingerprint(study: Mapping[str, Any], environment: Mapping[str, Any], together: int = 1) -> Fingerprint:
    """Of a study with every default filled in, run here or as a run folder tells; `together` runs are one program."""
    tables = plain(study)
    rest = {key: value for key, value in tables.items() if key not in (*FREE, "data", "source", "engine")}
    data = flat({"data": tables.get("data")})
    data.pop("data.made_by.path", None)  # a file that was moved holds the same bytes
    data.pop("data.notes", None)  # words about it
    return Fingerprint(study=flat(rest), data=data, source=flat(_table(tables.get("source"))),
                       engine=_engine(_table(tables.get("engine")), plain(environment), together),
                       versions=dict(_table(environment.get("versions"))))


def _table(value: Any) -> Mapping[str, Any]:
    """What a run folder tells, if that is a table at all."""
    return value if isinstance(value, Mapping) else {}


def _engine(options: Mapping[str, Any], environment: Mapping[str, Any], together: int) -> dict[str, Any]:
    """An engine's options, and the devices it uses: all there are if it may choose them and does not, else one."""
    if not environment:  # it is lost
        return {f"engine.{key}": value for key, value in flat(options).items() if key != "devices"}
    kinds = environment.get("devices") or []
    found = {"platform": environment.get("platform"), "device": kinds[0] if kinds else None,
             "devices": options.get("devices", 1) or len(kinds), "runs_together": together}
    return {f"engine.{key}": value for key, value in {**flat(options), **found}.items()}


def differences(old: Fingerprint, new: Fingerprint, sections: tuple[str, ...] = (*RESULT, *DIGITS),
                here: str = "here") -> list[str]:
    """What differs, in half-sentences that begin with "its"; none if nothing does.

    >>> one = Fingerprint({"seed": 0}, {}, {"votes": "3f"}, {}, {"jax": "0.9"})
    >>> differences(one, one._replace(study={"seed": 1}, source={"votes": "a0"}))
    ['its seed is 0, here it is 1', 'its source of votes is another text than here']
    """
    found = []
    for section in sections:
        before, now = getattr(old, section), getattr(new, section)
        for key in sorted(before.keys() | now.keys(), key=_reasons_first):
            if before.get(key) != now.get(key) and not _cannot_matter(section, key, before):
                found.append(_words(section, key, before.get(key), now.get(key), here))
    return found


def _reasons_first(key: str) -> tuple[bool, str, bool, str]:
    """What follows from other keys says least; of the options of a part, its name says most.

    >>> sorted(["data.checksum", "data.made_by.clients", "data.made_by.name"], key=_reasons_first)
    ['data.made_by.name', 'data.made_by.clients', 'data.checksum']
    """
    table, _, option = key.rpartition(".")
    return key in FOLLOWING, table, option != "name", option


def _cannot_matter(section: str, key: str, before: Mapping[str, Any]) -> bool:
    """A package that was not there when the run began, what nobody wrote down, a checksum that is taken no longer; and
    an option of data that was not there yet, because the checksum says whether they are the same."""
    return ((key.startswith("data.made_by.") and key not in before and "data.made_by.name" in before)
            or (section == "versions" and before.get(key) is None)
            or ((section == "engine" or key == "clock_checksum") and key not in before)
            or (key == "data.checksum" and isinstance(before.get(key), int)))


def _words(section: str, key: str, before: Any, now: Any, here: str) -> str:
    if section == "source":
        return (f"its source of {key} is another text than {here}" if before and now else
                f"it was made with the source of {key}, which is not used {here}" if before else
                f"it was made without the source of {key}, which is used {here}")
    return f"its {key} is {json.dumps(before)}, {here} it is {json.dumps(now)}"


def check_same(what: str, old: Fingerprint, new: Fingerprint, accept_changes: bool) -> list[str]:
    """Refuse `what` if it is of another run; what changes the last digits must be accepted, and is given back."""
    others = differences(old, new, RESULT)
    if others:
        raise InputError(f"{what} holds another study: {', '.join(others[:SAID])}; go on with the study it began with, "
                         "or choose another folder.")
    changes = differences(old, new, DIGITS)
    if changes and not accept_changes:
        raise InputError(f"{what} was begun elsewhere: {', '.join(changes)}; the rest would not have the same last "
                         "digits. Go on all the same with --accept-changes (in Python: accept_changes=True), or "
                         "choose another folder.")
    return changes

