"""The `[[stage]]` tables of a study file: each stage is the study, with what the stage says in place of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cantons.errors import InputError, shown, unknown

STAGE = "stage"
METHOD = "method"  # the tables that `compare` makes methods of
SETTINGS = ("rounds", "cohort", "evaluate_every", "evaluate_clients", "patience", "checkpoint_every", "keep")
PARTS = ("problem", "algorithm", "clock", "aggregate")
COMMON = ("name", "seed", "precision", "validation")  # settings of the whole study
TABLES = ("data", "central", "groups", "byzantine", "engine")  # and tables
WHO = {"cohort": "clock", "clock": "cohort"}  # two ways to say who takes part: a stage's replaces the study's


def merged_stages(raw: Mapping[str, Any], source: str) -> dict[str, dict[str, Any]]:
    """{name: a study of its own} for each stage."""
    stages = raw[STAGE]
    if not isinstance(stages, list):
        raise InputError(f"{source}: stage is {shown(stages)}; write a table [[stage]], in two brackets, for each "
                         "stage.")
    if not stages:
        raise InputError(f"{source} has an empty list of stages; give at least one, or leave it out.")
    common = {key: value for key, value in raw.items() if key != STAGE}
    found: dict[str, dict[str, Any]] = {}
    for number, stage in enumerate(stages, 1):
        name = _name(stage, number, source)
        if name in found:
            raise InputError(f"{source}: two stages are called {shown(name)}; give each a name of its own.")
        found[name] = _merged(common, stage, f"{source}: stage {name}")
    return found


def stage_called(stages: Sequence[Any], name: str, source: str) -> dict[str, Any]:
    """The table of one stage, to be changed."""
    tables = {str(stage["name"]): stage for stage in stages if isinstance(stage, dict) and "name" in stage}
    if name not in tables:
        raise InputError(f"{source}: {unknown('stage', name, tables)}")
    return tables[name]


def _name(stage: Any, number: int, source: str) -> str:
    if not isinstance(stage, Mapping):
        raise InputError(f"{source}: stage {number} is {shown(stage)}; give a table.")
    name = stage.get("name")
    if not isinstance(name, str) or not name.strip():
        raise InputError(f"{source}: stage {number} has {'no name' if name is None else f'the name {shown(name)}'}; "
                         "give it one, as a string: its run folder is called so.")
    return name


def _merged(common: Mapping[str, Any], stage: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The study of one stage. A table with a name takes the place of the study's; without one it changes its keys."""
    merged = dict(common)
    for key, value in stage.items():
        if key == "name":
            continue
        if key not in (*SETTINGS, *PARTS):
            if key in (*COMMON, *TABLES):
                raise InputError(f"{where}: {key} is common to all stages; say it outside of them.")
            raise InputError(f"{where}: {unknown('key', key, (*SETTINGS, *PARTS))}")
        if key in WHO and WHO[key] not in stage:
            merged.pop(WHO[key], None)
        if value == "none" and key in PARTS:
            merged.pop(key, None)
        else:
            merged[key] = merged_part(common.get(key), value) if key in PARTS else value
    return merged


def merged_part(before: Any, own: Any) -> Any:
    """The table of a part in a stage, where the study has `before`."""
    if isinstance(own, Mapping) and "name" not in own and isinstance(before, str | Mapping):
        return {**({"name": before} if isinstance(before, str) else before), **own}
    return own
