"""How does the regret of federated bandits compare with that of Vowpal Wabbit's --cb_explore_adf?

    python benchmarks/vowpal_bandits.py

Both meet the same contexts and rewards, those of the synthetic environment of studies/fedres/bandits.py. Vowpal Wabbit
is a process in an environment of its own (benchmarks/.venvs, made on first use). It is told the rewards of the actions
it draws, and answers with these actions; regret is counted here, in mean rewards. Its learners have three layouts:

    alone   a workspace for each client, all features: the counterpart of regressor="alone"
    shared  one workspace for all clients in turn, global features: of regressor="shared"
    joint   one workspace, global features, and local ones with weights for each client: of regressor="joint", but
            with everybody's data in one place

Each explores by --epsilon 0.1, by --squarecb, and by --squarecb with the rate and gamma of a small grid that have the
least regret on another seed. Ours have what the study chose on two other seeds, from a larger grid.
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
from concurrent.futures import ThreadPoolExecutor
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
OWN = {"squarecb": "--squarecb", "epsilon": "--epsilon 0.1"}  # otherwise Vowpal Wabbit's own settings
GRID = [f"--squarecb --gamma_scale {gamma} -l {rate}"  # its own are 10 and 0.5
        for gamma, rate in itertools.product((10, 100, 1000), (0.5, 1.0))]
CHOSEN_BY = (100,)  # a seed that is not reported; the study has two
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


def theirs(wabbit: Wabbit, seeds: tuple[int, ...]) -> list[dict[str, Any]]:
    cells = list(itertools.product(LAYOUTS, GRID))
    tried = wabbit.regrets([(seed, *cell) for cell in cells for seed in CHOSEN_BY])
    tries = dict(zip(cells, np.array(tried).reshape(len(cells), -1).mean(axis=1).tolist(), strict=True))
    wanted = []
    for layout in LAYOUTS:
        best = min((cell for cell in cells if cell[0] == layout), key=tries.__getitem__)[1]
        wanted += [(layout, explore, "own", options) for explore, options in OWN.items()]
        wanted.append((layout, "squarecb", "chosen", best))
    ends = wabbit.regrets([(seed, layout, options) for layout, _, _, options in wanted for seed in seeds])
    return [{"who": "vw", "explore": explore, "learner": layout, "settings": kind, "options": options,
             "regret": regret.tolist()}
            | ({"tried": {option: tries[layout, option] for option in GRID}} if kind == "chosen" else {})
            for (layout, explore, kind, options), regret
            in zip(wanted, np.array(ends).reshape(len(wanted), -1), strict=True)]


def ours(place: study.Environment, settings: study.Settings) -> list[dict[str, Any]]:
    rows = []
    for (explore, regressor), options in OURS.items():
        recipe = study.method(explore, regressor)(**options)
        regrets = study.regrets(place, [recipe] * len(settings.seeds), settings.seeds)[:, -1]
        rows.append({"who": "ours", "explore": explore, "learner": regressor, "settings": "chosen",
                     "options": " ".join(f"{name}={value:g}" for name, value in options.items()),
                     "regret": [float(regret) for regret in regrets]})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=study.Settings().clients)
    parser.add_argument("--steps", type=int, default=study.Settings().steps)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--out", default="vowpal-bandits.json", help="the file in benchmarks/results")
    given = parser.parse_args()
    settings = study.Settings(clients=given.clients, steps=given.steps, seeds=tuple(given.seeds),
                              chosen_by=CHOSEN_BY)
    place = study.environment("synthetic", settings)
    assert place is not None
    python = python_for(Contender("vowpal", (f"vowpalwabbit=={VERSION}",), {}))
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(1) as beside:
        mine = beside.submit(ours, place, settings)
        wabbit = Wabbit(place.federations, Path(folder), python, given.processes)
        found = theirs(wabbit, settings.seeds)
    rows = mine.result() + found
    print(f"cumulative regret of a client, {settings.clients} clients, {settings.steps} steps; median (least to most)")
    for row in rows:
        print(f"{row['who']:6}{row['explore']:10}{row['learner']:8}{row['settings']:8}{study.kit.spread(row['regret']):>26}"
              f"   {row['options']}")
    about = {"command": ["python", *sys.argv], "vowpalwabbit": wabbit.version, "environment": environment(),
             "clients": settings.clients, "steps": settings.steps, "seeds": settings.seeds,
             "chosen_by": CHOSEN_BY, "rows": rows}
    (HERE / "results" / given.out).write_text(json.dumps(about, indent=1) + "\n")


if __name__ == "__main__":
    main()
