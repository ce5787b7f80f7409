"""How fast online steps are: client-steps per second, with medians over repeats.

    python benchmarks/online.py                  # a CPU: FedOMD on 20 scalar clients with regret, FedRes with delays
    python benchmarks/online.py --accelerator    # a GPU: FedOMD with 100,000 clients of 100 dimensions

Nothing is kept for later steps but sums: memory does not grow with time.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path

import jax
import numpy as np
from starting import start

import cantons as ct
from cantons.data import Population, from_sizes
from cantons.data.federation import Federation
from cantons.engine.batched import BatchedSession
from cantons.engine.devices import one_device_per_core

BOX = {"name": "box", "low": -3.0, "high": 3.0}


def timed(advance, state, steps: int, repeats: int) -> tuple[float, float]:
    """Seconds per step: the median, and the first call with its compilation."""
    began = time.perf_counter()
    state = jax.block_until_ready(advance(state, 1))
    first, done, took = time.perf_counter() - began, 1, []
    for _ in range(repeats):
        began = time.perf_counter()
        state = jax.block_until_ready(advance(state, done + steps))
        took.append((time.perf_counter() - began) / steps)
        done += steps
    return statistics.median(took), first


def packed(clients: int, rows: int, width: int) -> Federation:
    """Random rows for so many clients, all of one size."""
    random = np.random.default_rng(0)
    inputs = random.normal(size=(clients * rows, width)).astype(np.float32)
    targets = random.normal(size=clients * rows).astype(np.float32)
    none = from_sizes(inputs[:0], targets[:0], np.zeros(clients, np.int32))
    return Federation(Population(from_sizes(inputs, targets, np.full(clients, rows)), none,
                                 tuple(map(str, range(clients)))))


def scalar_clients(seeds: int, steps: int, repeats: int) -> dict:
    """Equation (46) of "Online Federated Learning": 20 clients in [-3, 3], tau = 20, all charged with all losses."""
    data = [ct.drifting_targets(20, steps * (repeats + 1), seed=seed) for seed in range(seeds)]
    problem = ct.target(data[0], start=3.0)
    algorithm = ct.fedomd(step_size={"name": "inverse", "start": 1.0}, within=BOX).build(problem, 20)
    clock = ct.online(sync=20, score="everyone").build(20)
    if seeds == 1:
        session = start(ct.Local(), problem, algorithm, clock, data[0], None, 0)
        seconds, first = timed(session.advance, session.begin(), steps, repeats)
    else:
        many = BatchedSession(problem, lambda options: algorithm, clock, data, None, {}, np.arange(seeds))
        seconds, first = timed(many.advance, many.begin(), steps, repeats)
    return {"what": f"FedOMD, 20 scalar clients, collective regret, {seeds} seeds at once", "microseconds_per_step":
            1e6 * seconds, "client_steps_per_second": 20 * seeds / seconds, "first_call_seconds": first}


def late_clients(clients: int, delay: int, width: int, alignment: str, steps: int, repeats: int) -> dict:
    """FedRes with a delay of its own for every client and link."""
    data, random = packed(clients, 20, width), np.random.default_rng(1)
    problem = ct.residual(data, shared_features="first_half", private_features="second_half")
    algorithm = ct.fedres_online_sgd(step_size=1e-5, alignment=alignment).build(problem, clients)
    up, down = (random.integers(0, delay // 2 + 1, clients) for _ in range(2))
    clock = ct.online(uplink=up, downlink=down, longest=delay // 2).build(clients)
    session = start(ct.Local(), problem, algorithm, clock, data, None, 0)
    seconds, first = timed(session.advance, session.begin(), steps, repeats)
    return {"what": f"FedRes ({alignment}), {clients} clients, delays up to {delay}, {width} features",
            "microseconds_per_step": 1e6 * seconds, "client_steps_per_second": clients / seconds,
            "first_call_seconds": first}


def many_clients(clients: int, width: int, steps: int, repeats: int) -> dict:
    """FedOMD on linear regression in a ball, one example a step, a synchronisation every 20."""
    data = packed(clients, 10, width)
    problem = ct.regression(data, ct.linear(bias=False))
    algorithm = ct.fedomd(step_size=1e-3, within={"name": "ball", "radius": 10.0}).build(problem, clients)
    session = start(ct.Local(), problem, algorithm, ct.online(sync=20).build(clients), data, None, 0)
    seconds, first = timed(session.advance, session.begin(), steps, repeats)
    return {"what": f"FedOMD, {clients} clients, {width} dimensions", "microseconds_per_step": 1e6 * seconds,
            "client_steps_per_second": clients / seconds, "first_call_seconds": first}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--accelerator", action="store_true")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    one_device_per_core()
    if options.accelerator:
        rows = [many_clients(100_000, 100, 200, options.repeats), many_clients(1_000_000, 10, 200, options.repeats),
                late_clients(1000, 500, 100, "full", 200, options.repeats)]
    else:
        rows = [scalar_clients(1, 2000, options.repeats), scalar_clients(20, 1000, options.repeats),
                late_clients(1000, 500, 100, "full", 100, options.repeats),
                late_clients(1000, 500, 100, "none", 20, options.repeats),
                many_clients(10_000, 100, 20, options.repeats)]
    found = {"device": str(jax.devices()[0].device_kind), "devices": len(jax.devices()), "jax": jax.__version__,
             "repeats": options.repeats, "rows": rows}
    for row in rows:
        print(f"{row['what']:60} {row['microseconds_per_step']:9.1f} us/step {row['client_steps_per_second']:.3g} "
              f"client-steps/s (first call {row['first_call_seconds']:.1f} s)")
    if options.out:
        options.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
