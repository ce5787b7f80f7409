"""All combinations of a grid, over several seeds: those with the same shapes run as one compiled program.

Every point and seed has a run folder of its own, like any other run. A sweep that was killed goes on when it is
called again: finished runs are kept, and a group of runs on its way is taken up at its checkpoint.
"""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cantons.engine import Local, real_options
from cantons.errors import InputError, unknown
from cantons.files import CannotWrite, folder_name, without_separators
from cantons.metrics import headline_of
from cantons.protocol import Engine
from cantons.study.callbacks import Callback
from cantons.study.dotted_keys import short_keys
from cantons.study.folder import Folder
from cantons.study.given import as_study
from cantons.study.plain import flat, plain
from cantons.study.reading import read_evaluations, read_table
from cantons.study.resolve import Resolved, check_engine, resolve
from cantons.study.study import AnyStudy
from cantons.study.together import group_store, play_together


class Run(NamedTuple):
    """One point of the grid with one seed."""

    point: Mapping[str, Any]  # dotted key -> value
    folder: Path
    ready: Resolved
    engine: Engine


class Outcome(NamedTuple):
    """One point of the grid, over its seeds."""

    point: Mapping[str, Any]
    score: float  # what is chosen by; NaN if it failed or diverged
    spread: float
    test: float
    failure: str  # why it has no number, if it has none


FEW = 3  # of fewer values, each is the smallest or the largest


def at_edge(outcomes: Sequence[Outcome]) -> list[str]:
    """The keys of which the best point has the smallest or the largest value: values beyond might be better still.

    >>> at_edge([Outcome({"a": 3, "b": 2}, 0.9, 0, 0, ""), *(Outcome({"a": 1, "b": b}, 0, 0, 0, "") for b in (1, 2, 3)),
    ...          Outcome({"a": 2, "b": 1}, 0, 0, 0, "")])
    ['a']
    """
    def is_edge(key: str) -> bool:
        values = [outcome.point[key] for outcome in outcomes]
        if not all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
            return False
        return len(set(values)) >= FEW and values[0] in (min(values), max(values))

    return [key for key in outcomes[0].point if is_edge(key)]


def sweep(given: AnyStudy | str | Path, grid: Mapping[str, Sequence[Any]], seeds: int, out: Path,
          changes: Mapping[str, Any], watcher: Callback, accept_changes: bool = False,
          choose: str | None = None, overwrite: bool = False) -> tuple[str, str, list[Outcome]]:
    """Run the grid; return where the scores chosen by come from, the metric, and the points, best first.

    `given` is a study, or the path of its file. `choose` is the number of an evaluation to choose by, such as
    "inference.shared.accuracy"; without it, validation rows are held back from training, unless a stream serves.
    Folders that hold other runs are refused before anything runs; with `overwrite` those runs are removed.
    """
    if "seed" in {*grid, *changes}:
        raise InputError("a sweep runs the seeds 0, 1, ...; say how many with --seeds (in Python: seeds=3), and "
                         "leave seed alone.")
    points, source = _points(grid), str(getattr(given, "source", given))
    runs: list[Run] = []
    failures: dict[str, str] = {}
    for point in points:
        try:
            runs += _runs(given, point, seeds, out, changes, hold_back=choose is None)
        except InputError as error:
            failures[label(point)] = str(error)
    if overwrite:
        _remove_others(runs, out)
    for group in unfinished_groups(runs, out, watcher):
        try:
            play_group(group, out, watcher, accept_changes)
        except CannotWrite:
            raise  # the other points would fare no better
        except InputError as error:
            failures |= {label(run.point): str(error) for run in group}
    if len(failures) == len(points):
        first = next(iter(failures.values()))
        raise InputError(first if source in first else f"{source}: {first}")
    maximise = runs[0].ready.parts.problem.maximise if runs else ()
    by = choose or ("online" if runs and runs[0].ready.data.validation is None else "validation")
    if choose is not None:
        metric = _metric_of(choose, [run for run in runs if label(run.point) not in failures])
    else:
        metric = headline_of([metric for metric in maximise if _is_scored(runs, f"{by}.personal.{metric}.mean")])
    outcomes = [_outcome(point, [run for run in runs if run.point is point], choose or f"{by}.personal.{metric}.mean",
                         metric, failures) for point in points]
    sign = -1 if metric in maximise else 1
    outcomes.sort(key=lambda outcome: (np.isnan(outcome.score), sign * np.nan_to_num(outcome.score)))
    return by, metric, outcomes


