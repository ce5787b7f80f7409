"""Turn a builder into a recipe: options now, problem and population later."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, Concatenate

from cantons.errors import check_options
from cantons.options import options_of
from cantons.protocol import Algorithm, Clock, Problem, Recipe


def algorithm(build: Callable[Concatenate[Problem, int, ...], Algorithm]) -> Callable[..., Recipe]:
    """Decorate `def name(problem, population, *, options...) -> Algorithm`."""
    return _recipe(build, given=2)


def clock(build: Callable[Concatenate[int, ...], Clock]) -> Callable[..., Recipe]:
    """Decorate `def name(population, *, options...) -> Clock`."""
    return _recipe(build, given=1)


def _recipe(build: Callable[..., Any], given: int) -> Callable[..., Recipe]:
    options = options_of(build, given)
    ours = build.__module__.startswith("cantons.")
    name = build.__name__ if ours else f"{build.__module__}:{build.__name__}"  # so that a run folder can find it

    @functools.wraps(build)
    def choose(**chosen):
        check_options(choose, chosen, build.__name__)
        resolved = {option.name: option.default for option in options.parameters} | chosen
        return Recipe(name, resolved, functools.partial(build, **options.gathered(resolved)))

    # What `inspect`, editors and the study reader see: the options alone.
    choose.__signature__ = inspect.Signature(options.parameters, return_annotation=Recipe)  # type: ignore[attr-defined]
    return choose
