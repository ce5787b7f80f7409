"""Federated contextual bandits: "Federated Residual Learning" (v1: Agarwal, Langford and Wei), section 5.

    python studies/fedres/bandits.py [--quick] [--data DIR] [--out DIR]

The paper proves a bound and shows no experiment, so everything here is our choice. Who explores how (at every B-th
step, or by inverse gaps), with which regressor (FedRes' two models, the shared one alone, the private one alone, both
by every client alone), and what does it regret? On rewards that two linear models realise exactly, and on digits and
pen strokes as bandits, where clients agree or have tastes of their own. Step sizes, B and gamma are chosen for each
method on seeds that are not reported. Figures, numbers (bandits.json) and a table (bandits.md) go to DIR.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib import pyplot

import cantons as ct
from cantons.algorithm.fedres_bandit import theorem3_every

sys.path.insert(0, str(Path(__file__).parents[1]))
import kit


class Settings(NamedTuple):
    clients: int = 20
    steps: int = 2000  # of the synthetic environment
    class_steps: int = 600  # of the others
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    chosen_by: tuple[int, ...] = (100, 101)
    step_sizes: tuple[float, ...] = (0.01, 0.03, 0.1, 0.3)
    ratios: tuple[float, ...] = (0.2, 1.0)  # of the private step size to the other, where there are two
    every: tuple[int, ...] = (2, 5, 10, 20)  # B
    gammas: tuple[float, ...] = (10.0, 30.0, 100.0, 300.0, 1000.0)
    delays: tuple[int, ...] = (0, 10, 40)  # on each link
    alignments: tuple[str, ...] = ("full", "paired", "none")
    regressors: tuple[str, ...] = ("joint", "shared", "private", "alone")
    points: int = 50  # of a curve
    sets: tuple[str, ...] = ("synthetic", "digits", "digits with tastes", "pendigits with tastes")


QUICK = Settings(clients=4, steps=20, class_steps=20, seeds=(0,), chosen_by=(100,), step_sizes=(0.1, 0.3),
                 ratios=(1.0,), every=(10,), gammas=(10.0,), delays=(3,), alignments=("none",), regressors=("joint",),
                 points=2, sets=("digits with tastes",))


class Environment(NamedTuple):
    federations: Mapping[int, ct.Federation]  # by seed
    problem: ct.Problem
    clock: Any
    steps: int
    regressors: tuple[str, ...]


def environment(name: str, settings: Settings, files: Path = kit.DATA) -> Environment | None:
    """None if its file is not there."""
    seeds = (*settings.seeds, *settings.chosen_by)
    if name == "synthetic":
        made = {seed: ct.synthetic_bandit(settings.clients, contexts=settings.steps, test_contexts=0, seed=seed)
                for seed in seeds}
        problem = ct.bandit(made[seeds[0]], shared_features="first_half", private_features="second_half")
        return Environment(made, problem, ct.online(), settings.steps, ("joint", "shared", "private", "alone"))
    source, _, tastes = name.partition(" with ")
    if source != "digits" and not (files / f"{source}.npz").exists():
        return None
    made = {}
    for seed in seeds:
        options: dict[str, Any] = dict(clients=settings.clients, partition="iid", test=0.0, seed=seed)
        plain = ct.digits(**options) if source == "digits" else ct.npz(files / f"{source}.npz", scale="unit", **options)
        made[seed] = ct.classification_bandit(plain, swaps=2 if tastes else 0, seed=seed)
    # Both models see everything, so that either one alone is a fair rival. Rows are few, and met again in new orders.
    return Environment(made, ct.bandit(made[seeds[0]]), ct.online(order="shuffle"), settings.class_steps,
                       ("joint", "shared", "private"))


def regrets(place: Environment, recipes: Sequence[Any], seeds: Sequence[int], clock: Any = None,
            points: int = 1) -> np.ndarray:
    """Cumulative regret of a client, [runs, points]; every run has the data of its seed."""
    steps = place.steps // points * np.arange(1, points + 1)
    histories = ct.rollouts(place.problem, [place.federations[seed] for seed in seeds], recipes, seed=seeds,
                            rounds=int(steps[-1]), clock=clock or place.clock, evaluate_every=steps.tolist())
    return steps * np.array([[row["online.personal.regret.mean"] for row in history] for history in histories])


def best(place: Environment, build: Callable[..., Any], options: Sequence[Mapping[str, float]], settings: Settings,
         clock: Any = None, points: int = 1) -> tuple[np.ndarray, Mapping[str, float]]:
    """[seeds, points] of the options that are best on the other seeds, and these options."""
    ends: list[float] = []
    for _, group in itertools.groupby(options, key=lambda chosen: chosen.get("every")):  # each B is another program
        tried = [(build(**chosen), seed) for chosen in group for seed in settings.chosen_by]
        last = regrets(place, *zip(*tried, strict=True), clock)[:, -1]
        ends += last.reshape(-1, len(settings.chosen_by)).mean(axis=1).tolist()
    chosen = options[int(np.nan_to_num(ends, nan=np.inf).argmin())]
    return regrets(place, [build(**chosen)] * len(settings.seeds), settings.seeds, clock, points), chosen


def grid(explore: str, regressor: str, settings: Settings) -> list[dict[str, float]]:
    """What each method may choose from; who always explores regrets the same whatever it learns."""
    if explore == "uniform":
        return [{"step_size": settings.step_sizes[0]}]
    name, values = ("every", settings.every) if explore == "every" else ("gamma", settings.gammas)
    steps = [{"step_size": step, **({"private_step_size": round(ratio * step, 6)} if regressor == "joint" else {})}
             for step in settings.step_sizes for ratio in (settings.ratios if regressor == "joint" else (1.0,))]
    return [{**step, name: value} for value, step in itertools.product(values, steps)]


def method(explore: str, regressor: str, **more: Any) -> Callable[..., Any]:
    return partial(ct.fedres_bandit, explore=explore, regressor=regressor, **{
        "method": "adagrad", "alignment": "none", "combine": "arrived", **more})


def compare(settings: Settings, files: Path, watch: Callable[[str], None]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in settings.sets:
        place = environment(name, settings, files)
        if place is None:
            watch(f"{name}: its file is not in {files}, and it is left out")
            continue
        rows, points = {}, min(settings.points, place.steps)
        regressors = [name for name in settings.regressors if name in place.regressors]
        for explore, regressor in [("uniform", "joint"), *itertools.product(("every", "igw"), regressors)]:
            curves, options = best(place, method(explore, regressor), grid(explore, regressor, settings), settings,
                                   points=points)
            label = explore if explore == "uniform" else f"{explore} {regressor}"
            rows[label] = {"explore": explore, "regressor": regressor, "options": options, "regret": curves.tolist()}
            watch(f"{name}: {label} {np.median(curves[:, -1]):.1f} {options}")
        found[name] = {"steps": (place.steps // points * np.arange(1, points + 1)).tolist(), "methods": rows}
    return found


def late(settings: Settings, known: Mapping[str, Any], watch: Callable[[str], None]) -> dict[str, Any]:
    """Regret under delay; step sizes are chosen again for every delay, B and gamma are as without."""
    place = environment("synthetic", settings)
    assert place is not None
    clocks = [ct.online(uplink=delay, downlink=delay, max_delay=max(settings.delays)) for delay in settings.delays]
    found = {}
    for explore, alignment in itertools.product(("every", "igw"), settings.alignments):
        name = "every" if explore == "every" else "gamma"
        options = grid(explore, "joint", settings)
        wanted = known[f"{explore} joint"]["options"][name] if known else options[0][name]
        cells = [best(place, method(explore, "joint", alignment=alignment),
                      [chosen for chosen in options if chosen[name] == wanted], settings, clock) for clock in clocks]
        found[f"{explore}, {alignment}"] = [
            {"delay": 2 * delay, "regret": curves[:, -1].tolist(), "options": chosen}
            for delay, (curves, chosen) in zip(settings.delays, cells, strict=True)]
        watch(f"delays: {explore}, {alignment} {[round(float(np.median(part[:, -1])), 1) for part, _ in cells]}")
    return found


COLOURS = {"joint": kit.BLUE, "shared": kit.ORANGE, "private": kit.GREEN, "alone": kit.PINK}
LINES = {"igw": "-", "every": "--", "uniform": ":"}


def draw_curves(found: Mapping[str, Any], path: Path) -> None:
    columns = 2
    figure, axes = pyplot.subplots(-(-len(found) // columns), columns, figsize=(9, 3.4 * -(-len(found) // columns)),
                                   squeeze=False)
    for axis in axes.flat[len(found):]:
        axis.set_visible(False)
    for axis, (name, place) in zip(axes.flat, found.items(), strict=False):
        for label, row in place["methods"].items():
            curves = np.array(row["regret"])
            colour = kit.GREY if row["explore"] == "uniform" else COLOURS[row["regressor"]]
            kit.plot_band(axis, place["steps"], curves, np.median(curves, axis=0), colour, label=label,
                          linestyle=LINES[row["explore"]], linewidth=1.4)
        others = [row["regret"] for row in place["methods"].values() if row["explore"] != "uniform"]
        axis.set(title=name, xlabel="step", ylabel="cumulative regret of a client", xlim=(0, place["steps"][-1]),
                 ylim=(0, 1.08 * np.max(others)))
        axis.legend(fontsize=7, loc="upper left")
        axis.grid(alpha=0.25)
    figure.tight_layout()
    kit.save_figure(figure, path, shades=128)


def draw_delays(found: Mapping[str, Any], path: Path) -> None:
    figure, axis = pyplot.subplots(figsize=(5, 3.4))
    colours = {"full": kit.RED, "paired": kit.ORANGE, "none": kit.BLUE}
    for label, cells in found.items():
        explore, alignment = label.split(", ")
        curves, delays = np.array([cell["regret"] for cell in cells]).T, [cell["delay"] for cell in cells]
        kit.plot_band(axis, delays, curves, np.median(curves, axis=0), colours[alignment], marker="o",
                      linestyle=LINES[explore], markersize=3, label=f"{explore}, alignment {alignment}")
    axis.set(title="synthetic: FedRes with delay", xlabel="delay there and back, in steps",
             ylabel="regret of a client at the end")
    axis.set_ylim(0, 1.5 * axis.get_ylim()[1])  # room for the legend
    axis.legend(fontsize=7, loc="upper left", ncols=2)
    axis.grid(alpha=0.25)
    figure.tight_layout()
    kit.save_figure(figure, path, shades=128)


def table(found: Mapping[str, Any], delays: Mapping[str, Any]) -> str:
    parts = ["Cumulative regret of a client at the end: median over seeds, and from least to most."]
    for name, place in found.items():
        parts += [f"**{name}**, {place['steps'][-1]} steps", kit.table(["method", "regret", "chosen"], (
            [label, kit.spread(np.array(row["regret"])[:, -1]),
             ", ".join(f"{option} {value:g}" for option, value in row["options"].items())]
            for label, row in place["methods"].items()))]
    ways = [str(cell["delay"]) for cell in next(iter(delays.values()))]
    parts += ["**synthetic, with delay** (there and back, in steps)", kit.table(["FedRes", *ways], (
        [label, *(kit.spread(cell["regret"]) for cell in cells)] for label, cells in delays.items()))]
    return "\n\n".join(parts) + "\n"


def theorem(settings: Settings) -> dict[str, float]:
    """Theorem 3's B for the synthetic environment: two unit feature vectors, so gamma = 4 and, at D = 1/2, G = 4."""
    constants = dict(norms=(1 + settings.clients) / 16, variance=0.1, smoothness=4.0, radius=0.5, lipschitz=4.0)
    return {str(rounds): theorem3_every(rounds, settings.clients, 5, **constants)
            for rounds in (1_000, 2_000, 10_000, 100_000, 1_000_000)}


def main(arguments: list[str] | None = None) -> None:
    given = kit.read_arguments(__doc__, "results/fedres_bandits", arguments, data=kit.FILES)
    settings, watch = QUICK if given.quick else Settings(), kit.Watch()
    found = compare(settings, given.data, watch)
    delays = late(settings, found.get("synthetic", {}).get("methods", {}), watch)
    kit.save_numbers(given.out / "bandits.json", {
        "settings": settings._asdict(), "environments": found, "delays": delays, "theorem_3": theorem(settings),
        "seconds": watch.seconds})
    (given.out / "bandits.md").write_text(table(found, delays))
    draw_curves(found, given.out / "fedres_bandits.png")
    draw_delays(delays, given.out / "fedres_bandits_delay.png")
    print(given.out)


if __name__ == "__main__":
    main()
