"""Figures 1 and 2 of "Partially Personalized Federated Learning: Breaking the Curse of Data Heterogeneity".

    python studies/ffgg/figures.py [--quick] [--parts tuners tolerance methods limits local zeta] [--out DIR]

Mishchenko et al., sections 5.1, 5.2 and E.1: least squares in theta and w. Every curve is |F(theta)|, the norm of the
mean over clients of F_m(theta) = S_m theta - s_m, from closed forms at the library's theta; 1 is where it begins.

tuners: Figure 1a, FFGG with tau steps of conjugate gradients, and of gradient descent, and exact.
tolerance: conjugate gradients to a tolerance, which SciPy's have where they are not told otherwise.
methods: Figures 1b to 1d, FFGG beside Local GD, SCAFFOLD and L2GD with tau local steps, and FedAlt and FedSim with the
fewest; with the step sizes of theory, and with the best of four (of four penalties, for L2GD) by |F| in the end.
limits: where these end after many more rounds, by closed forms alone; and Local FFGG.
local: Local FFGG with K steps of both parts after w is tuned exactly, and where it ends.
zeta: Figure 2, clients whose matrices differ more and more, and what L is read as.
Each with targets from one theta, which Assumption 2 needs, and with targets of each client's own, as in the paper.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from closed_forms import Quadratics
from matplotlib import pyplot
from paths import follow, follow_scipy, in_parts, in_whole

import cantons as ct
from cantons.protocol import Problem, Recipe

sys.path.insert(0, str(Path(__file__).parents[1]))
import kit


class Settings(NamedTuple):
    clients: int = 32
    rows: int = 10_000  # n
    shared: int = 100  # d_theta
    private: int = 50  # d_w
    tuner_rounds: int = 2000
    tuner_steps: tuple[int, ...] = (5, 10, 20, 30, 40)
    tolerance_rounds: int = 4000
    rounds: int = 200
    every: int = 10
    steps: tuple[int, ...] = (100, 200, 500)  # tau of Figures 1b to 1d
    penalty: float = 0.1  # L2GD's lambda
    local_rounds: int = 5000
    local_steps: tuple[int, ...] = (1, 2, 5)  # K of Local FFGG
    zetas: tuple[float, ...] = (20.0, 40.0, 80.0)
    zeta_rows: int = 1000
    zeta_noise: float = 1e-3  # iota
    zeta_rounds: int = 300
    zeta_steps: int = 20


QUICK = Settings(clients=4, rows=60, shared=6, private=4, tuner_rounds=20, tuner_steps=(2, 4), tolerance_rounds=8,
                 rounds=6, every=2, steps=(3,), local_rounds=6, local_steps=(1, 2), zetas=(2.0,), zeta_rows=60,
                 zeta_rounds=6, zeta_steps=3)
TARGETS = ("shared", "own")
TITLES = {"shared": "one theta for all targets", "own": "targets of each client's own"}


class Bench(NamedTuple):
    """One federation, and what is known about it by hand."""

    data: ct.Federation
    known: Quadratics
    shared: int
    rows: int  # the paper's losses are ours times this, and its step sizes are ours divided by it
    every: int

    def curves(self, problem: Problem, recipes: Sequence[Recipe], rounds: int) -> np.ndarray:
        """|F| of each recipe, [recipes, looks]."""
        return self.known.norms(follow(problem, self.data, recipes, range(0, rounds + 1, self.every), self.shared))


def bench(settings: Settings, **more: Any) -> Bench:
    rows = more.pop("rows", settings.rows)
    data = ct.synthetic_least_squares(settings.clients, rows=rows, shared=settings.shared, private=settings.private,
                                      **more)
    return Bench(data, Quadratics(data, settings.shared, rows), settings.shared, rows, settings.every)


def first_below(curve: np.ndarray, level: float, every: int) -> str:
    """After how many rounds a curve is below a level, as looked at."""
    below = np.flatnonzero(curve <= level)
    return str(int(below[0]) * every) if len(below) else "never"


# Figure 1a


def tuners(settings: Settings, out: Path, watch: kit.Watch) -> str:
    rows, numbers = [], {}
    figure, plots = pyplot.subplots(1, 4, figsize=(17, 4), layout="constrained", sharey=True)
    for targets, (left, right) in zip(TARGETS, plots.reshape(2, 2), strict=True):
        one = bench(settings, targets=targets)
        constants, problem = one.known.constants, in_parts(one.data, settings.shared)
        step, inner = one.rows / constants.sharp, one.rows / constants.of_private
        kinds: dict[str, Callable[[int], Any]] = {
            "conjugate gradients": lambda tau: {"name": "cg", "steps": tau},
            "gradient descent": lambda tau, inner=inner: {"name": "gd", "steps": tau, "step_size": inner}}
        exact = one.curves(problem, [ct.ffgg(step_size=step, tuner="exact")], settings.tuner_rounds)[0]
        found = {("exact", ""): exact}
        for kind, tuner in kinds.items():
            for tau in settings.tuner_steps:
                recipe = ct.ffgg(step_size=step, tuner=tuner(tau))
                found[kind, tau] = one.curves(problem, [recipe], settings.tuner_rounds)[0]
                watch(f"Figure 1a, targets {targets}, {kind}, tau = {tau}: {found[kind, tau][-1] / exact[0]:.2g}")
        for axes, kind in zip((left, right), kinds, strict=True):
            places = np.arange(len(exact)) * settings.every
            for tau, colour in zip(settings.tuner_steps, kit.COLOURS, strict=False):
                axes.semilogy(places, found[kind, tau] / exact[0], color=colour, label=f"tau = {tau}")
            axes.semilogy(places, exact / exact[0], color=kit.BLACK, linestyle=":", label="exact")
            axes.set(xlabel="round", title=f"{kind},\n{TITLES[targets]}")
            axes.legend(fontsize=8)
        for (kind, tau), curve in found.items():
            numbers[f"{targets} {kind} {tau}"] = curve
            rows.append([targets, f"{kind} {tau}".strip(), f"{curve[-1]:.2g}", f"{curve[-1] / curve[0]:.2g}",
                         *(first_below(curve / curve[0], level, settings.every) for level in (1e-2, 1e-4, 1e-6))])
    plots[0].set(ylabel="|F| over |F| at the start")
    kit.save_figure(figure, out / "figure1a.png")
    kit.save_numbers(out / "figure1a.json", numbers)
    return kit.table(["targets", "tuner", "abs(F) at the end", "relative", "rounds to 1e-2", "1e-4", "1e-6"], rows,
                     numbers=True)


def tolerance(settings: Settings, out: Path, watch: kit.Watch) -> str:
    """Relative |F| at four places, at gamma = 1 / L."""
    rows, numbers, rounds = [], {}, settings.tolerance_rounds
    for targets in TARGETS:
        one = bench(settings, targets=targets)._replace(every=rounds // 4)
        sharp, most = one.known.constants.sharp, max(settings.tuner_steps)
        curves = one.curves(in_parts(one.data, one.shared), [ct.ffgg(step_size=one.rows / sharp, tuner={
            "name": "cg", "steps": most, "tolerance": part}) for part in (0.0, 1e-5)], rounds)
        watch(f"tolerances, targets {targets}: {curves[:, -1] / curves[:, 0]}")
        scipy = one.known.norms(follow_scipy(one.known, 1 / sharp, rounds, one.every))
        for name, curve in zip((f"{most} steps", f"{most} steps, or to 1e-5", "SciPy's, to 1e-5"), [*curves, scipy],
                               strict=True):
            numbers[f"{targets} {name}"] = curve
            rows.append([targets, name, *(f"{value / curve[0]:.2g}" for value in curve[1:])])
        watch(f"SciPy, targets {targets}: {rows[-1][-1]}")
    kit.save_numbers(out / "tolerance.json", numbers)
    return kit.table(["targets", "conjugate gradients", *(f"after {place * (rounds // 4)} rounds"
                                                          for place in range(1, 5))], rows, numbers=True)


# Figures 1b to 1d


class Method(NamedTuple):
    """An algorithm at the step size of theory, and a grid of factors on it."""

    problem: Problem
    build: Callable[[float], Recipe]  # a factor -> the algorithm
    factors: tuple[float, ...]  # the first is 1; those of L2GD are on its penalty


def methods(one: Bench, tau: int, penalty: float, fewest: bool) -> dict[str, Method]:
    """All of them with tau local steps; FedAlt and FedSim only where tau is the `fewest`."""
    constants, n = one.known.constants, one.rows
    parts, whole = in_parts(one.data, one.shared), in_whole(one.data)
    local = n / (constants.joint * tau)  # 1 / (L_f tau)
    # A local step is stable up to 2 / L_f, and that is 2 tau times as long.
    grid = (1.0, 0.1 * tau, 0.5 * tau, 1.8 * tau)
    gd = {"name": "gd", "steps": tau, "step_size": n / constants.of_private}
    alone = n / (2 * max(constants.joint, penalty * (tau - 1)))  # alpha / (M (1 - p)), the printed alpha inverted
    full = {"batch_size": None}
    found = {
        "FFGG": Method(parts, lambda by: ct.ffgg(step_size=by * n / constants.sharp, tuner=gd), (1.0, 0.5, 1.4, 1.8)),
        "Local GD": Method(whole, lambda by: ct.fedavg(step_size=by * local, steps=tau, **full), grid),
        "SCAFFOLD": Method(whole, lambda by: ct.scaffold(option="I", step_size=by * local, steps=tau,
                                                         server_step_size=0.5, **full), grid),
        # Penalties up to 2 L_f / tau, with which all clients agree after every communication.
        "L2GD": Method(whole, lambda by: ct.l2gd(penalty=by * penalty / n, communication=1 / tau, step_size=alone),
                       tuple([1.0, *np.array([0.1, 0.5, 2.0]) * constants.joint / (penalty * tau)])),
    }
    if fewest:
        both = {"steps": tau, **full}
        for state, word in (("none", "stateless"), ("kept", "stateful")):
            found[f"FedAlt, {word}"] = Method(parts, lambda by, state=state: ct.fedalt(
                step_size=by * n / (constants.of_shared * tau), private_step_size=n / constants.of_private,
                private_steps=tau, state=state, **both), grid)
            found[f"FedSim, {word}"] = Method(parts, lambda by, state=state: ct.fedsim(
                step_size=by * local, private_step_size=n / constants.joint, state=state, **both), grid)
    return found


STYLES = {"FFGG": kit.BLUE, "Local GD": kit.ORANGE, "SCAFFOLD": kit.GREEN, "L2GD": kit.PINK,
          "FedAlt, stateless": kit.DARK, "FedAlt, stateful": kit.BLACK,
          "FedSim, stateless": kit.GREY, "FedSim, stateful": "#56b4e9"}


LINES = {"sharp": ":", "Example 1, spectral": "--", "the authors' code": "-."}


def compare(settings: Settings, out: Path, watch: kit.Watch) -> str:
    rows, numbers = [], {}
    for targets in TARGETS:
        one = bench(settings, targets=targets)
        places = np.arange(0, settings.rounds + 1, settings.every)
        figure, plots = pyplot.subplots(2, len(settings.steps), figsize=(5.2 * len(settings.steps), 7.5), sharey=True,
                                        layout="constrained", squeeze=False)
        for column, tau in enumerate(settings.steps):
            for name, method in methods(one, tau, settings.penalty, tau == min(settings.steps)).items():
                with np.errstate(over="ignore", invalid="ignore"):  # some steps are too long on purpose
                    curves = one.curves(method.problem, [method.build(by) for by in method.factors], settings.rounds)
                best = int(np.nanargmin(np.where(np.isfinite(curves[:, -1]), curves[:, -1], np.inf)))
                for axes, curve, label in ((plots[0, column], curves[0], name),
                                           (plots[1, column], curves[best], f"{name}, x {method.factors[best]:g}")):
                    axes.semilogy(places, curve / curve[0], color=STYLES[name], label=label)
                numbers |= {f"{targets} {tau} {name} x {by:g}": curve
                            for by, curve in zip(method.factors, curves, strict=True)}
                rows.append([targets, str(tau), name, f"{curves[0, -1]:.3g}", f"{curves[0, -1] / curves[0, 0]:.3g}",
                             f"{method.factors[best]:g}", f"{curves[best, -1]:.3g}",
                             f"{curves[best, -1] / curves[best, 0]:.3g}"])
                watch(f"Figures 1b-d, targets {targets}, tau = {tau}, {name}: {rows[-1][3]}, tuned {rows[-1][6]}")
            plots[0, column].set_title(f"tau = {tau}, step sizes of theory")
            plots[1, column].set(title="tuned step sizes", xlabel="round")
            for axes in plots[:, column]:
                axes.legend(fontsize=7)
        for axes in plots[:, 0]:
            axes.set(ylabel="|F| over |F| at the start", ylim=(max(axes.get_ylim()[0], 1e-8), 10))
        figure.suptitle(TITLES[targets])
        kit.save_figure(figure, out / f"figure1bcd-{targets}.png")
        kit.save_numbers(out / "figure1bcd.json", numbers)
    return kit.table(["targets", "tau", "method", "theory: abs(F)", "relative", "best factor", "tuned: abs(F)",
                      "relative"], rows, numbers=True)


def limits(settings: Settings, out: Path, watch: kit.Watch) -> str:
    rows = []
    for targets in TARGETS:
        known = bench(settings, targets=targets).known
        constants, start = known.constants, known.norms(np.zeros(settings.shared))
        for tau in settings.steps:
            found = {"SCAFFOLD": known.one_model}
            found |= {f"Local GD, {word}": known.averaged(size / constants.joint, tau) for word, size in (
                ("1 / (L_f tau)", 1 / tau), ("0.1 / L_f", 0.1), ("1.8 / L_f", 1.8))}
            found["FFGG"] = np.linalg.solve(*known.tuned_operator(1 / constants.of_private, tau))
            found |= {f"Local FFGG, K = {steps}": np.linalg.solve(*known.local_operator(
                1 / constants.of_shared, 1 / constants.of_private, steps, tau)) for steps in settings.local_steps}
            rows += [[targets, str(tau), name, f"{known.norms(point[:settings.shared]):.2g}",
                      f"{known.norms(point[:settings.shared]) / start:.2g}"] for name, point in found.items()]
    return kit.table(["targets", "tau", "method", "abs(F) at the limit", "relative"], rows, numbers=True)


def local(settings: Settings, out: Path, watch: kit.Watch) -> str:
    """gamma = 1 / |H'H + A'A| for theta, since the steps after the first are at a w that was not tuned there."""
    rows, numbers = [], {}
    places = np.arange(0, settings.local_rounds + 1, settings.every)
    figure, plots = pyplot.subplots(1, 2, figsize=(11, 4), layout="constrained", sharey=True)
    for axes, targets in zip(plots, TARGETS, strict=True):
        one = bench(settings, targets=targets)
        known, start = one.known, one.known.norms(np.zeros(one.shared))
        gamma, gamma_w = 1 / known.constants.of_shared, 1 / known.constants.of_private
        for steps, colour in zip(settings.local_steps, kit.COLOURS, strict=False):
            recipe = ct.local_ffgg(step_size=one.rows * gamma, private_step_size=one.rows * gamma_w, steps=steps,
                                   tuner={"name": "cg", "steps": max(settings.tuner_steps)})
            curve = one.curves(in_parts(one.data, one.shared), [recipe], settings.local_rounds)[0] / start
            limit, shorter = (known.norms(np.linalg.solve(*known.local_operator(by * gamma, gamma_w, steps))) / start
                              for by in (1.0, 0.1))
            axes.semilogy(places, curve, color=colour, label=f"K = {steps}")
            if limit > 1e-10:
                axes.axhline(limit, color=colour, linestyle=":")
            numbers[f"{targets} {steps}"] = curve
            rows.append([targets, str(steps), first_below(curve, 1e-6, settings.every), f"{curve[-1]:.2g}",
                         f"{limit:.2g}", f"{shorter:.2g}"])
            watch(f"Local FFGG, targets {targets}, K = {steps}: {rows[-1][3]}, the limit {rows[-1][4]}")
        axes.set(xlabel="round", title=TITLES[targets])
        axes.legend(fontsize=8)
    plots[0].set(ylabel="|F| over |F| at the start")
    kit.save_figure(figure, out / "local.png")
    kit.save_numbers(out / "local.json", numbers)
    return kit.table(["targets", "K", "rounds to 1e-6", f"relative abs(F) after {settings.local_rounds} rounds",
                      "at the limit", "at the limit of a tenth of gamma"], rows, numbers=True)


# Figure 2


def zeta(settings: Settings, out: Path, watch: kit.Watch) -> str:
    rows, numbers, tau = [], {}, settings.zeta_steps
    places = np.arange(settings.zeta_rounds + 1)
    for targets in TARGETS:
        figure, plots = pyplot.subplots(1, len(settings.zetas), figsize=(5.2 * len(settings.zetas), 4), sharey=True,
                                        layout="constrained", squeeze=False)
        for axes, size in zip(plots[0], settings.zetas, strict=True):
            made = {"rows": settings.zeta_rows, "heterogeneity": size, "noise": settings.zeta_noise, "targets": targets}
            one = bench(settings, **made)._replace(every=1)
            readings = bench(settings, compact=False, **made).known.readings()
            chosen = methods(one, tau, settings.penalty, fewest=False)
            problem, inner = in_parts(one.data, one.shared), one.rows / one.known.constants.of_private
            curves = {name: one.curves(chosen[name].problem, [chosen[name].build(1.0)], settings.zeta_rounds)[0]
                      for name in ("Local GD", "SCAFFOLD", "L2GD")}
            for kind, tuner in (("gd", {"name": "gd", "steps": tau, "step_size": inner}), ("exact", "exact")):
                steps = [ct.ffgg(step_size=one.rows / L, tuner=tuner) for L in readings.values()]
                of_kind = one.curves(problem, steps, settings.zeta_rounds)
                curves |= {f"FFGG {kind}, {reading}": curve for reading, curve in zip(readings, of_kind, strict=True)}
            for name, curve in curves.items():
                numbers[f"{targets} {size:g} {name}"] = curve
                rows.append([targets, f"{size:g}", name, f"{curve[0]:.3g}", f"{curve[-1]:.2g}",
                             f"{curve[-1] / curve[0]:.2g}", first_below(curve / curve[0], 1e-6, 1),
                             first_below(curve, 1e-6, 1)])
                if name in STYLES or name.startswith("FFGG gd"):
                    axes.semilogy(places, curve / curve[0], color=STYLES.get(name, kit.BLUE), label=name,
                                  linestyle=LINES.get(name.removeprefix("FFGG gd, "), "-"))
            axes.set(title=f"zeta = {size:g}", xlabel="round")
            axes.legend(fontsize=7)
            watch(f"Figure 2, targets {targets}, zeta = {size:g}")
        plots[0, 0].set(ylabel="|F| over |F| at the start")
        figure.suptitle(f"{TITLES[targets]}, tau = {tau}")
        kit.save_figure(figure, out / f"figure2-{targets}.png")
    kit.save_numbers(out / "figure2.json", numbers)
    return kit.table(["targets", "zeta", "method", "abs(F) at the start", "at the end", "relative",
                      "rounds to 1e-6 relative", "absolute"], rows, numbers=True)


PARTS: dict[str, Callable[[Settings, Path, kit.Watch], str]] = {
    "tuners": tuners, "tolerance": tolerance, "methods": compare, "limits": limits, "local": local, "zeta": zeta}


def main(arguments: Sequence[str] | None = None) -> None:
    kit.play_parts(__doc__, "results/ffgg/figures", arguments, Settings(), QUICK, PARTS)


if __name__ == "__main__":
    main()
