"""What every contender shares: the workload it is given, and the line of JSON with which it answers.

`peers.py` starts a contender with the workload as its one argument. The contender plays a window of rounds,
writes how long a round took, and waits for an empty line before it plays the next: only one works at a time.
"""

from __future__ import annotations

import json
import os
import sys
import time
from importlib import metadata
from types import SimpleNamespace
from typing import Any

import numpy as np


def workload() -> SimpleNamespace:
    """As `peers.py` describes it: model, clients, examples, cohort, batch, step_size, windows, window, ..."""
    return SimpleNamespace(**json.loads(sys.argv[1]))


def random_clients(work: SimpleNamespace, dtype: type = np.int32) -> list[tuple[np.ndarray, np.ndarray]]:
    """Inputs and labels of each client; the time of a round does not depend on what they say."""
    generator = np.random.default_rng(0)
    inputs = generator.standard_normal((work.clients, work.examples, *work.input_shape), np.float32)
    labels = generator.integers(work.classes, size=(work.clients, work.examples), dtype=dtype)
    return list(zip(inputs, labels, strict=True))


class Windows:
    """Counts rounds, and reports after each window of them."""

    def __init__(self, rounds: int, *packages: str):
        self.rounds, self.done = rounds, 0
        self.versions = {name: metadata.version(name) for name in packages}
        # Libraries print as they please; what they print goes to stderr, and stdout is ours alone.
        self.answers = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)
        self.began = time.perf_counter()

    def round_over(self) -> None:
        self.done += 1
        if self.done % self.rounds == 0:
            self.report(1e3 * (time.perf_counter() - self.began) / self.rounds)
            self.began = time.perf_counter()

    def report(self, milliseconds: float, **more: Any) -> None:
        print(json.dumps({"ms": milliseconds, "versions": self.versions, **more}), file=self.answers, flush=True)
        sys.stdin.readline()
