"""Turn a builder into a recipe: options now, problem and population later."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Concatenate, ParamSpec

from cantons.errors import check_options
from cantons.protocol import Algorithm, Clock, Problem, Recipe

P = ParamSpec("P")


def algorithm(build: Callable[Concatenate[Problem, int, P], Algorithm]) -> Callable[P, Recipe]:
    """Decorate `def name(problem, population, *, options...) -> Algorithm`."""
    return _recipe(build, given=2)


def clock(build: Callable[Concatenate[int, P], Clock]) -> Callable[P, Recipe]:
    """Decorate `def name(population, *, options...) -> Clock`."""
    return _recipe(build, given=1)


def _recipe(build: Callable, given: int) -> Callable[..., Recipe]:
    signature = inspect.signature(build)
    ours = build.__module__.startswith("cantons.")
    name = build.__name__ if ours else f"{build.__module__}:{build.__name__}"  # so that a run folder can find it
    options = list(signature.parameters.values())[given:]

    @functools.wraps(build)
    def choose(**chosen):
        check_options(choose, chosen, build.__name__)
        resolved = {option.name: option.default for option in options} | chosen
        return Recipe(name, resolved, functools.partial(build, **resolved))

    # What `inspect`, editors and the study reader see: the options alone.
    choose.__signature__ = signature.replace(parameters=options, return_annotation=Recipe)  # type: ignore[attr-defined]
    return choose
