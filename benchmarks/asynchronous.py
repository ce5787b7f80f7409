"""How fast events of the asynchronous clock are, and whether that depends on anything but the jobs under way.

    python benchmarks/asynchronous.py [--events 20000] [--repeats 5] [--cpu-time] [--out FILE]

Through the local engine's session, on random rows; nothing is evaluated within the time that counts. `clients` has 40
clients at work, all of them; `population` has 1000 jobs under way in ten times as many clients, and in a hundred times;
`late` compares the last thousand events of a long run with its second thousand.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

import cantons as ct
from cantons.protocol import Parts

CPU_TIME = "--cpu-time" in sys.argv
UNEVEN = {"name": "log_normal", "spread": 1.0, "jitter": 0.3}


def packed(clients: int, rows: int, width: int) -> ct.Federation:
    """Random rows for so many clients, all of one size and all for training."""
    random = np.random.default_rng(0)
    inputs = random.normal(size=(clients * rows, width)).astype(np.float32)
    targets = random.normal(size=clients * rows).astype(np.float32)
    return ct.federation(inputs, targets, np.repeat(np.arange(clients), rows), test=np.zeros(clients * rows, bool))


def windows(data: ct.Federation, algorithm: Any, clock: Any, events: int, repeats: int) -> list[float]:
    """Microseconds per event in each of some windows; one more warms up and is left out."""
    problem = ct.regression(data, ct.linear(), split="*bias")
    parts = Parts(problem, algorithm, algorithm.build(problem, data.population), clock.build(data.population), data,
                  None, 0)
    session = ct.Local().start([parts])
    state, found = session.begin(), []
    session.prepare(state)
    for window in range(repeats + 1):
        began = time.process_time() if CPU_TIME else time.perf_counter()
        state = session.advance(state, events * (window + 1))
        found.append(1e6 * ((time.process_time() if CPU_TIME else time.perf_counter()) - began) / events)
    return found[1:]


def row(what: str, found: list[float]) -> dict:
    typical = statistics.median(found)
    return {"what": what, "microseconds_per_event": typical, "events_per_second": 1e6 / typical, "windows_us": found}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--events", type=int, default=20_000)
    options.add_argument("--repeats", type=int, default=5)
    options.add_argument("--cpu-time", action="store_true", help="count the process's CPU time: others may be at work")
    options.add_argument("--out", type=Path)
    chosen = options.parse_args()
    ffgg = ct.ffgg(step_size=0.01, tuner={"name": "gd", "steps": 5}, private_init="last")
    small = packed(40, 20, 10)
    table = [row(f"40 clients, next = {next}", windows(
        small, ffgg, ct.asynchronous(next=next, durations=UNEVEN), chosen.events, chosen.repeats))
        for next in ("same", "drawn")]
    table.append(row("40 clients, fedavg, drawn", windows(small, ct.fedavg(steps=1, batch_size=10), ct.asynchronous(
        durations=UNEVEN), chosen.events, chosen.repeats)))
    table.append(row("40 clients, buffer = 10", windows(small, ffgg, ct.asynchronous(
        buffer=10, durations=UNEVEN), max(1, chosen.events // 10), chosen.repeats)))
    for clients in (10_000, 100_000):
        table.append(row(f"1000 jobs, {clients} clients", windows(packed(clients, 5, 10), ffgg, ct.asynchronous(
            concurrency=1000, durations=UNEVEN), chosen.events, chosen.repeats)))
    late = windows(packed(10_000, 5, 10), ffgg, ct.asynchronous(concurrency=1000, durations=UNEVEN), 1000, 60)
    table.append({**row("1000 jobs, by thousands of events", late), "second": late[0], "last": late[-1]})
    for one in table:
        speed = f"{one['microseconds_per_event']:8.1f} us/event {one['events_per_second']:10.0f} events/s"
        print(f"{one['what']:36} {speed}")
    print(f"second thousand {late[0]:.1f}, last {late[-1]:.1f}, median of the last ten "
          f"{statistics.median(late[-10:]):.1f} us/event")
    if chosen.out is not None:
        chosen.out.write_text(json.dumps({"jax": jax.__version__, "devices": str(jax.devices()), "rows": table}))


if __name__ == "__main__":
    main()
