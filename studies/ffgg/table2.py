"""Table 2 of the FFGG paper: is a model that is private in part better than a common one, on real clients?

Mishchenko et al., "Partially Personalized Federated Learning", section 5.3 and appendices E.4 to E.7.

    python studies/ffgg/table2.py [--quick] [--sets NAME ...] [--settings NAME=VALUE ...] [--minutes M] [--data DIR]
                                  [--out DIR]

The pipeline of E.6: FedAvg trains a common model; each method trains on from there, for equally many rounds; at the
end every client tunes its private part for five epochs. FedAvg itself trains on as well. Every method has its client
step size chosen on validation rows of the clients, with one seed, and is then run with three seeds. The numbers are
accuracies on the clients' test rows, weighted by how many they have.

    mnist       digits by writer, of writers with 100 images or more, in place of EMNIST
    cifar       CIFAR-10 among 100 clients whose labels are skewed: Dirichlet(0.1)
    maps        the same images dealt out at random, and each client has a permutation of the labels of its own
    chars74k    a limit case: 62 characters and one image of each, so that no client has seen its test classes at home
    blogs       the next word of an author: 20 words in a row, the 2,000 most frequent ones, in place of Stack Overflow
    writers     mnist with the filter of E.5.3: writers with 100 images for training and validation, and 25 for the test
    crops       cifar with random crops and flips in training, as in E.5.2
    plain       cifar without them, beside it; these three with the methods that tell most
    resnet      mnist with ResNet-18; one seed, and the step sizes chosen for the small model: for an accelerator
    words       blogs with a transformer of four blocks and 10,000 words; the same
    digits      small, comes with the library: what --quick takes

Each cell is a file in DIR/SET; cells that are there with the same settings are not computed again, so rows may be
computed by several processes once FedAvg's first rounds are there. `--settings` changes what `Settings` below has, such
as rounds=15 for a machine that is slower, or scored_after=[5,10] for scores on the way.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

import cantons as ct
from cantons.data import NaturalDivision, dirichlet, from_texts, iid, read_authors, with_validation
from cantons.models import Architecture
from cantons.problem.split import paths
from cantons.protocol import Evaluation, PyTree, Recipe, Start
from cantons.study.resolve import resolve

sys.path.insert(0, str(Path(__file__).parents[1]))
import kit

SPLITS = ("input", "output", "adapter")
TEST, VALIDATION = 0.2, 0.15  # of a client's rows, and of what is left then
AT_ONCE = 20  # clients of a run, on an accelerator


class Settings(NamedTuple):
    """Table 3's for EMNIST, where it has them; its rounds are 2000 and 500."""

    cohort: int = 10
    batch_size: int = 32
    epochs: int = 1  # in a round
    tune_epochs: int = 5  # at the end
    most: int = 500  # rounds of FedAvg before anything is private; it ends when it gains less than
    gain: float = 0.002  # in
    every: int = 50  # rounds
    rounds: int = 300  # with a private part
    scored_after: tuple[int, ...] = ()  # so many of these rounds too, besides all
    local_epochs: int = 20  # of clients that are alone
    first_rates: tuple[float, ...] = (0.03, 0.1, 0.3)  # client step sizes of FedAvg, at first
    rates: tuple[float, ...] = (0.03, 0.1, 0.3)  # and of everything after it
    server: tuple[str, float, float] = ("sgd", 1.0, 1.0)  # the server's optimiser, its step size at first and later
    clip: float = 1.0  # no gradient is longer: without it, one seed of FedAvg in three fell apart at a step of 0.3
    seeds: int = 3
    scored: int | None = None  # clients that are scored; all if None
    augment: tuple[str, ...] = ()  # how images change in training
    methods: tuple[str, ...] | None = None  # rows; all but those BESIDE the table if None


FEW = ("FedAvg", "FedAvg + tuning", "FedAvg to its end + tuning", "FFGG (input)", "FFGG (output)", "FFGG (adapter)",
       "FedAlt (output)", "FedSim (output)")
TEXT = Settings(cohort=50, batch_size=64, first_rates=(0.3, 1.0, 3.0), rates=(0.1, 0.3, 1.0),
                server=("adam", 5e-3, 5e-4), clip=0.1, rounds=100, local_epochs=10)
ALIKE = ("FedAvg", "FedAvg + tuning", "FedAvg to its end + tuning", "FFGG (output)", "FedAlt (output)",
         "FedSim (output)", "FedSim (output), clients alike")
