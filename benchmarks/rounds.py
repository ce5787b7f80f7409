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
    inputs, labels = (np.concatenate([rows, rows[: bare.CLIENTS]]) for rows in bare.random_rows(network))
    clients = np.arange(bare.CLIENTS)
    return ct.federation(inputs, labels, np.concatenate([np.repeat(clients, sizes), clients]), classes=network.classes,
                         test=np.arange(len(labels)) >= sizes.sum())


def compare(name: str, window: int, repeats: int, alone: bool = False) -> dict[str, Any]:
    """Milliseconds per round of both, or of ours `alone`, by windows; one more window warms up and is left out."""
    network = bare.NETWORKS[name]
    data = federation(network, np.full(bare.CLIENTS, bare.EXAMPLES))
    beside = None if alone else Bare(network, window)
    algorithm = ct.fedavg(step_size=bare.STEP_SIZE, epochs=1, batch_size=bare.BATCH)
    result = ct.run(ct.classification(data, MODELS[name]), data, algorithm, rounds=window * (repeats + 1),
                    cohort=bare.COHORT, evaluate_every=window, callbacks=[beside] if beside else [])
    library = [1e3 * row["seconds_per_round"] for row in result.history[2:]]
    found = {"model": name, "window": window, "cantons_ms": library}
    if beside is None:
        return found
    by_hand = beside.milliseconds[1:]
    return found | {"bare_ms": by_hand, "ratio": [ours / theirs for ours, theirs in zip(library, by_hand, strict=True)]}


def spread(values: list[float]) -> str:
    return f"{statistics.median(values):8.3f} ({min(values):.3f}..{max(values):.3f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--repeats", type=int, default=9, help="windows of each contender")
    parser.add_argument("--quick", action="store_true", help="windows a tenth as long, and three of them")
    parser.add_argument("--alone", action="store_true", help="leave the bare program out")
    parser.add_argument("--date", help="written to the results as it is")
    parser.add_argument("--json", action="store_true", help="print the results as JSON and nothing else")
    parser.add_argument("--out", type=Path, help="a JSON file for the results")
    options = parser.parse_args()

    bare.one_device_per_core()
    backend = "cpu" if jax.default_backend() == "cpu" else "accelerator"
    columns = ["cantons_ms"] if options.alone else ["bare_ms", "cantons_ms", "ratio"]
    rows = []
    if not options.json:
        print(f"{'model':8}" + "".join(f"{column.replace('_', ' '):>28}" for column in columns))
    for name in options.models:
        window, repeats = WINDOWS[backend][name], options.repeats
        if options.quick:
            window, repeats = max(1, window // 10), 3
        found = compare(name, window, repeats, options.alone)
        rows.append(found)
        if not options.json:
            print(f"{name:8}" + "".join(f"{spread(found[column]):>28}" for column in columns), flush=True)
    if options.json:
        print(json.dumps({"rounds": rows, "imported": ct.__file__}))
    if options.out:
        from cantons.study.folder import environment

        about = {"command": [Path(sys.executable).name, *sys.argv], "date": options.date,
                 "environment": environment(), "workload": {
                     "clients": bare.CLIENTS, "examples": bare.EXAMPLES, "cohort": bare.COHORT,
                     "batch": bare.BATCH, "epochs": 1, "step_size": bare.STEP_SIZE}, "rounds": rows}
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(about, indent=1) + "\n")


if __name__ == "__main__":
    main()
