"""Figure 4 of "Partially Personalized Federated Learning: Breaking the Curse of Data Heterogeneity": FFGG among liars.

    python studies/ffgg/robust.py [--quick] [--parts curves theorem] [--out DIR]

Mishchenko et al., section E.3 and Theorem 8: least squares with the data of section 5.1, 42 clients of which 10 flip
the sign of their gradients, exact fine-tuning, the coordinate-wise median in buckets of two.
curves: Figure 4. Beside it the same without liars, the mean, the median alone, other rules, the harder attack of
inner-product manipulation with epsilon = 5, and the paper's rule with the step size of Theorem 8. Every curve is |F|
over the honest clients, from closed forms at the library's theta; 1 is where it begins. Each with targets from one
theta, which Theorem 8 needs, and with targets of each client's own. A curve is a file in DIR/curves, and computed once.
Clients are those of `tuned_exactly`, which send the same; the paper's rule is also run with clients that tune, and how
far the two differ is written down.
theorem: how many liars equation 22 allows, from a measured c of each rule, and |theta - theta*| beside equation 24;
also where clients are less alike, by section E.1's zeta or because they have few rows. c is the worst of simple attacks
on uploads S_m v of this problem, for random v: a lower bound.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from closed_forms import Quadratics
from matplotlib import pyplot
from paths import follow, in_parts, in_whole, tuned_exactly

import cantons as ct
from cantons.algorithm.parts.theorem_steps import StepSizes
from cantons.attack import inner_product, sign_flip
from cantons.metrics import measure_robustness
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
    draws: int = 20  # of uploads, to measure c
    zetas: tuple[float, ...] = (1.0, 3.0, 10.0)
    zeta_rows: int = 1000
    few_rows: int = 100  # as many as theta has numbers: hardly anybody knows all of it


QUICK = Settings(clients=8, liars=1, rows=60, shared=6, private=4, rounds=6, every=2, rules=2, draws=2, zetas=(),
                 zeta_rows=60, few_rows=8)
TITLES = {"shared": "one theta for all targets", "own": "targets of each client's own"}
ATTACKS = {"nobody lies": None, "sign flip": sign_flip(), "inner product": inner_product(epsilon=5.0)}
PAPER, THEOREM = "median, buckets of 2", "median, buckets of 2, Theorem 8's step"


def rules(liars: int) -> dict[str, Recipe | None]:
    """Each asked to bear all liars; that of the paper is the second."""
    return {"mean": None, PAPER: ct.median(bucket=2, f=liars), "median": ct.median(f=liars),
            "trimmed mean": ct.trimmed_mean(f=liars), "trimmed mean, mixed": ct.trimmed_mean(f=liars, mix=True),
            "geometric median": ct.geometric_median(f=liars), "multi-Krum": ct.multi_krum(f=liars)}


class Bench(NamedTuple):
    settings: Settings
    data: ct.Federation
    known: Quadratics
    rows: int  # n: the paper's losses are ours times this

    @classmethod
    def of(cls, settings: Settings, **more: Any) -> Bench:
        rows = more.pop("rows", settings.rows)
        data = ct.synthetic_least_squares(settings.clients, rows=rows, shared=settings.shared,
                                          private=settings.private, **more)
        return cls(settings, data, Quadratics(data, settings.shared, rows), rows)

    def thetas(self, rule: Recipe | None, attack: Recipe | None, step_size: float, tunes: bool = False) -> np.ndarray:
        """After every few rounds; the last clients lie. Clients tune in the runs, or have the data of ones that did."""
        data = self.data if tunes else tuned_exactly(self.known, self.rows)
        problem = in_parts(data, self.settings.shared) if tunes else in_whole(data)
        names = tuple(data.clients.names[-self.settings.liars:])
        liars = None if attack is None else ct.byzantine(attack=attack, clients=names)
        looks = range(0, self.settings.rounds + 1, self.settings.every)
        return follow(problem, data, [ct.ffgg(step_size=step_size, tuner="exact" if tunes else "gd")], looks,
                      self.settings.shared, aggregate=rule, byzantine=liars)[0]

    def apart(self, attack: Recipe | None) -> float:
        """How far the paper's rule leads where clients tune from where it leads where they have tuned."""
        rule, step_size = rules(self.settings.liars)[PAPER], self.rows / self.known.constants.sharp
        paths = [self.thetas(rule, attack, step_size, tunes) for tunes in (True, False)]
        return float(np.linalg.norm(paths[0] - paths[1], axis=1).max() / np.linalg.norm(paths[1], axis=1).max())

    def curve(self, name: str, attack: Recipe | None) -> Mapping[str, np.ndarray]:
        """|F| over the honest clients, and |theta - theta*|, as parts of what they were."""
        rule = rules(self.settings.liars)[PAPER if name == THEOREM else name]
        step_size = self.limits(rule, self.settings.liars).step_size if name == THEOREM and rule is not None else (
            self.rows / self.known.constants.sharp)
        thetas = self.thetas(rule, attack, step_size)
        honest = slice(None) if attack is None else slice(0, self.settings.clients - self.settings.liars)
        S, s = self.known.S[honest].mean(0), self.known.s[honest].mean(0)
        found = {"F": thetas @ S - s, "distance": thetas - np.linalg.solve(S, s)}
        return {key: np.linalg.norm(rows, axis=-1) / np.linalg.norm(rows[0]) for key, rows in found.items()}

    # Theorem 8

    def step_sizes(self) -> StepSizes:
        with jax.enable_x64(True):
            return ct.ffgg_step_sizes(in_parts(self.data, self.settings.shared), self.data)

    def measured(self, rule: Recipe, liars: int) -> float:
        """c, where honest uploads are S_m v."""
        with jax.enable_x64(True):
            S = jnp.asarray(self.known.S / self.rows)
            return measure_robustness(
                rule.build(), self.settings.clients, liars, lambda key, rows, width: S[:rows] @ jax.random.normal(
                    key, (width,)), coordinates=self.settings.shared, draws=self.settings.draws).c

    def limits(self, rule: Recipe, liars: int) -> Any:
        return self.step_sizes().robust(self.settings.clients, liars, self.measured(rule, liars))


