"""Every attack against every rule, in buckets and mixed: FFGG on least squares, FFGG and FedAvg on real clients.

    python studies/ffgg/attacks.py [--quick] [--tasks NAME ...] [--rules RULE ...] [--minutes M] [--data D] [--out DIR]

42 clients of which 10 lie, as in Figure 4 of Mishchenko et al., "Partially Personalized Federated Learning".

    shared, own  the paper's least squares with exact tuning, for targets from one theta or of each client's own: |F|
                 of the honest clients over what it was. A client has the 100 rows of a root of S_m, so that its
                 gradient is F_m(theta), which is what FFGG sends after it tuned w exactly.
    ffgg         digits by writer, 14 x 14 pixels, a hidden layer of 16, the output layer private: test accuracy of the
                 honest. Where the files are not, digits that come with the library.
    fedavg       the same with one model for all.
    in_time      least squares, one theta, asynchronous with a buffer of 21; liars are as fast as the others.
    delay        the same, and liars take 20 times as long.

Each cell is a file in DIR/TASK; cells that are there with the same settings are not computed again. The strength of
noise and the radius of rules are multiples of the median length of uploads at the start.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from closed_forms import Quadratics
from jax.flatten_util import ravel_pytree
from matplotlib import pyplot
from paths import in_whole, tuned_exactly

import cantons as ct
from cantons.attack import ATTACKS
from cantons.clock.events import events_of
from cantons.engine.init import seed_keys
from cantons.errors import InputError
from cantons.protocol import Problem, Recipe
from cantons.study.resolve import resolve

sys.path.insert(0, str(Path(__file__).parents[1]))
import kit


class Settings(NamedTuple):
    clients: int = 42
    liars: int = 10
    rows: int = 10_000  # n of least squares
    shared: int = 100
    private: int = 50
    rounds: int = 1000  # of least squares
    image_rounds: int = 30
    hidden: int = 16
    buffer: int = 21
    slower: float = 20.0  # how much longer a liar's job takes than an honest one's
    rules: int = 14  # how many of them
    attacks: int = 10


QUICK = Settings(clients=8, liars=1, rows=60, shared=6, private=4, rounds=6, image_rounds=2, hidden=4, buffer=4,
                 rules=2, attacks=2)


class Task(NamedTuple):
    problem: Problem
    data: ct.Federation
    recipe: Recipe
    rounds: int
    score: Callable[[Any, Any, int], float]  # (session, state, how many are honest) -> the number of a cell
    better: int = 1  # 1: the larger, -1: the smaller
    options: Mapping[str, Any] = {}
    attacks: int = 10  # how many of them
    rules: tuple[str, ...] | None = None  # which of them; all if None


def rules(liars: int, unit: float) -> dict[str, Recipe | None]:
    """Each asked to bear all liars. Krum in buckets of two would bear 9 of 42, and refuses."""
    found: dict[str, Recipe | None] = {"mean": None, "norm bound": ct.norm_bound(radius=unit)}
    for name, make in {"median": ct.median, "trimmed mean": ct.trimmed_mean,
                       "geometric median": ct.geometric_median}.items():
        found |= {name: make(f=liars), f"{name}, buckets": make(f=liars, bucket=2), f"{name}, mixed": make(
            f=liars, mix=True)}
    return found | {"Krum": ct.krum(f=liars), "multi-Krum": ct.multi_krum(f=liars),
                    "centred clipping": ct.centred_clipping(f=liars, radius=unit)}


def attacks(unit: float, numbers: int) -> dict[str, Recipe | None]:
    """The noise is three times as long as an upload."""
    more = {"noise": {"scale": 3 * unit / np.sqrt(numbers)}}
    return {"nobody lies": None, **{name.replace("_", " "): ATTACKS[name](**more.get(name, {})) for name in (
        "sign_flip", "inner_product", "a_little_is_enough", "mimic", "label_flip", "scaling", "noise", "not_finite",
        "silence")}}


# Least squares


def least_squares(settings: Settings, targets: str) -> Task:
    data = ct.synthetic_least_squares(settings.clients, rows=settings.rows, shared=settings.shared,
                                      private=settings.private, targets=targets)
    known = Quadratics(data, settings.shared, settings.rows)
    tuned = tuned_exactly(known, settings.rows)

    def score(session: Any, state: Any, honest: int) -> float:
        theta = session.whole(state)[0].state.server.shared["layer0"]["weight"][:, 0]
        S, s = known.S[:honest].mean(0), known.s[:honest].mean(0)
        with np.errstate(over="ignore", invalid="ignore"):  # theta may be far away
            return float(np.linalg.norm(S @ theta - s) / np.linalg.norm(s))

    recipe = ct.ffgg(step_size=settings.rows / known.constants.sharp)
    return Task(in_whole(tuned), tuned, recipe, settings.rounds, score, -1, {"precision": "float64"})


def late_clock(settings: Settings, slow: bool, **more: Any) -> Recipe:
    durations = np.random.default_rng(0).lognormal(sigma=0.5, size=settings.clients)
    durations[-settings.liars:] *= settings.slower if slow else 1.0
    return ct.asynchronous(durations=durations, buffer=settings.buffer, **more)


def delay_table(settings: Settings) -> str:
    """What slow liars do to time and delays."""
    lines = []
    for following in ("drawn", "same"):
        for slow in (False, True):
            clock = late_clock(settings, slow, next=following).build(settings.clients)
            events = events_of(clock, seed_keys(0)[1], settings.clients, 2 * settings.rounds)
            there = events.client < settings.clients
            lies = there & (events.client >= settings.clients - settings.liars)
            means = [f"{events.delays[who].mean():.1f}" if who.any() else "none" for who in (there & ~lies, lies)]
            lines.append([following, "slow" if slow else "in time", f"{events.elapsed.sum():.0f}", *means,
                          f"{lies.sum() / there.sum():.3f}"])
    return kit.table(["next", "liars", f"time of {2 * settings.rounds} events", "mean delay of the honest", "of liars",
                      "part of the answers that are liars'"], lines)


def delayed(settings: Settings, slow: bool) -> Task:
    """Asynchronous, whether liars are slow or not; each event is a part of a round."""
    task = least_squares(settings, "shared")
    clock = late_clock(settings, slow)
    return task._replace(rounds=2 * task.rounds, options={**task.options, "clock": clock}, attacks=3, rules=(
        "mean", "median", "trimmed mean, mixed", "geometric median", "multi-Krum"), recipe=ct.ffgg(
            step_size=task.recipe.options["step_size"] * settings.buffer / settings.clients))


# Real clients


def writers(settings: Settings, folder: Path) -> ct.Federation:
    """The first writers with 100 images or more."""
    if not (folder / "mnist.npz").exists():
        return ct.digits(clients=settings.clients)
    with np.load(folder / "mnist.npz", allow_pickle=False) as file:
        images, labels, writer = (file[key][:60_000] for key in ("x", "y", "writer"))
    chosen = np.isin(writer, np.flatnonzero(np.bincount(writer) >= 100)[:settings.clients])
    pixels = images[chosen].reshape(-1, 14, 2, 14, 2).mean(axis=(2, 4)).reshape(-1, 196) / 255
    return ct.federation(pixels.astype(np.float32), labels[chosen].astype(np.int32), writer[chosen], classes=10,
                         test=0.2, name="mnist")


def images(settings: Settings, folder: Path, split: str, recipe: Recipe) -> Task:
    data = writers(settings, folder)

    def score(session: Any, state: Any, honest: int) -> float:
        found = session.evaluate(state)[0].scores["clients"]["test"]["personal"]["accuracy"]
        return float(np.average(found[:honest], weights=np.asarray(data.test.sizes)[:honest]))

    problem = ct.classification(data, ct.mlp(hidden=(settings.hidden,)), split=split)
    # The last attack, silence, is left out: an upload that is not finite counts as little.
    return Task(problem, data, recipe, settings.image_rounds, score, attacks=9)


TASKS: dict[str, Callable[[Settings, Path], Task]] = {
    "shared": lambda settings, folder: least_squares(settings, "shared"),
    "own": lambda settings, folder: least_squares(settings, "own"),
    "ffgg": lambda settings, folder: images(settings, folder, "output", ct.ffgg(
        step_size=2.0, tuner={"name": "gd", "steps": 10, "step_size": 1.0})),
    "fedavg": lambda settings, folder: images(settings, folder, "none", ct.fedavg(step_size=0.3, batch_size=16)),
    "in_time": lambda settings, folder: delayed(settings, slow=False),
    "delay": lambda settings, folder: delayed(settings, slow=True)}
TITLES = {"shared": "FFGG, least squares, one theta: relative |F|",
          "own": "FFGG, least squares, own targets: relative |F|",
          "ffgg": "FFGG, digits by writer: accuracy", "fedavg": "FedAvg, digits by writer: accuracy",
          "in_time": "FFGG, least squares, asynchronous: relative |F|",
          "delay": "the same, liars are slow: relative |F|"}


# The cells


def length_of_uploads(task: Task) -> tuple[float, int]:
    """The median over some clients at the start, and how many numbers an upload has."""
    algorithm, key = task.recipe.build(task.problem, task.data.population), jax.random.key(0)
    parts = task.problem.init(key)
    server, client = algorithm.init_server(key, *parts), algorithm.init_client(key, *parts)
    message = algorithm.broadcast(key, server, None)
    work = jax.jit(lambda number: algorithm.client_update(key, message, client, task.data.train.client(number))[0])
    uploads = [ravel_pytree(algorithm.aggregate.read(work(number)).value)[0] for number in range(
        min(5, task.data.population))]
    return float(np.median(np.linalg.norm(uploads, axis=1))), len(uploads[0])


def play(task: Task, liars: int, rule: Recipe | None, attack: Recipe | None) -> float | str:
    """The number of a cell; a rule that cannot bear so many liars says so."""
    names = tuple(task.data.clients.names[-liars:])
    with jax.enable_x64("precision" in task.options):
        engine = ct.Local()
        try:
            session = engine.start([resolve(task.problem, task.data, task.recipe, rounds=task.rounds, engine=engine,
                                            aggregate=rule, byzantine=attack and ct.byzantine(
                                                attack=attack, clients=names), **task.options).parts])
        except InputError as refusal:
            return str(refusal)
        honest = task.data.population - (0 if attack is None else liars)
        score = task.score(session, session.advance(session.begin(), task.rounds), honest)
        session.close()
    return score


def play_task(name: str, task: Task, settings: Settings, cells: kit.Cells) -> dict[str, dict[str, Any]]:
    """All cells of a task, by attack and rule; when time is up, those that are there."""
    unit, numbers = length_of_uploads(task)
    found: dict[str, dict[str, Any]] = {}
    missing = 0
    for words, attack in list(attacks(unit, numbers).items())[:min(settings.attacks, task.attacks)]:
        for rule, recipe in list(rules(settings.liars, unit).items())[:settings.rules]:
            if task.rules is not None and rule not in task.rules:
                continue
            try:
                found.setdefault(words, {})[rule] = cells(
                    f"{words}, {rule}", partial(play, task, settings.liars, recipe, attack))
            except TimeoutError:
                missing += 1
        cells.watch(f"{name}, {words}: {[written(value) for value in found.get(words, {}).values()]}")
    if missing:
        cells.watch(f"{name}: {missing} cells are missing; call again to go on")
    return {words: row for words, row in found.items() if row}


# What is written


def written(value: Any) -> str:
    return "refused" if isinstance(value, str) else f"{value:.2g}" if value < 0.095 or value > 1 else f"{value:.2f}"


def columns_of(found: Mapping[str, Mapping[str, Any]]) -> list[str]:
    return list({rule: None for row in found.values() for rule in row})


def draw(found: Mapping[str, Mapping[str, Mapping[str, Any]]], tasks: Mapping[str, Task], path: Path) -> None:
    """A heat map for each task: green is what was reached without liars, red is nothing learned."""
    names = [name for name in found if found[name]]
    figure, plots = pyplot.subplots(-(-len(names) // 2), min(2, len(names)), figsize=(16, 4.8 * -(-len(names) // 2)),
                                    squeeze=False, layout="constrained")
    for name, axes in zip(names, plots.ravel(), strict=False):
        columns = columns_of(found[name])
        values = np.array([[float(row[rule]) if isinstance(row.get(rule), float) else np.nan for rule in columns]
                           for row in found[name].values()])
        shown = -np.log10(np.clip(values, 1e-4, 1)) / 4 if tasks[name].better < 0 else values
        axes.imshow(shown, cmap="RdYlGn", vmin=0.0, vmax=1.0, aspect="auto", alpha=0.8)
        for (row, column), value in np.ndenumerate(values):
            axes.text(column, row, "-" if np.isnan(value) else "> 10" if value > 10 else f"{value:.1g}" if value < 0.095
                      else f"{value:.2f}", ha="center", va="center", fontsize=7)
        axes.set_xticks(range(len(columns)), columns, rotation=35, ha="right", fontsize=8)
        axes.set_yticks(range(len(found[name])), list(found[name]), fontsize=8)
        axes.set_title(TITLES[name], fontsize=10)
    for axes in plots.ravel()[len(names):]:
        axes.axis("off")
    kit.save_figure(figure, path, shades=128)


def main(arguments: Sequence[str] | None = None) -> None:
    given = kit.read_arguments(
        __doc__, "results/ffgg/attacks", arguments, data=kit.FILES,
        tasks={"nargs": "+", "choices": list(TASKS), "default": list(TASKS)},
        rules={"nargs": "+", "metavar": "RULE", "help": "which rules; all if left out"},
        minutes={"type": float, "help": "begin no cell after so many"})
    settings, watch = QUICK if given.quick else Settings(), kit.Watch()
    found, tasks, pages = {}, {}, []
    for name in given.tasks:
        task = tasks[name] = TASKS[name](settings, given.data)
        if given.rules:
            tasks[name] = task._replace(rules=tuple(
                rule for rule in given.rules if task.rules is None or rule in task.rules))
        cells = kit.Cells(given.out / name, settings, watch, given.minutes)
        found[name] = play_task(name, tasks[name], settings, cells)
        if found[name]:
            columns = columns_of(found[name])
            pages.append(f"{TITLES[name]}\n\n" + kit.table([name, *columns], [
                [words, *(written(row[rule]) if rule in row else "" for rule in columns)]
                for words, row in found[name].items()]))
    if "delay" in given.tasks:
        pages.append(delay_table(settings))
    (given.out / "attacks.md").write_text("\n\n".join(pages).replace("|F|", "abs(F)") + "\n")
    draw(found, tasks, given.out / "attacks.png")


if __name__ == "__main__":
    main()
