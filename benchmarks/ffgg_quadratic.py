"""How long Figure 1a of the FFGG paper takes: 32 clients, n = 10000, float64, all tau, data and compilation included.

    python benchmarks/ffgg_quadratic.py [--repeats 3] [--rounds 1000] [--out FILE]

Mishchenko et al., section 5.1: theta has 100 numbers and w 50. Clients have 151 rows, a root of their normal equations,
in the place of 20,000, so that a gradient costs d^2 and not n d; --raw times some rounds with all rows, for comparison.
Nothing is compiled beforehand: the compilation cache is off. |F| is worked out after every tenth round.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from pathlib import Path

import jax

import cantons as ct
from cantons.engine.devices import one_device_per_core

sys.path.insert(0, str(Path(__file__).parents[1] / "studies" / "ffgg"))
from closed_forms import Quadratics
from paths import follow, in_parts

ROWS, SHARED, STEPS = 10_000, 100, (5, 10, 20, 30, 40)


def figure(tuner: str, rounds: int) -> tuple[float, list[float]]:
    """Seconds for all tau, and the relative |F| at the end of each."""
    began = time.perf_counter()
    data = ct.synthetic_least_squares(rows=ROWS)
    known, problem = Quadratics(data, SHARED, ROWS), in_parts(data, SHARED)
    inner = {"step_size": ROWS / known.constants.of_private} if tuner == "gd" else {}
    left = []
    for steps in STEPS if tuner != "exact" else (0,):
        how = {"name": tuner, "steps": steps, **inner} if steps else tuner
        path = follow(problem, data, [ct.ffgg(step_size=ROWS / known.constants.sharp, tuner=how)],
                      range(0, rounds + 1, 10), SHARED)[0]
        norms = known.norms(path)
        left.append(float(norms[-1] / norms[0]))
        jax.clear_caches()
    return time.perf_counter() - began, left


def one_round(compact: bool, tau: int = 20, rounds: int = 10, clients: int = 8) -> float:
    """Seconds of a round of FFGG with few clients: with all rows of all clients memory would not do."""
    data = ct.synthetic_least_squares(clients, rows=ROWS, compact=compact)
    recipe = ct.ffgg(tuner={"name": "gd", "steps": tau, "step_size": 1.0})
    found = ct.run(in_parts(data, SHARED), data, recipe, rounds=2 * rounds, evaluate_every=rounds, precision="float64")
    return found.history[-1]["seconds_per_round"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--tuners", nargs="*", default=["cg", "gd", "exact"])
    parser.add_argument("--raw", action="store_true", help="also compare a round with one on all rows")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    one_device_per_core()
    jax.config.update("jax_enable_compilation_cache", False)
    lines = [f"## {jax.device_count()} {jax.default_backend()} devices, JAX {jax.__version__}", "",
             f"`python benchmarks/{Path(__file__).name} {' '.join(sys.argv[1:])}`. Load average before: "
             f"{os.getloadavg()[0]:.1f}.", "",
             f"| tuner, {given.rounds} rounds | seconds for all tau, median (range) | relative abs(F) at the ends |",
             "| --- | ---: | --- |"]
    for tuner in given.tuners:
        found = [figure(tuner, given.rounds) for _ in range(given.repeats)]
        seconds = [each for each, _ in found]
        took = f"{statistics.median(seconds):.1f} ({min(seconds):.1f}..{max(seconds):.1f})"
        lines.append(f"| {tuner} | {took} | {', '.join(f'{end:.2g}' for end in found[0][1])} |")
        print(lines[-1], flush=True)
    if given.raw:
        few, every = one_round(True), one_round(False)
        lines += ["", f"A round of 8 clients with 20 tuning steps: {1e3 * few:.3g} ms with 151 rows to a client, "
                      f"{1e3 * every:.4g} ms with 20,000: {every / few:.0f} times as long."]
    lines += ["", f"Load average after: {os.getloadavg()[0]:.1f}.", ""]
    print("\n".join(lines))
    if given.out:
        with given.out.open("a") as file:
            file.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