def curves(settings: Settings, out: Path, watch: kit.Watch) -> str:
    cells, rows = kit.Cells(out / "curves", settings, watch), []
    figure, plots = pyplot.subplots(2, 3, figsize=(15, 8), layout="constrained", sharey=True)
    for targets, line in zip(TITLES, plots, strict=True):
        bench = Bench.of(settings, targets=targets)
        for (words, attack), axes in zip(ATTACKS.items(), line, strict=True):
            names = [*list(rules(settings.liars))[:settings.rules], THEOREM]
            colours = [kit.BLACK, *kit.COLOURS][:len(names) - 1]
            for name, colour in zip(names, [*colours, colours[1]], strict=True):
                found = np.array(cells(f"{targets}, {words}, {name}", partial(bench.curve, name, attack))["F"])
                rows.append([targets, words, name, f"{found[len(found) // 2]:.2g}", f"{found[-1]:.2g}"])
                axes.semilogy(np.arange(len(found)) * settings.every, np.minimum(found, 1e3), color=colour, label=name,
                              linestyle="--" if name == THEOREM else "-")
                watch(f"{targets}, {words}, {name}: {found[-1]:.2g}")
            axes.set(xlabel="round", title=f"{words},\n{TITLES[targets]}", ylim=(1e-5, 100))
        line[0].set(ylabel="|F| of the honest over |F| at the start")
        apart = cells(f"{targets}, apart", partial(bench.apart, ATTACKS["sign flip"]))
        rows.append([targets, "sign flip", f"{PAPER}: clients that tune, theta apart", "", f"{apart:.1g}"])
    plots[0, 0].legend(fontsize=8)
    kit.save_figure(figure, out / "figure4.png", shades=64)
    return kit.table(["targets", "attack", "rule", "abs(F) at half time", "at the end"], rows)


