"""Options that differ between methods though nobody asked for it: two algorithms may have other defaults."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from cantons.options import options_of
from cantons.ranges import whole
from cantons.reporting.collect import Group, shown
from cantons.reporting.paired import quoted_names
from cantons.study.describe import option_meanings, shared_options
from cantons.study.plain import plain
from cantons.study.registry import REGISTRY

KINDS = ("problem", "algorithm", "clock")


def unasked_options(groups: Sequence[Group], tuned: Collection[str] = ()) -> list[str]:
    """A line for each option that parts of other names share, whose values differ, one of them being a default.

    It says which methods have no such option: a reader may wonder what these do.

    Methods with the same part differ in its options because somebody said so. Of parts that are not ours the defaults
    are not known here: all that they have may be one. What was `tuned`, by dotted keys, is left out.
    """
    found = []
    for kind in KINDS:
        tables = {group.label: _table(group.study.get(kind)) for group in groups}
        for option in dict.fromkeys(key for table in tables.values() for key in table if key != "name"):
            if any(f"{key}.".startswith(f"{kind}.{option}.") for key in tuned):
                continue
            lacking = [label for label, table in tables.items() if table and option not in table]
            found += [f"{kind}.{option} is {_listed(kind, having, option)}{_said_of(lacking)}"
                      for having in _by_meaning(kind, tables, option)
                      if _differs(kind, list(having.values()), option)]
    return found


def _by_meaning(kind: str, tables: Mapping[str, Mapping[str, Any]],
                option: str) -> list[dict[str, Mapping[str, Any]]]:
    """The methods that have this option, those together that mean the same by it.

    What is in a group of options that parts share is the same option in all of them, also where some use words of their
    own for it. Otherwise parts with words of their own mean something of their own: so do methods by their `penalty`.
    """
    meanings = {label: _own_words(kind, table.get("name", ""), option)
                for label, table in tables.items() if option in table}
    if None in meanings.values():
        return [{label: tables[label] for label in meanings}]
    return [{label: tables[label] for label, own in meanings.items() if own == words}
            for words in dict.fromkeys(meanings.values())]


def _own_words(kind: str, name: str, option: str) -> str | None:
    """What a part of ours says about an option that it has from no group; None of any other."""
    function = REGISTRY[kind].get(name)
    if function is None:
        return None
    return None if option in shared_options(function) else option_meanings(function).get(option, "")


def _said_of(lacking: Sequence[str]) -> str:
    return f"; {quoted_names(lacking)} {'has' if len(lacking) == 1 else 'have'} no such option" if lacking else ""


def _differs(kind: str, tables: Sequence[Mapping[str, Any]], option: str) -> bool:
    """Whether parts of other names have other values, of which at least one is a default."""
    return (len({table.get("name") for table in tables}) > 1
            and len({json.dumps(table[option]) for table in tables}) > 1
            and any(_is_default(kind, table, option) for table in tables))


def _listed(kind: str, having: Mapping[str, Mapping[str, Any]], option: str) -> str:
    """The values, the methods that have each, and whether it is their default."""
    values: dict[tuple[str, str], list[str]] = {}
    for label, table in having.items():
        known = table.get("name") in REGISTRY[kind] and _is_default(kind, table, option)
        value = "none" if table[option] is None else _short(table[option])
        values.setdefault((value, " (the default)" if known else ""), []).append(label)
    return ", ".join(f"{value}{default} for {quoted_names(labels)}" for (value, default), labels in values.items())


def _table(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _is_default(kind: str, table: Mapping[str, Any], option: str) -> bool:
    """Whether this may be a default: of a part that is not ours, anything may."""
    function = REGISTRY[kind].get(table.get("name", ""))
    if function is None:
        return True
    known = {each.name: each for each in options_of(function).parameters}
    return option in known and json.dumps(plain(whole(known[option].annotation, known[option].default))) == json.dumps(
        table[option])


def _short(value: Any) -> str:
    """A part that is written as a table: its name, and its options in brackets."""
    if not isinstance(value, Mapping) or "name" not in value:
        return shown(value)
    options = ", ".join(f"{key} {shown(each)}" for key, each in value.items() if key != "name")
    return f"{value['name']} ({options})" if options else value["name"]
