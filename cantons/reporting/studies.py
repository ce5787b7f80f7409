"""The sections of a report about what was run, and where."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from cantons.reporting.collect import Group, options_of, shown
from cantons.reporting.markup import element, folded, table
from cantons.reporting.words import listed


def studies(groups: Sequence[Group]) -> str:
    """What differs between the studies as they were run; the rest, with every default filled in, is folded."""
    apart, only_some, common = _sorted_options(groups)
    labels, title = [group.label for group in groups], "The study as run" if len(groups) == 1 else "The studies as run"
    content = table([["option", *labels], *apart], "Options that differ", kind="options") if apart else ""
    if only_some:
        content += folded(f"Options that only some of the methods have ({len(only_some)})", table(
            [["option", *labels], *only_some], "Options that only some of the methods have", kind="options"))
    whose = "All options" if len(groups) == 1 else "Options that are the same for all methods"
    content += folded(f"{whose} ({len(common)})", table([["option", "value"], *common], whose, kind="options"))
    folders = [[group.label, str(run.study["seed"]), str(run.folder)] for group in groups for run in group.runs]
    content += folded(f"Run folders ({len(folders)})", table([["method", "seed", "folder"], *folders], "Run folders"))
    return element("h2", title) + content


def _sorted_options(groups: Sequence[Group]) -> tuple[list[list[str]], list[list[str]], list[list[str]]]:
    """Rows of a table: of the options that differ, of those that some studies lack, of those that all have alike."""
    tables = options_of([group.study for group in groups])
    apart, only_some, common = [], [], []
    for key in dict.fromkeys(key for each in tables for key in each):
        there = [each[key] for each in tables if key in each]
        row = [key, *(shown(each.get(key)) for each in tables)]
        if any(value != there[0] for value in there) or _is_of_rival_parts(key, tables):
            apart += [row] if row[1:] != [group.label for group in groups] else []  # those are the titles already
        elif len(there) < len(tables):
            only_some.append(row)
        else:
            common.append(row[:2])
    return apart, only_some, common


def _is_of_rival_parts(key: str, tables: Sequence[Mapping[str, Any]]) -> bool:
    """Whether an option of a part in a part, such as a tuner's, is lacking where another such part stands."""
    part = key.rpartition(".")[0]
    return "." in part and any(f"{part}.name" in table for table in tables if key not in table)


def environments(groups: Sequence[Group]) -> str:
    """Where the runs were made: one paragraph for each different place."""
    places: dict[str, list[str]] = {}
    for run in (run for group in groups for run in group.runs):
        places.setdefault(json.dumps(run.environment), []).append(str(run.folder))
    return element("h2", "Environment") + "".join(
        element("p", _environment(json.loads(place)) + ("" if len(places) == 1 else f" ({listed(folders)})"), "note")
        for place, folders in places.items())


def _environment(place: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in place["versions"].items() if version)
    devices = ", ".join(f"{place['devices'].count(kind)} x {kind}" for kind in dict.fromkeys(place["devices"]))
    return (f"Python {place['python']} on {place['system']} ({place['machine']}, {place.get('cores')} cores); "
            f"devices: {devices}; {versions}.")