BESIDE = ("FedAvg to its end + tuning", "FedAlt (output), clients alike", "FedSim (output), clients alike",
          "FFGG (output), drawn anew")
QUICK = Settings(cohort=4, most=20, every=10, rounds=6, local_epochs=4, first_rates=(0.1, 0.3), rates=(0.03, 0.1),
                 seeds=2, methods=("FedAvg", "FedAvg + tuning", "FedAvg to its end + tuning", "FFGG (adapter)",
                                   "FedAlt (output)"))


class Task(NamedTuple):
    data: ct.Federation
    model: Architecture
    settings: Settings


# The data


def mnist(folder: Path, least: int = 100) -> Task:
    with np.load(folder / "mnist.npz", allow_pickle=False) as file:
        images, labels, writer = (file[key][:60_000] for key in ("x", "y", "writer"))
    chosen = np.isin(writer, np.flatnonzero(np.bincount(writer) >= least))
    data = ct.federation(as_images(images[chosen].reshape(-1, 28, 28)), labels[chosen].astype(np.int32),
                         writer[chosen], classes=10, test=TEST, name="mnist")
    return Task(data, ct.cnn(), Settings())


def cifar(folder: Path, maps: bool = False) -> Task:
    with np.load(folder / "cifar10_subset.npz", allow_pickle=False) as file:
        images = np.concatenate([file["x_train"], file["x_test"]]).transpose(0, 2, 3, 1)
        labels = np.concatenate([file["y_train"], file["y_test"]]).astype(np.int32)
    clients = iid(len(labels), 100) if maps else dirichlet(labels, 100, alpha=0.1, min_size=10)
    if maps:
        permutations = np.array([np.random.default_rng(client).permutation(10) for client in range(100)], np.int32)
        labels = permutations[clients, labels]
    data = ct.federation(as_images(images), labels, clients, classes=10, test=TEST, name="maps" if maps else "cifar")
    return Task(data, ct.cnn(), Settings(rates=(0.1, 0.3, 1.0)) if maps else Settings())


def writers(folder: Path) -> Task:
    task = mnist(folder, least=125)
    return task._replace(settings=task.settings._replace(methods=ALIKE))


def crops(folder: Path, augment: tuple[str, ...] = ("crop", "flip")) -> Task:
    task = cifar(folder)
    return task._replace(settings=task.settings._replace(augment=augment, methods=ALIKE))


def chars74k(folder: Path) -> Task:
    with np.load(folder / "chars74k_hand.npz", allow_pickle=False) as file:
        data = ct.federation(as_images(file["x"]), file["y"].astype(np.int32), file["writer"], classes=62, test=TEST,
                             name="chars74k")
    return Task(data, ct.cnn(), Settings())


def blogs(folder: Path, vocabulary: int = 2000) -> Task:
    data = from_texts(read_authors(folder / "blogs_by_author.npz"), tokens="words", length=20, vocabulary=vocabulary,
                      score_unknown=False, division=NaturalDivision(test=TEST), name="blogs")
    assert data.classes is not None
    return Task(data, ct.transformer(data.classes, width=64, blocks=1), TEXT)


def resnet(folder: Path) -> Task:
    task = mnist(folder)
    return task._replace(model=ct.resnet18(), settings=task.settings._replace(
        first_rates=(0.3,), rates=(0.3,), seeds=1, scored=100, methods=FEW))


def words(folder: Path) -> Task:
    task = blogs(folder, vocabulary=10_000)
    assert task.data.classes is not None
    return task._replace(model=ct.transformer(task.data.classes), settings=task.settings._replace(
        first_rates=(3.0,), rates=(1.0,), seeds=1, scored=100, methods=FEW))


def digits(folder: Path) -> Task:
    data = ct.digits(clients=8, partition="dirichlet", alpha=0.3)
    shaped = ct.federation(np.asarray(data.train.inputs).reshape(-1, 8, 8), data.train.targets,
                           np.repeat(data.clients.names, data.train.sizes), classes=10, test=TEST, name="digits")
    return Task(shaped, ct.cnn(channels=(8,), dense=16), QUICK)


def as_images(pixels: np.ndarray) -> np.ndarray:
    return (pixels / 255).astype(np.float32)


