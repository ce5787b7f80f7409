"""Does a round of FFGG cost no more than one of FedAvg? Section 6 of the FFGG paper, on a network and real images.

    python benchmarks/ffgg_round.py [--repeats 9] [--rounds 2] [--data DIR] [--out FILE]

Mishchenko et al., section 6: "FFGG with Local-GD subsolver computes multiple gradients with respect to personalized
parameters and one gradient with respect to global parameters, while FedAvg requires the clients to compute multiple
gradients with respect to all parameters". FFGG has tau tuning steps and one gradient, FedAvg tau + 1 local steps, all
on batches of 32; Local FFGG, of which section 6 does not speak, tau tuning steps and then tau of both parts, as in
Table 2: MNIST by writer, the writers with 100 digits or more, in cohorts. Contenders take turns, a window
of rounds each, and ratios are taken turn by turn. Without the file, digits of scikit-learn.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

import cantons as ct
from cantons.engine.devices import one_device_per_core
from cantons.study.resolve import resolve

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
BATCH, LEAST = 32, 100


def writers(folder: Path) -> ct.Federation:
    if not (folder / "mnist.npz").exists():
        return ct.digits(clients=20, partition="iid")
    with np.load(folder / "mnist.npz", allow_pickle=False) as file:
        inputs, targets, writer = (file[key] for key in ("x", "y", "writer"))
    chosen = np.isin(writer, np.flatnonzero(np.bincount(writer) >= LEAST))
    images = (inputs[chosen] / 255).astype(np.float32).reshape(-1, 28, 28, 1)
    return ct.federation(images, targets[chosen].astype(np.int32), writer[chosen], classes=10, test=0.2, name="mnist")


class Contender:
    """One algorithm on its way: `window(rounds)` is how long so many more rounds take, in seconds per round."""

    def __init__(self, problem: ct.Problem, data: ct.Federation, recipe: Any, cohort: int):
        engine = ct.Local()
        self.session = engine.start([resolve(problem, data, recipe, rounds=1, cohort=cohort, engine=engine).parts])
        self.state, self.done = self.session.begin(), 0
        self.window(1)

    def window(self, rounds: int) -> float:
        self.done += rounds
        began = time.perf_counter()
        self.state = self.session.advance(self.state, self.done)
        return (time.perf_counter() - began) / rounds


def contenders(data: ct.Federation, tau: int, cohort: int) -> dict[str, Contender]:
    model = ct.cnn()
    found = {"FedAvg": Contender(ct.classification(data, model), data,
                                 ct.fedavg(step_size=0.05, steps=tau + 1, batch_size=BATCH), cohort)}
    tuner = {"name": "optimizer", "optimizer": "sgd", "steps": tau, "batch_size": BATCH, "step_size": 0.05}
    for split in ("input", "output", "adapter"):
        problem = ct.classification(data, model, split=split)
        found[f"FFGG, {split}"] = Contender(problem, data, ct.ffgg(
            step_size=0.05, tuner=tuner, delta_batch_size=BATCH), cohort)
        found[f"Local FFGG, {split}"] = Contender(problem, data, ct.local_ffgg(
            step_size=0.05, steps=tau, batch_size=BATCH, tuner=tuner), cohort)
    return found


def spread(values: list[float]) -> str:
    return f"{statistics.median(values):.3g} ({min(values):.3g}..{max(values):.3g})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--rounds", type=int, default=2, help="in a window")
    parser.add_argument("--cohort", type=int, default=10)
    parser.add_argument("--taus", type=int, nargs="*", default=[1, 5, 20])
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    one_device_per_core()
    data = writers(given.data)
    lines = [f"## {jax.device_count()} {jax.default_backend()} devices, JAX {jax.__version__}, {data.name}", "",
             f"`python benchmarks/{Path(__file__).name} {' '.join(sys.argv[1:])}`. Load average before: "
             f"{os.getloadavg()[0]:.1f}.", "",
             "| tau | contender | ms per round | times FedAvg with tau + 1 steps |", "| --- | --- | ---: | ---: |"]
    for tau in given.taus:
        running = contenders(data, tau, given.cohort)
        times: dict[str, list[float]] = {name: [] for name in running}
        for _ in range(given.repeats):
            for name, one in running.items():
                times[name].append(one.window(given.rounds))
        for name, seconds in times.items():
            ratios = [one / other for one, other in zip(seconds, times["FedAvg"], strict=True)]
            lines.append(f"| {tau} | {name} | {spread([1e3 * one for one in seconds])} | {spread(ratios)} |")
            print(lines[-1], flush=True)
    lines += ["", f"Load average after: {os.getloadavg()[0]:.1f}.", ""]
    if given.out:
        with given.out.open("a") as file:
            file.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