def _points(grid: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """All combinations; one that comes twice, as 0.1 and 0.10 do, is one."""
    points: dict[str, dict[str, Any]] = {}
    for values in itertools.product(*grid.values()):
        point = dict(zip(grid, values, strict=True))
        other = points.setdefault(label(point), point)
        if repr(other) != repr(point):
            raise InputError(f"the points {other} and {point} of the grid would share the folder {label(point)}; "
                             "leave one of them out.")
    return list(points.values())


def label(point: Mapping[str, Any]) -> str:
    """A point in words, short enough for a folder's name.

    >>> label({"algorithm.step_size": 0.1, "cohort": 5})
    'step_size=0.1,cohort=5'
    """
    names = short_keys(point)
    words = ",".join(f"{names[key]}={value}" for key, value in point.items())
    return folder_name(without_separators(words))


def grouped(runs: Sequence[Run]) -> list[list[Run]]:
    """Runs that differ in nothing but their seed and the real numbers given to their algorithm."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        study = flat(plain(run.ready.study))
        free = {"seed", *(f"algorithm.{name}" for name in real_options(run.ready.parts.recipe))}
        same = json.dumps({key: value for key, value in study.items() if key not in free}, sort_keys=True)
        groups.setdefault(same, []).append(run)
    return list(groups.values())


def _runs(given: AnyStudy | str | Path, point: Mapping[str, Any], seeds: int, out: Path, changes: Mapping[str, Any],
          hold_back: bool = True) -> list[Run]:
    study = as_study(given, {**changes, **point})
    if study.stages:
        raise InputError("a sweep runs its points as one program, and these have stages; sweep the first stage as a "
                         "study of its own, put its best point into the file, and compare files for the others.")
    problem, data, recipe, chosen = study.parts()
    if chosen.get("patience") is not None:
        raise InputError("a sweep runs its points as one program, which ends for all of them at once; leave patience "
                         "out.")
    engine = chosen.pop("engine", None) or Local()
    first = resolve(problem, data, recipe, **{"clock": None, **chosen}, engine=engine, choose=hold_back)
    together = engine.together()
    if together is not None:
        check_engine(together, first.parts)
    return [Run(point, out / f"{label(point)}-{seed}", first.with_seed(seed), engine) for seed in range(seeds)]


def unfinished_groups(runs: Sequence[Run], out: Path, watcher: Callback) -> list[Sequence[Run]]:
    """The groups that are to be played, each as one program; folders that hold other runs are refused."""
    finished = {run.folder for run in runs if _is_finished(run, watcher)}
    waiting = [(group, [run for run in group if run.folder not in finished]) for group in grouped(runs)]
    return [_begun_together(group, out) or unfinished for group, unfinished in waiting if unfinished]


def _begun_together(group: Sequence[Run], out: Path) -> Sequence[Run]:
    """The whole group, if it was begun as one program: with fewer runs it would be another, and end in other bits."""
    alone = group[0].engine.together() is None or len(group) == 1
    return [] if alone or not group_store(out, [run.folder.name for run in group]).exists() else group


def _remove_others(runs: Sequence[Run], out: Path) -> None:
    """Empty the folders that hold other runs than these, and forget how far their groups were."""
    others = set()
    for run in runs:
        try:
            _is_finished(run, Callback())
        except InputError:
            Folder(run.folder).open(run.ready.study, resume=False, overwrite=True).close()
            others.add(run.folder)
    for group in grouped(runs):
        if len(group) > 1 and any(run.folder in others for run in group):
            shutil.rmtree(group_store(out, [run.folder.name for run in group]), ignore_errors=True)


def _is_finished(run: Run, watcher: Callback) -> bool:
    """Is this very run there, and at its end? A folder that holds another one is refused."""
    folder = Folder(run.folder)
    if not folder.study_file.exists():
        return False
    changes = folder.compare(run.ready.study, accept_changes=True)
    if not folder.summary_file.exists():
        return False  # it goes on, and what else has changed is judged then
    rounds = read_table(folder.study_file).get("rounds")
    if rounds != run.ready.study["rounds"]:
        raise InputError(f"{folder.path} holds this run with {rounds} rounds, here there are "
                         f"{run.ready.study['rounds']}; ask for as many, or choose another folder by --out (in Python: "
                         "out=...).")
    if changes:
        watcher.noticed(f"{folder.path} was made elsewhere and is kept: {', '.join(changes)}.")
    return True


def play_group(runs: Sequence[Run], out: Path, watcher: Callback, accept_changes: bool = False) -> None:
    """Run a group to its end. Their data and clocks are equal, or they would not be in one group: one copy serves."""
    first = runs[0].ready.parts
    ready = [run.ready._replace(parts=run.ready.parts._replace(
        problem=first.problem, clock=first.clock, data=first.data, central=first.central)) for run in runs]
    names = [run.folder.name for run in runs]
    play_together(runs[0].engine, ready, watcher, out=out, names=names, accept_changes=accept_changes)
    if len(names) > 1:  # each has a last checkpoint of its own
        shutil.rmtree(group_store(out, names), ignore_errors=True)


def _metric_of(column: str, runs: Sequence[Run]) -> str:
    """The metric in a column's name: the last word of "inference.shared.accuracy", or the one before the statistic."""
    rows = [row for run in runs for row in read_evaluations(run.folder)[-1:]]
    numbers = dict.fromkeys(key for row in rows for key, value in row.items() if isinstance(value, int | float))
    if column not in numbers:
        raise unknown("number to choose by", column, [name for name in numbers if "." in name])
    words = column.split(".")
    return words[2] if len(words) > 2 else words[-1]


def _is_scored(runs: Sequence[Run], column: str) -> bool:
    return any(column in row for run in runs for row in read_evaluations(run.folder)[-1:])


def _outcome(point: Mapping[str, Any], runs: Sequence[Run], column: str, metric: str,
             failures: Mapping[str, str]) -> Outcome:
    failure = failures.get(label(point), "")
    if failure:
        return Outcome(point, np.nan, np.nan, np.nan, failure)
    last = [read_evaluations(run.folder)[-1] for run in runs]

    def numbers(name: str) -> np.ndarray:
        values = [row.get(name) for row in last]
        return np.array([np.nan if value is None else value for value in values])

    chosen_by = numbers(column)
    if column.startswith("online."):  # who has a loss that is not a number is not charged, which must not look good
        chosen_by = np.where([row["rejected_uploads"] > 0 for row in last], np.nan, chosen_by)
    spread = float(chosen_by.std(ddof=1)) if len(runs) > 1 else np.nan
    diverged = "" if np.isfinite(chosen_by).all() else "diverged: its loss is not a number"
    tested = numbers(f"test.personal.{metric}.mean")
    return Outcome(point, float(chosen_by.mean()), spread, float(tested.mean()), diverged)
