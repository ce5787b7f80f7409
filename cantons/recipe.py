"""Mark a function as a part that a study may name; a builder also becomes a recipe: options now, the rest later.

A study names parts of others as `module:function`, and calls nothing that is not marked as a part of the kind it wants.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, Concatenate, TypeVar

from cantons.errors import check_options
from cantons.options import options_of
from cantons.protocol import Algorithm, Attack, CentralLoss, Clock, Engine, Problem, Recipe, Rule

Makes = TypeVar("Makes", bound=Callable[..., Any])


def algorithm(build: Callable[Concatenate[Problem, int, ...], Algorithm]) -> Callable[..., Recipe]:
    """Decorate `def name(problem, population, *, options...) -> Algorithm`."""
    return _recipe("algorithm", build, given=2)


def clock(build: Callable[Concatenate[int, ...], Clock]) -> Callable[..., Recipe]:
    """Decorate `def name(population, *, options...) -> Clock`.

    A clock may want to know what the data says of its clients: after `population` it has an argument `arrivals`, when
    whose examples come, `groups`, who is of which, or `clients`, all about them; each is None where it is not known.
    """
    wants = [parameter.name for parameter in inspect.signature(build).parameters.values()
             if parameter.kind is parameter.POSITIONAL_OR_KEYWORD][1:]

    def build_with(population, arrivals=None, groups=None, clients=None, /, **options):
        known = {"arrivals": arrivals, "groups": groups, "clients": clients}
        return build(population, **{name: known[name] for name in wants}, **options)

    return _recipe("clock", build, given=1 + len(wants), build_with=build_with)


def rule(build: Callable[..., Rule]) -> Callable[..., Recipe]:
    """Decorate `def name(*, options...) -> Rule`."""
    return _recipe("aggregate", build, given=0)


def attack(build: Callable[..., Attack]) -> Callable[..., Recipe]:
    """Decorate `def name(*, options...) -> Attack`."""
    return _recipe("attack", build, given=0)


def problem(make: Callable[Concatenate[Any, ...], Problem]) -> Callable[..., Problem]:
    """Decorate `def name(data, *, options...) -> Problem`."""
    return mark("problem", make)


def model(make: Makes) -> Makes:
    """Decorate `def name(*, options...) -> Architecture`, which gives (input_shape, outputs) -> Model."""
    return mark("model", make)


def central_loss(make: Callable[Concatenate[Problem, ...], CentralLoss]) -> Callable[..., CentralLoss]:
    """Decorate `def name(problem, *, options...) -> CentralLoss`."""
    return mark("central_loss", make)


def engine(make: Callable[..., Engine]) -> Callable[..., Engine]:
    """Decorate `def name(*, options...) -> Engine`; a class that has all that an engine has needs no mark."""
    return mark("engine", make)


def mark(kind: str, make: Makes) -> Makes:
    """The function itself, marked as a part of a kind."""
    make.kind = kind  # type: ignore[attr-defined]
    return make


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

    # What `inspect`, editors and the study reader see: the options alone.
    choose.__signature__ = inspect.Signature(options.parameters, return_annotation=Recipe)  # type: ignore[attr-defined]
    return mark(kind, choose)
