"""Figure 4 of "Partially Personalized Federated Learning: Breaking the Curse of Data Heterogeneity": FFGG among liars.

    python studies/ffgg/robust.py [--quick] [--out DIR]

Mishchenko et al., section E.3: least squares with the data of section 5.1, 42 clients of which 10 flip the sign of
their gradients, exact fine-tuning, the coordinate-wise median in buckets of two. Beside it: the same without liars, the
mean, the median alone, other rules, and the harder attack of inner-product manipulation with epsilon = 5. Every curve
is |F| over the honest clients, from closed forms at the library's theta; 1 is where it begins. Each with targets from
one theta, which Theorem 8 needs, and with targets of each client's own.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from closed_forms import Quadratics
from matplotlib import pyplot
from paths import follow, in_parts

import cantons as ct
from cantons.attack import inner_product, sign_flip
from cantons.protocol import Recipe

sys.path.insert(0, str(Path(__file__).parents[1]))
import kit


class Settings(NamedTuple):
    clients: int = 42
    liars: int = 10
    rows: int = 10_000  # n
    shared: int = 100  # d_theta
    private: int = 50  # d_w
    rounds: int = 1000
    every: int = 20
    rules: int = 7  # how many of them


QUICK = Settings(clients=8, liars=1, rows=60, shared=6, private=4, rounds=6, every=2, rules=2)
TITLES = {"shared": "one theta for all targets", "own": "targets of each client's own"}
ATTACKS = {"nobody lies": None, "sign flip": sign_flip(), "inner product": inner_product(epsilon=5.0)}


def rules(liars: int) -> dict[str, Recipe | None]:
    """Each asked to bear all liars; that of the paper is the second."""
    return {"mean": None, "median, buckets of 2": ct.median(bucket=2, f=liars), "median": ct.median(f=liars),
            "trimmed mean": ct.trimmed_mean(f=liars), "trimmed mean, mixed": ct.trimmed_mean(f=liars, mix=True),
            "geometric median": ct.geometric_median(f=liars), "multi-Krum": ct.multi_krum(f=liars)}


def curve(settings: Settings, data: ct.Federation, rule: Recipe | None, attack: Recipe | None) -> np.ndarray:
    """|F| over the honest clients after every few rounds, as a part of what it was."""
    known = Quadratics(data, settings.shared, settings.rows)
    names = tuple(data.clients.names[-settings.liars:])
    liars = None if attack is None else ct.byzantine(attack=attack, clients=names)
    honest = slice(None) if attack is None else slice(0, settings.clients - settings.liars)
    recipe = ct.ffgg(step_size=settings.rows / known.constants.sharp, tuner="exact")  # 1 / L
    looks = range(0, settings.rounds + 1, settings.every)
    thetas = follow(in_parts(data, settings.shared), data, [recipe], looks, settings.shared, aggregate=rule,
                    byzantine=liars)[0]
    found = np.linalg.norm(thetas @ known.S[honest].mean(0) - known.s[honest].mean(0), axis=-1)
    return found / found[0]


def main(arguments: Sequence[str] | None = None) -> None:
    given = kit.read_arguments(__doc__, "results/ffgg/robust", arguments)
    settings, watch = QUICK if given.quick else Settings(), kit.Watch()
    rows, numbers = [], {}
    figure, plots = pyplot.subplots(2, 3, figsize=(15, 8), layout="constrained", sharey=True)
    for targets, line in zip(TITLES, plots, strict=True):
        data = ct.synthetic_least_squares(settings.clients, rows=settings.rows, shared=settings.shared,
                                          private=settings.private, targets=targets)
        for (words, attack), axes in zip(ATTACKS.items(), line, strict=True):
            chosen = list(rules(settings.liars).items())[:settings.rules]
            for (name, rule), colour in zip(chosen, (kit.BLACK, *kit.COLOURS), strict=False):
                found = curve(settings, data, rule, attack)
                numbers[f"{targets}, {words}, {name}"] = found
                half = found[len(found) // 2]
                rows.append([targets, words, name, f"{half:.2g}", f"{found[-1]:.2g}"])
                axes.semilogy(np.arange(len(found)) * settings.every, found, color=colour, label=name)
                watch(f"{targets}, {words}, {name}: {found[-1]:.2g}")
            axes.set(xlabel="round", title=f"{words},\n{TITLES[targets]}")
        line[0].set(ylabel="|F| of the honest over |F| at the start")
    plots[0, 0].legend(fontsize=8)
    kit.save_figure(figure, given.out / "figure4.png")
    kit.save_numbers(given.out / "figure4.json", numbers)
    print(kit.table(["targets", "attack", "rule", "abs(F) at half time", "at the end"], rows, numbers=True))


if __name__ == "__main__":
    main()