SETS: dict[str, Callable[[Path], Task]] = {
    "mnist": mnist, "cifar": cifar, "maps": partial(cifar, maps=True), "chars74k": chars74k, "blogs": blogs,
    "writers": writers, "crops": crops, "plain": partial(crops, augment=()), "resnet": resnet, "words": words,
    "digits": digits}
ALONE = ("writers", "crops", "plain", "resnet", "words", "digits")  # those that are asked for by name


# The methods


FIRST = "first"  # FedAvg's row, before anything is private


class Method(NamedTuple):
    """Rounds on top of FedAvg's, and how clients are fitted when all is done."""

    split: str
    train: Recipe | None  # None: no more rounds
    final: Recipe
    rounds: int
    cohort: int | None
    begins: str | None = FIRST  # the row with whose model it begins; None: with nothing learned


class Methods:
    """Those of Table 2, for one task, as functions of the client step size."""

    def __init__(self, task: Task):
        self.settings = settings = task.settings
        mean = float(np.mean(task.data.train.sizes)) * (1 - VALIDATION)
        self.steps = settings.epochs * max(1, round(mean / settings.batch_size))
        self.known: dict[str, Callable[[float], Method]] = {
            "FedAvg": self.fedavg, "local": self.local, "FedAvg + tuning": self.tuned,
            "FedAvg to its end + tuning": self.tuned_at_its_end,
            **{f"FFGG ({split})": partial(self.ffgg, split) for split in SPLITS},
            **{f"FedAlt ({split})": partial(self.fedalt, split) for split in SPLITS},
            **{f"FedSim ({split})": partial(self.fedsim, split) for split in SPLITS},
            "FedAlt (output), clients alike": partial(self.fedalt, "output", weighting="uniform"),
            "FedSim (output), clients alike": partial(self.fedsim, "output", weighting="uniform"),
            "FFGG (output), drawn anew": partial(self.ffgg, "output", private_init="random")}

    def work(self, rate: float) -> dict[str, Any]:
        optimizer, _, later = self.settings.server
        return {"step_size": rate, "private_step_size": rate, "batch_size": self.settings.batch_size,
                "clip_norm": self.settings.clip, "server_optimizer": optimizer, "server_step_size": later}

    def averaging(self, rate: float, server_step_size: float) -> dict[str, Any]:
        return {"step_size": rate, "epochs": self.settings.epochs, "batch_size": self.settings.batch_size,
                "clip_norm": self.settings.clip, "server_step_size": server_step_size}

    def first(self, rate: float) -> Recipe:
        """What all begin with: FedAvg, or FedAdam with the epsilon of its paper."""
        optimizer, step_size, _ = self.settings.server
        return {"sgd": ct.fedavg, "adam": ct.fedadam}[optimizer](**self.averaging(rate, step_size))

    def fedavg(self, rate: float) -> Method:
        """Beside the others, with the server optimizer that they have, to the last constant."""
        optimizer, _, step_size = self.settings.server
        recipe = ct.fedopt(server_optimizer=optimizer, **self.averaging(rate, step_size))
        return Method("none", recipe, recipe, self.settings.rounds, self.settings.cohort)

    def recipes(self, name: str | None, rate: float = 1.0) -> list[str]:
        """What a row is made with, and what the row is made with that it begins with: other recipes, other cells."""
        if name is None:
            return []
        if name == FIRST:
            return [repr(self.first(rate))]
        method = self.known[name](rate)
        return [repr(method.train), repr(method.final), *self.recipes(method.begins, rate)]

    def local(self, rate: float) -> Method:
        recipe = ct.independent(step_size=rate, batch_size=self.settings.batch_size, clip_norm=self.settings.clip)
        return Method("none", recipe, recipe, self.settings.local_epochs, None, begins=None)

    def tuned(self, rate: float) -> Method:
        final = ct.fedavg_finetune(tune_epochs=self.settings.tune_epochs, tune_step_size=rate,
                                   batch_size=self.settings.batch_size, clip_norm=self.settings.clip)
        return Method("none", None, final, 0, self.settings.cohort)

    def tuned_at_its_end(self, rate: float) -> Method:
        return self.tuned(rate)._replace(begins="FedAvg")

    def tuner(self, rate: float, epochs: int) -> dict[str, Any]:
        return {"name": "sgd", "epochs": epochs, "batch_size": self.settings.batch_size, "step_size": rate,
                "clip_norm": self.settings.clip}

    def private(self, split: str, train: Recipe, rate: float, private_init: str = "fixed") -> Method:
        final = ct.ffgg(tuner=self.tuner(rate, self.settings.tune_epochs), private_init=private_init)
        return Method(split, train, final, self.settings.rounds, self.settings.cohort)

    def ffgg(self, split: str, rate: float, private_init: str = "fixed") -> Method:
        return self.private(split, ct.local_ffgg(**self.work(rate), steps=self.steps, private_init=private_init,
                                                 tuner=self.tuner(rate, self.settings.epochs)), rate, private_init)

    def fedalt(self, split: str, rate: float, weighting: str = "batches") -> Method:
        return self.private(split, ct.fedalt(**self.work(rate), private_steps=self.steps, steps=self.steps,
                                             state="none", weighting=weighting), rate)

    def fedsim(self, split: str, rate: float, weighting: str = "batches") -> Method:
        return self.private(split, ct.fedsim(**self.work(rate), steps=self.steps, state="none", weighting=weighting),
                            rate)


