"""How fast online steps are: client-steps per second, with medians over windows of steps.

    python benchmarks/online.py                  # a CPU: FedOMD on 20 scalar clients with regret, FedRes with delays
    python benchmarks/online.py --accelerator    # a GPU: FedOMD with 100,000 clients of 100 dimensions

Through `cantons.run`, as a user would call it; evaluations between windows do not count, except for many seeds at once,
which are timed from one evaluation to the next. Nothing is kept for later steps but sums: memory does not grow with
time.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

import bare
import jax
import numpy as np
from names import max_delay, named, rollouts

import cantons as ct

BOX = {"name": "box", "low": -3.0, "high": 3.0}
LENGTH = 4000  # of a scalar client's stream; longer runs meet it again


class FirstBlock(ct.Callback):
    """Seconds of the first block of steps, with its compilation."""

    def __init__(self) -> None:
        self.began = self.seconds = 0.0

    def evaluated(self, record):
        self.began = self.began or time.perf_counter()

    def advanced(self, round, rounds):
        self.seconds = self.seconds or time.perf_counter() - self.began


def timed(what: str, problem: ct.Problem, data: ct.Federation, algorithm: Any, clock: Any, steps: int,
          repeats: int) -> dict:
    """Seconds per step, window by window; one more window warms up and is left out."""
    first = FirstBlock()
    result = ct.run(problem, data, algorithm, rounds=steps * (repeats + 1), clock=clock, evaluate_every=steps,
                    callbacks=[first])
    return row(what, data.population, [row["seconds_per_round"] for row in result.history[2:]], first.seconds)


def row(what: str, clients: int, seconds: list[float], first: float | None) -> dict:
    typical = statistics.median(seconds)
    return {"what": what, "microseconds_per_step": 1e6 * typical, "client_steps_per_second": clients / typical,
            "first_call_seconds": first, "windows_us": [1e6 * window for window in seconds]}


def packed(clients: int, rows: int, width: int) -> ct.Federation:
    """Random rows for so many clients, all of one size and all for training."""
    random = np.random.default_rng(0)
    inputs = random.normal(size=(clients * rows, width)).astype(np.float32)
    targets = random.normal(size=clients * rows).astype(np.float32)
    return ct.federation(inputs, targets, np.repeat(np.arange(clients), rows), test=np.zeros(clients * rows, bool))


def scalar_clients(steps: int, repeats: int, seeds: int = 1) -> dict:
    """Equation (46) of "Online Federated Learning": 20 clients in [-3, 3], tau = 20, all charged with all losses."""
    make = named(ct, "moving", "drifting_targets")
    data = [make(20, LENGTH, seed=seed) for seed in range(seeds)]
    problem = ct.target(data[0], start=3.0)
    algorithm = ct.fedomd(step_size={"name": "inverse", "start": 1.0}, within=BOX)
    clock = ct.online(sync=20, score="everyone")
    what = f"FedOMD, 20 scalar clients, collective regret, {seeds} seeds at once"
    if seeds == 1:
        return timed(what, problem, data[0], algorithm, clock, steps, repeats)
    moments: list[float] = []
    rollouts()(problem, data, algorithm, rounds=steps * (repeats + 1), clock=clock, evaluate_every=steps,
               watch=lambda done, total: moments.append(time.perf_counter()))
    return row(what, 20 * seeds, (np.diff(moments) / steps).tolist(), None)


def late_clients(clients: int, delay: int, width: int, alignment: str, steps: int, repeats: int) -> dict:
    """FedRes with a delay of its own for every client and link."""
    data, random = packed(clients, 20, width), np.random.default_rng(1)
    problem = ct.residual(data, shared_features="first_half", private_features="second_half")
    up, down = (random.integers(0, delay // 2 + 1, clients) for _ in range(2))
    return timed(f"FedRes ({alignment}), {clients} clients, delays up to {delay}, {width} features", problem, data,
                 ct.fedres_online_sgd(step_size=1e-5, alignment=alignment),
                 ct.online(uplink=up, downlink=down, **max_delay(delay // 2)), steps, repeats)


def many_clients(clients: int, width: int, steps: int, repeats: int) -> dict:
    """FedOMD on linear regression in a ball, one example a step, a synchronisation every 20."""
    data = packed(clients, 10, width)
    return timed(f"FedOMD, {clients} clients, {width} dimensions", ct.regression(data, ct.linear(bias=False)), data,
                 ct.fedomd(step_size=1e-3, within={"name": "ball", "radius": 10.0}), ct.online(sync=20), steps, repeats)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--accelerator", action="store_true")
    parser.add_argument("--repeats", type=int, default=7, help="windows of each workload")
    parser.add_argument("--json", action="store_true", help="print the results as JSON and nothing else")
    parser.add_argument("--out", type=Path, help="a JSON file for the results")
    options = parser.parse_args()
    bare.one_device_per_core()
    if options.accelerator:
        rows = [many_clients(100_000, 100, 200, options.repeats), many_clients(1_000_000, 10, 200, options.repeats),
                late_clients(1000, 500, 100, "full", 200, options.repeats)]
    else:
        rows = [scalar_clients(20_000, options.repeats), scalar_clients(10_000, options.repeats, seeds=20),
                late_clients(1000, 500, 100, "full", 200, options.repeats),
                late_clients(1000, 500, 100, "none", 20, options.repeats),
                many_clients(10_000, 100, 40, options.repeats)]
    found = {"device": str(jax.devices()[0].device_kind), "devices": len(jax.devices()), "jax": jax.__version__,
             "repeats": options.repeats, "rows": rows}
    if options.json:
        print(json.dumps(found | {"imported": ct.__file__}))
        return
    for each in rows:
        first = each["first_call_seconds"]
        print(f"{each['what']:60} {each['microseconds_per_step']:9.1f} us/step {each['client_steps_per_second']:.3g} "
              "client-steps/s" + (f" (first call {first:.1f} s)" if first else ""))
    if options.out:
        options.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
