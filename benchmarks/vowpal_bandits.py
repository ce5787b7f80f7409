"""How does the regret of federated bandits compare with that of Vowpal Wabbit's --cb_explore_adf?

    python benchmarks/vowpal_bandits.py

Both meet the same contexts and rewards, those of the synthetic environment of studies/fedres/bandits.py. Vowpal Wabbit
is a process in an environment of its own (benchmarks/.venvs, made on first use). It is told the rewards of the actions
it draws, and answers with these actions; regret is counted here, in mean rewards. Its learners have three layouts:

    alone   a workspace for each client, all features: the counterpart of regressor="alone"
    shared  one workspace for all clients in turn, global features: of regressor="shared"
    joint   one workspace, global features, and local ones with weights for each client: of regressor="joint", but
            with everybody's data in one place

Each has Vowpal Wabbit's own settings, and those of the grid with the least regret on two other seeds. Ours have what
the study chose in the same way.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from peers import HERE, Contender, python_for

sys.path.insert(0, str(HERE.parent / "studies" / "fedres"))
import bandits as study

import cantons as ct
from cantons.data import contexts_of
from cantons.study.folder import environment

VERSION = "9.11.9"
LAYOUTS = ("alone", "shared", "joint")
RATES = (0.2, 0.5, 1.0)  # 0.5 is Vowpal Wabbit's own
GRIDS = {"squarecb": [f"--squarecb --gamma_scale {gamma} -l {rate}"
                      for gamma, rate in itertools.product((10, 100, 1000), RATES)],  # 10 is its own
         "epsilon": [f"--epsilon {epsilon} -l {rate}" for epsilon, rate in itertools.product((0.02, 0.1), RATES)]}
PLAIN = {"squarecb": "--squarecb", "epsilon": "--epsilon 0.1"}
OURS: dict[tuple[str, str], dict[str, float]] = {  # chosen by the study
    ("igw", "joint"): {"step_size": 0.1, "private_step_size": 0.1, "gamma": 1000.0},
    ("igw", "shared"): {"step_size": 0.1, "gamma": 1000.0},
    ("igw", "alone"): {"step_size": 0.1, "gamma": 1000.0},
    ("every", "joint"): {"step_size": 0.1, "private_step_size": 0.1, "every": 10},
    ("every", "shared"): {"step_size": 0.1, "every": 20},
    ("every", "alone"): {"step_size": 0.1, "every": 10},
}
Job = tuple[int, str, str]  # seed, layout, options


class Wabbit:
    """Cumulative regret per client of jobs."""

    def __init__(self, federations: Mapping[int, ct.Federation], folder: Path, python: Path, processes: int):
        self.folder, self.python, self.processes, self.version = folder, python, processes, ""
        self.means = {}
        for seed, data in federations.items():
            inputs, rewards, means = (np.stack(parts) for parts in zip(*contexts_of(data).values(), strict=True))
            inputs.astype(np.float32).tofile(folder / f"{seed}.inputs")
            rewards.astype(np.float32).tofile(folder / f"{seed}.rewards")
            self.means[seed], self.shape = means, inputs.shape

    def regrets(self, jobs: list[Job]) -> list[float]:
        work = {"folder": str(self.folder), "shape": self.shape, "processes": self.processes, "jobs": jobs}
        done = subprocess.run([self.python, HERE / "peers" / "vowpal_bandit_stream.py"], input=json.dumps(work),
                              stdout=subprocess.PIPE, text=True, check=True)
        answer = json.loads(done.stdout)
        self.version = answer["version"]
        return [self._regret(self.means[seed], np.array(one["actions"]))
                for (seed, _, _), one in zip(jobs, answer["played"], strict=True)]

    @staticmethod
    def _regret(means: np.ndarray, actions: np.ndarray) -> float:
        got = np.take_along_axis(means, actions[..., None], axis=-1)[..., 0]
        return float((means.max(axis=-1) - got).sum(axis=1).mean())


def theirs(wabbit: Wabbit, settings: study.Settings) -> list[dict[str, Any]]:
    cells = [(layout, explore, options) for layout in LAYOUTS for explore, grid in GRIDS.items() for options in grid]
    tried = wabbit.regrets([(seed, layout, options) for layout, _, options in cells for seed in settings.chosen_by])
    tries = dict(zip(cells, np.array(tried).reshape(len(cells), -1).mean(axis=1), strict=True))
    wanted = []
    for layout, explore in itertools.product(LAYOUTS, GRIDS):
        best = min(GRIDS[explore], key=lambda options: tries[layout, explore, options])
        wanted += [(layout, explore, "own", PLAIN[explore]), (layout, explore, "chosen", best)]
    ends = wabbit.regrets([(seed, layout, options) for layout, _, _, options in wanted for seed in settings.seeds])
    return [{"who": "vw", "explore": explore, "learner": layout, "settings": kind, "options": options,
             "regret": regret.tolist(),
             "tried": {option: float(tries[layout, explore, option]) for option in GRIDS[explore]}}
            for (layout, explore, kind, options), regret
            in zip(wanted, np.array(ends).reshape(len(wanted), -1), strict=True)]


def ours(place: study.Environment, settings: study.Settings) -> list[dict[str, Any]]:
    rows, clock = [], place.clock.build(settings.clients)
    for (explore, regressor), options in OURS.items():
        curves = study.Curves(place, study.method(explore, regressor), clock)
        regrets = curves.of([(seed, options) for seed in settings.seeds])[:, -1]
        rows.append({"who": "ours", "explore": explore, "learner": regressor, "settings": "chosen",
                     "options": " ".join(f"{name}={value:g}" for name, value in options.items()),
                     "regret": [float(regret) for regret in regrets]})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=study.Settings().clients)
    parser.add_argument("--steps", type=int, default=study.Settings().steps)
    parser.add_argument("--seeds", type=int, nargs="+", default=list(study.Settings().seeds))
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--out", default="vowpal-bandits.json", help="the file in benchmarks/results")
    given = parser.parse_args()
    settings = study.Settings(clients=given.clients, steps=given.steps, seeds=tuple(given.seeds))
    place = study.environment("synthetic", settings)
    assert place is not None
    rows = ours(place, settings)
    python = python_for(Contender("vowpal", (f"vowpalwabbit=={VERSION}",), {}))
    with tempfile.TemporaryDirectory() as folder:
        wabbit = Wabbit(place.federations, Path(folder), python, given.processes)
        rows += theirs(wabbit, settings)
    print(f"cumulative regret of a client, {settings.clients} clients, {settings.steps} steps; median (least to most)")
    for row in rows:
        print(f"{row['who']:6}{row['explore']:10}{row['learner']:8}{row['settings']:8}{study.spread(row['regret']):>26}"
              f"   {row['options']}")
    about = {"command": ["python", *sys.argv], "vowpalwabbit": wabbit.version, "environment": environment(),
             "clients": settings.clients, "steps": settings.steps, "seeds": settings.seeds,
             "chosen_by": settings.chosen_by, "rows": rows}
    (HERE / "results" / given.out).write_text(json.dumps(about, indent=1) + "\n")


if __name__ == "__main__":
    main()
