"""The same study on many federations, each drawn anew: one compiled program for all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import numpy as np

from cantons.clock import rounds as rounds_clock
from cantons.data import Federation, alike, pooled
from cantons.engine.many import Many
from cantons.errors import InputError, at_least
from cantons.protocol import Problem, Recipe
from cantons.regret import Regret
from cantons.regret.collective import collective_regret
from cantons.study.online_metrics import online_row, progress_of
from cantons.study.record import scored, traffic_of, travelled
from cantons.study.run import check_parts, settled_parts

AT_ONCE = 50  # federations on the devices at a time


def rollouts(problem: Problem, federations: Sequence[Federation], algorithm: Recipe, *, rounds: int,
             clock: Recipe | Sequence[Recipe] | None = None, evaluate_every: int | Sequence[int] | None = None,
             seed: int = 0,
             precision: str = "float32", at_once: int = AT_ONCE,
             watch: Callable[[int, int], None] = lambda done, total: None) -> list[list[dict[str, Any]]]:
    """Run `algorithm` once on every federation; a history for each, with one row per evaluation.

    The federations have as many clients and features as each other; rollout number k starts from seed + k. `clock` may
    be a list with one for each. Evaluations come every `evaluate_every` rounds, or after the rounds it lists, and after
    the last. `at_once` federations are in memory together; `watch(done, total)` hears of progress.
    """
    at_least("rounds", rounds, 1)
    at_least("at_once", at_once, 1)
    clocks = [clock] * len(federations) if clock is None or isinstance(clock, Recipe) else list(clock)
    if len(clocks) != len(federations):
        raise InputError(f"there are {len(clocks)} clocks for {len(federations)} federations; give one, or one each.")
    every = evaluate_every or rounds
    chosen = range(every, rounds, every) if isinstance(every, int) else every
    stops = sorted({stop for stop in chosen if 0 < stop < rounds} | {rounds})
    ready = alike(federations)
    size = min(at_once, len(ready))
    found: list[list[dict[str, Any]]] = []
    with jax.enable_x64(precision == "float64"):
        for first in range(0, len(ready), size):
            places = np.minimum(first + np.arange(size), len(ready) - 1)  # the last program is as large as the others
            tell = partial(_tell, watch, first * rounds, size, len(ready) * rounds)
            histories = _together(problem, [ready[place] for place in places], algorithm, rounds,
                                  [clocks[place] for place in places], stops, seed + places, tell)
            found += histories[: len(ready) - first]
    return found


def _tell(watch: Callable[[int, int], None], before: int, size: int, total: int, done: int) -> None:
    watch(min(before + done * size, total), total)


def _together(problem: Problem, data: list[Federation], recipe: Recipe, rounds: int,
              clocks: Sequence[Recipe | None], stops: Sequence[int], seeds: np.ndarray,
              watch: Callable[[int], None]) -> list[list[dict[str, Any]]]:
    parts = [settled_parts(problem, one, recipe, ticking or rounds_clock()) for one, ticking in
             zip(data, clocks, strict=True)]
    algorithm, clock = parts[0]
    central = [pooled(one.train) for one in data] if algorithm.needs.central == "pooled" else None
    same = all(ticking is clocks[0] for ticking in clocks) and all(one.arrivals is None for one in data)
    many = Many(problem, lambda options: algorithm, clock if same else [ticking for _, ticking in parts], data, central,
                {}, seeds)
    states = many.begin()
    private = many.start_private(0)
    check_parts(recipe.name, algorithm, jax.tree.map(lambda leaf: leaf[0], jax.device_get(states)), private)
    traffic = traffic_of(*many.message_and_upload(states))
    begun = jax.device_get(states.server.shared)
    regrets = [Regret([collective_regret(problem, algorithm, ticking, one, (
        jax.tree.map(lambda leaf, index=index: leaf[index], begun), private), rounds)])
               for index, (one, (_, ticking)) in enumerate(zip(data, parts, strict=True))]
    histories: list[list[dict[str, Any]]] = [[] for _ in data]
    for done in stops:
        states = many.advance(states, done)
        scores, here = many.evaluate(states), jax.device_get(states)
        for index, (one, history) in enumerate(zip(data, histories, strict=True)):
            score, state = jax.tree.map(lambda leaf, index=index: leaf[index], (scores, here))
            row, _ = scored(problem, one, {"clients": score})
            if clock.online:
                progress = progress_of(state)
                row |= online_row(problem, progress)[0] | regrets[index].measure(progress)
            history.append({"round": done, **row, **travelled(one, state, traffic)[0]})
        watch(done)
    return histories
