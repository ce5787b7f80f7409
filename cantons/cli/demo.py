"""The demo: 50 clients, each telling one digit from a common group, learn alone, together, and in between."""

from __future__ import annotations

from pathlib import Path

import cantons as ct
from cantons.study.resolve import resolve
from cantons.study.sweep import Run, play_group, unfinished_groups

SEEDS = 3  # the seeds of a method run as one program, so that they take little longer than one


def play(out: Path, rounds: int, watcher: ct.Callback) -> list[Path]:
    """Run every method on the same data and seeds; a demo that is there already goes on."""
    data = ct.digits(clients=50, seed=0)
    one_model, two_models = ct.logistic(data), ct.residual(data)  # FedRes adds a private model to the shared one
    methods = {
        "independent": (one_model, ct.independent(step_size=0.5, batch_size=8)),
        "central": (one_model, ct.central(step_size=0.5, steps=10, batch_size=8)),
        "fedavg": (one_model, ct.fedavg(step_size=0.5, batch_size=8)),
        "fedavg + fine-tuning": (one_model, ct.fedavg_finetune(step_size=0.5, batch_size=8, tune_step_size=0.2)),
        "fedres": (two_models, ct.fedres_avg(step_size=0.5, steps=5, batch_size=8)),
    }
    engine, runs = ct.Local(), []
    for name, (problem, recipe) in methods.items():
        ready = resolve(problem, data, recipe, rounds=rounds, cohort=25, name=name, engine=engine)
        runs += [Run({}, out / f"{recipe.name}-{seed}", ready.with_seed(seed), engine) for seed in range(SEEDS)]
    for group in unfinished_groups(runs, out, watcher):
        play_group(group, out, watcher)
    return [run.folder for run in runs]
