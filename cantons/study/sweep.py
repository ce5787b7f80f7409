"""All combinations of a grid, over several seeds: those with the same shapes run as one compiled program.

Every point and seed has a run folder of its own, like any other run. A sweep that was killed goes on when it is
called again: finished runs are kept, and a group of runs on its way is taken up at its checkpoint.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, get_args

import jax
import numpy as np

from cantons.engine import Local
from cantons.engine.many import Many
from cantons.errors import InputError
from cantons.protocol import Recipe
from cantons.study.callbacks import Callback
from cantons.study.checkpoint import Checkpoints
from cantons.study.folder import Folder, flat, plain
from cantons.study.interrupt import Interruption
from cantons.study.online_metrics import online_metrics
from cantons.study.parts import part
from cantons.study.read import read_study
from cantons.study.record import scored, sides, summary_of, traffic_of, travelled
from cantons.study.run import CHECKPOINT_SECONDS, Settled, check_parts, settled

VALIDATION = 0.2  # of the training rows, where the study does not say; a stream is scored on its way


class Run(NamedTuple):
    """One point of the grid with one seed."""

    point: Mapping[str, Any]  # dotted key -> value
    seed: int
    folder: Path
    ready: Settled
    recipe: Recipe


class Outcome(NamedTuple):
    """One point of the grid, over its seeds."""

    point: Mapping[str, Any]
    score: float  # what is chosen by; NaN if it failed or diverged
    spread: float
    test: float
    failure: str  # why it has no number, if it has none


def sweep(path: Path, grid: Mapping[str, Sequence[Any]], seeds: int, out: Path, changes: Mapping[str, Any],
          watcher: Callback) -> tuple[str, str, list[Outcome]]:
    """Run the grid; return where the scores chosen by come from, the metric, and the points, best first."""
    if "seed" in {*grid, *changes}:
        raise InputError("a sweep runs the seeds 0, 1, ...; say how many with --seeds, and leave seed alone.")
    points = [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]
    runs: list[Run] = []
    failures: dict[str, str] = {}
    for point in points:
        try:
            runs += _runs(path, point, seeds, out, changes)
        except InputError as error:
            failures[label(point)] = str(error)
    for group in grouped(runs):
        unfinished = [run for run in group if not (run.folder / "summary.json").exists()]
        try:
            if unfinished:
                _play(unfinished, out, watcher)
        except InputError as error:
            failures |= {label(run.point): str(error) for run in unfinished}
    if len(failures) == len(points):
        first = next(iter(failures.values()))
        raise InputError(first if str(path) in first else f"{path}: {first}")
    maximise = runs[0].ready.problem.maximise if runs else ()
    by = "online" if runs and runs[0].ready.data.validation is None else "validation"
    metric = "accuracy" if "accuracy" in maximise and _has_accuracy(runs, by) else "loss"
    outcomes = [_outcome(point, [run for run in runs if run.point == point], by, metric, failures) for point in points]
    sign = -1 if metric in maximise else 1
    outcomes.sort(key=lambda outcome: (np.isnan(outcome.score), sign * np.nan_to_num(outcome.score)))
    return by, metric, outcomes


def label(point: Mapping[str, Any]) -> str:
    """A point in words, short enough for a folder's name.

    >>> label({"algorithm.step_size": 0.1, "cohort": 5})
    'step_size=0.1,cohort=5'
    """
    return ",".join(f"{key.rpartition('.')[2]}={value}" for key, value in point.items()).replace("/", "_")


def grouped(runs: Sequence[Run]) -> list[list[Run]]:
    """Runs that differ in nothing but their seed and the real numbers given to their algorithm."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        study = flat(plain(run.ready.study))
        free = {"seed", *(f"algorithm.{name}" for name in real_options(run.recipe))}
        same = json.dumps({key: value for key, value in study.items() if key not in free}, sort_keys=True)
        groups.setdefault(same, []).append(run)
    return list(groups.values())


def real_options(recipe: Recipe) -> list[str]:
    """The options that may vary inside one program: those given as a plain real number and declared as one."""
    declared = part("algorithm", recipe.name).__signature__.parameters  # type: ignore[attr-defined]
    return [name for name, value in recipe.options.items()
            if isinstance(value, float) and float in (declared[name].annotation, *get_args(declared[name].annotation))]


def _runs(path: Path, point: Mapping[str, Any], seeds: int, out: Path, changes: Mapping[str, Any]) -> list[Run]:
    study = read_study(path, {**changes, **point})
    if study.settings.validation is None and study.tables.get("clock", {}).get("name") != "online":
        study = read_study(path, {"validation": VALIDATION, **changes, **point})
    problem, data, recipe, chosen = study.parts()
    first = settled(problem, data, recipe, **{"clock": None, "engine": Local(), **chosen})
    studies = [{**first.study, "seed": seed} for seed in range(seeds)]
    return [Run(point, seed, out / f"{label(point)}-{seed}", first._replace(study=study), recipe)
            for seed, study in enumerate(studies)]


def _play(runs: Sequence[Run], out: Path, watcher: Callback) -> None:
    """Run a group to its end, all of it together."""
    first = runs[0].ready
    varying = {name: np.array([run.recipe.options[name] for run in runs]) for name in real_options(runs[0].recipe)}
    varying = {name: values for name, values in varying.items() if len(set(values.tolist())) > 1}
    function = part("algorithm", runs[0].recipe.name)
    for run in runs:
        Folder(run.folder).open(run.ready.study, resume=True)

    def build(options):
        return function(**{**runs[0].recipe.options, **options}).build(first.problem, first.data.population)

    with jax.enable_x64(first.study["precision"] == "float64"), Interruption() as interruption:
        many = Many(first.problem, build, first.clock, first.data, first.central, varying,
                    np.array([run.seed for run in runs]))
        states = many.begin()
        check_parts(runs[0].recipe.name, first.algorithm, one(jax.device_get(states), 0), many.start_private(0))
        _Together(many, runs, out, watcher).play(states, interruption)


