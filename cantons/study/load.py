"""Come back to a finished (or interrupted) run: the model, from its folder alone."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax

from cantons.data import with_liars, with_validation
from cantons.engine import blank_snapshot
from cantons.errors import InputError, Notice
from cantons.memory import give_back
from cantons.problem import problem_from_spec
from cantons.protocol import Problem, Recipe
from cantons.study.byzantine import corrupt_pair, draw_liars
from cantons.study.checkpoint import Checkpoints
from cantons.study.fingerprint import DIGITS, Fingerprint, check_same, differences, fingerprint
from cantons.study.folder import Folder, environment
from cantons.study.kept import NAME as KEPT
from cantons.study.kept import keep, read_kept
from cantons.study.reading import LOADED, read_study, rebuilding
from cantons.study.registry import (
    foreign_parts,
    make,
    make_algorithm,
    make_byzantine,
    make_central,
    make_data,
    make_problem,
    make_recipe,
    terms_in,
    with_terms,
)
from cantons.study.resolve import build_clock, choose_rule, identity_of
from cantons.study.result import Trained
from cantons.study.source import foreign_sources
from cantons.study.unfinished import check_last_stage


@rebuilding
def load(folder: str | Path, *, problem: Problem | None = None, algorithm: Recipe | None = None,
         data: Any = None, trust: bool = False) -> Trained:
    """The trained federation in `folder`, to predict with.

    It has `predict`, `predict_proba` and `classes_` for raw rows; its `client(name)` is the model of one client.
    Parts that were written in Python and have no name must be given again. Data is only needed for clients whose
    models are fitted when they are asked for, and is made again from the study where it can be. Modules outside
    cantons that the folder names are imported with `trust=True` only, because importing runs their code. A notice
    says if the versions or the devices are not those of the run.
    """
    path = Path(folder)
    study, there = read_study(path, LOADED), Folder(path)
    if not there.holds_run():
        check_last_stage(path, study)
    kept = read_kept(path, study)
    if "models" in study:
        raise InputError(f"{path} is a run whose clients brought models of their own, which only you can make again; "
                         "run_with_models(..., out=..., resume=True) with models made alike gives it back.")
    tables = {"data": study["data"]["made_by"] if data is None else None,
              "central": study["data"].get("central") if data is None else None,
              "groups": study["data"].get("groups") if data is None else None,
              "problem": study["problem"] if problem is None else None,
              "algorithm": study["algorithm"] if algorithm is None else None,
              "clock": study["clock"], "aggregate": study.get("aggregate"), "byzantine": study.get("byzantine")}
    if not trust:
        _check_trust(path, tables)
    _say_what_changed(there, study)
    data = _data(study, path) if data is None else _same_data(study, data, path)
    problem = problem or _problem(study, data, path)
    algorithm = algorithm or _algorithm(study, path)
    _check_source(study, tables, path)
    population = study["data"]["population"]
    rule = make_recipe("aggregate", study["aggregate"]) if study.get("aggregate") else None
    with jax.enable_x64(study["precision"] == "float64"):
        built = algorithm.build(problem, population)
        if rule is not None:
            built = choose_rule(algorithm.name, built, rule)
        when = make_recipe("clock", study["clock"])
        clock = when.build(population) if data is None else build_clock(when, data)
        honest, train = built, None if data is None else data.train
        if study.get("byzantine") and data is not None:
            liars = make_byzantine({**study["byzantine"], "count": None, "name": "byzantine"})
            who = draw_liars(liars, data, study["seed"])
            built, clock = corrupt_pair(algorithm.name, built, clock, liars, who, data)
            train = with_liars(data, who).train
        try:
            template = blank_snapshot(problem, built, clock, population, study["seed"], train,
                                      None if data is None else data.central)
        except InputError as error:
            raise InputError(f"cannot read {path} back: {error}") from error
        found = Checkpoints(path / "checkpoints").newest(template)
        if found is None or not found[1]:
            check_last_stage(path, study)
            raise InputError(f"{path} holds no sound checkpoint yet; let the run finish, or go on by --resume (in "
                             "Python: resume=True).")
        _check_checkpoint(there, found[1])
    give_back()
    if data is not None and not (path / KEPT).exists():
        kept = keep(data, study)  # an older folder: the data say what it does not
    return Trained(problem, honest, found[0], data, study["seed"], study["precision"], kept)


def _check_trust(path: Path, tables: Mapping[str, Any]) -> None:
    """A run folder is somebody else's file: refuse what would import code of its choice."""
    named = [f"{name} ({kind})" for kind, table in tables.items() for name in foreign_parts(table)]
    if named:
        raise InputError(f"{path} names parts outside cantons: {', '.join(named)}. Importing them runs their code; if "
                         "you trust it, use --trust (in Python: load(folder, trust=True)).")