# The runs


class Run(NamedTuple):
    rate: float
    seed: int


class Study:
    """One data set: cells by name, each computed once and kept in a file. The runs of a cell are one program."""

    def __init__(self, name: str, task: Task, folder: Path, watch: kit.Watch, minutes: float | None):
        self.name, self.folder, self.watch = name, folder, watch
        self.task, self.methods = task, Methods(task)
        self.data = with_validation(task.data, VALIDATION)
        settings = task.settings._replace(methods=None)  # one row more leaves the others as they are
        self.cell = kit.Cells(folder, settings, watch, minutes)

    def problem(self, split: str) -> ct.Problem:
        return ct.classification(self.data, self.task.model, split=split, augment=list(self.task.settings.augment))

    def session(self, problem: ct.Problem, recipes: Sequence[Recipe], seeds: Sequence[int], cohort: int | None,
                rounds: int) -> Any:
        engine = (ct.Local() if jax.default_backend() == "cpu" else ct.Local(group=AT_ONCE)).together()
        assert engine is not None
        return engine.start([resolve(
            problem, self.data, recipe, rounds=max(1, rounds), cohort=cohort, seed=seed, engine=engine,
            evaluate_clients=self.task.settings.scored).parts for recipe, seed in zip(recipes, seeds, strict=True)],
            print)

    def grid(self, rates: Sequence[float]) -> list[Run]:
        return [Run(rate, 0) for rate in rates]

    def more_seeds(self, found: Sequence[dict[str, Any]]) -> list[Run]:
        """The best step size with other seeds, and the next best where a place is left: as many runs as before."""
        best = sorted(found, key=lambda one: -one["validation"])
        seeds = range(1, self.task.settings.seeds)
        return [Run(one["rate"], seed) for one in best for seed in seeds][: max(len(found), len(seeds))]

    # FedAvg, before anything is private

    def first(self) -> list[dict[str, Any]]:
        """A row for each seed, with the step size that is best on validation rows."""
        made = self.methods.recipes(FIRST)
        found = self.cell("first_grid", lambda: self.train_first(self.grid(self.task.settings.first_rates), None),
                          recipes=made)
        best = max(found, key=lambda one: one["validation"])
        if self.task.settings.seeds == 1:
            return [best]
        others = self.cell("first_seeds", lambda: self.train_first(self.more_seeds(found), best["round"]),
                           recipes=made)
        return [best, *(one for one in others if one["rate"] == best["rate"])]

    def train_first(self, runs: Sequence[Run], until: int | None) -> list[dict[str, Any]]:
        """Train, until the best run gains too little or for so many rounds; keep the models."""
        settings = self.task.settings
        session = self.session(self.problem("none"), [self.methods.first(run.rate) for run in runs],
                               [run.seed for run in runs], settings.cohort, settings.most)
        state, done, curves = session.begin(), 0, []
        while True:
            done += settings.every
            state = session.advance(state, done)
            curves.append([numbers_of(one, self.data, "shared") for one in session.evaluate(state)])
            scores = np.array([[one["validation"] for one in row] for row in curves])
            best = scores[-1].argmax()
            self.watch(f"{self.name}: FedAvg, round {done}: {scores[-1].round(4).tolist()}")
            gained = len(curves) == 1 or scores[-1, best] >= scores[-2, best] + settings.gain
            if done >= (until or settings.most) or (until is None and not gained):
                break
        for run, one in zip(runs, session.whole(state), strict=True):
            self.save_model(FIRST, run, one.state.server.shared)
        return [{**run._asdict(), "round": done, **curves[-1][number], "curve": [row[number] for row in curves]}
                for number, run in enumerate(runs)]

    def model_file(self, name: str, run: Run) -> Path:
        return self.folder / f"{name}_{run.rate:g}_{run.seed}.npz"

    def save_model(self, name: str, run: Run, model: PyTree) -> None:
        np.savez(self.model_file(name, run), *jax.tree.leaves(model))

    def model(self, name: str, seed: int) -> PyTree:
        """The common model of a row, with the step size that was chosen for it."""
        shapes = jax.eval_shape(self.problem("none").init, jax.random.key(0))[0]
        row = self.first() if name == FIRST else self.row(name)
        with np.load(self.model_file(name, Run(row[0]["rate"], seed))) as file:
            return jax.tree.unflatten(jax.tree.structure(shapes), [file[name] for name in file.files])

    # Everything after it

    def rows(self) -> list[str]:
        chosen, known = self.task.settings.methods, self.methods.known
        if strange := set(chosen or ()) - set(known):
            raise SystemExit(f"no row is called {', '.join(sorted(strange))}; there are {', '.join(known)}")
        return list(chosen or [name for name in known if name not in BESIDE])

    def row(self, name: str) -> list[dict[str, Any]]:
        """As `first`, for a method that goes on from there."""
        rates, made = self.task.settings.rates, self.methods.recipes(name)
        found = self.cell(f"{name}, grid", lambda: self.play(name, self.grid(rates)), recipes=made)
        others = [] if self.task.settings.seeds == 1 else self.cell(
            f"{name}, seeds", lambda: self.play(name, self.more_seeds(found)), recipes=made)
        best = max(found, key=lambda one: one["validation"])
        row = [best, *(one for one in others if one["rate"] == best["rate"])]
        self.watch(f"{self.name}: {name}, {best['rate']:g}: {[round(one['test'], 4) for one in row]}")
        return row

    def play(self, name: str, runs: Sequence[Run]) -> list[dict[str, Any]]:
        """The methods' rounds from a model of FedAvg, and then an evaluation in which clients fit what is private."""
        methods = [self.methods.known[name](run.rate) for run in runs]
        method, seeds = methods[0], [run.seed for run in runs]
        problem = self.problem(method.split)
        starts = None if method.begins is None else [self.split_model(problem, method.begins, seed) for seed in seeds]
        final = self.session(problem, [one.final for one in methods], seeds, method.cohort, max(1, method.rounds))
        if method.train is None:
            scored = {0: self.scores(final, final.begin(starts))}
        else:
            alike = method.final is method.train
            session = final if alike else self.session(problem, [one.train for one in methods if one.train], seeds,
                                                       method.cohort, method.rounds)
            state, scored = session.begin(starts), {}
            for done in (*(count for count in self.task.settings.scored_after if count < method.rounds), method.rounds):
                state = session.advance(state, done) if done else state
                if starts is not None:
                    starts = [start._replace(shared=one.state.server.shared)
                              for start, one in zip(starts, session.whole(state), strict=True)]
                scored[done] = self.scores(final, state if alike else final.begin(starts))
                self.watch(f"{self.name}: {name}, round {done}: {[round(one['test'], 4) for one in scored[done]]}")
            if method.split == "none" and starts is not None:
                for run, start in zip(runs, starts, strict=True):
                    self.save_model(name, run, start.shared)
        *earlier, last = scored.items()
        return [{**run._asdict(), **numbers, "earlier": {str(done): found[place] for done, found in earlier}}
                for place, (run, numbers) in enumerate(zip(runs, last[1], strict=True))]

    def scores(self, session: Any, state: Any) -> list[dict[str, Any]]:
        return [numbers_of(one, self.data, "personal") for one in session.evaluate(state)]

    def split_model(self, problem: ct.Problem, name: str, seed: int) -> Start:
        """A row's model as a shared and a private part. What it does not have, such as adapters, is drawn."""
        learned = dict(zip(paths(model := self.model(name, seed)), jax.tree.leaves(model), strict=True))
        drawn = problem.init(jax.random.key(seed))
        return Start(*(jax.tree.unflatten(jax.tree.structure(part), [
            learned.get(path, leaf) for path, leaf in zip(paths(part), jax.tree.leaves(part), strict=True)])
            for part in drawn))


