"""The demo: 50 clients, each telling one digit from a common group, learn alone, together, and in between."""

from __future__ import annotations

from pathlib import Path

import cantons as ct
from cantons.study.folder import Folder


def play(out: Path, rounds: int, watcher: ct.Callback) -> list[Path]:
    """Run every method on the same data from the same start; a demo that is there already goes on."""
    data = ct.digits(clients=50, seed=0)
    one_model, two_models = ct.logistic(data), ct.residual(data)  # FedRes adds a private model to the shared one
    methods = {
        "independent": (one_model, ct.independent(step_size=0.5, batch_size=8)),
        "central": (one_model, ct.central(step_size=0.5, steps=10, batch_size=8)),
        "fedavg": (one_model, ct.fedavg(step_size=0.5, batch_size=8)),
        "fedavg + fine-tuning": (one_model, ct.fedavg_finetune(step_size=0.5, batch_size=8, tune_step_size=0.2)),
        "fedres": (two_models, ct.fedres_avg(step_size=0.5, steps=5, batch_size=8)),
    }
    folders = []
    for name, (problem, recipe) in methods.items():
        folder = out / recipe.name
        ct.run(problem, data, recipe, rounds=rounds, cohort=25, out=folder, name=name, callbacks=[watcher],
               progress=None, resume=Folder(folder).has_begun())
        folders.append(folder)
    return folders
