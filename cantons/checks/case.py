"""What every check is given: an algorithm, and a small problem that it can work with."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import jax
import numpy as np

from cantons.checks.calls import name_calls
from cantons.checks.data import examples, of_equal_size
from cantons.checks.finding import Failed
from cantons.checks.stage import Stage, watched
from cantons.clock import online
from cantons.data import Federation
from cantons.engine import Local
from cantons.engine.devices import one_device_per_core
from cantons.protocol import Algorithm, Engine, Problem, Recipe
from cantons.study.example import Example, first_fitting

# Messages that take their time; and messages now and then, some uploads not counted, some clients away.
LATE = {"uplink": [0, 2, 1, 0, 3, 1, 2], "downlink": [1, 0, 2, 0, 1, 1, 0]}
NOW_AND_THEN = {"sync": 3, "counted": 4, "active": np.random.default_rng(2).random((5, 7)) < 0.8}


@dataclass(frozen=True, eq=False)
class Case:
    """One algorithm on one example. Sessions are made when a check first wants them, and serve all others."""

    recipe: Recipe
    problem: Problem
    data: Federation  # clients of unequal size
    equal: Federation  # the same clients with as many examples each
    clocks: tuple[Recipe, ...] = ()  # of a stream; none: rounds in which those take part whom a check names

    @property
    def algorithm(self) -> Algorithm:
        """Built anew, with errors that name the function that was called."""
        return name_calls(self.recipe.build(self.problem, self.data.population))

    @cached_property
    def stage(self) -> Stage:
        """The algorithm on one device, one client after another; in rounds its clients are watched."""
        if self.clocks:
            return self.on(Local(devices=1), self.clocks[0])
        algorithm = watched(self.problem, self.algorithm, self.data)
        return Stage(self.problem, self.recipe, algorithm, self.data, Local(devices=1))

    @cached_property
    def warm(self):
        """A state in which clients already differ."""
        stage = self.stage
        return stage.advance(stage.start, 5) if self.clocks else stage.play(
            stage.start, stage.everybody, (0, 2, 3, 5), rounds=2)

    def on(self, engine: Engine, clock: Recipe | None = None) -> Stage:
        """The algorithm on another engine, or with another clock."""
        built = None if clock is None else clock.build(
            self.data.population, self.data.arrivals, self.data.clients.groups)
        return Stage(self.problem, self.recipe, self.algorithm, self.data, engine, built)


def fitting_case(recipe: Recipe) -> tuple[Example, Case]:
    """The first example that the algorithm can work with."""
    example, algorithm = first_fitting(recipe, examples())
    if not isinstance(algorithm, Algorithm):
        raise Failed(f"its builder returns a {type(algorithm).__name__}; return a cantons.Algorithm.")
    streams = algorithm.needs.stream
    clocks = (online(**LATE), online(**NOW_AND_THEN)) if streams else ()
    return example, Case(recipe, example.problem, example.data, of_equal_size(example.data), clocks)


def two_devices() -> int:
    """Two, where this process has them."""
    one_device_per_core()
    return min(2, jax.local_device_count())
