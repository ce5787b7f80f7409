"""What "Federated Residual Learning" (v2: Wei, Agarwal and Langford) leaves to later versions: rounds on real data.

    python studies/fedres/real.py [--quick] [--sets mnist celeba shakespeare] [--data DIR] [--out DIR]

mnist: digits by writer. celeba: who smiles, by person. shakespeare: the next character, by role. Without the files,
scikit-learn's digits in 20 uneven shares. The shared model of all methods is the same network; FedRes adds a private
model, linear in the pixels or a table of which character follows the last one.

A cell is one method on one set: all rates in one program, then all seeds. Its numbers go to DIR/cells/SET-METHOD.json
at once, and a cell that is there is not run again. The figure (real.png) and the table (real.md) are of all cells.
"""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib import pyplot

import cantons as ct

sys.path.insert(0, str(Path(__file__).parents[1]))
import kit

FILES = {"mnist": "mnist.npz", "celeba": "celeba_faces32.npz", "shakespeare": "shakespeare_roles.npz"}
TITLES = {"mnist": "MNIST, by writer", "celeba": "CelebA smiles, by person", "shakespeare": "Shakespeare, by role",
          "digits": "digits"}
SYMBOLS = {"step_size": "eta", "private_step_size": "lambda", "tune_step_size": "tuning", "mu": "mu"}


class Settings(NamedTuple):
    """The paper has no such experiment, so everything here is ours."""

    rounds: int = 100
    pulls: tuple[float, ...] = (0.1, 1.0)  # mu of FedProx
    seeds: int = 4  # of starting points, cohorts and batches; the data stays
    methods: tuple[str, ...] = ("alone", "central", "FedAvg", "SCAFFOLD", "FedAvg+tuning", "FedProx-local",
                                "FedResNaive", "FedResSGD", "FedResAvg-I", "FedResAvg-II")
    clients: Mapping[str, int] = {"mnist": 100, "celeba": 500, "shakespeare": 100, "digits": 20}
    cohorts: Mapping[str, int] = {"mnist": 20, "celeba": 50, "shakespeare": 20, "digits": 10}
    hidden: int = 32
    context: int = 8  # characters a prediction is made from
    characters: int = 3000  # of a role, at most


QUICK = Settings(rounds=2, pulls=(0.1,), seeds=2, methods=("central", "FedAvg+tuning", "FedResAvg-II"),
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
    known = {
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
    return {name: known[name] for name in settings.methods}


def cell(method: Method, given: Task, settings: Settings) -> dict[str, Any]:
    """Try all rates with one seed, then run those of the best validation accuracy with all seeds."""
    axes = {**method.varied, "step_size": given.work.rates}
    points = [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]
    tried = played(method, given, settings, [(point, 0) for point in points])["validation"]
    best = points[int(np.nanargmax(tried))]
    return {"rates": best, "tried": [[point, value] for point, value in zip(points, tried.tolist(), strict=True)],
            **played(method, given, settings, [(best, seed) for seed in range(settings.seeds)])}


def played(method: Method, given: Task, settings: Settings,
           variants: list[tuple[dict[str, float], int]]) -> dict[str, Any]:
    """Run pairs of rates and a seed; return accuracies by variant."""
    # centrally, as many gradient steps as the whole cohort makes
    steps = given.work.steps * (given.cohort if method.build is ct.central else 1)
    recipes = [method.build(steps=steps, batch_size=given.work.batch_size, **method.options, **point)
               for point, _ in variants]
    histories = ct.rollouts(given.joint if method.joint else given.plain, given.data, recipes, rounds=settings.rounds,
                            clock=ct.rounds(cohort=given.cohort), seed=[seed for _, seed in variants])
    names = {"validation": "validation.personal.accuracy.mean", "test": "test.personal.accuracy.mean",
             "worst": "test.personal.accuracy.worst10"}
    return {"kib": histories[0][-1]["bytes_per_client"] / 1024,
            **{name: np.array([history[-1][key] for history in histories]) for name, key in names.items()}}


# What is written


def figure(found: Mapping[str, Mapping[str, Any]], out: Path) -> None:
    drawing, axes = pyplot.subplots(1, len(found), figsize=(4.2 * len(found), 3.2), squeeze=False,
                                   layout="constrained")
    for (name, cells), axis in zip(found.items(), axes[0], strict=True):
        for place, (method, numbers) in enumerate(cells.items()):
            last = np.array(numbers["test"])
            axis.barh(place, last.mean(), color=kit.BLUE if method.startswith("FedRes") else kit.GREY)
            axis.plot(last, np.full(len(last), place), "k.", markersize=3)
        ends = [value for numbers in cells.values() for value in numbers["test"]]
        room = max(max(ends) - min(ends), 0.01)
        axis.set(title=TITLES[name], xlabel="test accuracy, mean over clients", yticks=range(len(cells)),
                 yticklabels=list(cells), xlim=(max(min(ends) - room / 4, 0), min(max(ends) + room / 10, 1)))
        axis.invert_yaxis()
    kit.save_figure(drawing, out / "real.png")


def table(name: str, cells: Mapping[str, Mapping[str, Any]], about: str) -> str:
    rows = []
    for method, numbers in cells.items():
        test, worst = (100 * np.array(numbers[which]) for which in ("test", "worst"))
        rates = ", ".join(f"{SYMBOLS[name]} {rate:g}" for name, rate in reversed(numbers["rates"].items()))
        kib = "all examples" if method == "central" else f"{numbers['kib']:,.0f}"
        rows.append([method, rates, f"{test.mean():.1f} ± {kit.standard_error(test):.1f}", f"{worst.mean():.1f}", kib])
    head = ["method", "rates", "test accuracy", "worst decile", "KiB per client"]
    return f"**{TITLES[name]}.** {about}\n\n{kit.table(head, rows)}"


def main(arguments: list[str] | None = None) -> None:
    given = kit.read_arguments(__doc__, "results/fedres_real", arguments, data=kit.FILES, sets={
        "nargs": "+", "choices": list(TITLES), "help": "all whose files are there, if left out"})
    settings = QUICK if given.quick else Settings()
    sets = given.sets or [name for name, file in FILES.items() if (given.data / file).exists()] or ["digits"]
    (given.out / "cells").mkdir(exist_ok=True)
    found: dict[str, dict[str, Any]] = {}
    texts = []
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
    watch = kit.Watch()
    numbers = cell(method, given, settings)
    kit.save_numbers(path, {"settings": chosen, **numbers, "seconds": watch.seconds})
    watch(f"{path.stem}: {numbers['rates']}, accuracy {numbers['test'].mean():.3f}")
    return json.loads(path.read_text())


def about(given: Task) -> str:
    sizes = given.data.train.sizes
    return (f"{given.data.population} clients, {sizes.min()} to {sizes.max()} training examples each, {given.cohort} "
            f"of them in a round, {given.data.classes} classes; always saying a client's most frequent class is right "
            f"in {100 * given.guess:.1f}%.")


if __name__ == "__main__":
    main()
