"""The demo: 50 clients, each telling one digit from a common group, learn alone, together, and in between."""

from __future__ import annotations

import shutil
from pathlib import Path

import cantons as ct


def play(out: Path, rounds: int, watcher: ct.Callback) -> list[Path]:
    """Run every method on the same data from the same start; older demo folders are replaced."""
    data = ct.digits(clients=50, seed=0)
    problem = ct.logistic(data)
    methods = {
        "independent": ct.independent(step_size=0.5, batch_size=8),
        "central": ct.central(step_size=0.5, steps=10, batch_size=8),
        "fedavg": ct.fedavg(step_size=0.5, batch_size=8),
        "fedavg + fine-tuning": ct.fedavg_finetune(step_size=0.5, batch_size=8, tune_step_size=0.2),
    }
    folders = []
    for name, recipe in methods.items():
        folder = out / recipe.name
        if (folder / "study.json").exists():
            shutil.rmtree(folder)
        ct.run(problem, data, recipe, rounds=rounds, cohort=25, out=folder, name=name, callbacks=[watcher])
        folders.append(folder)
    return folders
