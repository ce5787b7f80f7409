"""Does a round of FFGG cost more where there are more clients, of whom none keeps anything?

    python benchmarks/stateless.py --clients 1000 1000000

One fixed beginning serves all: each client would else keep 36 kB. Cohorts of 50, two examples to a client, evaluations
of 50 clients. Each size runs in a process of its own, whose peak memory it is.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys

import numpy as np

import cantons as ct


def measure(clients: int, rounds: int) -> str:
    random = np.random.default_rng(0)
    inputs = random.normal(size=(2 * clients, 8)).astype(np.float32)
    data = ct.federation(inputs, (inputs[:, 0] > 0).astype(np.int32), np.repeat(np.arange(clients), 2), classes=2,
                         test=0.5)
    before = peak()
    problem = ct.classification(data, ct.mlp(hidden=[1000]), split="input")
    result = ct.run(problem, data, ct.ffgg(tuner={"name": "gd", "steps": 2}), rounds=5 * rounds, cohort=50,
                    evaluate_every=rounds, evaluate_clients=50, progress=None)
    milliseconds = [1e3 * row["seconds_per_round"] for row in result.history[2:]]  # the first are compiled
    return (f"| {clients:,} | {np.median(milliseconds):.2f} ({min(milliseconds):.2f}..{max(milliseconds):.2f}) | "
            f"{before:.2f} | {peak():.2f} |")


def peak() -> float:
    """GiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, nargs="+", default=[1000, 1_000_000])
    parser.add_argument("--rounds", type=int, default=100, help="between two evaluations")
    options = parser.parse_args()
    if len(options.clients) == 1:
        print(measure(*options.clients, options.rounds))
        sys.exit()
    print("| clients | ms per round | peak of the data, GiB | of all, GiB |\n| ---: | ---: | ---: | ---: |", flush=True)
    for clients in options.clients:
        subprocess.run([sys.executable, __file__, "--clients", str(clients), "--rounds", str(options.rounds)],
                       check=True)