def numbers_of(evaluated: Evaluation, data: ct.Federation, which: str) -> dict[str, Any]:
    """Accuracies, weighted by rows, and diagnostics of the clients, if there are any."""
    scores = evaluated.scores["clients"]
    assert data.validation is not None
    sizes = {"train": data.train.sizes, "validation": data.validation.sizes, "test": data.test.sizes}
    found = {name: weighted(scores[name][which]["accuracy"], sizes[name]) for name in sizes}
    lowest = {"lowest_tenth": float(np.nanpercentile(scores["test"][which]["accuracy"], 10))}
    diagnostics = {name: float(np.nanmean(values)) for name, values in evaluated.clients["clients"].items()}
    return {**found, **lowest, **diagnostics}


def weighted(values: np.ndarray, sizes: Any) -> float:
    there = (np.asarray(sizes) > 0) & ~np.isnan(values)  # who is not scored has no number
    return float(np.average(np.asarray(values)[there], weights=np.asarray(sizes)[there]))


# What is written


def table(rows: dict[str, list[dict[str, Any]]]) -> str:
    def cell(row: list[dict[str, Any]], key: str) -> str:
        values = 100 * np.array([one[key] for one in row])
        return f"{values.mean():.2f} ± {kit.standard_error(values):.2f}"

    def validation(name: str) -> float:
        return float(np.mean([one["validation"] for one in rows[name]]))

    best = [max(own, key=validation) for method in ("FedAlt", "FedSim")
            if (own := [name for name in rows if name.startswith(method)])]
    looks = list(dict.fromkeys(done for row in rows.values() for done in row[0].get("earlier", {})))
    lines = [[f"{name}{', best' if name in best else ''}", f"{row[0]['rate']:g}",
              *(cell([one["earlier"][done] for one in row], "test") if done in row[0].get("earlier", {}) else ""
                for done in looks), *(cell(row, key) for key in ("test", "train", "lowest_tenth")),
              f"{np.mean([one['gradient_norm'] for one in row]):.3g}" if "gradient_norm" in row[0] else ""]
             for name, row in rows.items()]
    head = ["", "step size", *(f"after {done} rounds" for done in looks), "test accuracy", "train accuracy",
            "lowest tenth of clients", "mean of ‖F_m‖"]
    return kit.table(head, lines, numbers=True)


