"""How long does a run take to its first number, and with what?

    python benchmarks/first_number.py --algorithms fedrep fedavg_finetune
    python benchmarks/first_number.py --demo

A CNN for pictures of 28 x 28 in 62 classes, 300 clients with 100 training examples each, the last layer private. The
phases up to the evaluation before round 0 are timed, each by when it is entered. Numbers depend on the machine; to
compare two versions, run both on one machine with an empty JAX_COMPILATION_CACHE_DIR. With --demo: from the command
`cantons demo` to the first score on the screen of a terminal, with empty and with full caches.
"""

from __future__ import annotations

import argparse
import json
import os
import pty
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import cantons as ct


class Phases(ct.Callback):
    """Adds up the seconds in each phase, until the first evaluation is there."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.phase, self.since, self.over = "starting", time.perf_counter(), False
        self.cpu = -time.process_time()  # for machines that have other things to do

    def entered(self, phase: str) -> None:
        now = time.perf_counter()
        if not self.over:
            self.seconds[self.phase] = self.seconds.get(self.phase, 0.0) + now - self.since
        self.phase, self.since = phase, now

    def evaluated(self, record: dict) -> None:
        self.entered("")
        if not self.over:
            self.cpu += time.process_time()
        self.over = True


def federation(clients: int, examples: int) -> ct.Federation:
    random = np.random.default_rng(0)
    pictures = random.normal(size=(clients * (examples + 1), 28, 28)).astype(np.float32)
    labels = random.integers(0, 62, len(pictures))
    return ct.federation(pictures, labels, np.arange(len(labels)) % clients, classes=62,
                         test=np.arange(len(labels)) >= clients * examples)


def demo(repeats: int) -> None:
    """The seconds until a terminal shows a score of the demo; cold, then warm, in turn."""
    found: dict[str, list[float]] = {"cold": [], "warm": []}
    for _ in range(repeats):
        with tempfile.TemporaryDirectory() as folder:
            for seconds in found.values():
                seconds.append(_seconds_to_a_score(Path(folder)))
                shutil.rmtree(Path(folder) / "results", ignore_errors=True)
    print(json.dumps({"demo": {kind: [round(each, 1) for each in seconds] for kind, seconds in found.items()},
                      "load": os.getloadavg()[0]}))


def _seconds_to_a_score(folder: Path) -> float:
    command = [str(Path(sys.executable).with_name("cantons")), "demo"]
    screen, terminal = pty.openpty()
    began, text = time.perf_counter(), ""
    running = subprocess.Popen(command, cwd=folder, stdout=terminal, stderr=terminal, env={
        **os.environ, "JAX_COMPILATION_CACHE_DIR": str(folder / "compiled"), "TERM": "xterm", "COLUMNS": "120"})
    os.close(terminal)
    while not re.search(r"(accuracy|loss) \d", text):
        text += os.read(screen, 4096).decode(errors="replace")
    took = time.perf_counter() - began
    while running.poll() is None:  # to the end, so that all it compiles is kept
        try:
            os.read(screen, 4096)
        except OSError:  # it has left the terminal
            break
    running.wait()
    os.close(screen)
    return took


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--demo", action="store_true")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--algorithms", nargs="+", default=["fedrep", "fedavg_finetune"])
    parser.add_argument("--clients", type=int, default=300)
    parser.add_argument("--examples", type=int, default=100)
    options = parser.parse_args()
    if options.demo:
        demo(options.repeats)
        return
    data = federation(options.clients, options.examples)
    for name in options.algorithms:
        problem = ct.classification(data, ct.cnn((16, 32), dense=64), split="none" if name == "fedavg_finetune"
                                    else "output")
        phases = Phases()
        result = ct.run(problem, data, getattr(ct, name)(), rounds=1, cohort=10, evaluate_every=1, callbacks=[phases],
                        progress=False)
        print(json.dumps({"algorithm": name, "seconds": round(sum(phases.seconds.values()), 2),
                          "cpu_seconds": round(phases.cpu, 2),
                          **{phase: round(took, 2) for phase, took in phases.seconds.items()},
                          "loss": round(result.history[0]["test.personal.loss.mean"], 4)}), flush=True)


if __name__ == "__main__":
    main()
