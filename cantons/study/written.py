"""A study as a file has it: settings, and a table for each part."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Literal

import pydantic

from cantons.data import Federation
from cantons.errors import InputError
from cantons.phases import READING, enter
from cantons.protocol import Problem, Recipe
from cantons.ranges import Count, Fraction, Seed
from cantons.study.blame import blame_user
from cantons.study.registry import (
    make,
    make_algorithm,
    make_byzantine,
    make_central,
    make_data,
    make_engine,
    make_problem,
    make_recipe,
)
from cantons.study.resolve import Resolved
from cantons.study.result import Result
from cantons.study.stage_tables import COMMON
from cantons.study.stages import resolve_stages, run_stages
from cantons.study.study import AnyStudy


class Settings(pydantic.BaseModel):
    """The keys of a study that stand outside its tables."""

    model_config = pydantic.ConfigDict(extra="forbid", strict=True)

    name: str | None = None
    rounds: Count
    seed: Seed = 0
    cohort: Count | dict[str, Count] | None = None
    evaluate_every: Count | None = None
    evaluate_clients: Count | None = None
    validation: Fraction | None = None
    patience: Count | None = None
    precision: Literal["float32", "float64"] = "float32"
    checkpoint_every: Count | None = None
    keep: Count = 3


class WrittenStudy(AnyStudy):
    """A checked study: settings, and one table for each part.

    One with stages has a study for each; its own settings and tables are those of the last, which is the result.
    """

    def __init__(self, source: str, settings: Settings, tables: Mapping[str, Mapping[str, Any]],
                 stages: Mapping[str, WrittenStudy] | None = None, raw: Mapping[str, Any] | None = None,
                 folder: Path | None = None):
        self.source, self.settings, self.tables, self.stages = source, settings, tables, stages or {}
        self.raw, self.folder = raw or {}, folder  # as it was written, and where

    def __repr__(self) -> str:
        return f"study {self.name}, read from {self.source}"

    @property
    def name(self) -> str:
        return self.settings.name or self.stem

    @property
    def stem(self) -> str:
        return Path(self.source).stem

    def changed(self, changes: Mapping[str, Any]) -> WrittenStudy:
        from cantons.study.read import check_changed  # which makes such studies

        return check_changed(copy.deepcopy(dict(self.raw)), changes, self.source, self.folder)

    def algorithm(self) -> dict[str, Any]:
        return copy.deepcopy(dict(self.tables["algorithm"]))

    def algorithm_recipe(self) -> Recipe:
        return self._built("algorithm", make_algorithm)

    def has_data_of(self, other: AnyStudy) -> bool:
        if isinstance(other, WrittenStudy):
            return self.tables["data"] == other.tables["data"]
        return other.has_data_of(self)

    def resolved(self, **options: Any) -> Resolved:
        if self.stages:
            data, stages, common = self._staged()
            return list(resolve_stages(data, stages, **common, **options).values())[-1]
        return super().resolved(**options)

    def _run(self, **options: Any) -> Result:
        if self.stages:
            data, stages, common = self._staged()
            return run_stages(data, stages, **common, **options)
        return super()._run(**options)

    def _staged(self) -> tuple[Federation, dict[str, dict[str, Any]], dict[str, Any]]:
        """The data, the arguments of each stage, and those of all."""
        data, common = self.federation(), {**self.settings.model_dump(include=set(COMMON)), "name": self.name}
        for kind, build in (("byzantine", make_byzantine), ("engine", make_engine)):
            if kind in self.tables:
                common[kind] = self._built(kind, build)
        stages = {}
        for name, study in self.stages.items():
            problem, _, recipe, chosen = study.parts(data)
            stages[name] = {"problem": problem, "algorithm": recipe, **{
                key: value for key, value in chosen.items() if key not in (*COMMON, "byzantine", "engine")}}
        return data, stages, common

    def parts(self, data: Federation | None = None) -> tuple[Problem, Federation, Recipe, dict[str, Any]]:
        data = self.federation() if data is None else data
        problem = self._built("problem", lambda table: _fitting(make_problem(table, data), data))
        recipe = self.algorithm_recipe()
        chosen = {**self.settings.model_dump(), "name": self.name}
        for kind in ("clock", "aggregate"):
            if kind in self.tables:
                chosen[kind] = self._built(kind, partial(make_recipe, kind))
        for kind, build in (("byzantine", make_byzantine), ("engine", make_engine)):
            if kind in self.tables:
                chosen[kind] = self._built(kind, build)
        return problem, data, recipe, chosen

    def federation(self) -> Federation:
        enter(READING)
        data = self._built("data", make_data)
        if "central" in self.tables:
            data = self._built("central", lambda table: make_central(table, data))
        if "groups" in self.tables:
            data = self._built("groups", lambda table: make("groups", table, data))
        return data

    def _built(self, kind: str, build: Callable[[Mapping[str, Any]], Any]) -> Any:
        try:
            with blame_user(self.tables[kind].get("name", "")):
                return build(self.tables[kind])
        except InputError as error:
            raise InputError(f"[{kind}] {error}") from error


def _fitting(problem: Problem, data: Federation) -> Problem:
    """Labels that a reader has numbered 0, 1, ... are no quantities, though one could train on them."""
    if problem.numeric_targets and data.classes is not None:
        raise InputError(f"predicts numbers, and the targets of {data.name} are {data.classes} labels; if they are "
                         "numbers, say so (in [data]: regression = true), otherwise use logistic or classification.")
    return problem
