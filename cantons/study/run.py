"""Run one study, in this process: the parts are settled, an engine starts, and the loop does the rest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax

from cantons.attack import Byzantine
from cantons.data import Federation
from cantons.engine import Local
from cantons.errors import InputError
from cantons.protocol import Engine, Problem, Recipe
from cantons.study.blame import point_at_user
from cantons.study.callbacks import Callbacks, Several
from cantons.study.checkpoint import Checkpoints
from cantons.study.folder import Folder
from cantons.study.loop import Finished, Loop, Saving
from cantons.study.progress import watching
from cantons.study.resolve import Resolved, resolve
from cantons.study.result import Result, Trained
from cantons.study.warm_start import Initial, start_from


def run(
    problem: Problem,
    data: Federation,
    algorithm: Recipe,
    *,
    rounds: int,
    cohort: int | None = None,
    clock: Recipe | None = None,
    aggregate: Recipe | None = None,
    byzantine: Byzantine | None = None,
    seed: int = 0,
    evaluate_every: int | None = None,
    evaluate_clients: int | None = None,
    validation: float | None = None,
    patience: int | None = None,
    precision: str = "float32",
    engine: Engine | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    overwrite: bool = False,
    accept_changes: bool = False,
    checkpoint_every: int | None = None,
    keep: int = 3,
    callbacks: Callbacks = (),
    progress: bool | None = True,
    initial: Initial | None = None,
    name: str | None = None,
) -> Result:
    """Train `algorithm` on `data` for a number of rounds and score it along the way.

    `cohort` clients take part in each round (all by default), or whom `clock` says. `aggregate` is the rule by which
    uploads become one, such as median(), where the algorithm lets it be chosen. `byzantine` says who lies, and how;
    metrics are then over the honest clients.

    Evaluations come every `evaluate_every` rounds, ten in all by default, and after the last. They score every client,
    or the same `evaluate_clients` of them each time, drawn by the seed, with a standard error. `validation` holds back
    that fraction of every client's training rows, to choose by. With `patience` the run stops when their score has not
    improved for so many evaluations; a fifth of the rows is held back if `validation` says nothing else.

    With `out`, everything is written to that folder, and `resume=True` goes on from its newest checkpoint to the same
    bits as if it had never stopped; `overwrite=True` removes the run that is there and begins anew. If versions or the
    engine are not those it began with, it goes on with `accept_changes=True` only, and the summary says after which
    round.

    `initial` is where it begins, if not with the problem's own start: a result, a model that `load` gave or a run
    folder, with its shared part and every client's private part, by their names; or a pair (shared, private).

    `callbacks` are told what happens: a function is given each evaluation's row. How far it is can be seen in a
    terminal and in a notebook, and elsewhere once a minute; `progress=False` shows notices alone, None nothing.
    """
    engine = engine or Local()
    with watching(progress) as watchers, point_at_user():
        callbacks = [*callbacks, *watchers]
        run = resolve(problem, data, algorithm, rounds=rounds, cohort=cohort, clock=clock, aggregate=aggregate,
                      byzantine=byzantine, seed=seed, evaluate_every=evaluate_every, evaluate_clients=evaluate_clients,
                      validation=validation, patience=patience, precision=precision, engine=engine,
                      checkpoint_every=checkpoint_every, keep=keep, name=name,
                      initial=None if initial is None else lambda parts: start_from(
                          initial, parts, data, Several(callbacks).noticed))
        ended = play(engine, run, callbacks, out, resume, accept_changes=accept_changes, overwrite=overwrite)
    trained = Trained(problem, run.parts.algorithm, ended.snapshot, run.data, seed, precision)
    return Result(ended.history, ended.columns, ended.summary, trained, None if out is None else Path(out),
                  new_clients=ended.new_columns)


def play(engine: Engine, run: Resolved, callbacks: Callbacks, out: str | Path | Folder | None, resume: bool,
         save: bool = True, again: str | None = None, accept_changes: bool = False,
         overwrite: bool = False) -> Finished:
    """Run one run on an engine, and write it to `out`; without `save` it leaves no checkpoints and begins anew.

    `again` says how to go on after an interruption. A folder that is open stays open.
    """
    check_folder_options(out, resume, overwrite)
    with jax.enable_x64(run.study["precision"] == "float64"):
        session = engine.start([run.parts], Several(callbacks).noticed)
    if out is None:
        (ended,) = Loop(session, [run], callbacks).play(run.start)
        return ended
    there = out if isinstance(out, Folder) else Folder(Path(out))
    with there.opened(run.study, resume, accept_changes, overwrite) as folder:
        again = again or (f"go on with the same command and --resume --out {folder.path} (in Python: run(..., out=..., "
                          "resume=True)).")
        saving = Saving([folder], Checkpoints(folder.path / "checkpoints", run.study["keep"]) if save else None, again,
                        resume, accept_changes)
        (ended,) = Loop(session, [run], callbacks, saving).play(run.start)
        return ended


def check_folder_options(out: Any, resume: bool, overwrite: bool) -> None:
    """Refuse to go on with a run that nobody named, or that is to be removed."""
    if resume and out is None:
        raise InputError("resume needs the folder of the run to go on with: give out.")
    if resume and overwrite:
        raise InputError("resume goes on with the run that is there, and overwrite removes it; give one of them.")
