"""Clients with private parts beside a datacenter: does public data help those who have few examples of their own?

    python studies/ffgg/with_centre.py [--quick] [--settings NAME ...] [--data DIR] [--out DIR]

FFGG (Mishchenko et al.) and FedRes (Wei et al.) as the clients' side of parallel training (Augenstein et al., 2022), by
`parallel_centre`. Clients are writers of MNIST with few images each, the datacenter has digits of others. Images are 14
x 14, the model has one hidden layer, and the output layer is private.

    usual       everybody means the same by a label; the datacenter has 1000 images of writers who are no clients
    own         each client numbers the digits in its own way, the datacenter in the usual one
    own, 100    the same with 100 public images, and with 10,000, for methods with a centre and tuning
    own, 10000
    own, USPS   the same with 1000 digits from envelopes

A method has one step size, for clients, centre and tuning, and in the end clients tune what is private for so many
steps: both are the best of three by the clients' validation rows, over three seeds. Accuracies are those of the
clients' test rows, weighted by how many they have. Without the files: digits that come with the library. Each cell is a
file in DIR/cells, and cells that are there are not computed again.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib import pyplot
from table2 import numbers_of

import cantons as ct
from cantons.data import from_sizes, with_validation
from cantons.protocol import Problem, Recipe, Start
from cantons.study.resolve import resolve

sys.path.insert(0, str(Path(__file__).parents[1]))
import kit


class Settings(NamedTuple):
    clients: int = 150
    rows: int = 30  # of a client, a third of them for validation
    test: int = 70
    hidden: tuple[int, ...] = (64, 32)
    cohort: int = 20
    rounds: int = 300
    steps: int = 5  # of a client in a round, and of the centre
    central_batch: int = 64
    tune_steps: int = 10  # in a round
    final_steps: tuple[int, ...] = (5, 50, 250)  # of tuning in the end
    rates: tuple[float, ...] = (0.1, 0.3, 1.0)
    seeds: int = 3
    compared: tuple[str, ...] = ("tuning alone", "FedAvg", "FedAvg + centre", "FedAvg, tuned", "FedAvg + centre, tuned",
                                 "centre alone", "centre alone, tuned", "FFGG", "FFGG + centre", "FedRes",
                                 "FedRes + centre")


QUICK = Settings(clients=8, rows=15, test=15, hidden=(8,), cohort=4, rounds=4, steps=2, central_batch=16,
                 tune_steps=2, final_steps=(2,), rates=(0.1, 0.3), seeds=2,
                 compared=("FedAvg + centre, tuned", "FFGG + centre"))


class Setting(NamedTuple):
    own: bool = True  # clients number the digits in their own ways
    centre: str = "mnist"
    public: int = 1000  # rows of the datacenter


SETTINGS = {"usual": Setting(own=False), "own": Setting(), "own, 100": Setting(public=100),
            "own, 10000": Setting(public=10_000), "own, USPS": Setting(centre="usps")}
WHOLE = ("usual", "own")  # settings in which all methods are run, in the others
PERSONAL = ("FedAvg + centre, tuned", "centre alone, tuned", "FFGG + centre", "FedRes + centre")


# The data


class Pool(NamedTuple):
    """Images of the clients' writers and of the datacenter's."""

    images: np.ndarray
    labels: np.ndarray
    writer: np.ndarray
    public: np.ndarray
    public_labels: np.ndarray


def read_pool(folder: Path, centre: str) -> Pool:
    if not (folder / "mnist.npz").exists():
        data = ct.digits(clients=16, partition="iid").train
        writer = np.repeat(np.arange(16), data.sizes)
        few = writer < 8
        return Pool(data.inputs[few], data.targets[few], writer[few] % 3, data.inputs[~few], data.targets[~few])
    with np.load(folder / "mnist.npz", allow_pickle=False) as file:
        images, labels, writer = halved(file["x"] / 255, 28), file["y"].astype(np.int32), file["writer"]
    public = images[60_000:], labels[60_000:]
    if centre == "usps":
        with np.load(folder / "usps.npz", allow_pickle=False) as file:
            cropped = (file["x"] / 2000).reshape(-1, 16, 16)[:, 1:15, 1:15]
            public = cropped.reshape(-1, 196).astype(np.float32), file["y"].astype(np.int32)
    return Pool(images[:60_000], labels[:60_000], writer[:60_000], *public)


def halved(pixels: np.ndarray, side: int) -> np.ndarray:
    """Squares of four pixels as one."""
    squares = pixels.reshape(-1, side // 2, 2, side // 2, 2)
    return squares.mean(axis=(2, 4)).reshape(len(pixels), -1).astype(np.float32)


def federation(folder: Path, name: str, settings: Settings) -> ct.Federation:
    setting = SETTINGS[name]
    pool, random = read_pool(folder, setting.centre), np.random.default_rng(0)
    each = settings.rows + settings.test
    if len(np.unique(pool.writer)) < settings.clients:  # the digits of the library have no writers
        pool = pool._replace(writer=np.arange(len(pool.labels)) % settings.clients)
    writers, counts = np.unique(pool.writer, return_counts=True)
    clients = {}
    for writer in random.permutation(writers[counts >= each])[: settings.clients]:
        rows = random.permutation(np.flatnonzero(pool.writer == writer))[:each]
        meaning = random.permutation(10).astype(np.int32) if setting.own else np.arange(10, dtype=np.int32)
        clients[f"writer{writer}"] = pool.images[rows], meaning[pool.labels[rows]]
    data = ct.from_clients(clients, classes=10, test=settings.test / each, name=name)
    chosen = random.permutation(len(pool.public))[: setting.public]
    central = from_sizes(pool.public[chosen], pool.public_labels[chosen], np.array([len(chosen)]))
    return with_validation(replace(data, central=central), 1 / 3)


# The methods


class Method(NamedTuple):
    """Rounds, and how clients are fitted when all is done."""

    kind: str  # of the problem: "common", "output" or "residual"
    train: Recipe | None
    final: Callable[[int], Recipe] | None = None  # of the number of steps; None: as in the rounds


def methods(rate: float, settings: Settings) -> dict[str, Method]:
    work = {"step_size": rate, "steps": settings.steps, "batch_size": None}
    central = {"central_step_size": rate, "central_steps": settings.steps,
               "central_batch_size": settings.central_batch}
    fedavg, mixed = ct.fedavg(**work), ct.parallel_training(**work, **central)
    ffgg = ct.local_ffgg(**work, private_step_size=rate, tuner=descent(rate, settings.tune_steps))
    fedres = ct.fedres_avg(**work, option="I")

    def whole(steps: int) -> Recipe:
        return ct.fedavg_finetune(tune_epochs=steps, tune_step_size=rate, batch_size=None)

    def part(steps: int) -> Recipe:
        return ct.ffgg(tuner=descent(rate, steps))

    return {
        "tuning alone": Method("output", None, part),
        "FedAvg": Method("common", fedavg),
        "FedAvg + centre": Method("common", mixed),
        "FedAvg, tuned": Method("common", fedavg, whole),
        "FedAvg + centre, tuned": Method("common", mixed, whole),
        "centre alone": Method("common", ct.only_central(**central)),
        "centre alone, tuned": Method("output", ct.only_central(**central), part),
        "FFGG": Method("output", ffgg, part),
        "FFGG + centre": Method("output", ct.parallel_centre(clients=ffgg, **central), part),
        "FedRes": Method("residual", fedres),
        "FedRes + centre": Method("residual", ct.parallel_centre(clients=fedres, **central)),
    }


def descent(rate: float, steps: int) -> dict[str, Any]:
    return {"name": "gd", "steps": steps, "step_size": rate}


def problem_of(data: ct.Federation, kind: str, settings: Settings) -> Problem:
    model = ct.mlp(hidden=settings.hidden)
    if kind == "residual":  # a network for all, and a linear model of each client's own on top
        problem = ct.residual(data, shared_model=model, private_model=ct.linear())
    else:
        problem = ct.classification(data, model, split="none" if kind == "common" else kind)
    return ct.with_central_loss(problem, "same", [1.0, 1.0])  # a step size means the same with a centre and without


# The runs


class Bench:
    """One setting: cells by name, each computed once and kept in a file. The runs of a cell are one program."""

    def __init__(self, name: str, data: ct.Federation, settings: Settings, out: Path, watch: kit.Watch):
        self.name, self.data, self.settings, self.watch = name, data, settings, watch
        self.cells = kit.Cells(out / "cells" / name, settings, watch)
        self.problems: dict[str, Problem] = {}

    def row(self, method: str) -> list[dict[str, Any]]:
        """The seeds of a method at the step size that is best on validation rows."""
        runs = self.cells(method, lambda: self.play(method))
        rows = {(run["rate"], run["final"]): [] for run in runs}
        for run in runs:
            rows[run["rate"], run["final"]].append(run)
        best = max(rows.values(), key=lambda row: np.mean([run["validation"] for run in row]))
        self.watch(f"{self.name}: {method}, " + "; ".join(
            f"{rate:g} {final or ''}: {np.mean([run['test'] for run in row]):.3f}"
            for (rate, final), row in rows.items()))
        return best

    def play(self, name: str) -> list[dict[str, Any]]:
        """All step sizes and seeds, after the rounds and, where a method says so, after tuning."""
        runs = [(rate, seed) for rate in self.settings.rates for seed in range(self.settings.seeds)]
        chosen = [methods(rate, self.settings)[name] for rate, _ in runs]
        kind, train, final = chosen[0]
        if kind not in self.problems:
            self.problems[kind] = problem_of(self.data, kind, self.settings)
        session = state = starts = None
        if train is not None:
            session = self.session(kind, [one.train for one in chosen], runs)
            state = session.advance(session.begin(), self.settings.rounds)
            starts = [Start(one.state.server.shared, one.start_private) for one in session.whole(state)]
        found = []
        for steps in self.settings.final_steps if final is not None else (None,):
            if steps is not None:
                session = self.session(kind, [one.final(steps) for one in chosen if one.final], runs)
                state = session.begin(starts)
            assert session is not None
            found += [{"rate": rate, "seed": seed, "final": steps, **numbers_of(scores, self.data, "personal")}
                      for (rate, seed), scores in zip(runs, session.evaluate(state), strict=True)]
        return found

    def session(self, kind: str, recipes: Sequence[Recipe | None], runs: Sequence[tuple[float, int]]) -> Any:
        engine = ct.Local().together()
        assert engine is not None
        return engine.start([
            resolve(self.problems[kind], self.data, recipe, rounds=self.settings.rounds, seed=seed, engine=engine,
                    cohort=self.settings.cohort).parts
            for recipe, (_, seed) in zip(recipes, runs, strict=True) if recipe is not None], print)


# What is written


def table(found: dict[str, dict[str, list[dict[str, Any]]]]) -> str:
    def cell(row: list[dict[str, Any]]) -> str:
        values = 100 * np.array([one["test"] for one in row])
        chosen = f"{row[0]['rate']:g}" + (f", {row[0]['final']}" if row[0]["final"] else "")
        return f"{values.mean():.1f} ± {kit.standard_error(values):.1f} ({chosen})"

    return kit.table(["", *found], [[name, *(cell(rows[name]) if name in rows else "" for rows in found.values())]
                                    for name in names_of(found)], numbers=True)


def draw(found: dict[str, dict[str, list[dict[str, Any]]]], path: Path) -> None:
    """Each method's accuracy in each setting; dots are seeds."""
    names = names_of(found)
    figure, panels = pyplot.subplots(1, len(found), figsize=(2 * len(found) + 2, 3.4), sharey=True,
                                     layout="constrained", squeeze=False)
    for axes, (name, rows) in zip(panels[0], found.items(), strict=True):
        for method, row in rows.items():
            values, place = [100 * one["test"] for one in row], names.index(method)
            colour = kit.ORANGE if "centre" in method else kit.BLUE
            axes.barh(place, np.mean(values), color=colour, alpha=0.5)
            axes.plot(values, [place] * len(values), ".", color=colour)
        axes.set(title=name, xlabel="test accuracy, %", xlim=(0, 100))
    panels[0][0].set(yticks=range(len(names)), yticklabels=names, ylim=(len(names) - 0.4, -0.6))
    kit.save_figure(figure, path, shades=32)


def names_of(found: dict[str, dict[str, list[dict[str, Any]]]]) -> list[str]:
    """The methods that any setting has."""
    return list(dict.fromkeys(name for rows in found.values() for name in rows))


def main(arguments: Sequence[str] | None = None) -> None:
    given = kit.read_arguments(
        __doc__, "results/ffgg_with_centre", arguments, data=kit.FILES,
        settings={"nargs": "+", "choices": list(SETTINGS), "help": "which; all if left out"})
    there = (given.data / "mnist.npz").exists()
    settings, watch = QUICK if given.quick or not there else Settings(), kit.Watch()
    folder = given.data if there and not given.quick else Path("nowhere")
    found: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for name in given.settings or (["own"] if given.quick else SETTINGS):
        bench = Bench(name, federation(folder, name, settings), settings, given.out, watch)
        watch(bench.data.describe().splitlines()[0])
        found[name] = {method: bench.row(method) for method in settings.compared
                       if name in WHOLE or method in PERSONAL}
    kit.save_numbers(given.out / "with_centre.json", {"settings": settings, "found": found})
    (given.out / "with_centre.md").write_text(table(found) + "\n")
    draw(found, given.out / "with_centre.png")
    print(table(found))


if __name__ == "__main__":
    main()
