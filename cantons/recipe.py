"""Turn a builder into a recipe: options now, problem and population later."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, Concatenate

from cantons.errors import check_options
from cantons.options import options_of
from cantons.protocol import Algorithm, Clock, Problem, Recipe, Rule


def algorithm(build: Callable[Concatenate[Problem, int, ...], Algorithm]) -> Callable[..., Recipe]:
    """Decorate `def name(problem, population, *, options...) -> Algorithm`."""
    return _recipe("algorithm", build, given=2)


def clock(build: Callable[Concatenate[int, ...], Clock]) -> Callable[..., Recipe]:
    """Decorate `def name(population, *, options...) -> Clock`.

    A clock that wants to know when whose examples come, where the data says so, has `arrivals` as its second argument.
    """
    wants = [parameter.name for parameter in inspect.signature(build).parameters.values()
             if parameter.kind is parameter.POSITIONAL_OR_KEYWORD]
    if len(wants) == 1:
        return _recipe("clock", build, given=1, build_with=lambda population, arrivals=None, **options: build(
            population, **options))
    return _recipe("clock", build, given=2, build_with=lambda population, arrivals=None, **options: build(
        population, arrivals, **options))


def rule(build: Callable[..., Rule]) -> Callable[..., Recipe]:
    """Decorate `def name(*, options...) -> Rule`."""
    return _recipe("aggregate", build, given=0)


def _recipe(kind: str, build: Callable[..., Any], given: int,
            build_with: Callable[..., Any] | None = None) -> Callable[..., Recipe]:
    options, made = options_of(build, given), build_with or build
    ours = build.__module__.startswith("cantons.")
    name = build.__name__ if ours else f"{build.__module__}:{build.__name__}"  # so that a run folder can find it

    @functools.wraps(build)
    def choose(**chosen):
        check_options(choose, chosen, build.__name__)
        resolved = {option.name: option.default for option in options.parameters} | options.checked(chosen)
        return Recipe(name, resolved, functools.partial(made, **options.gathered(resolved)), choose, kind)

    choose.kind = kind  # type: ignore[attr-defined]
    # What `inspect`, editors and the study reader see: the options alone.
    choose.__signature__ = inspect.Signature(options.parameters, return_annotation=Recipe)  # type: ignore[attr-defined]
    return choose
