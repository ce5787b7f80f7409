"""Who smiles? Clients keep smiling faces only, and a datacenter has the others: "Mixed Federated Learning", 5.1.

    python studies/mixed/smile.py [--quick] [--sets celeba smiles] [--parts curves ...] [--data DIR] [--out DIR]

Augenstein et al., 2022, section 5.1 and appendix C. celeba: CelebA by person, of which a tenth are kept for evaluation;
the others are put together until a client has ten smiling faces, which it keeps. smiles: SMILEs, which has no people:
ten smiling faces make a client. Without the files: digits, of which clients keep the lower five.

curves: Figures 1a and 2a. dissimilarity: Figure 4 and the first column of Table 2. batches: Figures 7 and 8, larger and
smaller central batches. trade: Figure 9, smaller steps and more of them. limits: C.4.3, the largest step that
converges. A cell is one method with one choice of options; its seeds are one program. Its numbers go to DIR/cells at
once, and a cell that is there, with the same settings, is not run again.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib import pyplot

import cantons as ct
from cantons.data import from_sizes

sys.path.insert(0, str(Path(__file__).parents[1]))
import kit

FILES = {"celeba": "celeba_faces32.npz", "smiles": "smiles32.npz"}
TITLES = {"celeba": "CelebA", "smiles": "SMILEs", "digits": "digits"}
PARTS = ("curves", "dissimilarity", "batches", "trade", "limits")


class Settings(NamedTuple):
    """Tables 6 and 7; the paper does not say how many rounds, how faces are scaled, or how the model starts."""

    rounds: int = 3000
    every: int = 50
    cohort: int = 100
    faces: int = 10  # smiling ones of a client
    steps: int = 2  # K and J
    batch_size: int = 5
    step_size: float = 0.01
    central_batch: int = 500  # of parallel training and 2-way transfer; 1-way transfer takes K times as many
    hidden: int = 64
    seeds: int = 5
    probe_rounds: int = 100  # Figure 4
    batch_sizes: tuple[int, ...] = (5, 25, 100, 500)  # Figures 7 and 8
    batch_seeds: int = 10
    trades: tuple[tuple[float, int], ...] = ((0.02, 1), (0.01, 2), (0.005, 4), (0.0025, 8))  # Figure 9
    limit_steps: tuple[float, ...] = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0)
    limit_rounds: int = 500
    compared: tuple[str, ...] = ("only FL", "only central", "parallel", "1-way", "2-way", "2-way, merge 1/2",
                                 "examples", "sequential", "pooled")


QUICK = Settings(rounds=4, every=2, cohort=3, central_batch=20, hidden=4, seeds=2, probe_rounds=3, batch_sizes=(5,),
                 batch_seeds=2, trades=((0.01, 2),), limit_steps=(0.02,), limit_rounds=2,
                 compared=("only FL", "parallel", "1-way", "pooled"))


# The data


def mixed(name: str, folder: Path, settings: Settings) -> ct.Federation:
    """Clients with faces of class 1, a datacenter with faces of class 0, and an evaluation set with both."""
    if name == "digits":
        return digits(settings)
    with np.load(folder / FILES[name], allow_pickle=False) as file:
        images, labels = file["x"], file["smiling" if name == "celeba" else "y"].astype(np.int32)
        owners = file["identity"] if name == "celeba" else np.arange(len(labels))
    inputs = (images.reshape(len(images), -1) / 255).astype(np.float32)
    people = np.random.default_rng(0).permutation(np.unique(owners))
    kept_apart = np.isin(owners, people[: len(people) // 10])
    clients = grouped(owners, labels, people[len(people) // 10 :], settings.faces)
    return federation(name, inputs, labels, clients, ~kept_apart & (labels == 0), kept_apart)


def grouped(owners: np.ndarray, labels: np.ndarray, people: np.ndarray, faces: int) -> np.ndarray:
    """Whose each row is, -1 for nobody's: people are put together until they have enough smiling faces."""
    smiling = np.bincount(owners, weights=labels == 1, minlength=owners.max() + 1).astype(int)[people]
    client, count, of_person = 0, 0, np.full(owners.max() + 1, -1)
    for person, more in zip(people, smiling, strict=True):
        of_person[person], count = client, count + more
        if count >= faces:
            client, count = client + 1, 0
    of_person[of_person == client] = -1  # the last ones, who are too few
    return np.where(labels == 1, of_person[owners], -1)