def read_setting(text: str) -> tuple[str, Any]:
    name, _, value = text.partition("=")
    if name not in Settings._fields:
        raise ValueError(name)
    return name, json.loads(value)


def main(arguments: Sequence[str] | None = None) -> None:
    given = kit.read_arguments(
        __doc__, "results/ffgg_table2", arguments, data=kit.FILES,
        sets={"nargs": "+", "choices": list(SETS), "help": "which data; all that are there if left out"},
        methods={"nargs": "+", "help": "rows, such as \"FFGG (output)\"; those of the set if left out"},
        settings={"nargs": "+", "type": read_setting, "default": [], "help": "NAME=VALUE, with values as in JSON"},
        minutes={"type": float, "help": "begin no cell after so many"})
    watch = kit.Watch()
    there = (given.data / "mnist.npz").exists() and not given.quick
    for name in given.sets or ([key for key in SETS if key not in ALONE] if there else ["digits"]):
        task = SETS[name](given.data)
        if given.quick:
            task = task._replace(settings=QUICK._replace(augment=task.settings.augment))
        task = task._replace(settings=task.settings._replace(**dict(given.settings)))
        if given.methods:
            task = task._replace(settings=task.settings._replace(methods=tuple(given.methods)))
        study = Study(name, task, given.out / name, watch, given.minutes)
        watch(study.data.describe().splitlines()[0])
        rows: dict[str, list[dict[str, Any]]] = {}
        try:
            rows["FedAvg, at first"] = study.first()
            for method in study.rows():
                rows[method] = study.row(method)
        except TimeoutError:
            watch(f"{name}: no time is left; call again to go on")
        if rows:
            first = rows["FedAvg, at first"][0]
            text = (f"{study.data.describe()}\n\nFedAvg stopped after {first['round']} rounds.\n\n{table(rows)}\n")
            (given.out / f"{name}.md").write_text(text)
            print(text)


if __name__ == "__main__":
    main()
