"""What do mixed rounds cost beside their two halves, and federated select with ever larger tables?

    python benchmarks/mixed.py [--quick] [--repeats 15] [--out benchmarks/results/mixed.md]

Mixed rounds: the smile study (studies/mixed/smile.py, Tables 6 and 7) with random numbers for faces. A mixed round is
held against a round of FedAvg plus the central steps alone (`only_central`). Select: `fedavg(rows=160)` of a dual
encoder (Table 10) without a central loss, with tables of 10^4, 10^5 and 10^6 rows of 16 numbers.

All contenders are in one process and take turns, a window of rounds each; who begins changes from turn to turn. Ratios
are taken within a turn; the tables have medians over turns, with the extremes in brackets. Programs are counted as they
are compiled: one for the rounds, and none in any window. Nothing is evaluated. With --out the tables are added to the
file's end.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import bare
import jax
import numpy as np

import cantons as ct
from cantons.checks.engines import compilations
from cantons.data import from_sizes
from cantons.engine import central
from cantons.study.resolve import resolve

COHORT = 100
FACES = {"clients": 1815, "central": 21_673, "pixels": 1024}  # as in CelebA: 10 to 13 faces of 32 x 32 to a client
LOCAL: dict[str, Any] = {"step_size": 0.01, "steps": 2, "batch_size": 5}
CENTRAL: dict[str, Any] = {"central_step_size": 0.01, "central_steps": 2, "central_batch_size": 500}
LARGER = {"central_step_size": 0.01, "central_steps": 1, "central_batch_size": 1000}  # one gradient for 1-way
TABLES, ROWS, WIDTH, CONTEXT = (10**4, 10**5, 10**6), 160, 16, 10

Windows = Mapping[str, list[float]]  # milliseconds per round of each contender, turn by turn


class Contender:
    """A run that goes on by windows."""

    def __init__(self, problem: ct.Problem, data: ct.Federation, recipe: Any, engine: Any = None,
                 cohort: int = COHORT):
        engine = engine or ct.Local()
        run = resolve(problem, data, recipe, rounds=1, cohort=cohort, engine=engine).parts
        self.session = engine.start([run])
        self.state, self.rounds = self.session.begin(), 0
        with compilations() as first:
            self.session.prepare(self.state)
        self.compiled, self.recompiled = len(first), 0
        self.working_bytes = self.session._block.memory_analysis().temp_size_in_bytes

    def play(self, rounds: int) -> float:
        """Milliseconds per round."""
        self.rounds += rounds
        with compilations() as more:
            began = time.perf_counter()
            self.state = self.session.advance(self.state, self.rounds)
            took = time.perf_counter() - began
        self.recompiled += len(more)
        return 1e3 * took / rounds


def take_turns(contenders: Mapping[str, Contender], window: int, repeats: int) -> Windows:
    for each in contenders.values():
        each.play(window)  # warms up
    found: dict[str, list[float]] = {name: [] for name in contenders}
    names = list(contenders)
    for turn in range(repeats):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            found[name].append(contenders[name].play(window))
    return found


def smile(quick: bool) -> tuple[ct.Problem, ct.Federation]:
    random, clients = np.random.default_rng(0), 200 if quick else FACES["clients"]
    sizes = random.integers(10, 14, clients)
    faces = random.random((sizes.sum(), FACES["pixels"]), np.float32)
    data = ct.federation(faces, np.ones(len(faces), int), np.repeat(np.arange(clients), sizes), classes=2, test=0)
    others = random.random((FACES["central"] // (10 if quick else 1), FACES["pixels"]), np.float32)
    data = replace(data, central=from_sizes(others, np.zeros(len(others), np.int32), np.array([len(others)])))
    return ct.with_central_loss(ct.classification(data, ct.mlp(hidden=[64]))), data


def mixed_rounds(window: int, repeats: int, quick: bool) -> str:
    problem, data = smile(quick)
    halves = {"FedAvg": ct.fedavg(**LOCAL), "2 central steps of 500": ct.only_central(**CENTRAL),
              "1 central gradient of 1000": ct.only_central(**LARGER)}
    mixed = {"parallel": (ct.parallel_training(**LOCAL, **CENTRAL), "2 central steps of 500"),
             "1-way": (ct.one_way_transfer(**LOCAL, central_batch_size=1000), "1 central gradient of 1000"),
             "2-way": (ct.two_way_transfer(**LOCAL, **CENTRAL), "2 central steps of 500")}
    recipes = halves | {name: recipe for name, (recipe, _) in mixed.items()}
    contenders = {name: Contender(problem, data, recipe) for name, recipe in recipes.items()}
    if jax.local_device_count() > 1:
        steps = halves["2 central steps of 500"]
        contenders["the same steps on one device"] = Contender(problem, data, steps, ct.Local(devices=1))
        with mock.patch.object(central, "LEAST_ROWS", math.inf):
            contenders["the same steps, all on each device"] = Contender(problem, data, steps)
    found = take_turns(contenders, window, repeats)
    ratios = {name: [whole / (clients + centre) for whole, clients, centre in zip(
        found[name], found["FedAvg"], found[half], strict=True)] for name, (_, half) in mixed.items()}
    rows = [[name, spread(found[name]), spread(ratios[name]) if name in ratios else "",
             programs(contenders[name])] for name in contenders]
    return table(["contender", "ms per round", "over its halves", "programs, later ones"], rows)


def movies(size: int, clients: int = 400, examples: int = 50) -> tuple[ct.Problem, ct.Federation]:
    """Clients whose examples look at 160 rows of the table each."""
    random = np.random.default_rng(0)
    own = random.integers(0, size, (clients, ROWS))
    chosen = np.take_along_axis(own[:, None], random.integers(0, ROWS, (clients, examples, CONTEXT + 1)), axis=2)
    things = chosen.reshape(-1, CONTEXT + 1).astype(np.int32)
    data = ct.federation(things[:, :-1], things[:, -1], np.repeat(np.arange(clients), examples), classes=size, test=0)
    return ct.dual_encoder(data, width=WIDTH), data


def select(window: int, repeats: int, quick: bool) -> str:
    recipe = ct.fedavg(step_size=0.5, steps=10, batch_size=16, rows=ROWS)
    contenders = {f"{size:,}": Contender(*movies(size), recipe) for size in (TABLES[:2] if quick else TABLES)}
    found = take_turns(contenders, window, repeats)
    smallest = next(iter(found.values()))
    rows = []
    for name, each in contenders.items():
        table_bytes = 4 * WIDTH * int(name.replace(",", ""))
        rows.append([name, spread(found[name]),
                     spread([time / least for time, least in zip(found[name], smallest, strict=True)]),
                     f"{each.working_bytes / 2**20:.1f}", f"{each.working_bytes / table_bytes:.2f}", programs(each)])
    return table(["rows of the table", "ms per round", "over the smallest", "working memory, MiB", "in tables",
                  "programs, later ones"], rows)


def programs(contender: Contender) -> str:
    return f"{contender.compiled}, {contender.recompiled}"


def spread(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.3g} ({min(values):.3g}..{max(values):.3g})"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def add_page(path: Path | None, page: list[str]) -> None:
    """Write a page at the end of a file of results, if one is wanted."""
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a") as file:
            file.write("\n".join(page))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=["mixed", "select"], default=["mixed", "select"])
    parser.add_argument("--repeats", type=int, default=15, help="windows of each contender")
    parser.add_argument("--quick", action="store_true", help="less data, no table of 10^6 rows, three short windows")
    parser.add_argument("--out", type=Path, help="a Markdown file to which the tables are added")
    options = parser.parse_args()

    bare.one_device_per_core()
    window = 5 if jax.default_backend() == "cpu" else 100
    repeats = options.repeats
    if options.quick:
        window, repeats = 2, 3
    device = jax.devices()[0]
    page = [f"## {device.device_kind}, {jax.local_device_count()} devices, JAX {jax.__version__}", "",
            f"`{' '.join([Path(sys.executable).name, *sys.argv])}`, {window} rounds to a window", ""]
    for part, work in (("mixed", mixed_rounds), ("select", select)):
        if part in options.parts:
            page += [work(window, repeats, options.quick), ""]
            print(page[-2], end="\n\n", flush=True)
    add_page(options.out, page)


if __name__ == "__main__":
    main()
