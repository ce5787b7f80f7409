"""A study made of parts in Python, as `run` takes them: for what compares and sweeps."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cantons.data import Federation
from cantons.errors import InputError, amount, unknown, with_article
from cantons.protocol import Problem, Recipe
from cantons.study.arguments import check_arguments
from cantons.study.dotted_keys import set_in
from cantons.study.part_tables import Place, places_in
from cantons.study.read import check_part, read_study
from cantons.study.registry import TERMS, make_problem, make_recipe, part
from cantons.study.resolve import identity_of
from cantons.study.study import AnyStudy
from cantons.study.written import Settings

RECIPES = ("algorithm", "clock", "aggregate")
OTHERS = ("byzantine", "engine")  # parts that are given as they are


class Study(AnyStudy):
    """A study to compare or to sweep: `problem`, `data`, `algorithm` and the other arguments of `run` but its folder.

    Its `name` stands in tables; it is the algorithm's, unless one is given.
    """

    def __init__(self, problem: Problem, data: Federation, algorithm: Recipe, *, rounds: int, **options: Any):
        check_arguments(problem, data, algorithm, **{key: options.get(key) for key in ("clock", "aggregate", *OTHERS)})
        known = [*Settings.model_fields, *RECIPES[1:], *OTHERS]
        for key in options:
            if key not in known:
                raise unknown("option of Study", key, known)
        self.problem, self.data, self.recipe = problem, data, algorithm
        self.options = {"rounds": rounds, **options}
        self.source = self.name

    def __repr__(self) -> str:
        return f"study {self.name}: {self.recipe!r} on {self.data.name}, {amount(self.options['rounds'], 'round')}"

    @property
    def name(self) -> str:
        return self.options.get("name") or self.recipe.name

    @property
    def stem(self) -> str:
        return self.name

    def parts(self, data: Federation | None = None) -> tuple[Problem, Federation, Recipe, dict[str, Any]]:
        return self.problem, self.data, self.recipe, {"clock": None, **self.options}

    def federation(self) -> Federation:
        return self.data

    def changed(self, changes: Mapping[str, Any]) -> Study:
        given, problem = {**self.options, "algorithm": self.recipe}, self.problem
        for key, value in changes.items():
            kind, _, option = key.partition(".")
            if kind == "data":
                raise InputError(f"{self.source}: cannot change {key}, because the data of a study made in Python is "
                                 "fixed; make a study for each, or read it from a file.")
            if kind == "problem":
                problem = value if isinstance(value, Problem) else self._other_problem(problem, option, value)
            elif kind in RECIPES:
                given[kind] = _changed_recipe(self.source, kind, given.get(kind), option, value)
            elif kind in (*Settings.model_fields, *OTHERS) and not option:
                given[kind] = value
            else:
                known = [*Settings.model_fields, "problem", *RECIPES, *OTHERS]
                raise InputError(f"{self.source}: {unknown('key', key, known)}")
        return Study(problem, self.data, given.pop("algorithm"), **given)

    def _other_problem(self, problem: Problem, option: str, value: Any) -> Problem:
        """The problem with another value of an option, or another one: its name, or a table with a name."""
        if not option:
            return make_problem(check_part(self.source, "problem", value), self.data)
        if problem.spec is None:
            raise InputError(f"{self.source}: cannot change problem.{option}, because the problem does not say what it "
                             "was made of; give another one whole: {\"problem\": ...}.")
        known = inspect.signature(part("problem", problem.spec["name"])).parameters
        # The rest of it are shapes, which follow from the data.
        table = {key: each for key, each in problem.spec.items() if key in ("name", *known, *TERMS)}
        return make_problem(check_part(self.source, "problem", table, {option: value}), self.data)

    def algorithm(self) -> dict[str, Any]:
        return {"name": self.recipe.name, **chosen_options(self.recipe)}

    def algorithm_recipe(self) -> Recipe:
        return self.recipe

    def has_data_of(self, other: AnyStudy) -> bool:
        theirs = other.federation()
        return self.data is theirs or identity_of(self.data)["checksum"] == identity_of(theirs)["checksum"]


def as_study(given: Any, changes: Mapping[str, Any] | None = None) -> AnyStudy:
    """A study with some changes; the path of a study file will do, which may be whole with the changes alone."""
    if isinstance(given, AnyStudy):
        return given.changed(changes) if changes else given
    if isinstance(given, str | Path):
        return read_study(given, changes)
    raise InputError(f"a study is {with_article(type(given).__name__)}; give the path of a study file, or "
                     "Study(problem, data, algorithm, rounds=...).")


def chosen_options(recipe: Recipe, usual: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The options of a recipe that are not its defaults, or not what is `usual` in their place."""
    if recipe.again is None:
        return dict(recipe.options)
    defaults = {name: option.default for name, option in inspect.signature(recipe.again).parameters.items()}
    return {name: value for name, value in recipe.options.items()
            if _differs(value, (usual or {}).get(name, defaults.get(name)))}


def _differs(value: Any, default: Any) -> bool:
    """Options may be arrays, which have no single answer."""
    return value is not default and repr(value) != repr(default)


def _changed_recipe(source: str, kind: str, recipe: Recipe | None, option: str, value: Any) -> Recipe | None:
    """A part with one option changed, or another part: a recipe, a name, or a table."""
    if not option:
        if value is None or isinstance(value, Recipe):
            return value
        return make_recipe(kind, check_part(source, kind, {"name": value} if isinstance(value, str) else value))
    if recipe is None or recipe.again is None:
        raise InputError(f"{source}: cannot change {kind}.{option}, because the study has no {kind} with options.")
    outer, _, inner = option.partition(".")
    held = recipe.options.get(outer)
    if inner and isinstance(held, Recipe):
        value = _changed_recipe(source, kind, held, inner, value)
    elif inner:
        again, table = recipe.again, {outer: held}
        places = places_in(Place(kind, lambda name: again), {"name": recipe.name})
        set_in(table, places, option.split("."), value, f"{source}: cannot set {kind}.{option}")
        value = table[outer]
    try:
        return recipe.again(**{**recipe.options, outer: value})
    except InputError as error:
        raise InputError(f"{source}: {kind}.{option}: {error}") from error
