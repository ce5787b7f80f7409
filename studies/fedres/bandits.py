"""Federated contextual bandits: "Federated Residual Learning" (v1: Agarwal, Langford and Wei), section 5.

    python studies/fedres/bandits.py [--quick] [--out DIR]

The paper proves a bound and shows no experiment, so everything here is our choice. Who explores how (at every B-th
step, or by inverse gaps), with which regressor (FedRes' two models, the shared one alone, the private one alone, both
by every client alone), and what does it regret? On rewards that two linear models realise exactly, and on digits and
pen strokes as bandits, where clients agree or have tastes of their own. Step sizes, B and gamma are chosen for each
method on seeds that are not reported. Figures, numbers (bandits.json) and a table (bandits.md) go to DIR.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import matplotlib
import numpy as np
from PIL import Image

import cantons as ct
from cantons.algorithm.fedres_bandit import theorem3_every
from cantons.data import Ragged
from cantons.engine.devices import mesh_of
from cantons.engine.init import initial_state, seed_keys
from cantons.engine.mapping import Fanout
from cantons.engine.online import at_rest, online_step
from cantons.engine.round import Arrays

matplotlib.use("Agg")
from matplotlib import pyplot

FILES = Path(__file__).resolve().parents[2].parent / "shared" / "data"  # beside the repository
POINTS = 50  # of a curve
AT_ONCE = 16  # runs in one call


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
    sets: tuple[str, ...] = ("synthetic", "digits", "digits with tastes", "pendigits with tastes")


QUICK = Settings(clients=4, steps=100, class_steps=50, seeds=(0,), chosen_by=(100,), step_sizes=(0.1,), ratios=(1.0,),
                 every=(10,), gammas=(10.0,), delays=(0, 3), sets=("digits with tastes",))


class Environment(NamedTuple):
    federations: Mapping[int, ct.Federation]  # by seed
    problem: ct.Problem
    clock: Any
    steps: int
    regressors: tuple[str, ...]


def environment(name: str, settings: Settings) -> Environment | None:
    """None if its file is not there."""
    seeds = (*settings.seeds, *settings.chosen_by)
    if name == "synthetic":
        made = {seed: ct.synthetic_bandit(settings.clients, contexts=settings.steps, test_contexts=0, seed=seed)
                for seed in seeds}
        problem = ct.bandit(made[seeds[0]], shared_features="first_half", private_features="second_half")
        return Environment(made, problem, ct.online(), settings.steps, ("joint", "shared", "private", "alone"))
    source, _, tastes = name.partition(" with ")
    if source != "digits" and not (FILES / f"{source}.npz").exists():
        return None
    made = {}
    for seed in seeds:
        options: dict[str, Any] = dict(clients=settings.clients, partition="iid", test=0.0, seed=seed)
        plain = ct.digits(**options) if source == "digits" else ct.npz(FILES / f"{source}.npz", scale="unit", **options)
        made[seed] = ct.classification_bandit(plain, swaps=2 if tastes else 0, seed=seed)
    # Both models see everything, so that either one alone is a fair rival. Rows are few, and met again in new orders.
    return Environment(made, ct.bandit(made[seeds[0]]), ct.online(order="shuffle"), settings.class_steps,
                       ("joint", "shared", "private"))


class Curves:
    """Cumulative regret per client, for many seeds and options in one program."""

    def __init__(self, place: Environment, recipe: Callable[..., Any], clock: ct.Clock):
        trains = {seed: data.train for seed, data in place.federations.items()}
        self.rows = jax.tree.map(lambda *leaves: np.concatenate(leaves), *(
            (train.inputs, train.targets) for train in trains.values()))
        sizes = [len(train.inputs) for train in trains.values()]
        firsts = dict(zip(trains, np.cumsum(sizes) - sizes, strict=True))
        self.owned = {seed: (train.starts + firsts[seed], train.sizes) for seed, train in trains.items()}
        self.shape = max(train.longest for train in trains.values()), all(train.uniform for train in trains.values())
        self.problem, self.recipe, self.clock = place.problem, recipe, clock
        self.population = next(iter(place.federations.values())).population
        self.block, self.points = max(1, place.steps // POINTS), min(POINTS, place.steps)
        self.program = jax.jit(jax.vmap(self._one, (None, 0, None, 0, 0)))

    def of(self, pairs: list[tuple[int, Mapping[str, float]]], clock: ct.Clock | None = None) -> np.ndarray:
        """[pairs of a seed and options, points]; another clock may differ in its delays alone."""
        found = []
        for first in range(0, len(pairs), AT_ONCE):
            seeds, options = zip(*(pairs * AT_ONCE)[first:first + AT_ONCE], strict=True)  # one shape, one program
            owned = jax.tree.map(lambda *leaves: np.stack(leaves), *(self.owned[seed] for seed in seeds))
            stacked = {name: np.array([chosen[name] for chosen in options]) for name in options[0]}
            found.append(self.program(self.rows, owned, (clock or self.clock).arrays, np.array(seeds), stacked))
        return np.concatenate(found)[:len(pairs)]

    def _one(self, rows, owned, ticking, seed, options):
        start_key, run_key, _ = seed_keys(seed)
        algorithm = self.recipe(**options).build(self.problem, self.population)
        arrays = Arrays(Ragged(*rows, *owned, *self.shape), None, ticking, run_key)
        state = initial_state(algorithm, start_key, self.problem.init(start_key), self.population)
        state = at_rest(self.problem, algorithm, self.clock, arrays, state)
        step = partial(online_step, self.problem, algorithm, self.clock, Fanout(mesh_of(1), self.population), arrays)

        def block(state, _):
            state = jax.lax.fori_loop(0, self.block, lambda _, state: step(state), state)
            return state, state.in_flight.scores["regret"].mean()  # summed over steps, as the run goes

        return jax.lax.scan(block, state, None, length=self.points)[1]

    def best(self, options: Sequence[Mapping[str, float]], settings: Settings,
             clock: ct.Clock | None = None) -> tuple[np.ndarray, Mapping[str, float]]:
        """[seeds, points] of the options that are best on the other seeds, and these options."""
        tried = self.of([(seed, chosen) for chosen in options for seed in settings.chosen_by], clock)[:, -1]
        ends = np.nan_to_num(tried.reshape(len(options), -1).mean(axis=1), nan=np.inf)
        chosen = options[int(ends.argmin())]
        return self.of([(seed, chosen) for seed in settings.seeds], clock), chosen


def grid(explore: str, regressor: str, settings: Settings) -> list[dict[str, float]]:
    """What each method may choose from; who always explores regrets the same whatever it learns."""
    if explore == "uniform":
        return [{"step_size": settings.step_sizes[0]}]
    name, values = ("every", settings.every) if explore == "every" else ("gamma", settings.gammas)
    steps = [{"step_size": step, **({"private_step_size": round(ratio * step, 6)} if regressor == "joint" else {})}
             for step in settings.step_sizes for ratio in (settings.ratios if regressor == "joint" else (1.0,))]
    return [{**step, name: value} for step, value in itertools.product(steps, values)]


def method(explore: str, regressor: str, **more: Any) -> Callable[..., Any]:
    return partial(ct.fedres_bandit, explore=explore, regressor=regressor, **{
        "method": "adagrad", "alignment": "none", "combine": "arrived", **more})


def compare(settings: Settings, watch: Callable[[str], None]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in settings.sets:
        place = environment(name, settings)
        if place is None:
            continue
        clock, rows = place.clock.build(settings.clients), {}
        for explore, regressor in [("uniform", "joint"), *itertools.product(("every", "igw"), place.regressors)]:
            curves = Curves(place, method(explore, regressor), clock)
            regrets, options = curves.best(grid(explore, regressor, settings), settings)
            label = explore if explore == "uniform" else f"{explore} {regressor}"
            rows[label] = {"explore": explore, "regressor": regressor, "options": options, "regret": regrets.tolist()}
            watch(f"{name}: {label} {np.median(regrets[:, -1]):.1f} {options}")
        steps = curves.block * (1 + np.arange(curves.points))
        found[name] = {"steps": steps.tolist(), "methods": rows, "by_run": by_run(place, rows["igw joint"])}
    return found


def by_run(place: Environment, row: Mapping[str, Any]) -> float:
    """The last number of a curve as anybody would get it: the mean regret of a step times the steps."""
    seed, data = next(iter(place.federations.items()))
    result = ct.run(place.problem, data, method("igw", "joint")(**row["options"]), rounds=place.steps,
                    clock=place.clock, seed=seed, evaluate_every=place.steps)
    return result.final["online.personal.regret.mean"] * place.steps


def late(settings: Settings, known: Mapping[str, Any], watch: Callable[[str], None]) -> dict[str, Any]:
    """Regret under delay; step sizes are chosen again for every delay, B and gamma are as without."""
    place = environment("synthetic", settings)
    assert place is not None
    clocks = [ct.online(uplink=delay, downlink=delay, longest=max(settings.delays)).build(settings.clients)
              for delay in settings.delays]
    found = {}
    for explore, alignment in itertools.product(("every", "igw"), ("full", "paired", "none")):
        name = "every" if explore == "every" else "gamma"
        options = grid(explore, "joint", settings)
        wanted = known[f"{explore} joint"]["options"][name] if known else options[0][name]
        curves = Curves(place, method(explore, "joint", alignment=alignment), clocks[0])
        cells = [curves.best([chosen for chosen in options if chosen[name] == wanted], settings, clock)
                 for clock in clocks]
        found[f"{explore}, {alignment}"] = [
            {"delay": 2 * delay, "regret": regrets[:, -1].tolist(), "options": chosen}
            for delay, (regrets, chosen) in zip(settings.delays, cells, strict=True)]
        watch(f"delays: {explore}, {alignment} {[round(float(np.median(part[:, -1])), 1) for part, _ in cells]}")
    return found


COLOURS = {"joint": "#0072b2", "shared": "#e69f00", "private": "#009e73", "alone": "#cc79a7"}
LINES = {"igw": "-", "every": "--", "uniform": ":"}


def draw_curves(found: Mapping[str, Any], path: Path) -> None:
    columns = 2
    figure, axes = pyplot.subplots(-(-len(found) // columns), columns, figsize=(9, 3.4 * -(-len(found) // columns)),
                                   squeeze=False)
    for axis in axes.flat[len(found):]:
        axis.set_visible(False)
    for axis, (name, place) in zip(axes.flat, found.items(), strict=False):
        for label, row in place["methods"].items():
            regrets = np.array(row["regret"])
            colour = "#999999" if row["explore"] == "uniform" else COLOURS[row["regressor"]]
            axis.plot(place["steps"], np.median(regrets, axis=0), color=colour, linestyle=LINES[row["explore"]],
                      label=label, linewidth=1.4)
            axis.fill_between(place["steps"], regrets.min(axis=0), regrets.max(axis=0), color=colour, alpha=0.15,
                              linewidth=0)
        others = [row["regret"] for row in place["methods"].values() if row["explore"] != "uniform"]
        axis.set(title=name, xlabel="step", ylabel="cumulative regret of a client", xlim=(0, place["steps"][-1]),
                 ylim=(0, 1.08 * np.max(others)))
        axis.legend(fontsize=7, loc="upper left")
        axis.grid(alpha=0.25)
    save(figure, path)


def draw_delays(found: Mapping[str, Any], path: Path) -> None:
    figure, axis = pyplot.subplots(figsize=(5, 3.4))
    colours = {"full": "#d55e00", "paired": "#e69f00", "none": "#0072b2"}
    for label, cells in found.items():
        explore, alignment = label.split(", ")
        regrets, delays = np.array([cell["regret"] for cell in cells]), [cell["delay"] for cell in cells]
        axis.plot(delays, np.median(regrets, axis=1), color=colours[alignment], linestyle=LINES[explore], marker="o",
                  markersize=3, label=f"{explore}, alignment {alignment}")
        axis.fill_between(delays, regrets.min(axis=1), regrets.max(axis=1), color=colours[alignment], alpha=0.12,
                          linewidth=0)
    axis.set(title="synthetic: FedRes with delay", xlabel="delay there and back, in steps",
             ylabel="regret of a client at the end")
    axis.set_ylim(0, 1.5 * axis.get_ylim()[1])  # room for the legend
    axis.legend(fontsize=7, loc="upper left", ncols=2)
    axis.grid(alpha=0.25)
    save(figure, path)


def save(figure: Any, path: Path) -> None:
    figure.tight_layout()
    figure.savefig(path, dpi=90)
    pyplot.close(figure)
    Image.open(path).convert("RGB").quantize(128).save(path, optimize=True)  # bands have many shades; a third will do


def table(found: Mapping[str, Any], delays: Mapping[str, Any]) -> str:
    lines = ["Cumulative regret of a client at the end: median over seeds, and from least to most.", ""]
    for name, place in found.items():
        lines += [f"**{name}**, {place['steps'][-1]} steps", "", "| method | regret | chosen |", "| --- | --- | --- |"]
        for label, row in place["methods"].items():
            best = ", ".join(f"{option} {value:g}" for option, value in row["options"].items())
            lines.append(f"| {label} | {spread(np.array(row['regret'])[:, -1])} | {best} |")
        lines.append("")
    ways = [cell["delay"] for cell in next(iter(delays.values()))]
    lines += ["**synthetic, with delay** (there and back, in steps)", "",
              f"| FedRes | {' | '.join(map(str, ways))} |", f"| --- |{' --- |' * len(ways)}"]
    for label, cells in delays.items():
        lines.append(f"| {label} | {' | '.join(spread(cell['regret']) for cell in cells)} |")
    return "\n".join(lines) + "\n"


def spread(values: Sequence[float] | np.ndarray) -> str:
    return f"{np.median(values):.1f} ({np.min(values):.1f} to {np.max(values):.1f})"


def theorem(settings: Settings) -> dict[str, float]:
    """Theorem 3's B for the synthetic environment: two unit feature vectors, so gamma = 4 and, at D = 1/2, G = 4."""
    constants = dict(norms=(1 + settings.clients) / 16, variance=0.1, smoothness=4.0, radius=0.5, lipschitz=4.0)
    return {str(rounds): theorem3_every(rounds, settings.clients, 5, **constants)
            for rounds in (1_000, 2_000, 10_000, 100_000, 1_000_000)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a smoke test")
    parser.add_argument("--out", type=Path, default=Path("results/fedres_bandits"))
    given = parser.parse_args()
    settings, began = QUICK if given.quick else Settings(), time.perf_counter()
    given.out.mkdir(parents=True, exist_ok=True)

    def watch(sentence: str) -> None:
        print(f"{time.perf_counter() - began:6.0f} s  {sentence}", flush=True)

    found = compare(settings, watch)
    delays = late(settings, found.get("synthetic", {}).get("methods", {}), watch)
    numbers = {"settings": settings._asdict(), "environments": found, "delays": delays, "theorem_3": theorem(settings),
               "seconds": time.perf_counter() - began}
    (given.out / "bandits.json").write_text(json.dumps(numbers, indent=1))
    (given.out / "bandits.md").write_text(table(found, delays))
    draw_curves(found, given.out / "fedres_bandits.png")
    draw_delays(delays, given.out / "fedres_bandits_delay.png")
    print(given.out)


if __name__ == "__main__":
    main()
