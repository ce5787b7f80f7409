"""What "Federated Residual Learning" (v2: Wei, Agarwal and Langford) leaves to future versions: its rounds on real data.

    python studies/fedres/real.py [--quick] [--sets mnist celeba shakespeare] [--data DIR] [--out DIR]

mnist: digits by writer. celeba: who smiles, by person. shakespeare: the next character, by role. Without the files,
scikit-learn's digits in 20 uneven shares. The shared model of all methods is the same network; FedRes adds a private
model, linear in the pixels or a table of which character follows the last one.

A cell is one method on one set: all rates and seeds in one program. Its numbers go to DIR/cells/SET-METHOD.json at
once, and a cell that is there is not run again. The figure (real.png) and the table (real.md) are of all cells.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
import numpy as np
from tables import FOLDER

import cantons as ct
from cantons.data import pooled
from cantons.engine.many import Many
from cantons.metrics import nbytes, statistics

matplotlib.use("Agg")
from matplotlib import pyplot

FILES = {"mnist": "mnist.npz", "celeba": "celeba_faces32.npz", "shakespeare": "shakespeare_roles.npz"}
TITLES = {"mnist": "MNIST, by writer", "celeba": "CelebA smiles, by person", "shakespeare": "Shakespeare, by role",
          "digits": "digits"}


class Settings(NamedTuple):
    """The paper has no such experiment, so everything here is ours."""

    rounds: int = 100
    evaluations: int = 10
    steps: int = 5  # K
    batch_size: int = 20
    rates: tuple[float, ...] = (0.03, 0.1, 0.3)  # eta
    private_rates: tuple[float, ...] = (0.003, 0.03, 0.3)  # lambda, and the rate of fine-tuning
    pulls: tuple[float, ...] = (0.01, 0.1, 1.0)  # mu of FedProx
    seeds: int = 3  # of starting points, cohorts and batches; the data stays
    clients: Mapping[str, int] = {"mnist": 100, "celeba": 1000, "shakespeare": 100, "digits": 20}
    cohorts: Mapping[str, int] = {"mnist": 20, "celeba": 50, "shakespeare": 20, "digits": 10}
    hidden: int = 32
    context: int = 8  # characters a prediction is made from
    characters: int = 3000  # of a role, at most


QUICK = Settings(rounds=2, evaluations=1, steps=2, rates=(0.1,), private_rates=(0.03,), pulls=(0.1,), seeds=1,
                 clients={"mnist": 5, "celeba": 10, "shakespeare": 5, "digits": 5},
                 cohorts={"mnist": 2, "celeba": 5, "shakespeare": 2, "digits": 2}, characters=2000)


# The data


class Task(NamedTuple):
    data: ct.Federation  # with validation rows
    plain: ct.Problem  # the shared model alone
    joint: ct.Problem  # with a private model beside it
    cohort: int
    alone: float  # the accuracy of always saying a client's own most frequent class


def task(name: str, folder: Path, settings: Settings) -> Task:
    data = {"mnist": writers, "celeba": people, "shakespeare": roles, "digits": shares}[name](
        folder, settings.clients[name], settings)
    data = ct.with_validation(data, 0.2)
    assert data.classes is not None
    options: dict[str, Any] = {}
    if name == "shakespeare":
        shared = ct.embedding(data.classes, width=8, hidden=(settings.hidden,))
        table = ct.embedding(data.classes, width=None, hidden=())
        options = {"private_model": table, "private_features": [settings.context - 1]}
    else:
        shared = ct.mlp(hidden=(settings.hidden,))
    return Task(data, ct.classification(data, shared), ct.residual(data, shared_model=shared, **options),
                settings.cohorts[name], most_frequent(data))


def writers(folder: Path, clients: int, settings: Settings) -> ct.Federation:
    with np.load(folder / FILES["mnist"], allow_pickle=False) as file:
        inputs, labels, owners = file["x"][:60_000], file["y"][:60_000], file["writer"][:60_000]
    names, sizes = np.unique(owners, return_counts=True)
    rows = np.isin(owners, drawn(names[sizes >= 100], clients))
    return ct.federation(pixels(inputs[rows]), labels[rows], owners[rows], classes=10, test=0.25, name="mnist")


def people(folder: Path, clients: int, settings: Settings) -> ct.Federation:
    with np.load(folder / FILES["celeba"], allow_pickle=False) as file:
        owners, labels = file["identity"], file["smiling"]
        rows = np.isin(owners, drawn(np.unique(owners), clients))
        inputs = file["x"][rows]
    return ct.federation(pixels(inputs), labels[rows], owners[rows], classes=2, test=0.2, name="celeba")


def pixels(images: np.ndarray) -> np.ndarray:
    """Flat, in [-1, 1] / 2."""
    return (images.reshape(len(images), -1) / 255 - 0.5).astype(np.float32)


def roles(folder: Path, clients: int, settings: Settings) -> ct.Federation:
    """Inputs are the last characters, and the target the next one; the last fifth of a role's text is the test."""
    with np.load(folder / FILES["shakespeare"], allow_pickle=False) as file:
        text, starts = file["text"], file["client_start"]
    symbols, tokens = np.unique(text, return_inverse=True)
    long = drawn(np.flatnonzero(np.diff(starts) >= 2000), clients)
    inputs, targets, test = [], [], []
    for role in long:
        own = tokens[starts[role] : starts[role + 1]][: settings.characters].astype(np.int32)
        windows = np.lib.stride_tricks.sliding_window_view(own, settings.context + 1)
        inputs.append(windows[:, :-1])
        targets.append(windows[:, -1])
        test.append(np.arange(len(windows)) >= 0.8 * len(windows))
    return ct.federation(np.concatenate(inputs), np.concatenate(targets), np.repeat(long, [len(own) for own in test]),
                         classes=len(symbols), test=np.concatenate(test), name="shakespeare")


