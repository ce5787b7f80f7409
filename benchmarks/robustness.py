"""Definition 2's constant c for every robust rule, alone, in buckets of two, and with nearest-neighbour mixing.

    python benchmarks/robustness.py [--out benchmarks/results/robustness.md]

For each rule, number of uploads and number of liars: the largest E |aggregate - honest mean|^2 / (delta sigma^2) over
simple attacks, for three ways of drawing honest uploads. A rule is (delta, c)-robust if this stays bounded as delta
becomes small; a c that doubles when delta halves says that it is not.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import cantons as ct
from cantons.errors import InputError
from cantons.metrics.robustness import gaussian, measure_robustness, one_hot, two_points

SIZES = ((21, 4), (42, 4), (168, 4))  # (uploads, liars): delta from 0.19 to 0.024
RULES = {
    "mean": lambda **options: ct.trimmed_mean(**options | {"f": 0}), "trimmed_mean": ct.trimmed_mean,
    "median": ct.median, "geometric_median": ct.geometric_median, "krum": ct.krum, "multi_krum": ct.multi_krum}
WAYS = {"alone": {}, "buckets of 2": {"bucket": 2}, "mixed": {"mix": True}}
DRAWS = {"gaussian": gaussian, "two_points": two_points, "one_hot": one_hot}


def table(draws: int) -> str:
    heads = [f"{liars} of {rows}" for rows, liars in SIZES]
    lines = ["| rule | before it | honest uploads | " + " | ".join(heads) + " | worst attack at the last |",
             "| --- | --- | --- | " + "--- | " * (len(SIZES) + 1)]
    for name, make in RULES.items():
        for way, options in WAYS.items():
            if name == "mean" and way != "alone":
                continue
            for kind, draw in DRAWS.items():
                cells, attack = [], ""
                for rows, liars in SIZES:
                    rule = make(f=liars, **options).build()
                    try:
                        rule.bears(rows)
                    except InputError:
                        cells.append("refused")
                        continue
                    c, attack = measure_robustness(rule, rows, liars, draw, draws=draws)
                    cells.append(f"{c:.3g}")
                lines.append(f"| {name} | {way} | {kind} | {' | '.join(cells)} | {attack} |")
                print(lines[-1], flush=True)
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=200)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    text = table(options.draws)
    if options.out is not None:
        options.out.write_text(text)


if __name__ == "__main__":
    main()
