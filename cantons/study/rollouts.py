"""The same study on many federations, each drawn anew: one compiled program for all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax

from cantons.data import Federation, pad_to_same_shape
from cantons.engine import Local
from cantons.errors import InputError, at_least
from cantons.protocol import Engine, Problem, Recipe
from cantons.study.callbacks import Callback
from cantons.study.loop import Loop
from cantons.study.resolve import Resolved, check_engine, resolve

AT_ONCE = 50  # federations on the devices at a time


def rollouts(problem: Problem, federations: Sequence[Federation], algorithm: Recipe, *, rounds: int,
             clock: Recipe | Sequence[Recipe] | None = None, aggregate: Recipe | None = None,
             evaluate_every: int | Sequence[int] | None = None, seed: int = 0, precision: str = "float32",
             engine: Engine | None = None, at_once: int = AT_ONCE,
             watch: Callable[[int, int], None] = lambda done, total: None) -> list[list[dict[str, Any]]]:
    """Run `algorithm` once on every federation; a history for each, with one row per evaluation.

    The federations have as many clients and features as each other; rollout number k starts from seed + k. `clock` may
    be a list with one for each. Evaluations come every `evaluate_every` rounds, or after the rounds it lists, and after
    the last. `at_once` federations are in memory together; `watch(done, total)` hears of progress.
    """
    at_least("at_once", at_once, 1)
    clocks = [clock] * len(federations) if clock is None or isinstance(clock, Recipe) else list(clock)
    if len(clocks) != len(federations):
        raise InputError(f"there are {len(clocks)} clocks for {len(federations)} federations; give one, or one each.")
    every = evaluate_every or rounds
    chosen = range(every, rounds, every) if isinstance(every, int) else every
    stops = sorted({stop for stop in chosen if 0 < stop < rounds} | {rounds})
    engine = engine or Local()
    runs = [resolve(problem, data, algorithm, rounds=rounds, clock=ticking, aggregate=aggregate, seed=seed + number,
                    precision=precision, engine=engine)
            for number, (data, ticking) in enumerate(zip(pad_to_same_shape(federations), clocks, strict=True))]
    if all(ticking is clocks[0] for ticking in clocks) and all(run.data.arrivals is None for run in runs):
        runs = [run._replace(parts=run.parts._replace(clock=runs[0].parts.clock)) for run in runs]
    together = engine.together()
    size = min(at_once, len(runs)) if together is not None else 1
    found: list[list[dict[str, Any]]] = []
    for first in range(0, len(runs), size):
        # The last program is as large as the others: it repeats its last federation.
        group = [runs[min(first + place, len(runs) - 1)] for place in range(size)]
        found += _play(together or engine, group, stops, _Watcher(watch, first * rounds, size, len(runs) * rounds))
    return found[:len(runs)]


def _play(engine: Engine, runs: Sequence[Resolved], stops: Sequence[int],
          watcher: Callback) -> list[list[dict[str, Any]]]:
    check_engine(engine, runs[0].parts)
    with jax.enable_x64(runs[0].study["precision"] == "float64"):
        session = engine.start([run.parts for run in runs], watcher.noticed)
    return [ended.history for ended in Loop(session, runs, [watcher], stops=stops).play()]


class _Watcher(Callback):
    """Counts the rounds of all rollouts."""

    def __init__(self, watch: Callable[[int, int], None], before: int, size: int, total: int):
        self.watch, self.before, self.size, self.total = watch, before, size, total

    def advanced(self, round: int, rounds: int) -> None:
        self.watch(min(self.before + round * self.size, self.total), self.total)
