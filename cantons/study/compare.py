"""Run several methods on the same data and seeds; a run that is there already is resumed, not repeated."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from cantons.clock import rounds
from cantons.data import Federation
from cantons.errors import InputError, unknown
from cantons.protocol import Recipe
from cantons.study.callbacks import Callback, Labelled
from cantons.study.folder import Folder
from cantons.study.methods import Method
from cantons.study.resolve import build_clock
from cantons.study.study import AnyStudy


def check_methods(methods: Sequence[Method], reference: str | None) -> None:
    """Refuse what cannot be compared, before anything runs."""
    names, folders = [method.name for method in methods], [method.folder for method in methods]
    for name, folder in zip(names, folders, strict=True):
        if names.count(name) > 1:
            raise InputError(f"two of the methods are called {name!r}; give each a name of its own.")
        if folders.count(folder) > 1:
            raise InputError(f"two of the methods would share the folder {folder}; give each a name of its own.")
    first = methods[0].study
    if reference is not None and reference not in names and (
            len(names) > 1 or reference != first.algorithm()["name"]):  # a single method goes by either name
        raise unknown("reference", reference, names)
    for study in (method.study for method in methods):
        if not study.has_data_of(first):
            raise InputError(f"{study.source} has other data than {first.source}; "
                             "compare studies with the same [data].")
    _check([method.study for method in methods])


def play(methods: Sequence[Method], seeds: Sequence[int], out: Path, watcher: Callback, accept_changes: bool = False,
         overwrite: bool = False, resplit: bool = False) -> list[Path]:
    """Run methods that were checked; the run folders, method by method and seed by seed.

    Folders that hold runs of other studies are refused first; with `overwrite` those runs are removed. With `resplit`
    every seed has a split of the data of its own.
    """
    runs = {out / f"{method.folder}-{seed}": method.with_seed(seed, resplit) for method in methods for seed in seeds}
    labels = [f"{method.name}, seed {seed}" for method in methods for seed in seeds]
    others = {folder for folder, study in runs.items() if _holds_other(folder, study, accept_changes, overwrite)}
    for label, (folder, study) in zip(labels, runs.items(), strict=True):
        study.run(out=folder, resume=folder not in others and Folder(folder).has_begun(), overwrite=folder in others,
                  accept_changes=accept_changes, callbacks=[Labelled(watcher, label)], progress=None)
    return list(runs)


def _holds_other(folder: Path, study: AnyStudy, accept_changes: bool, overwrite: bool) -> bool:
    """Whether a run of another study is there, if it may be overwritten; if not, it is refused."""
    try:
        study.check_folder(folder, accept_changes)
    except InputError:
        if not overwrite:
            raise
        return True
    return False


def _check(studies: Sequence[AnyStudy]) -> None:
    """Build everything once, so that no mistake comes to light after hours of running what stands before it."""
    data: Federation | None = None
    for study in studies:
        try:
            data = data or study.federation()
            if study.stages:
                study.resolved()
            problem, _, recipe, chosen = study.parts(data)
            recipe.build(problem, data.population)
            _check_scored(data, chosen.get("clock") or rounds())
        except InputError as error:
            raise InputError(f"{study.source}: {error}") from error


def _check_scored(data: Federation, clock: Recipe) -> None:
    """Refuse runs that nothing could be said about: a comparison needs test rows, or a stream scored as it is met.

    A test set that is nobody's in particular will do: the shared models are then compared on it.
    """
    if not data.test.sizes.any() and not data.sets and build_clock(clock, data).online is None:
        raise InputError(f"{data.name} has no test rows to compare by; set some aside (in [data]: test = 0.2), or run "
                         "under the online clock.")
