"""Options that differ between methods though nobody asked for it: two algorithms may have other defaults."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from cantons.options import options_of
from cantons.ranges import whole
from cantons.reporting.collect import Group, shown
from cantons.reporting.paired import quoted_names
from cantons.study.plain import plain
from cantons.study.registry import REGISTRY

KINDS = ("problem", "algorithm", "clock")


def unasked_options(groups: Sequence[Group], tuned: Collection[str] = ()) -> list[str]:
    """A line for each option that parts of other names share, whose values differ, one of them being a default.

    Methods with the same part differ in its options because somebody said so. Of parts that are not ours the defaults
    are not known here: all that they have may be one. What was `tuned`, by dotted keys, is left out.
    """
    found = []
    for kind in KINDS:
        tables = {group.label: _table(group.study.get(kind)) for group in groups}
        for option in dict.fromkeys(key for table in tables.values() for key in table if key != "name"):
            having = {label: table for label, table in tables.items() if option in table}
            is_tuned = any(f"{key}.".startswith(f"{kind}.{option}.") for key in tuned)
            if not is_tuned and _differs(kind, list(having.values()), option):
                found.append(f"{kind}.{option} is {_listed(kind, having, option)}")
    return found


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
