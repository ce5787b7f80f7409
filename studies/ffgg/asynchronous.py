"""Figure 3 of "Partially Personalized Federated Learning: Breaking the Curse of Data Heterogeneity": asynchronous FFGG.

    python studies/ffgg/asynchronous.py [--quick] [--tau 5 10 50 200] [--epochs 100] [--out DIR]

Mishchenko et al., Algorithm 3 and section E.2: least squares in theta and w, tau steps of gradient descent on w. Every
curve is |F(theta)| / |F(theta_0)| against M gradients: a synchronous round of all M clients with gamma, M events of one
answer with gamma / M each, M / b events of b answers with gamma b / M. Of the step sizes, theory's times 1/4 to 4, the
best is drawn. The paper's delays are those of processes on CPUs; ours are drawn, log-normal. Below each: the delays.
With targets from one theta, as Assumption 2 wants, and with each client's own. There, clients that begin again as soon
as they have answered lead to the solution weighted by their speeds, which is known in closed form and written beside.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
from closed_forms import Quadratics
from matplotlib import pyplot
from paths import in_parts

import cantons as ct
from cantons.clock.events import events_of
from cantons.engine.init import seed_keys
from cantons.protocol import Recipe
from cantons.study.resolve import resolve

sys.path.insert(0, str(Path(__file__).parents[1]))
import kit


class Settings(NamedTuple):
    clients: int = 40  # M
    rows: int = 1000  # n
    shared: int = 400  # d_theta
    private: int = 50  # d_w
    zeta: float = 10.0
    steps: tuple[int, ...] = (5, 10, 50, 200)  # tau
    factors: tuple[float, ...] = (0.25, 0.5, 1.0, 2.0, 4.0)
    epochs: int = 100  # of M gradients
    every: int = 5
    buffer: int = 10
    spread: float = 1.0  # of durations between clients
    jitter: float = 0.3  # and between the jobs of one


QUICK = Settings(clients=4, rows=60, shared=6, private=4, zeta=2.0, steps=(3,), factors=(0.5, 1.0), epochs=20, every=5,
                 buffer=2)
TARGETS = ("shared", "own")


class Method(NamedTuple):
    clock: Recipe
    answers: int  # in a round or event: the step size is this many M-ths of the synchronous one


def methods(settings: Settings) -> dict[str, Method]:
    uneven = {"name": "log_normal", "spread": settings.spread, "jitter": settings.jitter}
    return {"synchronous": Method(ct.rounds(), settings.clients),
            "drawn": Method(ct.asynchronous(durations=uneven), 1),
            "same": Method(ct.asynchronous(durations=uneven, next="same"), 1),
            "buffer": Method(ct.asynchronous(durations=uneven, buffer=settings.buffer), settings.buffer)}


class Curve(NamedTuple):
    factor: float  # of the step size of theory that ends lowest
    norms: np.ndarray  # |F| / |F at the start|
    theta: np.ndarray  # in the end


def best_curve(settings: Settings, data: ct.Federation, known: Quadratics, tau: int, method: Method) -> Curve:
    """The best of the step sizes by where it ends; all are one program."""
    constants, problem = known.constants, in_parts(data, settings.shared)
    base = settings.rows / constants.sharp * method.answers / settings.clients
    recipes = [ct.ffgg(step_size=factor * base, tuner={
        "name": "gd", "steps": tau, "step_size": settings.rows / constants.of_private}) for factor in settings.factors]
    engine = ct.Local().together()
    per_epoch = settings.clients // method.answers
    looks = range(0, settings.epochs * per_epoch + 1, settings.every * per_epoch)
    with jax.enable_x64(True):
        session = engine.start([resolve(problem, data, recipe, rounds=looks[-1], clock=method.clock,
                                        precision="float64", engine=engine).parts for recipe in recipes])
        state, thetas = session.begin(), []
        for until in looks:
            state = session.advance(state, until) if until else state
            thetas.append([one.state.server.shared["layer0"]["weight"][:settings.shared, 0]
                           for one in session.whole(state)])
        session.close()
    paths = np.swapaxes(np.array(thetas), 0, 1)
    norms = known.norms(paths)
    ends = np.where(np.isfinite(norms[:, -1]), norms[:, -1], np.inf)
    place = int(np.argmin(ends))
    return Curve(settings.factors[place], norms[place] / norms[place, 0], paths[place, -1])


def speed_weighted(known: Quadratics, jobs: np.ndarray) -> np.ndarray:
    """Where sum_m jobs_m F_m(theta) = 0, with w tuned exactly."""
    return np.linalg.solve(np.tensordot(jobs, known.S, 1), jobs @ known.s)


def delays_of(settings: Settings, method: Method, count: int) -> tuple[np.ndarray, np.ndarray]:
    """The delay of each answer, and how many each client gave."""
    events = events_of(method.clock.build(settings.clients), seed_keys(0)[1], settings.clients, count)
    there = events.client < settings.clients
    return events.delays[there], np.bincount(events.client[there], minlength=settings.clients)


def draw(settings: Settings, curves: dict, delays: dict, out: Path) -> None:
    """Figure 3: curves above, delays below, a column for each number of tuning steps."""
    for targets in TARGETS:
        figure, rows = pyplot.subplots(2, len(settings.steps), figsize=(3.2 * len(settings.steps), 5), squeeze=False)
        for column, tau in enumerate(settings.steps):
            for name, curve in curves[targets, tau].items():
                across = settings.every * np.arange(len(curve.norms))
                rows[0][column].semilogy(across, curve.norms, label=f"{name}, step x {curve.factor:g}")
            rows[0][column].set(title=f"tau = {tau}", xlabel="M gradients", ylabel="|F| / |F at the start|")
            rows[0][column].legend(fontsize=6)
            for name, found in delays.items():
                rows[1][column].plot(np.linspace(0, settings.epochs, len(found)), found, ".", markersize=1, label=name)
            rows[1][column].set(xlabel="M gradients", ylabel="delay (events)")
        rows[1][0].legend(fontsize=6)
        figure.tight_layout()
        kit.save_figure(figure, out / f"figure3-{targets}.png")


def main(arguments: Sequence[str] | None = None) -> None:
    chosen = kit.read_arguments(__doc__, "results/ffgg/asynchronous", arguments, tau={"nargs": "*", "type": int},
                                epochs={"type": int})
    settings, say = QUICK if chosen.quick else Settings(), kit.Watch()
    settings = settings._replace(steps=tuple(chosen.tau or settings.steps), epochs=chosen.epochs or settings.epochs)
    found = methods(settings)
    events = settings.epochs * settings.clients
    seen = {name: delays_of(settings, method, events // method.answers) for name, method in found.items()
            if name != "synchronous"}
    curves: dict = {}
    lines = []
    for targets in TARGETS:
        data = ct.synthetic_least_squares(settings.clients, rows=settings.rows, shared=settings.shared,
                                          private=settings.private, heterogeneity=settings.zeta, targets=targets)
        known = Quadratics(data, settings.shared, settings.rows)
        weighted = speed_weighted(known, seen["same"][1] / seen["same"][1].sum())
        for tau in settings.steps:
            curves[targets, tau] = {}
            for name, method in found.items():
                curve = curves[targets, tau][name] = best_curve(settings, data, known, tau, method)
                away = [np.linalg.norm(curve.theta - point) / np.linalg.norm(known.solution)
                        for point in (known.solution, weighted)]
                lines.append([targets, str(tau), name, f"{curve.factor:g}", f"{curve.norms[-1]:.1e}", f"{away[0]:.1e}",
                              f"{away[1]:.1e}"])
                say(f"targets {targets}, tau = {tau}, {name}: |F| down to {curve.norms[-1]:.1e}")
    head = ["targets", "tau", "method", "step x", "abs(F), relative", "from theta*", "from the speed-weighted point"]
    (chosen.out / "figure3.md").write_text(kit.table(head, lines) + "\n")
    draw(settings, curves, {name: delays for name, (delays, _) in seen.items()}, chosen.out)
    kit.save_numbers(chosen.out / "numbers.json", {
        "settings": settings._asdict(),
        "curves": {f"{targets}, tau = {tau}": {name: {"factor": curve.factor, "norms": curve.norms}
                                               for name, curve in each.items()}
                   for (targets, tau), each in curves.items()},
        "delays": {name: {"mean": delays.mean(), "longest": delays.max(), "jobs": jobs}
                   for name, (delays, jobs) in seen.items()}})


if __name__ == "__main__":
    main()
