"""Stages: runs of which each begins where the one before ended, as one study in one run folder.

Mishchenko et al., "Partially Personalized Federated Learning", E.6: federated pre-training, personalised training and
final tuning. The run folder is that of the last stage, which is the result; the others have theirs in its `stages`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import jax

from cantons.data import Federation
from cantons.data.seeds import generator
from cantons.engine import Local
from cantons.errors import InputError
from cantons.files import folder_name, make_folder, without_separators
from cantons.protocol import Engine
from cantons.study.byzantine import draw_liars
from cantons.study.callbacks import Callbacks, Several
from cantons.study.folder import STAGES, Folder
from cantons.study.progress import watching
from cantons.study.resolve import VALIDATION, Resolved, check_start, resolve, sample_clients
from cantons.study.result import Result, Trained
from cantons.study.run import check_folder_options, play
from cantons.study.warm_start import check_follows, start_from

# What a later stage says of an earlier one. Seeds are left out: they follow from that of the study.
SAID = ("rounds", "problem", "algorithm", "clock", "aggregate")


def run_stages(data: Federation, stages: Mapping[str, Mapping[str, Any]], *, seed: int = 0, precision: str = "float32",
               validation: float | None = None, engine: Engine | None = None, out: str | Path | None = None,
               resume: bool = False, overwrite: bool = False, accept_changes: bool = False, callbacks: Callbacks = (),
               progress: bool | None = True, name: str | None = None, **common: Any) -> Result:
    """Run several stages, each from the end of the one before: its shared part and every client's private part.

    `stages` are {name: {"problem": ..., "algorithm": ..., "rounds": ...}}, with arguments of `run`; `common` has those
    of all stages that say nothing else. The result is that of the last stage, and those of the others are in its
    `before`. With `out`, the last stage's run folder is there, and those of the others in its folder `stages`;
    `resume=True` goes on within whichever stage was stopped, to the same bits; `overwrite=True` begins anew.
    """
    engine = engine or Local()
    runs = resolve_stages(data, stages, seed=seed, precision=precision, validation=validation, engine=engine, name=name,
                          **common)
    check_folder_options(out, resume, overwrite)
    again = f"go on with the same command and --resume --out {out} (in Python: run_stages(..., out=..., resume=True))."
    *_, last = runs
    results: dict[str, Result] = {}
    result = None
    with watching(progress) as watchers, ExitStack() as opened:
        callbacks = [*callbacks, *watchers]
        folder = None if out is None else opened.enter_context(
            Folder(Path(out)).open(runs[last].study, resume, accept_changes, overwrite))
        for stage, (label, run) in zip(stages, runs.items(), strict=True):
            if result is not None:
                with _naming(stage):
                    run = _begin_at(result.model, run, callbacks)
            own = folder if folder is None or label == last else _folder_of(folder, label)
            ended = play(engine, run, callbacks, own, resume=own is not None and own.holds_run(), again=again,
                         accept_changes=accept_changes)
            trained = Trained(run.parts.problem, run.parts.algorithm, ended.snapshot, run.data, run.parts.seed,
                              precision)
            result = Result(ended.history, ended.columns, ended.summary, trained, None if own is None else own.path,
                            dict(results), ended.new_columns)
            results[stage] = result
    assert result is not None
    return result


def resolve_stages(data: Federation, stages: Mapping[str, Mapping[str, Any]], *, seed: int = 0, name: str | None = None,
                   **common: Any) -> dict[str, Resolved]:
    """Settle every stage, {folder: run}, and refuse one that cannot begin where the one before ends."""
    if not stages:
        raise InputError("there are no stages; give at least one.")
    if common.get("byzantine") is not None:  # the same liars in every stage, though each has a seed of its own
        liars = draw_liars(common["byzantine"], data, seed)
        common["byzantine"] = common["byzantine"]._replace(number=None, clients=tuple(
            name for name, lies in zip(data.clients.names, liars, strict=True) if lies))
    if common.get("validation") is None and any({**common, **options}.get("patience") for options in stages.values()):
        common["validation"] = VALIDATION  # the same rows in every stage
    found: dict[str, Resolved] = {}
    for place, (stage, options) in enumerate(stages.items()):
        last = place == len(stages) - 1
        with _naming(stage):
            chosen = {**common, **options}
            missing = [option for option in ("problem", "algorithm", "rounds") if option not in chosen]
            if missing:
                raise InputError(f"it has no {missing[0]}; give it, or one for all stages.")
            problem, recipe = chosen.pop("problem"), chosen.pop("algorithm")
            run = resolve(problem, data, recipe, **{"engine": Local(), **chosen}, seed=_seed(seed, place, last),
                          name=(name or recipe.name) if last else f"{name or recipe.name}, {stage}")
            former = list(found.values())
            if former:
                check_follows(former[-1].parts.problem, problem)
                run.study["stages"] = {label: {key: one.study[key] for key in SAID} for label, one in found.items()}
                run.study["source"] |= former[-1].study["source"]
            # The same clients in every stage: their curves go on.
            scored = sample_clients(run.data, seed, run.study["evaluate_clients"], run.liars)
            found[f"{place + 1}-{folder_name(without_separators(stage))}"] = run._replace(
                parts=run.parts._replace(scored=scored))
    return found


def _begin_at(before: Trained, run: Resolved, callbacks: Callbacks) -> Resolved:
    """The same run from another start: where the stage before has ended."""
    parts = run.parts
    with jax.enable_x64(run.study["precision"] == "float64"):
        start = start_from(before, parts, run.data, Several(callbacks).noticed)
        check_start(parts.recipe.name, parts.algorithm, parts.problem, parts.seed, start)
    return run._replace(start=start)


def _seed(seed: int, place: int, last: bool) -> int:
    """A stage with the draws of another would meet the same cohorts again; the last one has the study's own seed."""
    return seed if last else int(generator(seed, "stage", str(place)).integers(2**32))


def _folder_of(folder: Folder, label: str) -> Folder:
    make_folder(folder.path / STAGES)
    return Folder(folder.path / STAGES / label)


@contextmanager
def _naming(stage: str) -> Iterator[None]:
    """Name the stage in whatever is wrong with it."""
    try:
        yield
    except InputError as error:
        raise InputError(f"stage {stage}: {error}") from error
