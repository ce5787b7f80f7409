"""Do clients of very unequal size cost more than equal ones? CPU or accelerator, per example and per batch.

    python benchmarks/ragged.py --models linear mlp --repeats 5

Both federations have the same rows. Sizes of the ragged one are drawn log-normally; its last batches are partly
empty, so it makes more steps for as many examples. Runs alternate; what is reported is the median over them.
"""

from __future__ import annotations

import argparse
import statistics

import bare
import numpy as np
from rounds import MODELS, federation

import cantons as ct

ROUNDS = {"linear": 1000, "mlp": 40, "cnn": 4}


def lognormal_sizes() -> np.ndarray:
    """Between 5 and 500 examples for each client, as many in all as in the uniform federation."""
    total = bare.CLIENTS * bare.EXAMPLES
    drawn = np.random.default_rng(1).lognormal(np.log(45), 1.0, bare.CLIENTS).clip(5, 500)
    sizes = np.maximum(5, drawn * total / drawn.sum()).astype(int)
    sizes[sizes.argmax()] += total - sizes.sum()
    return sizes


def cost(name: str, sizes: np.ndarray) -> tuple[float, float]:
    """Microseconds per example and per batch, as the cohorts happened to be drawn."""
    data = federation(bare.NETWORKS[name], sizes)
    algorithm = ct.fedavg(step_size=bare.STEP_SIZE, epochs=1, batch_size=bare.BATCH)
    result = ct.run(ct.classification(data, MODELS[name]), data, algorithm, rounds=ROUNDS[name],
                    cohort=bare.COHORT, evaluate_every=ROUNDS[name])
    visits = result.clients["bytes_up"] / result.summary["up_bytes_per_upload"]
    microseconds = 1e6 * result.final["seconds"]
    return microseconds / (visits @ sizes), microseconds / (visits @ -(-sizes // bare.BATCH))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=["linear", "mlp"])
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()

    bare.one_device_per_core()
    kinds = {"uniform": np.full(bare.CLIENTS, bare.EXAMPLES), "ragged": lognormal_sizes()}
    print(f"{'model':8}{'clients':10}{'sizes':>10}{'us per example':>18}{'us per batch':>16}")
    for name in options.models:
        found: dict[str, list[tuple[float, float]]] = {kind: [] for kind in kinds}
        for _ in range(options.repeats):
            for kind, sizes in kinds.items():
                found[kind].append(cost(name, sizes))
        for kind, sizes in kinds.items():
            example, batch = (statistics.median(column) for column in zip(*found[kind], strict=True))
            print(f"{name:8}{kind:10}{f'{sizes.min()}..{sizes.max()}':>10}{example:18.3f}{batch:16.2f}", flush=True)


if __name__ == "__main__":
    main()
