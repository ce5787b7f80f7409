"""A run in which some clients lie: its parts, made from those of the honest run."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import cast

import numpy as np

from cantons.attack import Byzantine, corrupt, mistimed
from cantons.data import Federation, with_liars
from cantons.data.seeds import generator
from cantons.errors import InputError
from cantons.protocol import Algorithm, Averages, Clock, Parts, PyTree, Recipe, StackRule


def draw_liars(byzantine: Byzantine, data: Federation, seed: int) -> np.ndarray:
    """Who lies, as booleans: it follows from the seed and the names of the clients alone."""
    return byzantine.liars(data.clients.names, generator(seed, "byzantine"))


def corrupt_parts(parts: Parts, byzantine: Byzantine, liars: np.ndarray) -> Parts:
    """What an engine is given where these clients lie."""
    online, name, data = parts.clock.online, parts.recipe.name, cast(Federation, parts.data)
    if online is not None and online.cross_score:
        raise InputError("score = \"everyone\" asks every client's model about everybody's examples, those of liars "
                         "too; leave score or byzantine out.")
    if parts.algorithm.needs.pooled:
        raise InputError(f"{name} learns from the examples of all clients in one place, where nobody can lie; leave "
                         "byzantine out.")
    algorithm, clock = corrupt_pair(name, parts.algorithm, parts.clock, byzantine, liars, data)
    warned = algorithm._replace(advice=functools.partial(_advice, algorithm, int(liars.sum())))

    def change(built: Algorithm) -> Algorithm:
        return corrupt_pair(name, built, clock, byzantine, liars, data)[0]

    return parts._replace(recipe=_corrupt_recipe(parts.recipe, change), algorithm=warned, clock=clock,
                          data=with_liars(data, liars))


def corrupt_pair(name: str, algorithm: Algorithm, clock: Clock, byzantine: Byzantine, liars: np.ndarray,
                 data: Federation | None) -> tuple[Algorithm, Clock]:
    """The algorithm and the clock; without data they are good for reading a run back."""
    attack = byzantine.attack.build()
    algorithm = corrupt(name, algorithm, attack, liars, None if data is None else data.classes)
    return algorithm, mistimed(clock, attack, liars)


def _corrupt_recipe(recipe: Recipe, change: Callable[[Algorithm], Algorithm]) -> Recipe:
    """The recipe of an engine that builds the algorithm again, with other numbers."""
    again = recipe.again

    def build(problem, population):
        return change(recipe.build(problem, population))

    if again is None:
        return recipe._replace(build=build)

    @functools.wraps(again)
    def other(**options):
        return _corrupt_recipe(again(**options), change)

    return recipe._replace(build=build, again=other)


def _advice(algorithm: Algorithm, liars: int, parts: Parts, start: tuple[PyTree, PyTree]) -> list[str]:
    """What the algorithm has to say, and whether there are more liars than its rule bears."""
    found = list(algorithm.advice(parts, start))
    rule = algorithm.aggregate.rule if isinstance(algorithm.aggregate, Averages) else None
    if isinstance(rule, StackRule) and rule.bears is not None:
        cohort = int(parts.clock.cohort)
        most, may = rule.bears(cohort), min(liars, cohort)
        if may > most:
            found.append(f"up to {may} of a cohort of {cohort} lie, and its rule bears {most}, after bucketing if "
                         "there is any; they may lead the run astray.")
    return found
