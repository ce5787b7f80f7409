"""What "Federated Residual Learning" (v2: Wei, Agarwal and Langford) leaves to later versions: rounds on real data.

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
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import matplotlib
import numpy as np
from tables import FOLDER

import cantons as ct
from cantons.data import pooled
from cantons.engine.batched import BatchedSession
from cantons.metrics import nbytes, statistics

matplotlib.use("Agg")
from matplotlib import pyplot

FILES = {"mnist": "mnist.npz", "celeba": "celeba_faces32.npz", "shakespeare": "shakespeare_roles.npz"}
TITLES = {"mnist": "MNIST, by writer", "celeba": "CelebA smiles, by person", "shakespeare": "Shakespeare, by role",
          "digits": "digits"}
SYMBOLS = {"step_size": "eta", "private_step_size": "lambda", "tune_step_size": "tuning", "mu": "mu"}


class Settings(NamedTuple):
    """The paper has no such experiment, so everything here is ours."""

    rounds: int = 100
    pulls: tuple[float, ...] = (0.1, 1.0)  # mu of FedProx
    seeds: int = 4  # of starting points, cohorts and batches; the data stays. As many as rates eta: see `cell`
    clients: Mapping[str, int] = {"mnist": 100, "celeba": 500, "shakespeare": 100, "digits": 20}
    cohorts: Mapping[str, int] = {"mnist": 20, "celeba": 50, "shakespeare": 20, "digits": 10}
    hidden: int = 32
    context: int = 8  # characters a prediction is made from
    characters: int = 3000  # of a role, at most


QUICK = Settings(rounds=2, pulls=(0.1,),
                 clients={"mnist": 5, "celeba": 10, "shakespeare": 5, "digits": 5},
                 cohorts={"mnist": 2, "celeba": 5, "shakespeare": 2, "digits": 2}, characters=2000)


# The data


class Work(NamedTuple):
    """What depends on the kind of data."""

    steps: int  # K
    batch_size: int
    rates: tuple[float, ...]  # eta
    private_rates: tuple[float, ...]  # lambda
    tune_epochs: int
    tune_rates: tuple[float, ...]


class Task(NamedTuple):
    data: ct.Federation  # with validation rows
    plain: ct.Problem  # the shared model alone
    joint: ct.Problem  # with a private model beside it
    cohort: int
    work: Work
    guess: float  # the accuracy of always saying a client's own most frequent class


RATES = (0.03, 0.1, 0.3, 1.0)
DIGITS = Work(5, 20, RATES, (0.003, 0.03, 0.1), 5, (0.003, 0.03, 0.1))
FACES = Work(5, 3, (0.01, 0.03, 0.1, 0.3), (0.001, 0.01, 0.1), 5, (0.001, 0.01, 0.1))
TEXT = Work(10, 20, RATES, (0.3, 3.0, 10.0), 1, (0.03, 0.3, 1.0))  # a character is rare: its row needs long steps


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
    problems = ct.classification(data, shared), ct.residual(data, shared_model=shared, **options)
    work = {"shakespeare": TEXT, "celeba": FACES}.get(name, DIGITS)
    return Task(data, *problems, settings.cohorts[name], work, most_frequent(data))


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
    return ct.federation(pixels(inputs) - 0.5, labels[rows], owners[rows], classes=2, test=0.2, name="celeba")


def pixels(images: np.ndarray) -> np.ndarray:
    return (images.reshape(len(images), -1) / 255).astype(np.float32)


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
    return ct.federation((inputs / 16).astype(np.float32), labels, owners, classes=10, test=0.25, name="digits")


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


def methods(given: Task, settings: Settings) -> dict[str, Method]:
    own = {"private_step_size": given.work.private_rates}
    return {
        "alone": Method(ct.independent),
        "central": Method(ct.central),
        "FedAvg": Method(ct.fedavg),
        "SCAFFOLD": Method(ct.scaffold),
        "FedAvg+tuning": Method(ct.fedavg_finetune, varied={"tune_step_size": given.work.tune_rates},
                                options={"tune_epochs": given.work.tune_epochs}),
        "FedProx-local": Method(ct.fedprox, varied={"mu": settings.pulls}, options={"predict_with": "local"}),
        "FedResNaive": Method(ct.fedres_naive, joint=True, varied=own),
        "FedResSGD": Method(ct.fedres_sgd, joint=True, varied=own),
        "FedResAvg-I": Method(ct.fedres_avg, joint=True, varied=own, options={"option": "I"}),
        "FedResAvg-II": Method(ct.fedres_avg, joint=True, varied=own, options={"option": "II"}),
    }


def cell(method: Method, given: Task, settings: Settings) -> dict[str, Any]:
    """Try all rates with one seed, then run those of the best validation accuracy with all seeds.

    Every call of `played` has as many variants, so that one compiled program serves them all.
    """
    grid = [[dict(zip(method.varied, more, strict=True)) | {"step_size": rate} for rate in given.work.rates]
            for more in itertools.product(*method.varied.values())]
    tried = [played(method, given, settings, [(point, 0) for point in row])["validation"] for row in grid]
    points, values = [*itertools.chain(*grid)], np.concatenate(tried)
    best = points[int(np.nanargmax(values))]
    return {"rates": best, "tried": [[point, value] for point, value in zip(points, values.tolist(), strict=True)],
            **played(method, given, settings, [(best, seed) for seed in range(settings.seeds)])}


def played(method: Method, given: Task, settings: Settings,
           variants: list[tuple[dict[str, float], int]]) -> dict[str, Any]:
    """Run pairs of rates and a seed; return accuracies by variant."""
    problem = given.joint if method.joint else given.plain
    population = given.data.population

    def build(options):
        # centrally, as many gradient steps as the whole cohort makes
        steps = given.work.steps * (given.cohort if method.build is ct.central else 1)
        return method.build(steps=steps, batch_size=given.work.batch_size, **method.options, **options).build(
            problem, population)

    central = pooled(given.data.train) if method.build is ct.central else None
    many = BatchedSession(problem, build, ct.rounds(cohort=given.cohort).build(population), given.data, central,
                {name: np.array([point[name] for point, _ in variants]) for name in variants[0][0]},
                np.array([seed for _, seed in variants]))
    states = many.begin()
    traffic = sum(map(nbytes, many.message_and_upload(states)))
    scores = many.evaluate(many.advance(states, settings.rounds))
    test = scores["test"]["personal"]["accuracy"]
    sizes = np.asarray(given.data.test.sizes)
    visits = settings.rounds * given.cohort / population  # of a client, on average
    return {"validation": np.nanmean(scores["validation"]["personal"]["accuracy"], axis=1),
            "test": np.nanmean(test, axis=1), "kib": traffic * visits / 1024,
            "worst": np.array([statistics(values, sizes, True)["worst10"] for values in test])}


# What is written


def figure(found: Mapping[str, Mapping[str, Any]], out: Path) -> None:
    drawing, axes = pyplot.subplots(1, len(found), figsize=(4.2 * len(found), 3.2), squeeze=False)
    for (name, cells), axis in zip(found.items(), axes[0], strict=True):
        for place, (method, numbers) in enumerate(cells.items()):
            last = np.array(numbers["test"])
            axis.barh(place, last.mean(), color="#0072b2" if method.startswith("FedRes") else "#bbbbbb")
            axis.plot(last, np.full(len(last), place), "k.", markersize=3)
        ends = [value for numbers in cells.values() for value in numbers["test"]]
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
        test, worst = (100 * np.array(numbers[which]) for which in ("test", "worst"))
        error = test.std(ddof=1) / np.sqrt(len(test)) if len(test) > 1 else 0.0
        rates = ", ".join(f"{SYMBOLS[name]} {rate:g}" for name, rate in reversed(numbers["rates"].items()))
        kib = "all examples" if method == "central" else f"{numbers['kib']:,.0f}"
        lines.append(f"| {method} | {rates} | {test.mean():.1f} ± {error:.1f} | {worst.mean():.1f} | {kib} |")
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
    with tempfile.TemporaryDirectory() as programs:
        if jax.config.values["jax_compilation_cache_dir"] is None:  # other rates, the same program: compile it once
            jax.config.update("jax_compilation_cache_dir", programs)
            jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
        for name in sets:
            this = task(name, given.data, settings)
            found[name] = {label: kept(given.out / "cells" / f"{name}-{label}.json", method, this, settings)
                           for label, method in methods(this, settings).items()}
            texts.append(table(name, found[name], about(this)))
    figure(found, given.out)
    text = "\n\n".join(texts) + "\n"
    (given.out / "real.md").write_text(text)
    print(text)


def kept(path: Path, method: Method, given: Task, settings: Settings) -> dict[str, Any]:
    """A cell from its file, or else from running it; a file of other settings does not count."""
    chosen = json.loads(json.dumps(settings._asdict() | given.work._asdict()))
    if path.exists() and (before := json.loads(path.read_text()))["settings"] == chosen:
        return before
    began = time.perf_counter()
    numbers = {"settings": chosen, **cell(method, given, settings)}
    numbers["seconds"] = time.perf_counter() - began
    path.write_text(json.dumps(numbers, default=lambda array: array.tolist()))
    print(f"{path.stem}: {numbers['seconds']:.0f} s, {numbers['rates']}, accuracy {numbers['test'].mean():.3f}",
          flush=True)
    return json.loads(path.read_text())


def about(given: Task) -> str:
    sizes = given.data.train.sizes
    return (f"{given.data.population} clients, {sizes.min()} to {sizes.max()} training examples each, {given.cohort} "
            f"of them in a round, {given.data.classes} classes; always saying a client's most frequent class is right "
            f"in {100 * given.guess:.1f}%.")


if __name__ == "__main__":
    main()
