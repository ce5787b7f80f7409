"""Studies of a few rounds each, one for everything a run can be asked for, whose numbers same_bits.py compares.

Each is a function of a folder of its own and of the folder of the study files. It returns a result, a history, the
folder of a run, or several of them by name. Only public names are used, and where a name has changed, either of them.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import names
import numpy as np
from names import RENAMED, known, named

import cantons as ct

SIZES = (3, 17, 5, 8, 11, 4, 9)  # examples of each client: ragged on purpose
LATE = {"uplink": [0, 2, 1, 0, 3, 1, 2], "downlink": [1, 0, 2, 0, 1, 1, 0]}
HALVES = {"shared_features": "first_half", "private_features": "second_half"}

SWEEP = """
rounds = 6
cohort = 4
evaluate_every = 3

[data]
name = "digits"
clients = 8

[problem]
name = "classification"
model = { name = "mlp", hidden = [4] }
split = "output"

[algorithm]
name = "scaffold"
batch_size = 8
"""

SWEEP_ONLINE = """
rounds = 20
evaluate_every = 10

[data]
name = "moving"
clients = 5
steps = 20
test = 4

[problem]
name = "target"
start = 3

[algorithm]
name = "fedomd"
within = { name = "box", low = -3, high = 3 }

[clock]
name = "online"
sync = 4
score = "everyone"
"""


# The data.


def labels(**options: Any) -> ct.Federation:
    """Ragged clients with four inputs, three classes, and two more of them than SIZES has."""
    random = np.random.default_rng(1)
    clients = {f"client{number}": (random.normal(number / 4, 1, (size, 4)), random.integers(0, 3, size))
               for number, size in enumerate((*SIZES, 6, 13))}
    return ct.from_clients(clients, classes=3, **{"test": 0.25, **options})


def numbers(largest: float = 1.0) -> ct.Federation:
    """Seven ragged clients, each with a linear model of its own behind its targets; the first has large inputs."""
    random = np.random.default_rng(0)

    def client(size: int, scale: float) -> tuple[np.ndarray, np.ndarray]:
        inputs = random.normal(size=(size, 4))
        return scale * inputs, inputs @ random.normal(size=4) + 0.1 * random.normal(size=size)

    return ct.from_clients({f"client{number}": client(size, 1.0 if number else largest)
                            for number, size in enumerate(SIZES)}, test=0.25)


def targets(**options: Any) -> ct.Federation:
    return named(ct, "moving", RENAMED["moving"])(5, 20, test=4, **options)


def arriving() -> ct.Federation:
    """Rows that come one after another, and so a trace of who has examples when."""
    random = np.random.default_rng(4)
    rows = ((f"client{random.integers(5)}", random.normal(size=4), float(random.normal())) for _ in range(40))
    return ct.from_stream(ct.from_iterable(rows, regression=True), step="tick", ticks=16, test=0.2)[0]


# Runs through Python.


def classify(algorithm: Any, data: ct.Federation | None = None, split: str | None = None, **options: Any) -> ct.Result:
    """Rounds on ragged clients; without a split the whole model is shared."""
    data = data or labels()
    problem = ct.classification(data, ct.mlp((5,)), **({} if split is None else {"split": split}))
    return ct.run(problem, data, algorithm, **{"rounds": 12, "evaluate_every": 4, **options})


def joint(algorithm: Any, data: ct.Federation | None = None, **options: Any) -> ct.Result:
    """A shared model of half the columns and a private one of the others, in rounds or online."""
    data = data or numbers()
    return ct.run(ct.residual(data, **HALVES), data, algorithm, **{"rounds": 20, "evaluate_every": 5, **options})


def simplex() -> ct.Result:
    data = targets(kind="iid", dimensions=4, centre=0.0, spread=1.0, apart=0.5)
    return ct.run(ct.target(data, loss="linear", start=0.25), data,
                  ct.fedomd(mirror="entropy", within="simplex", step_size=0.05), rounds=20, evaluate_every=5,
                  clock=ct.online(sync=4, counted=3))


def everyone(**options: Any) -> ct.Result:
    """All clients are charged with all losses: regret against the best point in hindsight."""
    data = targets()
    algorithm = ct.fedomd(step_size={"name": "inverse", "start": 1.0}, within={"name": "box", "low": -3, "high": 3})
    return ct.run(ct.target(data, start=3.0), data, algorithm, rounds=20, evaluate_every=5,
                  clock=ct.online(sync=4, score="everyone"), **options)


def bandit(**options: Any) -> ct.Result:
    data = ct.synthetic_bandit(clients=6, contexts=20, test_contexts=4, actions=3, features=4)
    return ct.run(ct.bandit(data, **HALVES), data, ct.fedres_bandit(**options), rounds=20, evaluate_every=5,
                  clock=ct.online(uplink=1, downlink=2))


def resumed(folder: Path, shipped: Path) -> ct.Result:
    """Eight rounds, and four more from the checkpoint they left."""
    data, out = labels(), folder / "run"
    problem, algorithm = ct.classification(data, ct.mlp((5,)), split="output"), ct.scaffold(batch_size=4)
    ct.run(problem, data, algorithm, rounds=8, evaluate_every=4, cohort=4, out=out)
    return ct.run(problem, data, algorithm, rounds=12, evaluate_every=4, cohort=4, out=out, resume=True)


class Least:
    """A local model of another kind than ours: least squares on all residuals so far, a little ridged."""

    def __init__(self) -> None:
        self.square, self.cross = np.eye(2), np.zeros(2)

    def predict(self, x: np.ndarray) -> np.ndarray:
        return x @ np.linalg.solve(self.square, self.cross)

    def update(self, x: np.ndarray, y: np.ndarray, shared_prediction: np.ndarray) -> None:
        self.square, self.cross = self.square + x.T @ x, self.cross + x.T @ (y - shared_prediction)


class Mean:
    """And one that looks at no features at all."""

    def __init__(self) -> None:
        self.total, self.count = 0.0, 0

    def predict(self, x: np.ndarray) -> np.ndarray:
        return np.full(len(x), self.total / max(self.count, 1))

    def update(self, x: np.ndarray, y: np.ndarray, shared_prediction: np.ndarray) -> None:
        self.total, self.count = self.total + float((y - shared_prediction).sum()), self.count + len(y)


def local_models() -> ct.Result:
    data = numbers()
    return ct.run_with_models(ct.residual(data, **HALVES), data, [(Least, Mean)[number % 2]() for number in range(7)],
                              rounds=12, evaluate_every=4, step_size=0.03, combine="mean",
                              clock=ct.online(uplink=1, downlink=1, batch=2))


# Many runs as one program.


def rollouts(*arguments: Any, **options: Any) -> dict[str, list[dict[str, Any]]]:
    histories = names.rollouts()(*arguments, **options)
    return {f"rollout {number}": history for number, history in enumerate(histories)}


def rollouts_in_rounds() -> dict[str, list[dict[str, Any]]]:
    """Three federations, two at a time: the last program has an empty place."""
    make = named(ct, "blended", RENAMED["blended"])
    data = [make(5, features=4, examples=12, seed=seed) for seed in range(3)]
    return rollouts(ct.residual(data[0], **HALVES), data, ct.fedres_sgd(steps=3, batch_size=4), rounds=8,
                    evaluate_every=4, at_once=2)


def rollouts_online() -> dict[str, list[dict[str, Any]]]:
    """A clock for each federation."""
    data = [targets(seed=seed) for seed in range(3)]
    algorithm = ct.fedomd(step_size=0.1, within={"name": "box", "low": -3, "high": 3})
    clocks = [ct.online(sync=sync, score="everyone") for sync in (2, 4, 5)]
    return rollouts(ct.target(data[0], start=3.0), data, algorithm, rounds=20, clock=clocks, evaluate_every=[5, 12])


# Runs through the command line.


def cantons(folder: Path, *words: str) -> None:
    """Run a command from `folder`, where no other copy of the library is in the way."""
    command = [sys.executable, "-m", "cantons.cli.main", *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if line.strip()]
        raise RuntimeError(f"cantons {' '.join(words)} ended with {done.returncode}: {' '.join(said[-3:])}")


def swept(study: str, *words: str) -> Callable[[Path, Path], dict[str, Path]]:
    def play(folder: Path, shipped: Path) -> dict[str, Path]:
        (folder / "study.toml").write_text(known(study))
        cantons(folder, "sweep", "study.toml", "--out", "runs", *words)
        return {path.parent.name: path.parent for path in sorted(folder.glob("runs/*/metrics.jsonl"))}

    return play


def shipped_study(path: str, rounds: int, *changes: str) -> Callable[[Path, Path], Path]:
    def play(folder: Path, shipped: Path) -> Path:
        (folder / "study.toml").write_text(known((shipped / path).read_text()))
        changed = [word for change in changes for word in ("--set", change)]
        cantons(folder, "run", "study.toml", "--rounds", str(rounds), "--out", "run", *changed)
        return folder / "run"

    return play


def plainly(play: Callable[[], Any]) -> Callable[[Path, Path], Any]:
    """A study that needs neither a folder nor the study files."""
    return lambda folder, shipped: play()


ONLINE_SGD = {"step_size": 0.03, "private_step_size": 0.05}

STUDIES: dict[str, Callable[[Path, Path], Any]] = {name: plainly(play) for name, play in {
    # in rounds
    "fedavg": lambda: classify(ct.fedavg(), ct.digits(clients=6, partition="iid")),
    "fedavg_ragged": lambda: classify(ct.fedavg(epochs=2, batch_size=4)),
    "fedavg_cohort": lambda: classify(ct.fedavg(batch_size=4, clip_norm=1.0), split="output", cohort=4),
    "fedavg_replacement": lambda: classify(ct.fedavg(batch_size=4), clock=ct.rounds(cohort=6, replace=True)),
    "fedavg_available": lambda: classify(ct.fedavg(batch_size=4), clock=ct.rounds(
        cohort=4, available=np.random.default_rng(3).random((5, 9)) < 0.5)),
    "fedavg_finetune": lambda: classify(ct.fedavg_finetune(batch_size=4, tune_epochs=2), cohort=4),
    "fedadam": lambda: classify(ct.fedadam(steps=3, batch_size=4), cohort=4),
    "fedprox_local": lambda: classify(ct.fedprox(mu=0.3, batch_size=4, predict_with="local"), cohort=4),
    "scaffold": lambda: classify(ct.scaffold(batch_size=4), split="output", cohort=4),
    "l2gd": lambda: classify(ct.l2gd(penalty=0.5, communication=0.4)),
    "fedres_naive": lambda: joint(ct.fedres_naive(steps=3, batch_size=4), cohort=4),
    "fedres_sgd": lambda: joint(ct.fedres_sgd(steps=3, batch_size=4, step_size=0.03), cohort=4),
    "fedres_avg": lambda: classify(ct.fedres_avg(steps=3, batch_size=4), split="output", cohort=4),
    "central": lambda: classify(ct.central(steps=3, batch_size=8)),
    "independent": lambda: classify(ct.independent(batch_size=4), cohort=4),
    # The first client's uploads are not finite; a round in which it is alone is skipped.
    "rejected": lambda: joint(ct.fedavg(batch_size=4, step_size=0.01), numbers(largest=1e25), cohort=1),
    "new_clients": lambda: classify(ct.fedavg(batch_size=4, fit_epochs=2), labels(new=2), split="output", cohort=4),
    "validation": lambda: classify(ct.fedavg(batch_size=4), cohort=4, validation=0.25),
    "float64": lambda: classify(ct.scaffold(batch_size=4), split="output", cohort=4, precision="float64", seed=3),
    "vmap": lambda: classify(ct.fedavg(batch_size=4), split="output", cohort=5, engine=ct.Local(mode="vmap")),
    "groups": lambda: classify(ct.fedavg(batch_size=4), cohort=8, engine=ct.Local(devices=2, group=3)),
    # online
    "late_full": lambda: joint(ct.fedres_online_sgd(alignment="full", **ONLINE_SGD), clock=ct.online(**LATE)),
    "late_paired": lambda: joint(ct.fedres_online_sgd(alignment="paired", method="adagrad", **ONLINE_SGD),
                                 clock=ct.online(**LATE, label_delay=2)),
    "late_none": lambda: joint(ct.fedres_online_sgd(alignment="none", combine="mean", **ONLINE_SGD),
                               clock=ct.online(**LATE, batch=2, order="shuffle")),
    "late_at_random": lambda: joint(ct.fedres_online_sgd(**ONLINE_SGD), clock=ct.online(
        uplink={"least": 0, "most": 3}, downlink={"least": 1, "most": 2}, order="sample")),
    "late_in_groups": lambda: joint(ct.fedres_online_sgd(**ONLINE_SGD), clock=ct.online(**LATE),
                                    engine=ct.Local(devices=2, group=3)),
    "silent_clients": lambda: joint(ct.fedres_online_sgd(**ONLINE_SGD), clock=ct.online(
        uplink=1, active={"probability": 0.6}, weights="inverse")),
    "arrivals": lambda: joint(ct.fedres_online_sgd(**ONLINE_SGD), arriving(), clock=ct.online(uplink=1)),
    "fedomd_simplex": simplex,
    "fedomd_everyone": everyone,
    "fedomd_float64": lambda: everyone(precision="float64"),
    "fedres_erm": lambda: joint(ct.fedres_erm(radius=2.0), clock=ct.online(**LATE)),
    "fedres_bandit": lambda: bandit(every=2),
    "fedres_bandit_igw": lambda: bandit(explore="igw", alignment="none"),
    "fictitious_play": lambda: joint(ct.fictitious_play(), clock=ct.online(**LATE)),
    "online_central": lambda: joint(ct.online_central(step_size=0.03), clock=ct.online(
        sync={"probability": 0.4}, counted=4)),
    "online_independent": lambda: joint(ct.online_independent(method="adagrad"), clock=ct.online()),
    "fedavg_online": lambda: classify(ct.fedavg(steps=1, batch_size=None), rounds=20, clock=ct.online(
        uplink=1, downlink=2)),
    # others
    "local_models": local_models,
    "rollouts": rollouts_in_rounds,
    "rollouts_online": rollouts_online,
}.items()} | {
    "resumed": resumed,
    "sweep": swept(SWEEP, "--seeds", "1", "--grid", "algorithm.step_size=0.03,0.1", "--grid", "cohort=3,4"),
    "sweep_online": swept(SWEEP_ONLINE, "--seeds", "2", "--grid", "algorithm.step_size=0.1,0.5"),
    "digits.toml": shipped_study("digits.toml", 6, "data.clients=10", "data.new=2", "cohort=4", "evaluate_every=3"),
    "fedres/digits.toml": shipped_study("fedres/digits.toml", 20, "data.clients=8", "evaluate_every=10"),
    "fedomd/simplex.toml": shipped_study("fedomd/simplex.toml", 20, "data.clients=5", "data.steps=20", "data.test=4",
                                         "evaluate_every=10"),
}
