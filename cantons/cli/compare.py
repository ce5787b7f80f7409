"""Run several studies on the same data and seeds; a run that is there already is resumed, not repeated."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from cantons.cli.changes import parsed_algorithm
from cantons.data import Federation
from cantons.errors import InputError, unknown
from cantons.files import folder_name, without_separators
from cantons.study.callbacks import Callback
from cantons.study.folder import Folder
from cantons.study.read import Study, read_study
from cantons.study.registry import make_algorithm, make_problem, make_recipe, part
from cantons.study.resolve import build_clock


class Method(NamedTuple):
    """What is compared: a study under a name, once for each seed."""

    name: str
    folder: str  # its runs go to <folder>-<seed>
    versions: list[Study]


def play(methods: Sequence[Method], out: Path, reference: str | None, watcher: Callback,
         accept_changes: bool = False) -> list[Path]:
    """Run them; the run folders, method by method and seed by seed. Folders that hold other runs are refused first."""
    names = [method.name for method in methods]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"two of the methods are called {name!r}; give each a name of its own.")
    first = methods[0].versions[0]
    if reference is not None and reference not in names and (
            len(names) > 1 or reference != first.tables["algorithm"]["name"]):  # a single method goes by either name
        raise unknown("reference", reference, names)
    for study in (method.versions[0] for method in methods):
        if study.tables["data"] != first.tables["data"]:
            raise InputError(f"{study.source} has other data than {first.source}; "
                             "compare studies with the same [data].")
    _check([method.versions[0] for method in methods])
    runs = {out / f"{method.folder}-{seed}": study for method in methods for seed, study in enumerate(method.versions)}
    for folder, study in runs.items():
        study.check_folder(folder, accept_changes)
    for folder, study in runs.items():
        study.run(out=folder, resume=Folder(folder).has_begun(), accept_changes=accept_changes, callbacks=[watcher])
    return list(runs)


def _check(studies: Sequence[Study]) -> None:
    """Build everything once, so that no mistake comes to light after hours of running what stands before it."""
    data: Federation | None = None
    for study in studies:
        try:
            data = data or study.federation()
            if study.stages:
                study.resolved()
            problem = make_problem(study.tables["problem"], data)
            make_algorithm(study.tables["algorithm"]).build(problem, data.population)
            _check_scored(study, data)
        except InputError as error:
            raise InputError(f"{study.source}: {error}") from error


def _check_scored(study: Study, data: Federation) -> None:
    """Refuse runs that nothing could be said about: a comparison needs test rows, or a stream scored as it is met.

    A test set that is nobody's in particular will do: the shared models are then compared on it.
    """
    clock = study.tables.get("clock", {"name": "rounds"})
    if not data.test.sizes.any() and not data.sets and build_clock(make_recipe("clock", clock), data).online is None:
        raise InputError(f"{data.name} has no test rows to compare by; set some aside (in [data]: test = 0.2), or run "
                         "under the online clock.")


def of_studies(paths: Sequence[Path], seeds: int, changes: Mapping[str, Any]) -> list[Method]:
    """One method for each study file."""
    methods = []
    for path in paths:
        versions = _versions(path, seeds, changes)
        name = versions[0].settings.name or path.stem
        methods.append(Method(name, folder_name(name), versions))
    return methods


def of_algorithms(path: Path, algorithms: Sequence[str], seeds: int, changes: Mapping[str, Any],
                  watcher: Callback) -> list[Method]:
    """One study with each of the algorithms, written as `name,option=value,...`.

    What the study itself says about its algorithm holds for the others too, as far as they have such options.
    """
    study = read_study(path, changes)
    if study.stages:
        raise InputError(f"{path} has stages, each with an algorithm of its own; leave --algorithm out, and compare "
                         "study files.")
    own = {key: value for key, value in study.tables["algorithm"].items() if key != "name"}
    methods = []
    for text in algorithms:
        name, options = parsed_algorithm(text)
        function = part("algorithm", name)
        known = inspect.signature(function).parameters if callable(function) else own
        strange = [key for key in own if key not in known]
        if strange:
            watcher.noticed(f"{name} has no {' and no '.join(strange)}: what {path} says about that is not for it.")
        table = copy.deepcopy({"name": name, **{key: value for key, value in own.items() if key in known}})
        given = {f"algorithm.{key}": value for key, value in options.items()}
        label = ", ".join([name, *(f"{key}={value}" for key, value in options.items())])
        versions = _versions(path, seeds, {**changes, "name": label, "algorithm": table, **given})
        methods.append(Method(label, folder_name(without_separators(label.replace(", ", ","))), versions))
    return methods


def _versions(path: Path, seeds: int, changes: Mapping[str, Any]) -> list[Study]:
    if "seed" in changes:
        raise InputError("a comparison runs the seeds 0, 1, ...; say how many with --seeds, and leave seed alone.")
    return [read_study(path, {**changes, "seed": seed}) for seed in range(seeds)]