def digits(settings: Settings) -> ct.Federation:
    from sklearn.datasets import load_digits

    pixels, numbers = load_digits(return_X_y=True)
    labels, rows = (numbers >= 5).astype(np.int32), np.arange(len(numbers))
    clients = grouped(rows, labels, rows[180:], settings.faces)
    return federation("digits", (pixels / 16).astype(np.float32), labels, clients, (rows >= 180) & (labels == 0),
                      rows < 180)


def federation(name: str, inputs: np.ndarray, labels: np.ndarray, clients: np.ndarray, central: np.ndarray,
               evaluation: np.ndarray) -> ct.Federation:
    """Rows by client (-1: no client's), those of the datacenter, and those that everything is judged by."""
    own = clients >= 0
    data = ct.federation(inputs[own], labels[own], clients[own], classes=2, test=0, name=name)

    def rows(chosen: np.ndarray) -> Any:
        return from_sizes(inputs[chosen], labels[chosen], np.array([chosen.sum()]))

    return replace(data, central=rows(central), sets={"inference": rows(evaluation)},
                   test_set="faces of people who take no part")


# The methods


def methods(settings: Settings, step_size: float | None = None, steps: int | None = None,
            central_batch: int | None = None) -> dict[str, ct.protocol.Recipe]:
    """Tables 6 and 7, with some of it changed."""
    eta, count = step_size or settings.step_size, steps or settings.steps
    work: dict[str, Any] = {"step_size": eta, "steps": count, "batch_size": settings.batch_size}
    centre: dict[str, Any] = {"central_step_size": eta, "central_steps": count,
                              "central_batch_size": central_batch or settings.central_batch}
    larger = central_batch or count * settings.central_batch
    return {
        "only FL": ct.fedavg(**work),
        "only central": ct.only_central(**centre),
        "parallel": ct.parallel_training(**work, **centre),
        "1-way": ct.one_way_transfer(**work, central_batch_size=larger),
        "2-way": ct.two_way_transfer(**work, **centre),
        "2-way, merge 1/2": ct.two_way_transfer(**work, **centre, merge_step_size=0.5),
        "examples": ct.example_transfer(**work, central_batch_size=settings.batch_size, central_batches=count),
        "sequential": ct.sequential(**work, **centre, central_rounds=settings.rounds // 2),
        "pooled": ct.central(**{**work, "batch_size": settings.central_batch}),
    }


STYLES = {"only FL": kit.GREY, "only central": kit.PINK, "parallel": kit.ORANGE, "1-way": kit.BLUE, "2-way": kit.GREEN,
          "2-way, merge 1/2": kit.RED, "examples": "#56b4e9", "sequential": kit.DARK, "pooled": kit.BLACK}
JOINT = ("parallel", "1-way", "2-way", "2-way, merge 1/2")

CONVERGED = 0.9  # an AUC; no step that diverges comes near it

Cell = Mapping[str, list[list[float]]]


class Bench:
    """One data set, whose cells are run once and kept."""

    def __init__(self, name: str, data: ct.Federation, settings: Settings, out: Path, watch: kit.Watch):
        self.name, self.data, self.settings, self.out, self.watch = name, data, settings, out, watch
        self.problem = ct.with_central_loss(ct.classification(data, ct.mlp(hidden=[settings.hidden])))
        self.cohort = min(settings.cohort, data.population)
        self.cells = kit.Cells(out / "cells", settings, watch)

    def cell(self, part: str, words: str, recipe: ct.protocol.Recipe, rounds: int, every: int, seeds: int) -> Cell:
        """The curves of one method, [seeds][evaluations] for each number."""

        def compute() -> Cell:
            histories = ct.rollouts(self.problem, self.data, recipe, rounds=rounds, clock=ct.rounds(cohort=self.cohort),
                                    seed=list(range(seeds)), evaluate_every=every)
            names = [key for key in histories[0][-1] if key.startswith(("inference.", "server.dissimilarity"))]
            last = [history[-1]["inference.shared.auc"] for history in histories]
            self.watch(f"{self.name} {part}, {words}: AUC {np.mean(last):.4f}")
            return {name: [[row[name] for row in history] for history in histories] for name in ("round", *names)}

        return self.cells(f"{self.name}-{part}-{words.replace('/', 'over').replace(' ', '_')}", compute)


def curve(cell: Cell, name: str) -> np.ndarray:
    """[seeds, evaluations]; what is not a number is NaN."""
    return np.array([[np.nan if value is None else value for value in one] for one in cell[name]], float)


def mean_and_error(values: np.ndarray) -> str:
    return f"{values.mean():.4f} ± {kit.standard_error(values):.4f}"


# The parts: each draws a figure and gives a table


def curves(bench: Bench) -> str:
    settings = bench.settings
    cells = {name: bench.cell("curves", name, recipe, settings.rounds, settings.every, settings.seeds)
             for name, recipe in methods(settings).items() if name in settings.compared}
    figure, plots = pyplot.subplots(1, 2, figsize=(11, 4), layout="constrained")
    for axes, metric, label in zip(plots, ("auc", "loss"), ("AUC", "loss"), strict=True):
        for name, cell in cells.items():
            _band(axes, cell, metric, name, STYLES[name])
        axes.set(xlabel="round", ylabel=f"{label} on all faces")
    plots[0].set_ylim(0.4, 1.0)
    plots[1].set_ylim(0.1, 1.2)
    plots[0].legend(fontsize=8)
    figure.suptitle(f"{TITLES[bench.name]}: Figures 1a and 2a, {settings.seeds} seeds, 95% bands")
    kit.save_figure(figure, bench.out / f"{bench.name}-curves.png")
    rounds = np.array(next(iter(cells.values()))["round"][0])
    goal = 0.99 * max(np.nanmean(curve(cells["pooled"], "inference.shared.auc"), axis=0)[-1], 0)

    def first(cell: Cell) -> str:
        reached = np.nanmean(curve(cell, "inference.shared.auc"), axis=0) >= goal
        return str(int(rounds[reached.argmax()])) if reached.any() else "never"

    rows = [[name, mean_and_error(curve(cell, "inference.shared.auc")[:, -1]),
             mean_and_error(curve(cell, "inference.shared.loss")[:, -1]),
             mean_and_error(curve(cell, "inference.shared.accuracy")[:, -1]), first(cell)]
            for name, cell in cells.items()]
    return kit.table(["method", "AUC", "loss", "accuracy", f"rounds to an AUC of {goal:.3f}"], rows, numbers=True)


def dissimilarity(bench: Bench) -> str:
    """C.1: one step a round, five runs, the maximum over runs in each round."""
    settings, found = bench.settings, {}
    one = methods(settings, steps=1)
    figure, plots = pyplot.subplots(1, 2, figsize=(11, 3.5), layout="constrained")
    for name in ("parallel", "1-way"):
        cell = bench.cell("dissimilarity", name, one[name], settings.probe_rounds, 1, settings.seeds)
        for axes, which in zip(plots, ("G2", "B2"), strict=True):
            values = curve(cell, f"server.dissimilarity_{which}").max(axis=0)
            axes.plot(cell["round"][0], values, color=STYLES[name], label=name)
            axes.set(xlabel="round", ylabel={"G2": "G~²", "B2": "B~²"}[which])
            found[name, which] = values[9:].max() if len(values) > 9 else values.max()
    plots[0].legend()
    figure.suptitle(f"{TITLES[bench.name]}: Figure 4, the largest of {settings.seeds} runs in each round")
    kit.save_figure(figure, bench.out / f"{bench.name}-dissimilarity.png")
    rows = [[name, *(f"{found[name, which]:.4g}" for which in ("G2", "B2"))] for name in ("parallel", "1-way")]
    return kit.table(["path of", "max G~², rounds 10 to 100", "max B~²"], rows, numbers=True)


def batches(bench: Bench) -> str:
    settings, rows = bench.settings, []
    figure, plots = pyplot.subplots(1, 2, figsize=(11, 4), layout="constrained", sharey=True)
    for axes, name in zip(plots, ("1-way", "2-way, merge 1/2"), strict=True):
        for size, colour in zip(settings.batch_sizes, kit.COLOURS, strict=False):
            recipe = methods(settings, central_batch=min(size, bench.data.central.longest))[name]
            cell = bench.cell("batches", f"{name} {size}", recipe, settings.rounds // 2, settings.every,
                              settings.batch_seeds)
            _band(axes, cell, "loss", f"|Bc| = {size}", colour)
            last = curve(cell, "inference.shared.loss")
            rows.append([name, str(size), mean_and_error(curve(cell, "inference.shared.auc")[:, -1]),
                         mean_and_error(last[:, -1]), f"{np.std(last[:, len(last[0]) // 2:], axis=1).mean():.4f}"])
        axes.set(xlabel="round", ylabel="loss on all faces", title=name)
        axes.legend(fontsize=8)
    figure.suptitle(f"{TITLES[bench.name]}: Figures 7 and 8, {settings.batch_seeds} seeds")
    kit.save_figure(figure, bench.out / f"{bench.name}-batches.png")
    return kit.table(["method", "central batch", "AUC", "loss", "spread of the loss, second half"], rows, numbers=True)


def trade(bench: Bench) -> str:
    settings, rows = bench.settings, []
    figure, plots = pyplot.subplots(1, 3, figsize=(14, 4), layout="constrained", sharey=True)
    for axes, name in zip(plots, ("parallel", "1-way", "2-way, merge 1/2"), strict=True):
        for (size, steps), colour in zip(settings.trades, kit.COLOURS, strict=False):
            cell = bench.cell("trade", f"{name} {steps}", methods(settings, step_size=size, steps=steps)[name],
                              settings.rounds // 2, settings.every, settings.seeds)
            _band(axes, cell, "loss", f"eta = {size}, K = {steps}", colour)
            rows.append([name, str(size), str(steps), mean_and_error(curve(cell, "inference.shared.auc")[:, -1]),
                         mean_and_error(curve(cell, "inference.shared.loss")[:, -1])])
        axes.set(xlabel="round", ylabel="loss on all faces", title=name)
        axes.legend(fontsize=8)
    figure.suptitle(f"{TITLES[bench.name]}: Figure 9, {settings.seeds} seeds")
    kit.save_figure(figure, bench.out / f"{bench.name}-trade.png")
    return kit.table(["method", "eta", "K", "AUC", "loss"], rows, numbers=True)


def limits(bench: Bench) -> str:
    """The largest step with which most pairs of faces are told apart in the end."""
    settings, largest = bench.settings, {}
    figure, axes = pyplot.subplots(figsize=(6, 4), layout="constrained")
    for name in JOINT:
        ends, told_apart = [], []
        for size in settings.limit_steps:
            cell = bench.cell("limits", f"{name} {size}", methods(settings, step_size=size)[name],
                              settings.limit_rounds, settings.limit_rounds, settings.seeds)
            ends.append(float(curve(cell, "inference.shared.loss")[:, -1].mean()))
            told_apart.append(float(curve(cell, "inference.shared.auc")[:, -1].mean()))
        axes.loglog(settings.limit_steps, ends, "o-", color=STYLES[name], label=name)
        good = [size for size, auc in zip(settings.limit_steps, told_apart, strict=True) if auc > CONVERGED]
        best = settings.limit_steps[int(np.nanargmin(ends))] if not np.isnan(ends).all() else float("nan")
        largest[name] = (max(good, default=float("nan")), best, np.nanmin(ends) if not np.isnan(ends).all() else np.nan)
    axes.set(xlabel="eta", ylabel=f"loss after {settings.limit_rounds} rounds")
    axes.legend()
    figure.suptitle(f"{TITLES[bench.name]}: C.4.3")
    kit.save_figure(figure, bench.out / f"{bench.name}-limits.png")
    rows = [[name, f"{most:g}", f"{best:g}", f"{end:.4f}"] for name, (most, best, end) in largest.items()]
    return kit.table(["method", f"largest eta with an AUC above {CONVERGED}", "best eta", "its loss"], rows,
                     numbers=True)


def _band(axes: Any, cell: Cell, metric: str, label: str, colour: str) -> None:
    """The mean over seeds, and a band of 1.96 standard errors."""
    values = curve(cell, f"inference.shared.{metric}")
    middle = values.mean(axis=0)
    error = 1.96 * values.std(axis=0, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else 0 * middle
    axes.plot(cell["round"][0], middle, color=colour, label=label)
    axes.fill_between(cell["round"][0], middle - error, middle + error, color=colour, alpha=0.2, linewidth=0)


def main(arguments: Sequence[str] | None = None) -> None:
    given = kit.read_arguments(__doc__, "results/mixed/smile", arguments, data=kit.FILES,
                               sets={"nargs": "*", "choices": [*FILES, "digits"]},
                               parts={"nargs": "*", "choices": PARTS, "default": list(PARTS)})
    settings, watch = QUICK if given.quick else Settings(), kit.Watch()
    names = given.sets or [name for name in FILES if (given.data / FILES[name]).exists()] or ["digits"]
    known: dict[str, Callable[[Bench], str]] = {"curves": curves, "dissimilarity": dissimilarity, "batches": batches,
                                                "trade": trade, "limits": limits}
    page = []
    for name in names:
        data = mixed(name, given.data, settings)
        watch(data.describe().replace("\n", "; "))
        bench = Bench(name, data, settings, given.out, watch)
        for part in given.parts:
            page += [f"## {TITLES[name]}: {part}", "", known[part](bench), ""]
            (given.out / "smile.md").write_text("\n".join(page))
    watch(f"done: {given.out / 'smile.md'}")


if __name__ == "__main__":
    main()