def theorem(settings: Settings, out: Path, watch: kit.Watch) -> str:
    cells = kit.Cells(out / "curves", settings, watch)
    measure = kit.Cells(out / "limits", settings, watch)
    few = sorted({max(1, settings.liars // 10), max(1, settings.liars // 2), settings.liars})
    makers = {PAPER: partial(ct.median, bucket=2), "median": ct.median,
              "trimmed mean, mixed": partial(ct.trimmed_mean, mix=True), "geometric median": ct.geometric_median}
    benches = {"section 5.1": Bench.of(settings), **{f"E.1, zeta = {zeta:g}": Bench.of(
        settings, rows=settings.zeta_rows, heterogeneity=zeta) for zeta in settings.zetas},
        f"section 5.1, n = {settings.few_rows}": Bench.of(settings, rows=settings.few_rows)}
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(12, 4.5), layout="constrained")
    lines = []
    markers = {"section 5.1": "o", f"section 5.1, n = {settings.few_rows}": "x"}
    for data, bench in benches.items():
        steps = bench.step_sizes()
        for (name, make), colour in zip(makers.items(), kit.COLOURS, strict=False):
            found = [measure(f"{data}, {name}, {liars}", partial(bench.measured, make(f=liars), liars))
                     for liars in few]
            allowed = [steps.robust(settings.clients, liars, c) for liars, c in zip(few, found, strict=True)]
            if data in markers:
                right.semilogy(few, [each.liars for each in allowed], color=colour, marker=markers[data],
                               label=name if data == "section 5.1" else None)
            lines.append([data, name, f"{steps.smoothness / steps.curvature:.3g}",
                          f"{steps.dissimilarity / steps.curvature:.2g}", *(f"{c:.2g}" for c in found),
                          *(f"{each.liars:.2g}" for each in allowed), f"{allowed[-1].step_size * steps.smoothness:.3g}",
                          f"{allowed[-1].rate:.4f}"])
            watch(" ".join(lines[-1]))
    right.semilogy(few, np.array(few) / settings.clients, color=kit.BLACK, linestyle="--", label="liars / clients")
    right.set(xlabel="liars", title="equation 22's limit on delta: points for section 5.1,\n"
              f"crosses with {settings.few_rows} rows; it is 1/2 at most")
    right.minorticks_off()
    right.set_yticks(ticks := [0.02, 0.05, 0.1, 0.2, 0.5], [f"{tick:g}" for tick in ticks])
    right.legend(fontsize=8)
    bench = benches["section 5.1"]
    rate = bench.limits(makers[PAPER](f=settings.liars), settings.liars).rate
    rounds = np.arange(0, settings.rounds + 1, settings.every)
    styles = ((kit.BLACK, 2), (kit.BLUE, 4), (kit.RED, 1.5))
    for (words, attack), (colour, width) in zip(ATTACKS.items(), styles, strict=True):
        for name, style in ((PAPER, "-"), (THEOREM, "--")):
            found = cells(f"shared, {words}, {name}", partial(bench.curve, name, attack))["distance"]
            left.semilogy(rounds, found, color=colour, linestyle=style, linewidth=width,
                          label=f"{words}{', step of Theorem 8' if name == THEOREM else ', 1 / L'}")
    left.semilogy(rounds, rate ** (rounds / 2), color=kit.GREY, linestyle=":", label="equation 24")
    left.set(xlabel="round", ylabel="|theta - theta*|, relative", title=f"{PAPER}, shared targets")
    left.legend(fontsize=8)
    kit.save_figure(figure, out / "theorem8.png", shades=64)
    of_liars = [f"{liars} of {settings.clients}" for liars in few]
    apart = benches[f"section 5.1, n = {settings.few_rows}"]
    ends = []
    for words, attack in ATTACKS.items():
        for name in list(rules(settings.liars))[:settings.rules]:
            found = cells(f"few rows, {words}, {name}", partial(apart.curve, name, attack))
            ends.append([words, name, *(f"{found[key][-1]:.2g}" for key in ("distance", "F"))])
            watch(f"few rows: {' '.join(ends[-1])}")
    head = ["data", "rule", "L / mu", "l_sim / mu", *(f"c, {each}" for each in of_liars),
            *(f"limit, {each}" for each in of_liars), "gamma L, at the last", "rate"]
    return "\n\n".join([kit.table(head, lines), kit.table(
        ["attack", f"rule, n = {settings.few_rows}", "distance from theta* at the end", "abs(F)"], ends)])


def main(arguments: Sequence[str] | None = None) -> None:
    kit.play_parts(__doc__, "results/ffgg/robust", arguments, Settings(), QUICK,
                   {"curves": curves, "theorem": theorem})


if __name__ == "__main__":
    main()
