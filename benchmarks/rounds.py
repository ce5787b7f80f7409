"""How much slower is a FedAvg round through the library than the same round written by hand?

    python benchmarks/rounds.py --models linear mlp cnn --repeats 9 --out benchmarks/results/rounds.json

After each window of the library's rounds comes one of the bare ones, in the same process: whatever else the
machine is doing slows both. What is reported is the median over windows, and the ratio's over pairs of them.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import bare
import jax
import numpy as np

import cantons as ct
from cantons.data import Population, from_sizes
from cantons.study.folder import environment

MODELS = {"linear": ct.linear(), "mlp": ct.mlp((200, 200)), "cnn": ct.cnn((32, 64), dense=128)}
# Rounds to a window: long enough to time, short enough for the machine to stay in one mood.
WINDOWS = {"cpu": {"linear": 200, "mlp": 20, "cnn": 1}, "accelerator": {"linear": 500, "mlp": 500, "cnn": 50}}


class Bare(ct.Callback):
    """Runs and times the bare program between the library's windows."""

    def __init__(self, network: bare.Network, window: int):
        self.milliseconds: list[float] = []
        self.window = window
        self.block = bare.block_of_rounds(network, window)
        self.params = network.init(jax.random.key(0))
        self.key = jax.random.key(1)

    def evaluated(self, record):
        took = self.play()
        if record["round"] == 0:
            self.play()  # the first call compiled, and this one has warmed up
        else:
            self.milliseconds.append(took)

    def play(self) -> float:
        self.key, key = jax.random.split(self.key)
        began = time.perf_counter()
        self.params = jax.block_until_ready(self.block(self.params, key))
        return 1e3 * (time.perf_counter() - began) / self.window


def federation(network: bare.Network, sizes: np.ndarray) -> ct.Federation:
    """The bare program's rows, `sizes` of them each; one more judges a client, to keep evaluations short."""
    inputs, labels = bare.random_rows(network)
    train = from_sizes(inputs, labels, sizes)
    test = from_sizes(inputs[: bare.CLIENTS], labels[: bare.CLIENTS], np.ones(bare.CLIENTS))
    names = tuple(map(str, range(bare.CLIENTS)))
    return ct.Federation(Population(train, test, names), classes=network.classes)


def compare(name: str, window: int, repeats: int) -> dict[str, Any]:
    """Milliseconds per round of both, window by window; one more window warms up and is left out."""
    network = bare.NETWORKS[name]
    data = federation(network, np.full(bare.CLIENTS, bare.EXAMPLES))
    beside = Bare(network, window)
    algorithm = ct.fedavg(step_size=bare.STEP_SIZE, epochs=1, batch_size=bare.BATCH)
    result = ct.run(ct.classification(data, MODELS[name]), data, algorithm, rounds=window * (repeats + 1),
                    cohort=bare.COHORT, evaluate_every=window, callbacks=[beside])
    library = [1e3 * row["seconds_per_round"] for row in result.history[2:]]
    by_hand = beside.milliseconds[1:]
    return {"model": name, "window": window, "bare_ms": by_hand, "cantons_ms": library,
            "ratio": [ours / theirs for ours, theirs in zip(library, by_hand, strict=True)]}


def spread(values: list[float]) -> str:
    return f"{statistics.median(values):8.3f} ({min(values):.3f}..{max(values):.3f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--repeats", type=int, default=9, help="windows of each contender")
    parser.add_argument("--quick", action="store_true", help="windows a tenth as long, and three of them")
    parser.add_argument("--date", help="written to the results as it is")
    parser.add_argument("--out", type=Path, help="a JSON file for the results")
    options = parser.parse_args()

    bare.one_device_per_core()
    backend = "cpu" if jax.default_backend() == "cpu" else "accelerator"
    rows = []
    print(f"{'model':8}{'bare ms':>28}{'cantons ms':>28}{'ratio':>28}")
    for name in options.models:
        window = WINDOWS[backend][name]
        found = compare(name, max(1, window // 10), 3) if options.quick else compare(name, window, options.repeats)
        rows.append(found)
        print(f"{name:8}" + "".join(f"{spread(found[column]):>28}" for column in ("bare_ms", "cantons_ms", "ratio")),
              flush=True)
    if options.out:
        about = {"command": [Path(sys.executable).name, *sys.argv], "date": options.date,
                 "environment": environment(), "workload": {
                     "clients": bare.CLIENTS, "examples": bare.EXAMPLES, "cohort": bare.COHORT,
                     "batch": bare.BATCH, "epochs": 1, "step_size": bare.STEP_SIZE}, "rounds": rows}
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(about, indent=1) + "\n")


if __name__ == "__main__":
    main()
