"""Figure 3 of "Partially Personalized Federated Learning: Breaking the Curse of Data Heterogeneity": asynchronous FFGG.

    python studies/ffgg/asynchronous.py [--quick] [--out DIR]

Mishchenko et al., Algorithm 3, Theorem 7 and section E.2: least squares in theta and w, tau steps of gradient descent
on w. Every curve is |F(theta)| / |F(theta_0)| against M gradients: a synchronous round of all M clients with gamma, M
events of one answer with gamma / M each, M / b events of b answers with gamma b / M. Both step sizes are theory's for
synchronous rounds (1 / L, 1 / L_w) times 1/4 to 4. All 25 pairs are tried by closed forms, and the pair with the lowest
mean of log |F| is run by the library and drawn, with how far the two differ. Beside it: the step of Theorem 7, and its
bound. The paper's delays are those of processes on CPUs; ours are drawn, log-normal. Each curve is kept in a file in
DIR/curves; those that are there with the same settings are not computed again.
With targets from one theta, as Assumption 2 wants, and with each client's own. There, clients that begin again as soon
as they have answered lead to the solution weighted by their speeds, which is known in closed form and written beside.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from closed_forms import Quadratics
from matplotlib import pyplot
from paths import follow, follow_events, in_parts

import cantons as ct
from cantons.clock.events import Events, events_of
from cantons.engine.init import seed_keys
from cantons.protocol import Recipe

sys.path.insert(0, str(Path(__file__).parents[1]))
import kit


class Settings(NamedTuple):
    clients: int = 40  # M
    rows: int = 1000  # n
    shared: int = 400  # d_theta
    private: int = 50  # d_w
    zeta: float = 10.0
    steps: tuple[int, ...] = (5, 10, 50, 200)  # tau
    factors: tuple[float, ...] = (0.25, 0.5, 1.0, 2.0, 4.0)  # of both step sizes
    epochs: int = 100  # of M gradients
    buffer: int = 10
    spread: float = 1.0  # of durations between clients
    jitter: float = 0.3  # and between the jobs of one
    spreads: tuple[float, ...] = (0.0, 0.5, 1.0, 1.5)  # for the table of delays
    small_steps: tuple[float, ...] = (1.0, 0.25, 0.0625)  # for the table of what is left
    small_epochs: int = 400


QUICK = Settings(clients=4, rows=60, shared=6, private=4, zeta=2.0, steps=(3,), factors=(0.5, 1.0), epochs=20, buffer=2,
                 spreads=(0.0, 1.0), small_steps=(1.0, 0.5), small_epochs=20)
TARGETS = ("shared", "own")
THEOREM = ", Theorem 7"  # after the name of a method: with the step size of this
COLOURS = {"synchronous": kit.BLACK, "drawn": kit.BLUE, "same": kit.ORANGE, "buffer": kit.GREEN}


class Method(NamedTuple):
    clock: Recipe
    events: Events  # those of the clock; a synchronous round is an event of everybody
    answers: int  # in a round or event: the step size is this many M-ths of the synchronous one

    def of(self, events: np.ndarray, epochs: int) -> np.ndarray:
        """Of numbers after every event, with the start, those after every M gradients."""
        return events[::len(self.events.client) // epochs]


def methods(settings: Settings, epochs: int) -> dict[str, Method]:
    uneven = {"name": "log_normal", "spread": settings.spread, "jitter": settings.jitter}
    clients, buffer = settings.clients, settings.buffer
    everybody = ct.asynchronous(durations=uneven, buffer=clients, next="same")
    found = {"synchronous": (ct.rounds(), everybody, clients), "drawn": (ct.asynchronous(durations=uneven),) * 2 + (1,),
             "same": (ct.asynchronous(durations=uneven, next="same"),) * 2 + (1,),
             "buffer": (ct.asynchronous(durations=uneven, buffer=buffer),) * 2 + (buffer,)}
    return {name: Method(clock, play(timed, clients, epochs * clients // answers), answers)
            for name, (clock, timed, answers) in found.items()}


def play(clock: Recipe, clients: int, count: int) -> Events:
    """The first events of a run with seed 0."""
    return events_of(clock.build(clients), seed_keys(0)[1], clients, count)


class Curve(NamedTuple):
    inner: float  # of the step sizes of theory, the best pair: for w
    outer: float  # and for theta
    apart: float  # how far the library is from the closed form, in theta
    norms: np.ndarray  # |F| / |F at the start| after every M gradients
    theta: np.ndarray  # in the end

    @classmethod
    def read(cls, found: Mapping[str, Any]) -> Curve:
        """From a file."""
        return cls(**{**found, "norms": np.array(found["norms"]), "theta": np.array(found["theta"])})


class Bench(NamedTuple):
    settings: Settings
    data: ct.Federation
    known: Quadratics
    methods: Mapping[str, Method]

    @property
    def base(self) -> tuple[float, float]:
        """1 / L_w and 1 / L, for the library's losses."""
        constants = self.known.constants
        return self.settings.rows / constants.of_private, self.settings.rows / constants.sharp

    def paths(self, method: Method, tau: int, inner: float, outers: Sequence[float]) -> np.ndarray:
        """By closed forms: theta after every M gradients, for steps that are these multiples of theory's."""
        rows, clients = self.settings.rows, self.settings.clients
        G, h = self.known.tuned_operators(inner / self.known.constants.of_private, tau)
        sizes = np.array(outers) * self.base[1] * method.answers / clients
        return method.of(follow_events(G / rows, h / rows, method.events, sizes), self.settings.epochs)

    def curve(self, method: Method, tau: int, inner: float, outer: float) -> Curve:
        """The library's, held against the closed form."""
        settings, (of_private, of_shared) = self.settings, self.base
        recipe = ct.ffgg(step_size=outer * of_shared * method.answers / settings.clients,
                         tuner={"name": "gd", "steps": tau, "step_size": inner * of_private})
        looks = range(0, len(method.events.client) + 1, len(method.events.client) // settings.epochs)
        path = follow(in_parts(self.data, settings.shared), self.data, [recipe], looks, settings.shared,
                      clock=method.clock)[0]
        expected = self.paths(method, tau, inner, [outer])[:, 0]
        norms = self.known.norms(path)
        apart = np.linalg.norm(path - expected, axis=1).max() / np.linalg.norm(expected, axis=1).max()
        return Curve(inner, outer, float(apart), norms / norms[0], path[-1])

    def best(self, method: Method, tau: int) -> tuple[float, float]:
        """The pair of factors with the lowest mean of log |F|."""
        factors = self.settings.factors
        scores = []
        for inner in factors:
            with np.errstate(over="ignore", invalid="ignore"):  # some step sizes diverge
                norms = self.known.norms(self.paths(method, tau, inner, factors))
            scores.append(np.log(np.maximum(norms, 1e-15 * norms[0])).mean(axis=0))
        inner, outer = np.unravel_index(np.nanargmin(np.where(np.isfinite(scores), scores, np.nan)), np.shape(scores))
        return factors[inner], factors[outer]

    def tuned_curve(self, name: str, tau: int, theorem: Theorem) -> Mapping[str, Any]:
        """With the best step sizes, or those of the theorem, for a file."""
        method = self.methods[name.removesuffix(THEOREM)]
        sizes = (1.0, theorem.step_size) if THEOREM in name else self.best(method, tau)
        return self.curve(method, tau, *sizes)._asdict()

    def speed_weighted(self) -> np.ndarray:
        """Where sum_m jobs_m F_m(theta) = 0, with w tuned exactly and the jobs of clients that begin again."""
        events = self.methods["same"].events
        jobs = np.bincount(events.client.ravel(), minlength=self.settings.clients) / events.client.size
        return np.linalg.solve(np.tensordot(jobs, self.known.S, 1), jobs @ self.known.s)

    def away(self, theta: np.ndarray) -> list[str]:
        """How far a point is from theta*, and from the speed-weighted one."""
        return [f"{np.linalg.norm(theta - point) / np.linalg.norm(self.known.solution):.1e}"
                for point in (self.known.solution, self.speed_weighted())]


def delay_table(settings: Settings) -> str:
    """How delays depend on the spread of durations and on who goes on."""
    rows, clients, count = [], settings.clients, settings.epochs * settings.clients
    for spread in settings.spreads:
        for name, more in {"drawn": {}, "same": {"next": "same"}, "buffer": {"buffer": settings.buffer}}.items():
            uneven = {"name": "log_normal", "spread": spread, "jitter": settings.jitter if spread else 0.0}
            events = play(ct.asynchronous(durations=uneven, **more), clients, count // more.get("buffer", 1))
            there = events.client < clients
            jobs, delays = np.bincount(events.client[there], minlength=clients), events.delays[there]
            rows.append([f"{spread:g}", name, f"{np.median(delays):.0f}", f"{delays.mean():.1f}", f"{delays.max()}",
                         f"{jobs.min()} to {jobs.max()}"])
    return kit.table(["spread", "method", "median delay", "mean", "longest", "jobs of a client"], rows)


def floor_table(settings: Settings, bench: Bench) -> str:
    """What is left of |F| with ever smaller steps and exact tuning: the mean of the last fifth, by closed forms."""
    rows = []
    longer = bench._replace(settings=settings._replace(epochs=settings.small_epochs),
                            methods=methods(settings, settings.small_epochs))
    for name, method in longer.methods.items():
        thetas = longer.paths(method, 1000, 1.0, settings.small_steps)
        norms = longer.known.norms(thetas)
        tail = norms[-settings.small_epochs // 5:].mean(axis=0) / norms[0]
        mean = thetas[-settings.small_epochs // 5:].mean(axis=0)
        rows.append([name, *(f"{each:.1e}" for each in tail), *longer.away(mean[-1])])
    return kit.table(["method", *(f"step x {factor:g}" for factor in settings.small_steps),
                      "with the last, mean theta from theta*", "from the speed-weighted point"], rows)


class Theorem(NamedTuple):
    """Theorem 7, of clients that are drawn."""

    step_size: float  # as a multiple of the synchronous 1 / L over M
    longest: int
    bound: np.ndarray  # of the least |F| so far over |F at the start|, after every M gradients

    @classmethod
    def of(cls, bench: Bench) -> Theorem:
        settings, known, method = bench.settings, bench.known, bench.methods["drawn"]
        steps = ct.ffgg_step_sizes(in_parts(bench.data, settings.shared), bench.data)
        longest = int(method.events.delays.max())
        gamma = steps.asynchronous(settings.clients, longest) / settings.rows  # of the paper's losses, which are sums
        start = known.operators(np.zeros(settings.shared))
        virtual = -gamma * start.sum(axis=0) - known.solution
        events = settings.clients * np.arange(1, settings.epochs + 1)
        bound = np.sqrt(2 * known.constants.sharp * virtual @ virtual / (gamma * events))
        return cls(gamma * known.constants.sharp * settings.clients, longest,
                   bound / np.linalg.norm(start.mean(axis=0)))


def draw(bench: Bench, curves: Mapping[int, Mapping[str, Curve]], theorem: Theorem, path: Path) -> None:
    """Figure 3: curves against gradients and against time, a column for each tau; delays below."""
    settings, width = bench.settings, len(curves)
    figure, rows = pyplot.subplots(3, width, figsize=(4 * width, 9), squeeze=False, layout="constrained")
    rounds = bench.methods["synchronous"].events.elapsed.mean()
    epochs = np.arange(settings.epochs + 1)
    for (tau, each), above, below in zip(curves.items(), rows[0], rows[1], strict=True):
        for name, curve in each.items():
            method = bench.methods[name.removesuffix(THEOREM)]
            time = method.of(np.concatenate([[0], np.cumsum(method.events.elapsed)]), settings.epochs) / rounds
            style: dict[str, Any] = {"color": COLOURS[name.removesuffix(THEOREM)],
                                     "linestyle": "--" if THEOREM in name else "-"}
            above.semilogy(epochs, curve.norms, label=name, **style)
            below.semilogy(time, curve.norms, **style)
        above.semilogy(epochs[1:], theorem.bound, color=kit.BLUE, linestyle=":", label="Theorem 7's bound, exact w")
        lowest = max(1e-16, min(curve.norms.min() for curve in each.values()) / 3)
        above.set(title=f"tau = {tau}", xlabel="M gradients", ylim=(lowest, 30))
        below.set(xlabel="time, in synchronous rounds", ylim=(lowest, 30))
    figure.legend(*rows[0][0].get_legend_handles_labels(), loc="outside upper center", ncols=len(COLOURS) + 2)
    rows[0][0].set(ylabel="|F| over |F| at the start")
    rows[1][0].set(ylabel="|F| over |F| at the start")
    for axes, (name, method) in zip(rows[2], list(bench.methods.items())[1:], strict=False):
        delays, per_epoch = method.events.delays.mean(axis=1), settings.clients // method.answers
        axes.semilogy(np.arange(len(delays)) / per_epoch, delays + 1, ".", markersize=2, color=COLOURS[name], alpha=0.4)
        axes.axhline(per_epoch, color=kit.GREY, linestyle="--")
        axes.set(title=f"{name}: delays; M gradients as a line", xlabel="M gradients", ylabel="delay in events, + 1")
    for axes in rows[2][len(bench.methods) - 1:]:
        for name, method in list(bench.methods.items())[1:]:
            jobs = np.bincount(method.events.client.ravel(), minlength=settings.clients)[:settings.clients]
            axes.plot(np.sort(jobs), color=COLOURS[name], label=name)
        axes.set(title="answers of each client, sorted", xlabel="client")
        axes.legend(fontsize=7)
    kit.save_figure(figure, path, shades=64)


def main(arguments: Sequence[str] | None = None) -> None:
    given = kit.read_arguments(__doc__, "results/ffgg/asynchronous", arguments)
    settings, watch = QUICK if given.quick else Settings(), kit.Watch()
    cells = kit.Cells(given.out / "curves", settings, watch)
    lines, numbers, floors = [], {}, ""
    for targets in TARGETS:
        data = ct.synthetic_least_squares(settings.clients, rows=settings.rows, shared=settings.shared,
                                          private=settings.private, heterogeneity=settings.zeta, targets=targets)
        bench = Bench(settings, data, Quadratics(data, settings.shared, settings.rows),
                      methods(settings, settings.epochs))
        theorem = Theorem.of(bench)
        numbers[targets] = {"theorem 7": theorem._asdict()}
        curves: dict[int, dict[str, Curve]] = {}
        for tau in settings.steps:
            curves[tau] = {}
            for name in (*bench.methods, f"drawn{THEOREM}"):
                found = cells(f"{targets}, {tau}, {name}", partial(bench.tuned_curve, name, tau, theorem))
                curve = curves[tau][name] = Curve.read(found)
                first = np.flatnonzero(curve.norms <= 1e-3)
                lines.append([targets, str(tau), name, f"{curve.inner:g}", f"{curve.outer:.2g}",
                              str(first[0]) if len(first) else "never", f"{curve.norms[-1]:.1e}",
                              *bench.away(curve.theta), f"{curve.apart:.0e}"])
                watch(" ".join(lines[-1]))
        draw(bench, curves, theorem, given.out / f"figure3_{targets}.png")
        if targets == "own":
            floors = cells("floors", partial(floor_table, settings, bench))
    times = {name: method.events.elapsed.sum() / settings.epochs for name, method in bench.methods.items()}
    head = ["targets", "tau", "method", "step of w x", "of theta x", "M gradients to 1e-3", "abs(F), relative",
            "from theta*", "from the speed-weighted point", "library against closed form"]
    pages = [kit.table(head, lines), delay_table(settings), floors,
             kit.table(["method", "time for M gradients, in synchronous rounds"],
                       [[name, f"{time / times['synchronous']:.3g}"] for name, time in times.items()])]
    (given.out / "figure3.md").write_text("\n\n".join(pages) + "\n")
    kit.save_numbers(given.out / "figure3.json", {"settings": settings._asdict(), "times": times, **numbers})
    print("\n\n".join(pages))


if __name__ == "__main__":
    main()
