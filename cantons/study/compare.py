"""Run several studies on the same data and seeds; a run that is there already is resumed, not repeated."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from cantons.clock import rounds
from cantons.data import Federation
from cantons.errors import InputError, unknown, with_article
from cantons.files import folder_name, without_separators
from cantons.protocol import Recipe
from cantons.study.callbacks import Callback
from cantons.study.folder import Folder
from cantons.study.given import as_study, chosen_options
from cantons.study.registry import part
from cantons.study.resolve import build_clock
from cantons.study.study import AnyStudy
from cantons.study.values import parsed_algorithm


class Method(NamedTuple):
    """What is compared: a study under a name, once for each seed."""

    name: str
    folder: str  # its runs go to <folder>-<seed>
    versions: list[AnyStudy]


def play(methods: Sequence[Method], out: Path, reference: str | None, watcher: Callback,
         accept_changes: bool = False, overwrite: bool = False) -> list[Path]:
    """Run them; the run folders, method by method and seed by seed.

    Folders that hold runs of other studies are refused first; with `overwrite` those runs are removed.
    """
    names = [method.name for method in methods]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"two of the methods are called {name!r}; give each a name of its own.")
    first = methods[0].versions[0]
    if reference is not None and reference not in names and (
            len(names) > 1 or reference != first.algorithm()["name"]):  # a single method goes by either name
        raise unknown("reference", reference, names)
    for study in (method.versions[0] for method in methods):
        if not study.has_data_of(first):
            raise InputError(f"{study.source} has other data than {first.source}; "
                             "compare studies with the same [data].")
    _check([method.versions[0] for method in methods])
    runs = {out / f"{method.folder}-{seed}": study for method in methods for seed, study in enumerate(method.versions)}
    others = {folder for folder, study in runs.items() if _holds_other(folder, study, accept_changes, overwrite)}
    for folder, study in runs.items():
        study.run(out=folder, resume=folder not in others and Folder(folder).has_begun(), overwrite=folder in others,
                  accept_changes=accept_changes, callbacks=[watcher], progress=None)
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


def of_studies(studies: Sequence[Any], seeds: int, changes: Mapping[str, Any]) -> list[Method]:
    """One method for each study, or path of a study file."""
    methods = []
    for given in studies:
        versions = _versions(given, seeds, changes)
        methods.append(Method(versions[0].name, folder_name(versions[0].name), versions))
    return methods


def of_algorithms(given: Any, algorithms: Sequence[str | Mapping[str, Any] | Recipe], seeds: int,
                  changes: Mapping[str, Any], watcher: Callback) -> list[Method]:
    """One study with each of the algorithms: recipes, tables, or words as in `name,option=value,...`.

    What the study itself says about its algorithm holds for the others too, as far as they have such options; a recipe
    has all of its own.
    """
    study = as_study(given, changes)
    if study.stages:
        raise InputError(f"{study.source} has stages, each with an algorithm of its own; leave algorithm out, and "
                         "compare study files.")
    own = {key: value for key, value in study.algorithm().items() if key != "name"}
    methods = []
    for algorithm in algorithms:
        if isinstance(algorithm, Recipe):
            name, options = algorithm.name, chosen_options(algorithm, own)
            changed: dict[str, Any] = {"algorithm": algorithm}
        else:
            name, options = _named(algorithm)
            function = part("algorithm", name)
            known = inspect.signature(function).parameters if callable(function) else own
            strange = [key for key in own if key not in known]
            if strange:
                watcher.noticed(f"{name} has no {' and no '.join(strange)}: what {study.source} says about that is not "
                                "for it.")
            table = {"name": name, **{key: value for key, value in own.items() if key in known}}
            changed = {"algorithm": table, **{f"algorithm.{key}": value for key, value in options.items()}}
        label = ", ".join([name, *(f"{key}={getattr(value, 'name', value)}" for key, value in options.items())])
        versions = _versions(given, seeds, {**changes, "name": label, **changed})
        methods.append(Method(label, folder_name(without_separators(label.replace(", ", ","))), versions))
    return methods


def _named(algorithm: str | Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    if isinstance(algorithm, str):
        return parsed_algorithm(algorithm)
    if isinstance(algorithm, Mapping) and isinstance(algorithm.get("name"), str):
        return algorithm["name"], {key: value for key, value in algorithm.items() if key != "name"}
    raise InputError(f"algorithm is {with_article(type(algorithm).__name__)}; give names, such as "
                     "\"fedprox,mu=0.1\", tables, or what such a function makes: ct.fedprox(mu=0.1).")


def _versions(given: Any, seeds: int, changes: Mapping[str, Any]) -> list[AnyStudy]:
    if "seed" in changes:
        raise InputError("a comparison runs the seeds 0, 1, ...; say how many with --seeds (in Python: seeds=3), and "
                         "leave seed alone.")
    return [as_study(given, {**changes, "seed": seed}) for seed in range(seeds)]
