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
from cantons.study.dotted_keys import outer_first, set_in
from cantons.study.part_tables import Place, places_in
from cantons.study.read import check_part, read_study
from cantons.study.registry import TERMS, make_problem, make_recipe, part, recipes_in
from cantons.study.resolve import identity_of
from cantons.study.study import AnyStudy
from cantons.study.written import Settings

RECIPES = ("algorithm", "clock", "aggregate")
OTHERS = ("byzantine", "engine")  # parts that are given as they are
WHOLE = ""  # the part itself, among the keys of its options


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
        given = {**self.options, "algorithm": self.recipe}
        parts: dict[str, dict[str, Any]] = {}  # which are made once each: their options may need one another
        for key, value in outer_first(changes):
            kind, _, option = key.partition(".")
            if kind == "data":
                raise InputError(f"{self.source}: cannot change {key}, because the data of a study made in Python is "
                                 "fixed; make a study for each, or read it from a file.")
            if kind in ("problem", *RECIPES):
                parts.setdefault(kind, {})[option] = value
            elif kind in (*Settings.model_fields, *OTHERS) and not option:
                given[kind] = value
            else:
                known = [*Settings.model_fields, "problem", *RECIPES, *OTHERS]
                raise InputError(f"{self.source}: {unknown('key', key, known)}")
        problem = self._other_problem(parts.pop("problem")) if "problem" in parts else self.problem
        given |= {kind: _changed_recipe(self.source, kind, given.get(kind), own) for kind, own in parts.items()}
        return Study(problem, self.data, given.pop("algorithm"), **given)

    def _other_problem(self, changes: Mapping[str, Any]) -> Problem:
        """Under "" another problem, its name, or a table with a name; and other values of options."""
        options = dict(changes)
        whole = options.pop(WHOLE, self.problem)
        if isinstance(whole, Problem) and not options:
            return whole
        return make_problem(check_part(self.source, "problem", self._table(whole, options), options), self.data)

    def _table(self, problem: Any, options: Mapping[str, Any]) -> Any:
        """A problem as its table, in which the options are to be changed."""
        if not isinstance(problem, Problem):
            return problem
        if problem.spec is None:
            raise InputError(f"{self.source}: cannot change problem.{next(iter(options))}, because the problem does "
                             "not say what it was made of; give another one whole: {\"problem\": ...}.")
        known = inspect.signature(part("problem", problem.spec["name"])).parameters
        # The rest of it are shapes, which follow from the data.
        return {key: each for key, each in problem.spec.items() if key in ("name", *known, *TERMS)}

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


def _changed_recipe(source: str, kind: str, recipe: Recipe | None, changes: Mapping[str, Any]) -> Recipe | None:
    """Under "" another part, its name, or a table with a name; and other values of options."""
    options = dict(changes)
    whole = options.pop(WHOLE, recipe)
    if whole is not None and not isinstance(whole, Recipe):
        return make_recipe(kind, check_part(source, kind, whole, options))
    if not options:
        return whole
    where = f"{kind}.{next(iter(options))}"
    if whole is None or whole.again is None:
        raise InputError(f"{source}: cannot change {where}, because the study has no {kind} with options.")
    inner: dict[str, dict[str, Any]] = {}
    for path, value in options.items():
        name, _, key = path.partition(".")
        inner.setdefault(name, {})[key] = value
    changed = {name: _changed_option(source, kind, whole, name, own) for name, own in inner.items()}
    try:
        return whole.again(**{**whole.options, **changed})
    except InputError as error:
        raise InputError(f"{source}: {where}: {error}") from error


def _changed_option(source: str, kind: str, recipe: Recipe, name: str, changes: Mapping[str, Any]) -> Any:
    """Under "" another value of the option; and other values of options of its own."""
    assert recipe.again is not None
    if name in recipes_in(recipe.again):
        return _changed_recipe(source, kind, recipe.options[name], changes)
    options, again = dict(changes), recipe.again
    table = {name: options.pop(WHOLE, recipe.options.get(name))}
    places = places_in(Place(kind, lambda _: again), {"name": recipe.name})
    for key, value in options.items():
        set_in(table, places, [name, *key.split(".")], value, f"{source}: cannot set {kind}.{name}.{key}")
    return table[name]
