"""The step sizes of an algorithm and of its parts that a study leaves at their defaults."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from cantons.protocol import Recipe
from cantons.ranges import named_in
from cantons.study.given import chosen_options

PLAIN_MEAN = 1.0  # of a server or of what merges: a step that is a choice and no guess


def default_steps(recipe: Recipe, given: Mapping[str, Any]) -> dict[str, Any]:
    """{dotted option: its default} for step sizes that are not among the options `given`.

    One whose default is None follows another one.
    """
    if recipe.again is None:
        return {}
    found = _own_steps(recipe.again, given)
    for name, option in inspect.signature(recipe.again).parameters.items():
        part, named = recipe.options.get(name), named_in(option.annotation)
        if isinstance(part, Recipe):
            inner = default_steps(part, _options_in(given.get(name)))
        elif named is not None and isinstance(part, str | Mapping):
            table = {"name": part} if isinstance(part, str) else part
            inner = _own_steps(named.known[table["name"]], table)
        else:
            continue
        found |= {f"{name}.{key}": value for key, value in inner.items()}
    return found


def _own_steps(function: Callable[..., Any], given: Mapping[str, Any]) -> dict[str, Any]:
    return {name: option.default for name, option in inspect.signature(function).parameters.items()
            if name.endswith("step_size") and name not in given
            and option.default not in (None, PLAIN_MEAN, option.empty)}


def _options_in(part: Any) -> Mapping[str, Any]:
    """What a study says about a part."""
    if isinstance(part, Recipe):
        return chosen_options(part)
    return part if isinstance(part, Mapping) else {}
