"""The sections of a report about what was run, and where."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from cantons.reporting.collect import Group, differences, shown
from cantons.reporting.markup import element, folded, table
from cantons.reporting.words import listed


def studies(groups: Sequence[Group]) -> str:
    """The studies as they were run: what differs first, everything folded below."""
    labels = [group.label for group in groups]
    rows = [[key, *map(shown, values)] for key, values in differences([group.study for group in groups]).items()]
    whole = (folded(f"{group.label}: {', '.join(str(run.folder) for run in group.runs)}",
                    json.dumps(group.study, indent=2, ensure_ascii=False)) for group in groups)
    return element("h2", "The study as run") + (table([["option", *labels], *rows]) if rows else "") + "".join(whole)


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
