"""Several runs of one problem as one compiled program: other data, step sizes, clocks or seeds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from cantons.data import Federation, pad_to_same_shape
from cantons.engine import Local
from cantons.errors import InputError, at_least
from cantons.protocol import Engine, Problem, Recipe
from cantons.study.callbacks import Callback
from cantons.study.resolve import identity_of, resolve
from cantons.study.together import play_together

AT_ONCE = 50  # runs on the devices at a time


def rollouts(problem: Problem, data: Federation | Sequence[Federation], algorithm: Recipe | Sequence[Recipe], *,
             rounds: int, clock: Recipe | Sequence[Recipe] | None = None, aggregate: Recipe | None = None,
             seed: int | Sequence[int] = 0, evaluate_every: int | Sequence[int] | None = None,
             precision: str = "float32", engine: Engine | None = None, at_once: int = AT_ONCE,
             out: str | Path | None = None, accept_changes: bool = False,
             watch: Callable[[int, int], None] = lambda done, total: None) -> list[list[dict[str, Any]]]:
    """Run several runs of one problem as one compiled program; a history for each, with one row per evaluation.

    Of `data`, `algorithm`, `clock` and `seed` give one for all runs, or a list with one for each. Federations have as
    many clients and features as each other, algorithms differ in real numbers alone, such as their step sizes. From a
    single `seed` run number k starts at seed + k. Evaluations come every `evaluate_every` rounds, or after the rounds
    it lists, and after the last. `at_once` runs are in memory together; `watch(done, total)` hears of progress. With
    `out`, run number k has the run folder k there, and the same call goes on where it was stopped, with
    `accept_changes=True` also if versions or the engine are other ones by now.
    """
    at_least("at_once", at_once, 1)
    number = _number(federations=data, algorithms=algorithm, clocks=clock, seeds=seed)
    seeds = [seed + place for place in range(number)] if isinstance(seed, int) else seed
    federations = [data] * number if isinstance(data, Federation) else pad_to_same_shape(data)
    recipes = [algorithm] * number if isinstance(algorithm, Recipe) else algorithm
    clocks = [clock] * number if clock is None or isinstance(clock, Recipe) else clock
    every = evaluate_every or rounds
    chosen = range(every, rounds, every) if isinstance(every, int) else every
    stops = sorted({stop for stop in chosen if 0 < stop < rounds} | {rounds})
    engine = engine or Local()
    runs = [resolve(problem, one, recipe, rounds=rounds, clock=ticking, aggregate=aggregate, seed=own,
                    precision=precision, engine=engine)
            for one, recipe, ticking, own in zip(federations, recipes, clocks, seeds, strict=True)]
    if not isinstance(data, Federation):  # as they were given: the rows that fill them up are nobody's
        for run, one in zip(runs, data, strict=True):
            run.study["data"] = identity_of(one)
    if all(ticking is clocks[0] for ticking in clocks) and all(run.data.arrivals is None for run in runs):
        runs = [run._replace(parts=run.parts._replace(clock=runs[0].parts.clock)) for run in runs]
    size = min(at_once, len(runs)) if engine.together() is not None else 1
    found: list[list[dict[str, Any]]] = []
    for first in range(0, len(runs), size):
        places = list(range(first, first + size if out is None else min(first + size, len(runs))))
        # Without folders the last program is as large as the others: it repeats its last run.
        group = [runs[min(place, len(runs) - 1)] for place in places]
        watcher = _Watcher(watch, first * rounds, size, len(runs) * rounds)
        found += play_together(engine, group, watcher, out=None if out is None else Path(out),
                               names=[f"{place:0{len(str(len(runs) - 1))}}" for place in places], stops=stops,
                               accept_changes=accept_changes)
    return found[:len(runs)]


def _number(**given: Any) -> int:
    """How many runs these are: as many as there are in each list."""
    counts = {name: len(values) for name, values in given.items()
              if isinstance(values, Sequence) and not isinstance(values, Recipe)}
    if not counts:
        raise InputError("give a list of federations, algorithms, clocks or seeds, one for each run.")
    if len(set(counts.values())) > 1:
        lists = " and ".join(f"{count} {name}" for name, count in counts.items())
        raise InputError(f"there are {lists}; give one for all runs, or one for each.")
    return next(iter(counts.values()))


class _Watcher(Callback):
    """Counts the rounds of all rollouts."""

    def __init__(self, watch: Callable[[int, int], None], before: int, size: int, total: int):
        self.watch, self.before, self.size, self.total = watch, before, size, total

    def advanced(self, round: int, rounds: int) -> None:
        self.watch(min(self.before + round * self.size, self.total), self.total)