def shares(folder: Path, clients: int, settings: Settings) -> ct.Federation:
    """Scikit-learn's digits: a client has few classes, three of four examples from a pair of its own."""
    from sklearn.datasets import load_digits

    inputs, labels = load_digits(return_X_y=True)
    random = np.random.default_rng(0)
    own = labels // 2 % clients + 5 * random.integers(0, max(clients // 5, 1), len(labels))
    owners = np.where(random.random(len(labels)) < 0.75, own, random.integers(0, clients, len(labels)))
    return ct.federation((inputs / 16 - 0.5).astype(np.float32), labels, owners, classes=10, test=0.25, name="digits")


def drawn(names: np.ndarray, clients: int) -> np.ndarray:
    return np.sort(np.random.default_rng(0).choice(names, clients, replace=False))


def most_frequent(data: ct.Federation) -> float:
    hits = [np.mean(theirs == np.bincount(own).argmax()) for own, theirs in zip(
        np.split(data.train.targets, data.train.starts[1:]), np.split(data.test.targets, data.test.starts[1:]),
        strict=True)]
    return float(np.mean(hits))


# The methods


class Method(NamedTuple):
    build: Callable[..., Any]
    joint: bool = False  # does it have a private model beside the shared one?
    varied: Mapping[str, Iterable[float]] = {}  # what is chosen beside step_size
    options: Mapping[str, Any] = {}


def methods(settings: Settings) -> dict[str, Method]:
    own = {"private_step_size": settings.private_rates}
    return {
        "alone": Method(ct.independent),
        "central": Method(ct.central),
        "FedAvg": Method(ct.fedavg),
        "SCAFFOLD": Method(ct.scaffold),
        "FedAvg+tuning": Method(ct.fedavg_finetune, varied={"tune_step_size": settings.private_rates}),
        "FedProx local": Method(ct.fedprox, varied={"mu": settings.pulls}, options={"predict_with": "local"}),
        "FedResNaive": Method(ct.fedres_naive, joint=True, varied=own),
        "FedResSGD": Method(ct.fedres_sgd, joint=True, varied=own),
        "FedResAvg-I": Method(ct.fedres_avg, joint=True, varied=own, options={"option": "I"}),
        "FedResAvg-II": Method(ct.fedres_avg, joint=True, varied=own, options={"option": "II"}),
    }


