"""Figure 1 of "Online Federated Learning" (Mitra, Hassani and Pappas), and the same for experts on a simplex.

    python studies/fedomd/figure1.py [--quick] [--out DIR]

Left: collective regret against time for several periods tau of synchronisation. Right: tau = 20, and K of 20 clients
are counted at a synchronisation. N(2, 5) is read both ways. Every seed draws a stream of its own; lines are means over
seeds, bands reach from the smallest to the largest. Figures, numbers (figure1.json) and tables (figure1.md) go to DIR.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib import pyplot

import cantons as ct
from cantons.regret.fedomd_bounds import fedomd_theorem1_step_size

sys.path.insert(0, str(Path(__file__).parents[1]))
import kit


class Settings(NamedTuple):
    """What the paper says, and what it leaves open."""

    clients: int = 20
    steps: int = 10_000
    periods: tuple[int, ...] = (1, 5, 10, 20, 50)  # open: a figure without numbers
    period: int = 20  # of the right-hand side
    counted: tuple[int, ...] = (1, 5, 10, 20)  # open too
    seeds: int = 20  # open
    start: float = 3.0  # open: z, away from the best point, which is near 0
    evaluations: int = 30  # evenly spaced in log t
    experts: int = 8  # the simplex: entries
    short: int = 2000  # steps of the studies with a constant step size


QUICK = Settings(steps=200, periods=(1, 20), counted=(5, 20), seeds=2, evaluations=8, short=100)
READINGS = {"variance 5": np.sqrt(5.0), "standard deviation 5": 5.0}
BOX = {"name": "box", "low": -3, "high": 3}
KEYS = ("collective_regret", "dynamic_regret", "collective_bound")


class Curves(NamedTuple):
    """Each a row per seed and a column per evaluation; a number that the runs do not have is NaN."""

    steps: np.ndarray
    collective_regret: np.ndarray
    dynamic_regret: np.ndarray
    collective_bound: np.ndarray


def grid(last: int, number: int) -> list[int]:
    return sorted(set(np.geomspace(min(10, last), last, number).round().astype(int).tolist()))


def played(settings: Settings, streams: dict[str, list[ct.Federation]], clocks: dict[str, ct.Clock], recipe: Any,
           steps: int, **about: Any) -> dict[tuple[str, str], Curves]:
    """Every stream under every clock, all as one program; the clocks must have their shapes in common."""
    problem = ct.target(next(iter(streams.values()))[0], **about)
    cells = [(name, clock, one) for name, own in streams.items() for clock in clocks for one in own]
    rows = ct.rollouts(problem, [one for *_, one in cells], recipe, rounds=steps, precision="float64",
                       at_once=len(cells), clock=[clocks[clock] for _, clock, _ in cells],
                       evaluate_every=grid(steps, settings.evaluations))
    found: dict[tuple[str, str], list[list[dict[str, Any]]]] = {}
    for (name, clock, _), history in zip(cells, rows, strict=True):
        found.setdefault((name, clock), []).append(history)
    return {cell: Curves(np.array([row["round"] for row in histories[0]]), *(np.array([
        [row.get(f"online.{key}", np.nan) for row in history] for history in histories]) for key in KEYS))
        for cell, histories in found.items()}


def periodic(periods: Sequence[int]) -> dict[str, Any]:
    """From the largest down: the first decides how the program is built, and a period of 1 would leave things out."""
    return {f"tau = {tau}": ct.online(sync=tau, score="everyone") for tau in sorted(periods, reverse=True)}


def figure1(settings: Settings) -> tuple[dict, dict]:
    """Equation (46): left and right."""
    streams = {reading: [ct.drifting_targets(settings.clients, settings.steps, spread=float(spread), seed=seed)
                         for seed in range(settings.seeds)] for reading, spread in READINGS.items()}
    recipe = ct.fedomd(step_size={"name": "inverse", "start": 1.0}, within=BOX)  # 2 / (sigma t), sigma = 2
    left = played(settings, streams, periodic(settings.periods), recipe, settings.steps, start=settings.start)
    right = {}
    for counted in settings.counted:  # each is a program of its own
        if counted == settings.clients:  # as on the left
            right |= {(reading, f"K = {counted}"): left[reading, f"tau = {settings.period}"] for reading in READINGS}
            continue
        clocks = {f"K = {counted}": ct.online(sync=settings.period, counted=counted, score="everyone")}
        right |= played(settings, streams, clocks, recipe, settings.steps, start=settings.start)
    return left, right


def experts(settings: Settings) -> tuple[float, dict]:
    """Linear losses on a simplex with the entropy map: Theorem 1, at the step size for a period of 1."""
    size = settings.experts
    streams = {"simplex": [ct.drifting_targets(settings.clients, settings.short, kind="iid", dimensions=size,
                                               centre=0.0, spread=1.0, apart=0.5, seed=seed)
                           for seed in range(settings.seeds)]}
    steepest = max(float(np.abs(one.train.inputs).max()) for one in streams["simplex"])
    step_size = fedomd_theorem1_step_size(np.log(size), steepest, 1, settings.short)
    recipe = ct.fedomd(step_size=step_size, mirror="entropy", within="simplex")
    return step_size, played(settings, streams, periodic(settings.periods), recipe, settings.short, loss="linear",
                             start=1 / size)


def constant(settings: Settings) -> dict[tuple[str, str], Curves]:
    """Equation (46) with a constant step size, from the best point and from far away: Theorem 1."""
    found = {}
    for start in (0.0, settings.start):
        streams = {f"z = {start:g}": [ct.drifting_targets(settings.clients, settings.short, spread=5.0, seed=seed)
                                      for seed in range(settings.seeds)]}
        found |= played(settings, streams, periodic(settings.periods), ct.fedomd(step_size=0.1, within=BOX),
                        settings.short, start=start)
    return found


def panel(axes: Any, curves: dict[str, Curves], title: str, bound: bool = False) -> None:
    for place, (label, found) in enumerate(curves.items()):
        values, colour = found.collective_regret, kit.COLOURS[place]
        kit.plot_band(axes, found.steps, values, values.mean(axis=0), colour, label=label, linewidth=1.5)
        if bound:
            axes.plot(found.steps, found.collective_bound.mean(axis=0), color=colour, linestyle="dotted", linewidth=1.2)
    axes.set(xscale="log", xlabel="steps T")
    axes.set_title(title, fontsize=10)
    axes.grid(alpha=0.25)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def by_clock(found: dict[tuple[str, str], Curves], stream: str) -> dict[str, Curves]:
    own = {clock: curves for (name, clock), curves in found.items() if name == stream}
    return dict(sorted(own.items(), key=lambda item: int(item[0].rpartition(" ")[2])))


def draw(out: Path, left: dict, right: dict, simplex: dict, flat: dict) -> None:
    picture, places = pyplot.subplots(2, 2, figsize=(8.6, 6.2), sharex=True, sharey="row", layout="constrained")
    for row, reading in zip(places, READINGS, strict=True):
        panel(row[0], by_clock(left, reading), f"all are counted; {reading}")
        panel(row[1], by_clock(right, reading), f"K are counted, tau = 20; {reading}")
        row[0].set_ylabel("collective regret R_T")
    for axes in places[0]:
        axes.legend(frameon=False, fontsize=8, loc="upper left")
    kit.save_figure(picture, out / "figure1.png")
    picture, places = pyplot.subplots(1, 3, figsize=(10.5, 3.4), layout="constrained")
    panel(places[0], by_clock(simplex, "simplex"), "experts on a simplex; dotted: (7)", bound=True)
    places[0].set(yscale="log", ylabel="collective regret R_T")
    for axes, stream in zip(places[1:], dict.fromkeys(name for name, _ in flat), strict=True):
        panel(axes, by_clock(flat, stream), f"eq. (46), step size 0.1, {stream}")
    places[0].legend(frameon=False, fontsize=8)
    kit.save_figure(picture, out / "theorem1.png")


def outcome(curves: Curves) -> dict[str, Any]:
    """The end of a curve, and how fast it grows there: R_T = a + b log T, fitted to the last tenfold of time."""
    late = curves.steps >= curves.steps[-1] / 10
    growth = np.polyfit(np.log(curves.steps[late]), curves.collective_regret.mean(axis=0)[late], 1)[0]
    last = curves.collective_regret[:, -1]
    bounds = curves.collective_bound[:, -1]
    return {"regret": last.mean(), "least": last.min(), "most": last.max(), "growth": growth,
            "dynamic": curves.dynamic_regret[:, -1].mean(), "bound": bounds.mean(),
            "holds": bool((curves.collective_regret <= curves.collective_bound).all()) if np.isfinite(bounds).all()
            else None}


def table(found: dict[tuple[str, str], Curves]) -> str:
    rows = []
    for stream in dict.fromkeys(name for name, _ in found):
        for clock, curves in by_clock(found, stream).items():
            end = outcome(curves)
            bound = "none" if end["holds"] is None else f"{end['bound']:.3g}"
            held = {None: "", True: "yes", False: "**no**"}[end["holds"]]
            rows.append([stream, clock, f"{end['regret']:.1f}", f"{end['least']:.1f} to {end['most']:.1f}",
                         f"{end['growth']:.2f}", f"{end['dynamic']:.0f}", bound, held])
    return kit.table(["stream", "clock", "R_T", "smallest to largest", "per unit of log T", "dynamic regret", "bound",
                      "holds"], rows)


def main(arguments: list[str] | None = None) -> None:
    given = kit.read_arguments(__doc__, "results/fedomd", arguments)
    settings, watch = QUICK if given.quick else Settings(), kit.Watch()
    left, right = figure1(settings)
    seconds = watch.seconds
    watch("Figure 1")
    step_size, simplex = experts(settings)
    flat = constant(settings)
    draw(given.out, left, right, simplex, flat)
    parts = {"Figure 1, left": left, "Figure 1, right": right,
             f"Experts on a simplex, entropy map, step size {step_size:.3g}": simplex,
             "Equation (46) with the constant step size 0.1": flat}
    text = "\n\n".join([
        f"T = {settings.steps} ({settings.short} with a constant step size), {settings.clients} clients, "
        f"{settings.seeds} seeds.", *(f"## {title}\n\n{table(found)}" for title, found in parts.items())]) + "\n"
    (given.out / "figure1.md").write_text(text)
    kit.save_numbers(given.out / "figure1.json", {
        "settings": settings._asdict(), "seconds_figure1": seconds, "seconds": watch.seconds,
        "parts": {title: [{"stream": stream, "clock": clock, **outcome(curves), "steps": curves.steps,
                           "curve": curves.collective_regret.mean(axis=0)}
                          for (stream, clock), curves in found.items()] for title, found in parts.items()}})
    print(text)
    watch(f"everything; see {given.out}")


if __name__ == "__main__":
    main()
