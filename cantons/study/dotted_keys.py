"""Dotted keys such as `algorithm.tuner.step_size`: set in tables of tables, and as short as they can be told apart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from cantons.errors import InputError, shown, with_article
from cantons.protocol import Recipe
from cantons.study.part_tables import Place, places_in, study_places
from cantons.study.stage_tables import PARTS, STAGE, merged_part, stage_called


def outer_first(changes: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Changes in the order in which they are made, whatever order they came in: a part, its name, its other keys.

    A stage's keys come last: what they change may be what another key gives to the whole study.

    >>> [key for key, _ in outer_first({"stage.a.rounds": 1, "a.b.c": 2, "a.b.name": "x", "a.b": "y"})]
    ['a.b', 'a.b.name', 'a.b.c', 'stage.a.rounds']
    """
    def place(change: tuple[str, Any]) -> tuple[bool, int, bool]:
        *outer, last = change[0].split(".")
        return outer[:1] == [STAGE], len(outer), last != "name"

    return sorted(changes.items(), key=place)


def keys_below(outer: Iterable[str], keys: Iterable[str]) -> list[str]:
    """Those of the keys that belong to what one of the `outer` keys sets as a whole.

    >>> keys_below(["algorithm.tuner", "rounds"], ["algorithm.tuner.step_size", "algorithm.step_size"])
    ['algorithm.tuner.step_size']
    """
    tables = tuple(f"{key}." for key in outer)
    return [key for key in keys if key.startswith(tables)]


def set_keys(raw: dict[str, Any], changes: Mapping[str, Any], source: str, folder: Path | None = None) -> None:
    """Set dotted keys of a study as it is written."""
    for key, value in outer_first(changes):
        _set_key(raw, key, value.table() if isinstance(value, Recipe) else value, source, folder)


def _set_key(raw: dict[str, Any], key: str, value: Any, source: str, folder: Path | None) -> None:
    words = key.split(".")
    if words[0] == STAGE and len(words) > 2 and isinstance(raw.get(STAGE), list):
        stage, words = stage_called(raw[STAGE], words[1], source), words[2:]
        if words[0] in PARTS and len(words) > 2:  # which part that is, and what stands in it, the study may say
            stage[words[0]] = merged_part(raw.get(words[0]), stage.get(words[0], {}))
        raw = stage
    set_in(raw, study_places(folder), words, value, f"{source}: cannot set {shown(key)}", folder)


def set_in(table: dict[str, Any], places: Mapping[str, Place], words: Sequence[str], value: Any, refusal: str,
           folder: Path | None = None) -> None:
    """Set a key of tables in tables, of which some `places` are parts.

    A part that is a name, given or by default, becomes a table with that name. Inner tables are copied, not changed.
    """
    *outer, last = words
    for word in outer:
        place = places.get(word)
        inner = _as_table(table.get(word), place)
        if not isinstance(inner, dict):
            whole = "" if place is None else (
                f"; give {with_article(place.kind)} whole: a table with its name and options")
            raise InputError(f"{refusal}, because {word} is {shown(inner)} and has no keys of its own{whole}.")
        table[word] = inner
        table, places = inner, {} if place is None else places_in(place, inner, folder)
    table[last] = value


def _as_table(given: Any, place: Place | None) -> Any:
    """What stands in a place as a table, if it can be one; an empty one if nothing does."""
    default = None if place is None else place.default
    if given is None and isinstance(default, str | Recipe):
        given = default
    if given is None:
        return {}
    if isinstance(given, Recipe):
        return given.table()
    if isinstance(given, str) and place is not None:
        return {"name": given}
    return dict(given) if isinstance(given, Mapping) else given


def short_keys(keys: Iterable[str]) -> dict[str, str]:
    """Each key without the table it is in, unless that tells it from others. The name of a part stands for the part.

    >>> list(short_keys(["algorithm.step_size", "algorithm.tuner.step_size", "algorithm.tuner.name"]).values())
    ['step_size', 'tuner.step_size', 'tuner']
    """
    whole = {key: key.removesuffix(".name") for key in keys}
    short = {key: path.partition(".")[2] or path for key, path in whole.items()}
    count = Counter(short.values())
    return {key: path if count[path] == 1 else whole[key] for key, path in short.items()}
