"""What Python users give in the wrong place: a part that was not called, its name, or another part."""

from __future__ import annotations

import difflib
import inspect
from typing import Any

from cantons.attack import Byzantine
from cantons.data import Federation
from cantons.errors import InputError, shown, with_article
from cantons.protocol import Problem, Recipe
from cantons.study.registry import ENGINE, REGISTRY

MADE = {"problem": "logistic(data)", "data": "digits()", "algorithm": "fedavg(step_size=0.1)",
        "clock": "rounds(cohort=10)", "aggregate": "median()", "engine": "Local()",
        "byzantine": 'byzantine(attack=..., count=1)'}
FIRST = ("problem", "data", "algorithm")  # the arguments of `run` that have an order


def check_arguments(problem: Any, data: Any, algorithm: Any, **others: Any) -> None:
    """Refuse parts that are not what their argument's name says; of `others`, each may be None."""
    given = {"problem": problem, "data": data, "algorithm": algorithm}
    for name, value in (given | {name: value for name, value in others.items() if value is not None}).items():
        found = kind_of(value)
        if found == name:
            continue
        if found in FIRST and name in FIRST:
            order = ", ".join(str(kind_of(given[each]) or each) for each in FIRST)
            raise InputError(f"{name} is {_named(found)}: this is called with ({order}); the order is (problem, data, "
                             "algorithm).")
        raise InputError(f"{name} is {_described(value)}; give {_wanted(name, value)}.")


def kind_of(value: Any) -> str | None:
    """Of which kind a part is; None for what is no part."""
    if isinstance(value, Recipe):
        return value.kind
    for kind, made in (("problem", Problem), ("data", Federation), ("byzantine", Byzantine)):
        if isinstance(value, made):
            return kind
    is_engine = not inspect.isclass(value) and all(hasattr(value, member) for member in ENGINE)
    return "engine" if is_engine else None


def _named(kind: str) -> str:
    return kind if kind == "data" else with_article(kind)


def _described(value: Any) -> str:
    kind = kind_of(value)
    if kind is not None:
        return _named(kind)
    if callable(value) and hasattr(value, "__name__"):
        return f"the function {value.__name__} itself" if not inspect.isclass(value) else f"the class {value.__name__}"
    return f"the text {shown(value)}" if isinstance(value, str) else with_article(type(value).__name__)


def _wanted(name: str, value: Any) -> str:
    """What to write instead."""
    if callable(value) and value in REGISTRY[name].values():
        return f"what it makes: {value.__name__}({'data' if name == 'problem' else '...'})"
    near = difflib.get_close_matches(value, REGISTRY[name], n=1) if isinstance(value, str) else []
    if near:
        function = REGISTRY[name][near[0]].__name__
        return f"what that function makes: ct.{function}({'data' if name == 'problem' else '...'})"
    return f"{_named(name)}, such as ct.{MADE[name]}"