def cell(method: Method, given: Task, settings: Settings) -> dict[str, Any]:
    """Try all rates with one seed, then run the ones with the best last validation accuracy with all seeds."""
    axes = {"step_size": settings.rates, **method.varied}
    grid = [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]
    tried = played(method, given, settings, grid, [0], [settings.rounds])["validation"][:, -1]
    best = grid[int(np.nanargmax(tried))]
    every = [settings.rounds * (i + 1) // settings.evaluations for i in range(settings.evaluations)]
    return {"rates": best, "tried": dict(zip(map(str, grid), tried.tolist(), strict=True)), "rounds": every,
            **played(method, given, settings, [best], list(range(settings.seeds)), every)}


def played(method: Method, given: Task, settings: Settings, grid: list[dict[str, float]], seeds: list[int],
           rounds: list[int]) -> dict[str, Any]:
    """Every point of the grid with every seed; accuracies have shape [variant, evaluation]."""
    problem = given.joint if method.joint else given.plain
    population = given.data.population
    variants = [(point, seed) for point in grid for seed in seeds]

    def build(options):
        fixed = {"steps": settings.steps, "batch_size": settings.batch_size, **method.options}
        if method.build is ct.central:  # as many gradient steps as a cohort makes, each of as many examples
            fixed["steps"] *= given.cohort
        return method.build(**fixed, **options).build(problem, population)

    central = pooled(given.data.train) if method.build is ct.central else None
    many = Many(problem, build, ct.rounds(cohort=given.cohort).build(population), given.data, central,
                {name: np.array([point[name] for point, _ in variants]) for name in grid[0]},
                np.array([seed for _, seed in variants]))
    states = many.begin()
    traffic = sum(map(nbytes, many.message_and_upload(states)))
    found: dict[str, Any] = {"validation": [], "test": [], "worst": []}
    for until in rounds:
        states = many.advance(states, until)
        scores = many.evaluate(states)
        accuracy = {name: scores[name]["personal"]["accuracy"] for name in ("validation", "test")}
        for name, values in accuracy.items():
            found[name].append(np.nanmean(values, axis=1))
        sizes = np.asarray(given.data.test.sizes)
        found["worst"].append([statistics(values, sizes, True)["worst10"] for values in accuracy["test"]])
    # in every round a cohort of the clients receives and sends
    visits = settings.rounds * given.cohort / population
    return {name: np.array(curve).T for name, curve in found.items()} | {"kib": traffic * visits / 1024}


# What is written


def figure(found: Mapping[str, Mapping[str, Any]], out: Path) -> None:
    """Accuracy over rounds, and bars for the end."""
    drawing, axes = pyplot.subplots(1, len(found), figsize=(4.2 * len(found), 3.2), squeeze=False)
    for (name, cells), axis in zip(found.items(), axes[0], strict=True):
        for place, (method, numbers) in enumerate(cells.items()):
            last = np.array(numbers["test"])[:, -1]
            axis.barh(place, last.mean(), color="#0072b2" if method.startswith("FedRes") else "#bbbbbb")
            axis.plot(last, np.full(len(last), place), "k.", markersize=3)
        ends = [value for numbers in cells.values() for value in np.array(numbers["test"])[:, -1]]
        room = max(max(ends) - min(ends), 0.01)
        axis.set(title=TITLES[name], xlabel="test accuracy, mean over clients", yticks=range(len(cells)),
                 yticklabels=list(cells), xlim=(max(min(ends) - room / 4, 0), min(max(ends) + room / 10, 1)))
        axis.invert_yaxis()
    drawing.set_layout_engine("constrained")
    drawing.savefig(out / "real.png", dpi=90)
    pyplot.close(drawing)


def table(name: str, cells: Mapping[str, Mapping[str, Any]], about: str) -> str:
    lines = [f"**{TITLES[name]}.** {about}", "",
             "| method | rates | test accuracy | worst decile | KiB per client |", "| --- | --- | --- | --- | --- |"]
    for method, numbers in cells.items():
        test, worst = (100 * np.array(numbers[which])[:, -1] for which in ("test", "worst"))
        error = test.std(ddof=1) / np.sqrt(len(test)) if len(test) > 1 else 0.0
        rates = " / ".join(f"{rate:g}" for rate in numbers["rates"].values())
        lines.append(f"| {method} | {rates} | {test.mean():.1f} ± {error:.1f} | {worst.mean():.1f} | "
                     f"{numbers['kib']:,.0f} |")
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a few rounds of everything, to see that it runs")
    parser.add_argument("--sets", nargs="+", choices=list(TITLES), help="all whose files are there, if left out")
    parser.add_argument("--data", type=Path, default=FOLDER, help="the folder with the files")
    parser.add_argument("--out", type=Path, default=Path("results/fedres_real"))
    given = parser.parse_args(arguments)
    settings = QUICK if given.quick else Settings()
    sets = given.sets or [name for name, file in FILES.items() if (given.data / file).exists()] or ["digits"]
    (given.out / "cells").mkdir(parents=True, exist_ok=True)
    found: dict[str, dict[str, Any]] = {}
    texts = []
    for name in sets:
        this = task(name, given.data, settings)
        found[name] = {}
        for label, method in methods(settings).items():
            path = given.out / "cells" / f"{name}-{label.replace(' ', '_')}.json"
            if not path.exists():
                began = time.perf_counter()
                numbers = cell(method, this, settings)
                path.write_text(json.dumps(numbers | {"seconds": time.perf_counter() - began},
                                           default=lambda array: array.tolist()))
                print(f"{name} {label}: {time.perf_counter() - began:.0f} s, rates {numbers['rates']}, "
                      f"accuracy {numbers['test'][:, -1].mean():.3f}", flush=True)
            found[name][label] = json.loads(path.read_text())
        sizes = this.data.train.sizes
        texts.append(table(name, found[name], (
            f"{this.data.population} clients, {sizes.min()} to {sizes.max()} training examples each, "
            f"{this.cohort} of them in a round, {this.data.classes} classes; always saying a client's most frequent "
            f"class is right in {100 * this.alone:.1f}%.")))
    figure(found, given.out)
    text = "\n\n".join(texts) + "\n"
    (given.out / "real.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
