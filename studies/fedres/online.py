"""Federated Residual Learning (v1), section 6 and appendix E: accuracy against the number of clients and the delay.

    python studies/fedres/online.py                 # all figures, 50 rollouts each
    python studies/fedres/online.py --figures 1     # the first alone
    python studies/fedres/online.py --quick         # a smoke test

Every rollout draws a federation of its own by the task protocol: hold-out first (30% of the rows), the classes A drawn
again until every client gets N >= 10, global features at random. The three methods are those of section 6.2 with
`vw --adaptive`'s update: AdaGrad at VW's learning rate for it, outputs clipped to [-1, 1], a bias in every model. A
delay is split evenly between the two links. What the paper leaves open is said here: columns scaled to [-1, 1], labels
-1 and 1, at most 100 test rows of each of a client's classes. A cell that is done is not run again.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib import pyplot
from tables import inputs_and_labels, there

import cantons as ct
from cantons.data import pad_to_same_shape

sys.path.insert(0, str(Path(__file__).parents[1]))
import kit

STEP_SIZE, LEAST = 10.0, 10
CLIENTS = (5, 10, 20, 30, 40, 50)
DELAYS = (0, 5, 10, 20, 40, 80, 120, 160, 200)
METHODS = {  # name -> (shared features, private features)
    "independent": ("none", "all"), "central": ("first_half", "none"), "fedres": ("first_half", "second_half")}
FIGURES = {"1": "P = 50", "2": "P = 10", "clients": "Figures 3, 4, 8", "delay": "Figures 5, 9, 10",
           "late": "Figures 11, 12"}


class Settings(NamedTuple):
    rollouts: int = 50
    steps: int = 500
    clients: int = 50  # at most
    delay: int = 200  # at most


QUICK = Settings(rollouts=3, steps=60, clients=5, delay=5)


class Cell(NamedTuple):
    set: str
    method: str
    clients: int
    delay: int = 0
    alignment: str = "full"
    step_size: float = STEP_SIZE

    @property
    def name(self) -> str:
        return "/".join(map(str, self))


def cells(figures: list[str], sets: list[str]) -> list[Cell]:
    """What the figures are made of; independent clients know no delay."""
    wanted: list[Cell] = []
    for name in sets:
        for figure, clients in (("1", [50]), ("2", [10]), ("clients", CLIENTS)):
            if figure in figures:
                wanted += [Cell(name, method, number) for number in clients for method in METHODS]
        if "delay" in figures:
            wanted += [Cell(name, method, 50, delay, rule) for delay in DELAYS for method, rules in
                       (("central", ("full",)), ("fedres", ("full", "paired", "none"))) for rule in rules]
            wanted.append(Cell(name, "independent", 50))
        if "late" in figures:
            wanted += [Cell(name, method, number, delay) for delay in (20, 80) for number in CLIENTS
                       for method in ("central", "fedres")]
            wanted += [Cell(name, "independent", number) for number in CLIENTS]
    return list(dict.fromkeys(wanted))


def played(cell: Cell, federations: list[ct.Federation], steps: int) -> dict[str, Any]:
    """Test accuracy of every rollout, and the loss met on the way."""
    shared, private = METHODS[cell.method]
    problem = ct.residual(federations[0], shared_features=shared, private_features=private, labels="sign", clip=1.0)
    recipe = ct.fedres_online_sgd(step_size=cell.step_size, method="adagrad", alignment=cell.alignment)
    # Room for the longest delay, so that all delays are one program.
    clock = ct.online(uplink=cell.delay - cell.delay // 2, downlink=cell.delay // 2,
                      max_delay=max(DELAYS) // 2 if cell.delay else None)
    watch = kit.Watch()
    rows = [history[-1] for history in ct.rollouts(problem, federations, recipe, rounds=steps, clock=clock)]
    return {"accuracy": [row["test.personal.accuracy.mean"] for row in rows],
            "online_loss": [row["online.personal.loss.mean"] for row in rows],
            "seconds": watch.seconds}


def main(arguments: list[str] | None = None) -> None:
    options = kit.read_arguments(
        __doc__, "results/fedres_online", arguments, data=kit.FILES, sets={"nargs": "+"},
        figures={"nargs": "+", "default": list(FIGURES), "choices": list(FIGURES)},
        step_size={"type": float, "default": STEP_SIZE})
    settings, sets = QUICK if options.quick else Settings(), options.sets or there(options.data)
    wanted = list(dict.fromkeys(
        cell._replace(step_size=options.step_size, clients=min(cell.clients, settings.clients))
        for cell in cells(options.figures, sets) if cell.delay <= settings.delay))
    file = options.out / "cells.json"
    done: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    watch = kit.Watch()
    for name in sets:
        inputs, labels = None, None
        for clients in sorted({cell.clients for cell in wanted if cell.set == name}):
            todo = [cell for cell in wanted if (cell.set, cell.clients) == (name, clients) and cell.name not in done]
            if not todo:
                continue
            if inputs is None:
                inputs, labels = inputs_and_labels(options.data, name)
            try:
                federations = pad_to_same_shape([ct.task_protocol(
                    inputs, labels, clients, labels_as="sign", most=30, least=LEAST, test_most=100, halves=True,
                    seed=seed) for seed in range(settings.rollouts)])
            except ct.InputError as error:
                print(f"{name} with {clients} clients: {error}", flush=True)
                done |= {cell.name: {"refused": str(error)} for cell in todo}
                continue
            draws = [int(one.notes[0].rpartition("draw ")[2].rstrip(")")) for one in federations]
            rows = [int(one.train.sizes[0]) // 2 for one in federations]
            for cell in todo:
                done[cell.name] = played(cell, federations, settings.steps) | {"draws": draws, "rows": rows}
                accuracy = np.array(done[cell.name]["accuracy"])
                print(f"{cell.name:48} {accuracy.mean():.4f} +- {kit.standard_error(accuracy):.4f} "
                      f"  {done[cell.name]['seconds']:.1f} s", flush=True)
                file.write_text(json.dumps(done))
    watch("everything, drawing and compiling included")
    draw(options.out, done, wanted, options.figures, sets)


def draw(out: Path, done: dict[str, Any], wanted: list[Cell], figures: list[str], sets: list[str]) -> None:
    """A picture and a table for each figure."""
    found = [cell for cell in wanted if "accuracy" in done.get(cell.name, {})]
    text = []
    for figure in figures:
        text += ["", f"## {FIGURES[figure] if figure.isalpha() else 'Figure ' + figure}", ""]
        if figure in ("1", "2"):
            text += _bars(out, figure, [cell for cell in found if not cell.delay and cell.clients == min(
                50 if figure == "1" else 10, max(one.clients for one in found))], done, sets)
        elif figure == "clients":
            chosen = [cell for cell in found if not cell.delay and cell.alignment == "full"]
            text += _curves(out, figure, chosen, done, sets, "clients")
        elif figure == "delay":
            most = max(cell.clients for cell in found)
            text += _curves(out, figure, [cell for cell in found if cell.clients == most], done, sets, "delay")
        else:
            for delay in sorted({cell.delay for cell in found} & {20, 80}):
                chosen = [cell for cell in found if cell.alignment == "full" and (
                    cell.delay == delay or (cell.method == "independent" and not cell.delay))]
                text += [f"Delay {delay}", "", *_curves(out, f"{figure}{delay}", chosen, done, sets, "clients"), ""]
    (out / "tables.md").write_text("\n".join(text).strip() + "\n")
    print(f"tables and pictures are in {out}")


def _mean(done: dict[str, Any], cell: Cell) -> tuple[float, float]:
    accuracy = np.array(done[cell.name]["accuracy"])
    return float(accuracy.mean()), kit.standard_error(accuracy)


def _bars(out: Path, figure: str, chosen: list[Cell], done: dict[str, Any], sets: list[str]) -> list[str]:
    picture, axes = pyplot.subplots(figsize=(9, 3.2))
    lines = ["| set | " + " | ".join(METHODS) + " | N (least) | draws of A (most) |", "| --- |" + " ---: |" * 5]
    for place, name in enumerate(sets):
        numbers = []
        for shift, method in enumerate(METHODS):
            cell = next((cell for cell in chosen if (cell.set, cell.method) == (name, method)), None)
            if cell is None:
                numbers.append("-")
                continue
            mean, error = _mean(done, cell)
            axes.bar(place + (shift - 1) * 0.27, mean, 0.25, yerr=2 * error, color=f"C{shift}",
                     label=method if place == 0 else None)
            numbers.append(f"{mean:.3f} ± {error:.3f}")
            about = done[cell.name]
        lines.append(f"| {name} | {' | '.join(numbers)} | {min(about['rows'])} | {max(about['draws'])} |")
    axes.set(xticks=range(len(sets)), xticklabels=sets, ylabel="test accuracy", ylim=(0.4, 1))
    axes.legend(ncol=3, frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1))
    kit.save_figure(picture, out / f"figure{figure}.png", dpi=80, bbox_inches="tight")
    return lines


def _curves(out: Path, figure: str, chosen: list[Cell], done: dict[str, Any], sets: list[str], along: str) -> list[str]:
    across, down = min(4, len(sets)), -(-len(sets) // 4)
    picture, grid = pyplot.subplots(down, across, figsize=(2.9 * across, 2.5 * down), squeeze=False)
    values = sorted({getattr(cell, along) for cell in chosen})
    lines = [f"| set | method | {' | '.join(map(str, values))} |", "| --- | --- |" + " ---: |" * len(values)]
    for place, name in enumerate(sets):
        axes = grid.flat[place]
        curves: dict[tuple[str, str], dict[int, tuple[float, float]]] = {}
        for cell in chosen:
            if cell.set == name:
                curves.setdefault((cell.method, cell.alignment), {})[getattr(cell, along)] = _mean(done, cell)
        for (method, rule), points in curves.items():
            several = sum(other == method for other, _ in curves) > 1
            label = f"{method} ({rule})" if several else method
            if along == "delay" and method == "independent":
                points = dict.fromkeys(values, points[0])  # no link, no delay
            color = f"C{list(METHODS).index(method)}"
            style = {"full": "-", "paired": "--", "none": ":"}[rule]
            where = sorted(points)
            mean, error = np.array([points[one] for one in where]).T
            axes.plot(where, mean, style, color=color, label=label, marker=".")
            axes.fill_between(where, mean - 2 * error, mean + 2 * error, color=color, alpha=0.15, linewidth=0)
            lines.append(f"| {name} | {label} | " + " | ".join(
                f"{points[one][0]:.3f}" if one in points else "-" for one in values) + " |")
        axes.set(title=name, xlabel=along)
    for axes in list(grid.flat)[len(sets):]:
        axes.set_visible(False)
    picture.legend(*grid.flat[0].get_legend_handles_labels(), loc="lower center", ncol=5, frameon=False)
    picture.tight_layout(rect=(0, 0.06, 1, 1))
    kit.save_figure(picture, out / f"figure_{figure}.png", dpi=80, bbox_inches="tight")
    return lines


if __name__ == "__main__":
    main()
