"""Dotted keys such as `algorithm.tuner.step_size`: set in tables of tables, and as short as they can be told apart."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from cantons.errors import InputError, shown
from cantons.protocol import Recipe
from cantons.study.part_tables import Place, places_in, study_places
from cantons.study.stage_tables import STAGE, stage_called


def set_key(raw: dict[str, Any], key: str, value: Any, source: str, folder: Path | None = None) -> None:
    """Set a dotted key of a study as it is written."""
    words = key.split(".")
    if words[0] == STAGE and len(words) > 2 and isinstance(raw.get(STAGE), list):
        raw, words = stage_called(raw[STAGE], words[1], source), words[2:]
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
            whole = "" if place is None else f"; give a {place.kind} whole: a table with its name and options"
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


def short_keys(keys: Iterable[str], beside: Collection[str] = ()) -> dict[str, str]:
    """Each key by its last words: as many as tell it from the others, and from those `beside` that are less deep.

    The name of a part stands for the part.

    >>> list(short_keys(["algorithm.step_size", "algorithm.tuner.step_size", "algorithm.tuner.name"]).values())
    ['step_size', 'tuner.step_size', 'tuner']
    """
    paths = {key: key.removesuffix(".name").split(".") for key in keys}
    others = [*paths.values(), *(key.split(".") for key in beside)]
    return {key: ".".join(_end(path, [other for other in others if other != path and len(other) <= len(path)]))
            for key, path in paths.items()}


def _end(path: list[str], rivals: Sequence[list[str]]) -> list[str]:
    """The last words of a path, as few as no rival ends with."""
    return next(end for count in range(1, len(path) + 1) if (end := path[-count:]) not in (
        rival[-count:] for rival in rivals))