def _say_what_changed(there: Folder, study: Mapping[str, Any]) -> None:
    """A notice, if the last digits of what is predicted may not be those of the run."""
    old = there.fingerprint()
    new = fingerprint(study, environment())
    changes = differences(old, new, DIGITS)
    if changes:
        warnings.warn(f"{there.path} was made elsewhere: {', '.join(changes)}; the last digits may differ.", Notice,
                      stacklevel=3)


def _check_source(study: Mapping[str, Any], tables: Mapping[str, Any], path: Path) -> None:
    """Refuse parts whose text is not the one that was run."""
    before, now = study.get("source") or {}, foreign_sources((), tables.values())
    for module, checksum in now.items():
        if before.get(module, checksum) != checksum:
            raise InputError(f"the source of {module} is not the one that {path} was run with; bring that text back, "
                             "or give the part yourself: load(folder, algorithm=...).")


def _check_checkpoint(there: Folder, about: Mapping[str, Any]) -> None:
    """Refuse a checkpoint that is not of the run in this folder."""
    for saved in about.get("fingerprints") or ():
        check_same(f"the newest checkpoint of {there.path}", Fingerprint(**saved), there.fingerprint(),
                   accept_changes=True)


def _data(study: Mapping[str, Any], path: Path) -> Any:
    """None if the data has no maker, or its file is gone or changed: then no client's model can be fitted."""
    if study["data"]["made_by"] is None:
        return None
    try:
        data = make_data(study["data"]["made_by"])
        if study["data"].get("central"):
            data = make_central(study["data"]["central"], data)
        if study["data"].get("groups"):
            data = make("groups", study["data"]["groups"], data)
    except InputError:
        return None
    try:
        return _same_data(study, data, path)
    except InputError as error:
        warnings.warn(f"{error} Clients whose models are fitted when they are asked for cannot predict.", Notice,
                      stacklevel=3)
        return None


def _same_data(study: Mapping[str, Any], data: Any, path: Path) -> Any:
    """The data with the validation rows held back, if they are those of the run."""
    if study["validation"] is not None and data.validation is None:
        data = with_validation(data, study["validation"])
    before, now = study["data"]["checksum"], identity_of(data)["checksum"]
    if isinstance(before, str) and before != now:  # an older checksum cannot be taken again
        raise InputError(f"the data are not those that {path} was trained on: their checksum is {now}, and it was "
                         f"{before}.")
    return data


def _problem(study: dict[str, Any], data: Any, path: Path) -> Problem:
    spec = dict(study["problem"] or {})
    if not spec:
        raise InputError(f"the problem of {path} was written in Python and has no name; "
                         "give it: load(folder, problem=...).")
    if "input_shape" in spec:  # otherwise a part of it is the user's own, and asks the data for its shapes
        terms = terms_in(spec)
        bare = problem_from_spec({key: value for key, value in spec.items() if key not in terms})
        return with_terms(bare, terms, list(terms.get("group_weights", ())))
    if data is None:
        raise InputError(f"the problem of {path} is made from its data, which is not there; "
                         "give it: load(folder, data=...).")
    return make_problem(spec, data)


def _algorithm(study: dict[str, Any], path: Path) -> Recipe:
    try:
        return make_algorithm(study["algorithm"])
    except InputError as error:
        raise InputError(f"cannot rebuild the algorithm of {path} ({error}); "
                         "give it: load(folder, algorithm=...).") from error
