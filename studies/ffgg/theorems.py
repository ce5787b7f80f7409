"""The theorems of "Partially Personalized Federated Learning: Breaking the Curse of Data Heterogeneity", tried out.

    python studies/ffgg/theorems.py [--quick] [--parts descent newcomers tau split nonlinear] [--out DIR]

Mishchenko et al., on the least squares of section 5.1 unless something else is said.
descent: Theorem 1 on every path, cohort by cohort, where Assumption 2 holds and where it does not.
newcomers: Theorem 5: what a new client with few rows gains from theta*, and that theta* has the least expected risk.
tau: Theorem 6: how many tuning steps it asks for, beside how many suffice.
split: |F_m| at the start and at the solution, for private parts of all sizes, from none to all (section 4.3).
nonlinear: Example 3 with log cosh in the place of squares, where nothing has a closed form.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from closed_forms import Quadratics
from matplotlib import pyplot
from paths import follow, gradient_norms, in_parts

import cantons as ct

sys.path.insert(0, str(Path(__file__).parents[1]))
import kit


class Settings(NamedTuple):
    clients: int = 32
    rows: int = 10_000
    shared: int = 100
    private: int = 50
    rounds: int = 2000
    cohorts: tuple[int, ...] = (1, 4, 32)
    seeds: int = 3
    newcomers: int = 32
    new_rows: tuple[int, ...] = (10, 25, 50, 60, 75, 100, 150, 200, 400)
    noise: float = 0.05
    horizons: tuple[int, ...] = (100, 1000, 10_000)  # R of Theorem 6
    split_step: int = 5
    split_runs: tuple[int, ...] = (0, 5, 25, 45, 50, 100, 145, 149)
    bent: tuple[int, int, int, int] = (8, 200, 20, 10)  # clients, rows, shared and private numbers of Example 3
    bend: float = 30.0  # k in log cosh(k u) / k^2
    bent_rounds: int = 1000
    bent_tau: tuple[int, ...] = (5, 20, 100, 500)


QUICK = Settings(clients=4, rows=60, shared=6, private=4, rounds=20, cohorts=(1, 4), seeds=1, newcomers=4,
                 new_rows=(3, 8), horizons=(10,), split_step=2, split_runs=(0, 4, 9), bent=(3, 30, 4, 2),
                 bent_rounds=10, bent_tau=(2, 5))
TARGETS = ("shared", "own")


def make(settings: Settings, **more: Any) -> tuple[ct.Federation, Quadratics]:
    rows, clients = more.pop("rows", settings.rows), more.pop("clients", settings.clients)
    data = ct.synthetic_least_squares(clients, rows=rows, shared=settings.shared, private=settings.private, **more)
    return data, Quadratics(data, settings.shared, rows)


def descent(settings: Settings, out: Path, watch: kit.Watch) -> str:
    """The least |F|^2 of R rounds is at most L |theta_0 - theta*|^2 / (gamma R), and |theta - theta*| never grows."""
    rows, numbers = [], {}
    figure, plots = pyplot.subplots(1, 2, figsize=(11, 4), layout="constrained", sharey=True)
    for axes, targets in zip(plots, TARGETS, strict=True):
        data, known = make(settings, targets=targets)
        L, rounds = known.constants.sharp, np.arange(1, settings.rounds + 1)
        bound = L**2 * (known.solution**2).sum() / rounds  # gamma = 1 / L, from 0
        recipe = ct.ffgg(step_size=settings.rows / L, tuner="exact")
        for cohort, colour in zip(settings.cohorts, kit.COLOURS, strict=False):
            for seed in range(settings.seeds if cohort < settings.clients else 1):
                path = follow(in_parts(data, settings.shared), data, [recipe], range(settings.rounds + 1),
                              settings.shared, cohort=cohort, seed=seed)[0]
                least = np.minimum.accumulate(known.norms(path[:-1])) ** 2
                away = np.linalg.norm(path - known.solution, axis=1)
                axes.loglog(rounds, least, color=colour, label=f"cohorts of {cohort}" if not seed else None)
                numbers[f"{targets} {cohort} {seed}"] = least
                grown = np.diff(away) > 1e-12 * away[0]
                rows.append([targets, str(cohort), str(seed), f"{(least / bound).max():.2g}",
                             str(int((least > bound).sum())), str(int(grown.sum())), f"{away[-1] / away[0]:.2g}"])
                watch(f"Theorem 1, targets {targets}, cohorts of {cohort}: {rows[-1][3]} of the bound")
        axes.loglog(rounds, bound, color=kit.BLACK, linestyle=":", label="Theorem 1")
        axes.set(xlabel="R", title=f"targets {targets}")
        axes.legend(fontsize=8)
    plots[0].set(ylabel="the least |F|^2 of R rounds")
    kit.save_figure(figure, out / "descent.png")
    kit.save_numbers(out / "descent.json", numbers)
    return kit.table(["targets", "cohort", "seed", "largest part of the bound", "rounds above it",
                      "rounds that lead away from theta*", "distance left"], rows, numbers=True)


def newcomers(settings: Settings, out: Path, watch: kit.Watch) -> str:
    """The mean squared error on fresh rows, a mean over new clients; all fits are the shortest of the best."""
    rows, numbers, cut = [], {}, settings.shared
    figure, plots = pyplot.subplots(1, 2, figsize=(11, 4), layout="constrained", sharey=True)
    for axes, targets in zip(plots, TARGETS, strict=True):
        common = {"targets": targets, "noise": settings.noise}
        data, known = make(settings, **common)
        step = 1.8 * settings.rows / known.constants.sharp
        recipe = ct.ffgg(step_size=step, tuner={"name": "cg", "steps": settings.private})
        theta = follow(in_parts(data, cut), data, [recipe], [settings.rounds], cut)[0, 0]
        watch(f"Theorem 5, targets {targets}: {known.norms(theta) / known.norms(0 * theta):.2g} of |F| is left")
        both = settings.clients + settings.newcomers
        fresh, risk = make(settings, clients=both, **common)
        later = slice(settings.clients, both)
        given = {"FFGG's theta": theta, "the theta of one model for all": known.one_model[:cut],
                 "theta = 0": np.zeros(cut)}
        rows += [[targets, name, "", f"{_risk(risk, later, point) / settings.rows:.4g}"]
                 for name, point in given.items()]
        judged = [rows_of(fresh, client) for client in range(settings.clients, both)]
        curves: dict[str, list[float]] = {name: [] for name in (*given, "alone")}
        for few in settings.new_rows:
            own, _ = make(settings, clients=both, rows=few, compact=False, **common)
            for name in curves:
                errors = []
                for client, (inputs, wanted) in zip(range(settings.clients, both), judged, strict=True):
                    x, y = rows_of(own, client)
                    start = np.zeros(0) if name == "alone" else given[name]
                    used = len(start)
                    w = np.linalg.lstsq(x[:, used:], y - x[:, :used] @ start, rcond=None)[0]
                    errors.append(((inputs @ np.concatenate([start, w]) - wanted) ** 2).mean())
                curves[name].append(float(np.mean(errors)))
        for (name, curve), colour in zip(curves.items(), kit.COLOURS, strict=False):
            axes.loglog([2 * few for few in settings.new_rows], curve, "o-", color=colour, label=name)
            numbers[f"{targets} {name}"] = curve
            rows += [[targets, name, str(2 * few), f"{error:.4g}"]
                     for few, error in zip(settings.new_rows, curve, strict=True)]
        axes.axhline(settings.noise**2, color=kit.BLACK, linestyle=":", label="the noise")
        axes.set(xlabel="rows of a new client", title=f"targets {targets}")
        axes.set_xticks([2 * few for few in settings.new_rows], [str(2 * few) for few in settings.new_rows])
        axes.minorticks_off()
        axes.legend(fontsize=8)
    plots[0].set(ylabel="mean squared error on fresh rows")
    kit.save_figure(figure, out / "newcomers.png")
    kit.save_numbers(out / "newcomers.json", numbers)
    return kit.table(["targets", "a new client begins with", "its rows", "error"], rows, numbers=True)


def rows_of(data: ct.Federation, client: int) -> tuple[np.ndarray, np.ndarray]:
    first, count = np.asarray(data.train.starts)[client], np.asarray(data.train.sizes)[client]
    return data.train.inputs[first:first + count], data.train.targets[first:first + count]


def _risk(known: Quadratics, clients: slice, theta: np.ndarray) -> float:
    """E f_m(theta, w_m*(theta)) - E min f_m, over some clients."""
    point = np.concatenate([np.broadcast_to(theta, (len(known.S), known.shared)), known.best_private(theta)], axis=1)
    away = (point - np.linalg.solve(known.hessians, known.moments[..., None])[..., 0])[clients]
    return float(np.einsum("mi,mij,mj->m", away, known.hessians[clients], away).mean() / 2)


def tau(settings: Settings, out: Path, watch: kit.Watch) -> str:
    """By closed forms, which the tests hold against the library."""
    rows, numbers, tried = [], {}, [0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000]
    for targets in TARGETS:
        _, known = make(settings, targets=targets)
        constants, start = known.constants, np.zeros(settings.shared)
        L, L_w, r0 = constants.sharp, max(constants.of_private, constants.cross), np.linalg.norm(known.solution)
        A = np.linalg.norm(known.fit[0], 2, axis=(1, 2)).max()
        C = np.linalg.norm(known.best_private(known.solution), axis=1).max()
        a, b = 2 * L_w * A / L, 2 * L_w * C / L
        operators = {steps: known.tuned_operator(1 / constants.of_private, steps) for steps in tried}
        curves = {}
        for steps, (G, h) in operators.items():
            theta, norms = start, []
            for _ in range(max(settings.horizons)):
                norms.append(known.norms(theta))
                theta = theta - (G @ theta - h) / L
            curves[steps] = np.minimum.accumulate(norms)
        numbers[targets] = {str(steps): curve[-1] / curve[0] for steps, curve in curves.items()}
        for R in settings.horizons:
            asked = L_w / constants.strong_private * max(
                2 * np.log(a * R), 2 * np.log(b * R / r0), np.log(b**2 * R / r0**2))
            enough = [steps for steps in tried if curves[steps][R - 1] ** 2 <= 4 * L**2 * r0**2 / R]
            best = curves[tried[-1]][R - 1]
            as_good = [steps for steps in tried if curves[steps][R - 1] <= 2 * best]
            rows.append([targets, str(R), f"{asked:.0f}", str(min(enough, default="none")),
                         str(min(as_good)), f"{best / curves[0][0]:.2g}"])
        watch(f"Theorem 6, targets {targets}")
    figure, axes = pyplot.subplots(figsize=(6, 4), layout="constrained")
    for (targets, ends), colour in zip(numbers.items(), kit.COLOURS, strict=False):
        axes.loglog(tried[1:], list(ends.values())[1:], "o-", color=colour, label=f"targets {targets}")
    axes.set(xlabel="tau", ylabel=f"relative |F| after {max(settings.horizons)} rounds")
    axes.legend()
    kit.save_figure(figure, out / "tau.png")
    kit.save_numbers(out / "tau.json", numbers)
    return kit.table(["targets", "R", "tau of Theorem 6", "least tau within its bound",
                      "least tau within twice the exact abs(F)", "relative abs(F) there"], rows, numbers=True)


def split(settings: Settings, out: Path, watch: kit.Watch) -> str:
    """Targets from 100 numbers that all clients share and 50 of their own; of 150, the last p are made private.

    By closed forms from none to all of them, and for some p also as FFGG itself tells it, which refuses to run where
    nothing is shared.
    """
    width, rows = settings.shared + settings.private, []
    figure, axes = pyplot.subplots(figsize=(7, 4), layout="constrained")
    ends: dict[str, list[float]] = {"at the start": [], "at the solution": []}
    told: dict[str, list[float]] = {"ffgg, before the first round": [], "ffgg, after the last round": []}
    data, _ = make(settings, targets="shared")
    sizes = sorted({*range(0, width + 1, settings.split_step), *settings.split_runs, width})
    for private in sizes:
        known = Quadratics(data, width - private, settings.rows)
        start = np.linalg.norm(known.s, axis=1).mean()
        end = np.linalg.norm(known.operators(known.solution), axis=1).mean()
        for name, value in zip(ends, (start, end), strict=True):
            ends[name].append(float(value))
        found = gradient_norms(data, known, settings.rows, settings.rounds) if private in settings.split_runs else ()
        for name, value in zip(told, found, strict=False):
            told[name].append(value)
        rows.append([str(private), f"{start:.3g}", f"{end:.3g}", f"{end / start:.2g}" if start else "",
                     *([f"{value:.3g}" for value in found] or ["", ""])])
        watch(f"the split, {private} private: {rows[-1][1:]}")
    for (name, values), (ran, runs), colour in zip(ends.items(), told.items(), kit.COLOURS, strict=False):
        axes.semilogy(sizes[:-1], values[:-1], "-", color=colour, label=name)  # the last one is 0
        axes.semilogy(settings.split_runs, runs, "o", color=colour, label=ran)
    axes.axvline(settings.private, color=kit.BLACK, linestyle=":", label="numbers that differ between clients")
    axes.set(xlabel="private numbers, of " + str(width), ylabel="the mean of |F_m| over clients")
    axes.legend(fontsize=8)
    kit.save_figure(figure, out / "split.png")
    kit.save_numbers(out / "split.json", {"private": sizes, **ends, "runs": settings.split_runs, **told})
    return kit.table(["private numbers", "mean abs(F_m) at the start", "at the solution", "ratio", *told], rows,
                     numbers=True)


# Example 3


def nonlinear(settings: Settings, out: Path, watch: kit.Watch) -> str:
    clients, count, cut, private = settings.bent
    rows, numbers = [], {}
    figure, plots = pyplot.subplots(1, 2, figsize=(11, 4), layout="constrained", sharey=True)
    for axes, targets in zip(plots, TARGETS, strict=True):
        data = ct.synthetic_least_squares(clients, rows=count, shared=cut, private=private, targets=targets,
                                          compact=False)
        constants = Quadratics(data, cut, count).constants  # of squares: log cosh is as smooth, and less curved
        problem = ct.from_functions(
            lambda key: {"layer0": {"weight": jnp.zeros((cut, 1))}, "private": jnp.zeros((private, 1))},
            lambda parts, x: x[:, :cut] @ parts["layer0"]["weight"] + x[:, cut:] @ parts["private"],
            loss=lambda outputs, wanted: 2 * log_cosh(outputs[:, 0] - wanted, settings.bend, jnp), split="private")
        looks = sorted({*np.geomspace(1, settings.bent_rounds, 40).astype(int).tolist(), 0})
        for tau, colour in zip(settings.bent_tau, kit.COLOURS, strict=False):
            recipe = ct.ffgg(step_size=count / constants.of_shared, tuner={
                "name": "gd", "steps": tau, "step_size": count / constants.of_private})
            path = follow(problem, data, [recipe], looks, cut)[0]
            curve = np.array([np.linalg.norm(np.mean([bent_operator(*rows_of(data, client), theta, settings.bend)
                                                      for client in range(clients)], axis=0)) for theta in path])
            axes.semilogy(looks, curve / curve[0], color=colour, label=f"tau = {tau}")
            numbers[f"{targets} {tau}"] = {"round": looks, "norm": curve}
            rows.append([targets, str(tau), f"{curve[0]:.3g}", f"{curve[-1]:.2g}", f"{curve[-1] / curve[0]:.2g}"])
            watch(f"Example 3, targets {targets}, tau = {tau}: {rows[-1][-1]}")
        axes.set(xlabel="round", title=f"targets {targets}")
        axes.legend(fontsize=8)
    plots[0].set(ylabel="|F| over |F| at the start")
    kit.save_figure(figure, out / "nonlinear.png")
    kit.save_numbers(out / "nonlinear.json", numbers)
    return kit.table(["targets", "tau", "abs(F) at the start", "at the end", "relative"], rows, numbers=True)


def log_cosh(u: Any, k: float, numpy: Any = np) -> Any:
    """log cosh(k u) / k^2: convex, 1-smooth, a half square near 0 and a line far away."""
    far = numpy.abs(k * u)
    return (far + numpy.log1p(numpy.exp(-2 * far)) - np.log(2)) / k**2


def bent_operator(x: np.ndarray, y: np.ndarray, theta: np.ndarray, k: float) -> np.ndarray:
    """F_m(theta): Newton's method on w, with halved steps while the loss would rise, then the gradient in theta."""
    fixed, own = x[:, :len(theta)] @ theta - y, x[:, len(theta):]
    w = np.zeros(own.shape[1])
    for _ in range(100):
        residual = fixed + own @ w
        gradient = own.T @ np.tanh(k * residual) / k
        if np.linalg.norm(gradient) < 1e-13:
            break
        move = np.linalg.lstsq(own.T @ (own / np.cosh(np.clip(k * residual, -300, 300))[:, None] ** 2), gradient,
                               rcond=None)[0]
        length, before = 1.0, log_cosh(residual, k).sum()
        while length > 1e-9 and log_cosh(fixed + own @ (w - length * move), k).sum() > before:
            length /= 2
        w = w - length * move
    return x[:, :len(theta)].T @ np.tanh(k * (fixed + own @ w)) / k


PARTS: dict[str, Callable[[Settings, Path, kit.Watch], str]] = {
    "descent": descent, "newcomers": newcomers, "tau": tau, "split": split, "nonlinear": nonlinear}


def main(arguments: Sequence[str] | None = None) -> None:
    kit.play_parts(__doc__, "results/ffgg/theorems", arguments, Settings(), QUICK, PARTS)


if __name__ == "__main__":
    main()