class _Together:
    """A group of runs on its way, and what each of them has written."""

    def __init__(self, many: Many, runs: Sequence[Run], out: Path, watcher: Callback):
        self.many, self.runs, self.watcher = many, runs, watcher
        self.study = runs[0].ready.study
        self.data, self.problem = runs[0].ready.data, runs[0].ready.problem
        name = hashlib.sha256("\n".join(str(run.folder) for run in runs).encode()).hexdigest()[:12]
        self.checkpoints = Checkpoints(out / "groups" / name, keep=2)
        self.histories: list[list[dict[str, Any]]] = [[] for _ in runs]
        self.took, self.seconds, self.saved_at = 0.0, 0.0, time.monotonic()

    def play(self, states: Any, interruption: Interruption) -> None:
        begun = jax.device_get(states.server.shared)
        found = self.checkpoints.newest(states)
        if found is not None:
            states, about, complaints = found
            for complaint in complaints:
                self.watcher.noticed(complaint)
            self.seconds = about.get("seconds", 0.0)
            states = self.many.place(states)
        done, rounds, every = int(states.round[0]), self.study["rounds"], self.study["evaluate_every"]
        self.histories = [Folder(run.folder).rewind(done) for run in self.runs]
        self.online_metrics = [
            online_metrics(self.problem, run.ready.algorithm, run.ready.clock, self.data,
                           (one(begun, index), self.many.start_private(index)), rounds)
            for index, run in enumerate(self.runs)]
        self.traffic = traffic_of(*self.many.message_and_upload(states))
        self.watcher.started({**self.study, "name": f"{len(self.runs)} runs"})
        if not self.histories[0]:
            self._evaluate(states, done)
        while done < rounds:
            until = min(rounds, done + every - done % every)
            began = time.perf_counter()
            states = jax.block_until_ready(self.many.advance(states, until))
            self.took, done, before = time.perf_counter() - began, until, done
            self.seconds += self.took
            self._evaluate(states, done - before)
            if interruption.asked or time.monotonic() - self.saved_at > CHECKPOINT_SECONDS:
                self.checkpoints.save(done, states, {"seconds": self.seconds})
                self.saved_at = time.monotonic()
            if interruption.asked:
                self.watcher.noticed(f"stopped after round {done} of {len(self.runs)} runs; the same command goes on.")
                raise KeyboardInterrupt
        last = jax.device_get(states)
        for index, run in enumerate(self.runs):
            self._finish(index, run, one(last, index))

    def _evaluate(self, states: Any, rounds: int) -> None:
        """Score all runs, and write each one's row."""
        scores = {side: self.many.evaluate(states, side) for side in sides(self.data)}
        here = jax.device_get(states)
        shared = self.took / len(self.runs)  # the time of a run is its part of the time of all
        for index, run in enumerate(self.runs):
            state = one(here, index)
            row, columns = scored(self.problem, self.data, one(scores, index))
            met, by_client = self.online_metrics[index](state)
            moved, more = travelled(self.data, state, self.traffic)
            record = {"round": int(state.round), **row, **met, **moved, "seconds": self.seconds / len(self.runs),
                      "seconds_per_round": shared / rounds if rounds else None}
            self.histories[index].append(record)
            Folder(run.folder).append(record)
            Folder(run.folder).clients(columns | by_client | more)
        self.watcher.evaluated(self.histories[0][-1])

    def _finish(self, index: int, run: Run, state: Any) -> None:
        Checkpoints(run.folder / "checkpoints", self.study["keep"]).save(
            int(state.round), (state, self.many.start_private(index)), {"seconds": self.seconds / len(self.runs)})
        Folder(run.folder).summary(summary_of(run.ready.study, self.data, self.histories[index], self.traffic,
                                              runs_together=len(self.runs)))


def one(tree: Any, index: int) -> Any:
    """The part of one run in what is stacked over runs."""
    return jax.tree.map(lambda leaf: leaf[index], tree)


def _has_accuracy(runs: Sequence[Run], by: str) -> bool:
    return any(f"{by}.personal.accuracy.mean" in row for run in runs for row in Folder(run.folder).records()[-1:])


def _outcome(point: Mapping[str, Any], runs: Sequence[Run], by: str, metric: str,
             failures: Mapping[str, str]) -> Outcome:
    failure = failures.get(label(point), "")
    if failure:
        return Outcome(point, np.nan, np.nan, np.nan, failure)
    last = [Folder(run.folder).records()[-1] for run in runs]

    def numbers(name: str) -> np.ndarray:
        values = [row.get(f"{name}.personal.{metric}.mean") for row in last]
        return np.array([np.nan if value is None else value for value in values])

    chosen_by = numbers(by)
    if by == "online":  # a client whose loss is not a number is not charged, which must not look like a gain
        chosen_by = np.where([row["rejected_uploads"] > 0 for row in last], np.nan, chosen_by)
    spread = float(chosen_by.std(ddof=1)) if len(runs) > 1 else np.nan
    diverged = "" if np.isfinite(chosen_by).all() else "diverged: its loss is not a number"
    return Outcome(point, float(chosen_by.mean()), spread, float(numbers("test").mean()), diverged)
