"""The parts a study can name: ours by a word, the user's own as `module:function`."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

from cantons import aggregate, algorithm, clock, data, engine, models, problem
from cantons.errors import InputError, shown, unknown
from cantons.protocol import Engine, Problem, Recipe
from cantons.study.blame import blame_user

REGISTRY: dict[str, Mapping[str, Callable[..., Any]]] = {
    "data": data.DATA,
    "model": models.ARCHITECTURES,
    "problem": {make.__name__: make for make in (
        problem.bandit, problem.classification, problem.linear, problem.logistic, problem.regression,
        problem.residual, problem.target)},
    "algorithm": algorithm.ALGORITHMS,
    "clock": clock.CLOCKS,
    "aggregate": aggregate.RULES,
    "engine": engine.ENGINES,
}


def part(kind: str, name: str) -> Callable[..., Any]:
    """The function behind a name.

    >>> part("algorithm", "fedavg").__name__
    'fedavg'
    """
    if ":" in name:
        return _imported(kind, name)
    if name not in REGISTRY[kind]:
        raise unknown(kind, name, REGISTRY[kind])
    return REGISTRY[kind][name]


def make(kind: str, table: Mapping[str, Any], *before: Any) -> Any:
    """Build the part a table describes; its `name` finds the function, the rest are options."""
    options = {key: value for key, value in table.items() if key != "name"}
    return part(kind, table["name"])(*before, **options)


def make_problem(table: Mapping[str, Any], federation: Any) -> Problem:
    """A problem's models are parts of their own: a name, or a table with a name and options."""
    options = dict(table)
    for key in problem.MODELS:
        if key in options:
            model = options[key]
            options[key] = make("model", {"name": model} if isinstance(model, str) else model)
    built = make("problem", options, federation)
    if not isinstance(built, Problem):
        raise InputError(f"{table['name']} returned a {type(built).__name__}, not a problem.")
    return built if built.spec is not None else built._replace(spec=dict(table))


DECORATORS = {"algorithm": "algorithm", "clock": "clock", "aggregate": "rule"}


def make_recipe(kind: str, table: Mapping[str, Any]) -> Recipe:
    """An algorithm, a clock or a rule with its options chosen."""
    recipe = make(kind, table)
    if not isinstance(recipe, Recipe):
        raise InputError(f"{table['name']} returned a {type(recipe).__name__}, not a recipe; "
                         f"decorate it with @cantons.recipe.{DECORATORS[kind]}.")
    if recipe.kind != kind:
        raise InputError(f"{table['name']} is for [{recipe.kind}], not for [{kind}].")
    return recipe


def make_algorithm(table: Mapping[str, Any]) -> Recipe:
    return make_recipe("algorithm", table)


def make_engine(table: Mapping[str, Any]) -> Engine:
    made = make("engine", table)
    lacks = [name for name in ("name", "options", "refuses", "start", "together") if not hasattr(made, name)]
    if lacks:
        raise InputError(f"{table['name']} is no engine: it lacks {', '.join(lacks)}; see docs/engine.md.")
    return made


def _imported(kind: str, name: str) -> Callable[..., Any]:
    module, _, function = name.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        with blame_user(name, anywhere=False):
            return getattr(importlib.import_module(module), function)
    except InputError:
        raise
    except Exception as error:  # whatever a name that is no name, or a module's own top level, may raise
        raise InputError(f"cannot find the {kind} {shown(name)}: {error}; write module:function, with the module in "
                         "the current folder or installed.") from error
