"""Our rounds, through `cantons.run`; its own clock times them, and evaluations between windows do not count."""

from __future__ import annotations

import bare
import numpy as np
from contender import Windows, workload
from rounds import MODELS, federation

import cantons as ct


class Report(ct.Callback):
    def __init__(self, windows: Windows):
        self.windows = windows

    def evaluated(self, record):
        if record["round"] > 0:
            self.windows.report(1e3 * record["seconds_per_round"])


def main() -> None:
    work = workload()
    bare.one_device_per_core()
    windows = Windows(work.window, "cantons", "jax", "jaxlib", "numpy")
    data = federation(bare.NETWORKS[work.model], np.full(work.clients, work.examples))
    algorithm = ct.fedavg(step_size=work.step_size, epochs=1, batch_size=work.batch)
    ct.run(ct.classification(data, MODELS[work.model]), data, algorithm, rounds=work.window * work.windows,
           cohort=work.cohort, evaluate_every=work.window, callbacks=[Report(windows)])


if __name__ == "__main__":
    main()
