"""The tables of a study: which parts they are, and which of their options are parts themselves."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from cantons.data import CENTRAL, Federation
from cantons.errors import InputError
from cantons.options import options_of
from cantons.problem import MODELS
from cantons.protocol import Recipe
from cantons.ranges import alternatives, named_in
from cantons.study.registry import part

TABLES = ("data", "central", "groups", "problem", "algorithm", "clock", "aggregate", "byzantine", "engine")
TAKES_FIRST = ("problem", "central_loss", "central", "groups")  # parts whose first argument is made from other tables
SEVERAL = ("central", "central_loss")  # parts of which a table may hold several, by names that the user gives
USUAL = {"clock": "rounds", "engine": "local", "byzantine": "byzantine"}  # the part that is meant where none is named


class Place(NamedTuple):
    """A key of a table under which a part stands."""

    kind: str
    find: Callable[[str], Callable[..., Any]]  # the function behind a name
    default: Any = None  # what stands there if nothing is given


def study_places(folder: Path | None) -> dict[str, Place]:
    """Those of a study; modules of the user's may be in `folder`."""
    return {kind: _registered(kind, folder) for kind in TABLES}


def places_in(place: Place, table: Mapping[str, Any], folder: Path | None = None) -> dict[str, Place]:
    """The options of a part that are parts themselves; none where it is not known which part the table names."""
    if place.kind in SEVERAL and "name" not in table:
        return dict.fromkeys(table, place)
    name = table.get("name", USUAL.get(place.kind, ""))
    if not isinstance(name, str):
        return {}
    kind = "data" if place.kind == "central" and name not in CENTRAL else place.kind
    try:
        fields = option_fields(place.find(name), skip_first=kind in TAKES_FIRST)
    except (InputError, KeyError):  # whoever checks the table says what is wrong with it
        return {}
    found = {option: Place(named.kind, named.known.__getitem__, default) for option, (hint, default) in fields.items()
             if (named := named_in(hint)) is not None}
    inner = inner_parts(kind, fields) | ({"group_losses": "central_loss"} if kind == "problem" else {})
    return found | {option: _registered(each, folder, fields.get(option, (Any, None))[1])
                    for option, each in inner.items()}


def option_fields(function: Callable, skip_first: bool) -> dict[str, Any]:
    """(type, default) of each option of a part, as pydantic takes them: `...` is no default."""
    if skip_first and not options_of(function).parameters:
        raise InputError("takes no data; give it as the first argument.")
    return {option.name: (option.annotation, ... if option.default is inspect.Parameter.empty else option.default)
            for option in options_of(function, given=int(skip_first)).parameters
            if option.kind not in (option.VAR_KEYWORD, option.VAR_POSITIONAL)}


def inner_parts(kind: str, allowed: Mapping[str, Any]) -> dict[str, str]:
    """The options of a part that have a kind of their own in the registry, and which."""
    if kind == "byzantine":
        return {"attack": "attack"}
    if kind == "problem":
        return {"central_loss": "central_loss"} | {key: "model" for key in MODELS if key in allowed}
    made = Federation if kind == "data" else Recipe
    return {key: kind for key, (hint, _) in allowed.items() if made in alternatives(hint)}


def is_several(table: Mapping[str, Any]) -> bool:
    """Does this table hold several parts, by names that the user gives?"""
    return "name" not in table and bool(table) and all(isinstance(each, str | Mapping) for each in table.values())


def _registered(kind: str, folder: Path | None, default: Any = None) -> Place:
    if kind == "central":
        return Place(kind, lambda name: part("central" if name in CENTRAL else "data", name, folder))
    return Place(kind, partial(part, kind, beside=folder), default)
