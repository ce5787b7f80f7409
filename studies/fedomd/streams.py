"""FedOMD on two real streams: forest cover types in the order of the file, film ratings by their time stamps.

    python studies/fedomd/streams.py [--quick] [--data DIR] [--out DIR]

Every client is scored on each row before it learns from it. Step sizes s / sqrt(t) are chosen for each method from a
grid on the first tenth of the stream, and what is reported is the rest of it. A figure, numbers (streams.json) and
tables (streams.md) go to DIR. Where the files are not beside the repository, scikit-learn's digits and made-up ratings
take their place.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib import pyplot

import cantons as ct
from cantons.data import Stream, Table, as_stream, from_stream
from cantons.protocol import Algorithm, Problem, Recipe
from cantons.recipe import algorithm

sys.path.insert(0, str(Path(__file__).parents[1]))
import kit

GRID = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)  # s
BLOCKS = 20  # of the stream, the first two of which choose the step size
COLOURS = (kit.BLUE, kit.GREEN, kit.ORANGE, kit.GREY, kit.RED, kit.BLACK)
LINES = ("solid", "solid", "solid", "dashed", "solid", "dotted")
MARKS = ("o", "o", "o", "", "s", "x")


class Settings(NamedTuple):
    rows: int = 40_000  # cover types
    clients: int = 20
    users: int = 200  # the most active ones
    ticks: int = 2000  # of the ratings' time
    periods: tuple[int, ...] = (1, 10, 50)
    period: int = 10  # of the variants


QUICK = Settings(rows=4000, users=20, ticks=200)


class Task(NamedTuple):
    """A stream, and what is learned from it in a ball."""

    title: str
    data: ct.Federation
    active: np.ndarray | None
    steps: int
    problem: Callable[[str], Problem]  # of a split
    radius: float
    notes: dict[str, float]  # what those who learn nothing would be charged after the first tenth, and the like


class Method(NamedTuple):
    algorithm: Callable[[Any], Recipe]  # of a step size
    sync: int = 1
    split: str = "none"
    rows: int = 1  # a client waits until it has so many


def cover_types(settings: Settings, folder: Path) -> Task:
    """Row k goes to client k % clients: every step brings one row to everybody."""
    file = folder / "covtype.npz"
    if file.exists():
        with np.load(file, allow_pickle=False) as stored:
            numbers = stored["x_num"][:, : settings.rows].T.astype(np.float32)
            kinds = [np.eye(size, dtype=np.float32)[stored[column][: settings.rows]]
                     for column, size in (("wilderness", 4), ("soil", 40))]
            labels = stored["y"][: settings.rows].astype(int)
        title, classes = "cover types", 7
    else:
        from sklearn.datasets import load_digits

        numbers, labels = load_digits(return_X_y=True)
        kinds, title, classes = [], "digits", 10
    first = numbers[:1000]
    numbers = (numbers - first.mean(axis=0)) / np.where(first.std(axis=0) > 0, first.std(axis=0), 1)
    inputs = np.concatenate([numbers, *kinds], axis=1).astype(np.float32)
    steps = len(labels) // settings.clients
    rows = np.arange(steps * settings.clients)
    stream = Stream((rows % settings.clients).astype(np.int32), (rows // settings.clients).astype(float), inputs[rows],
                    labels[rows], tuple(map(str, range(settings.clients))), classes)
    data, active = from_stream(stream, step="tick", ticks=steps)
    assert active.all()
    late, own, anyone = rows >= len(rows) // 10, labels[rows - settings.clients], labels[rows - 1]
    notes = {"accuracy of the own last label": float((own == labels[rows])[late].mean()),
             "accuracy of the last label in the file": float((anyone == labels[rows])[late].mean()),
             "share of the commonest label": float(np.bincount(labels[rows][late]).max() / late.sum())}
    return Task(f"{title}, {settings.clients} clients", data, None, steps,
                lambda split: ct.classification(data, ct.linear(), split=split), 10.0, notes)


def ratings(settings: Settings, folder: Path) -> Task:
    """A rating minus 3 from 18 genres. A user who rates many films at once plays one of them in each step."""
    file, random = folder / "movielens1m.npz", np.random.default_rng(0)
    if file.exists():
        with np.load(file, allow_pickle=False) as stored:
            user, when, rating = stored["user"], stored["timestamp"], stored["rating"]
            counts = np.bincount(user)
            chosen = np.isin(user, np.argsort(-counts, kind="stable")[: settings.users])
            place = np.searchsorted(stored["movie_id"], stored["movie"][chosen])
            genres = stored["movie_genres"][place].astype(np.float32)
            user, when, rating = user[chosen], when[chosen], rating[chosen]
        title = "film ratings"
    else:
        user, title = random.integers(0, settings.users, 200 * settings.users), "made-up ratings"
        when, genres = random.uniform(size=len(user)), (random.uniform(size=(len(user), 18)) < 0.15).astype(np.float32)
        tastes, mood = random.normal(0, 0.5, 18), random.normal(0.5, 0.5, settings.users)
        rating = np.clip(np.round(3 + genres @ tastes + mood[user] + random.normal(0, 0.7, len(user))), 1, 5)
    targets = rating.astype(np.float32) - 3
    stream = as_stream(Table(genres, targets, None, user.astype(int), times=when.astype(float)))
    data, active = from_stream(stream, step="tick", ticks=settings.ticks)
    played, left = active[: settings.ticks], active[settings.ticks :]
    tenth = settings.ticks // 10
    notes = {"rows": float(played.sum()), "rows too late for the last tick": float(left.sum()),
             "median number of active users": float(np.median(played.sum(axis=1))),
             "loss of the mean rating so far": constant_loss(data, played, tenth, own=False),
             "loss of the own mean so far": constant_loss(data, played, tenth, own=True)}
    return Task(f"{title}, {data.population} users", data, played, settings.ticks,
                lambda split: ct.regression(data, ct.linear(), split=split), 5.0, notes)


def constant_loss(data: ct.Federation, active: np.ndarray, first: int, own: bool) -> float:
    """From step `first` on, the loss of predicting the mean of all targets met before: everybody's, or one's own."""
    train, met = data.train, np.zeros(data.population, int)
    sums, counts, losses = np.zeros(data.population), np.zeros(data.population), []
    for step, acts in enumerate(active):
        who = np.flatnonzero(acts)
        truth = train.targets[np.asarray(train.starts)[who] + met[who]]
        guess = sums[who] / np.maximum(counts[who], 1) if own else sums.sum() / max(counts.sum(), 1)
        if step >= first:
            losses.append((guess - truth) ** 2)
        sums[who] += truth
        counts[who] += 1
        met[who] += 1
    return float(np.concatenate(losses).mean())


def methods(settings: Settings, radius: float) -> dict[str, Method]:
    ball = {"name": "ball", "radius": radius}

    def fedomd(step_size: Any) -> Recipe:
        return ct.fedomd(step_size=step_size, within=ball)

    tau = settings.period
    return {
        **{f"tau = {period}{' (central)' if period == 1 else ''}": Method(fedomd, period)
           for period in settings.periods},
        "alone": Method(lambda step_size: ct.online_independent(step_size=step_size, radius=radius)),
        f"private bias, tau = {tau}": Method(fedomd, tau, "*/bias"),
        f"FedAvg, {tau} rows": Method(lambda step_size: ct.fedavg(step_size=step_size, batch_size=1), rows=tau),
    }


@algorithm
def decaying(problem: Problem, population: int, *, start: float, method: Callable[[Any], Recipe]) -> Algorithm:
    """A method whose step size is start / sqrt(t).

    start: the first step size.
    method: a step size -> the method.
    """
    return method({"name": "sqrt_decay", "start": start}).build(problem, population)


def played(task: Task, method: Method) -> list[list[dict[str, Any]]]:
    """One program runs all step sizes over the whole stream; for each, a row at the end of every block."""
    acts, population = gathered(task, method.rows), task.data.population
    histories = ct.rollouts(task.problem(method.split), task.data,
                            [decaying(start=start, method=method.algorithm) for start in GRID], seed=[0] * len(GRID),
                            rounds=task.steps, clock=ct.online(sync=method.sync, batch=method.rows, active=acts),
                            evaluate_every=[task.steps * block // BLOCKS for block in range(1, BLOCKS + 1)])
    for row in (row for history in histories for row in history):
        step = row["round"]
        row["rows"] = int(step * population if acts is None else acts[:step].sum()) - row["rejected_uploads"]
        if method.rows > 1:  # only who is about to act needs the model, which went to everybody at every step
            message = row["bytes_down"] / (step * population)
            row["bytes_per_client"] = (row["uploads"] * message + row["bytes_up"]) / population
    return histories


def gathered(task: Task, rows: int) -> np.ndarray | None:
    """Who acts when: those who have got so many new rows."""
    if rows == 1:
        return task.active
    arrived = np.ones((task.steps, task.data.population), int) if task.active is None else task.active
    full = arrived.cumsum(axis=0) // rows
    return np.diff(full, axis=0, prepend=0) > 0


def outcome(histories: list[list[dict[str, Any]]]) -> dict[str, Any]:
    """Choose by the loss of the first tenth; the loss of each block, and of all rows after the first tenth."""
    tenth = BLOCKS // 10
    # A client whose model is no longer finite abstains and is not charged: such a step size is out.
    early = [np.inf if history[tenth - 1]["rejected_uploads"] else history[tenth - 1]["online.personal.loss.weighted"]
             for history in histories]
    best = int(np.nan_to_num(early, nan=np.inf).argmin())  # NaN: nobody had enough rows yet
    history = histories[best]
    found: dict[str, Any] = {"s": GRID[best], "at_the_edge": best in (0, len(GRID) - 1),
                             "steps": [row["round"] for row in history],
                             "bytes_per_client": history[-1]["bytes_per_client"],
                             "rejected": history[-1]["rejected_uploads"]}
    for metric in ("loss", "accuracy"):
        key = f"online.personal.{metric}.weighted"
        if key in history[-1]:
            totals, rows = np.array([[(row[key] * row["rows"] if row["rows"] else 0.0, row["rows"]) for row in one]
                                     for one in histories]).transpose(2, 0, 1)
            with np.errstate(all="ignore"):  # where everybody abstains
                late = (totals[:, -1] - totals[:, tenth - 1]) / (rows[:, -1] - rows[:, tenth - 1])
            blocks = np.diff(totals[best], prepend=0) / np.maximum(np.diff(rows[best], prepend=0), 1)
            rejected = [one[-1]["rejected_uploads"] for one in histories]
            found |= {f"{metric}_blocks": blocks.tolist(), metric: float(late[best]),
                      f"{metric}_of_grid": np.where(rejected, np.nan, late).tolist()}
    return found


def draw(out: Path, tasks: list[Task], found: dict[str, dict[str, Any]]) -> None:
    picture, places = pyplot.subplots(len(tasks), 2, figsize=(9.4, 6.4), layout="constrained",
                                      gridspec_kw={"width_ratios": (3, 2)})
    for (left, right), task in zip(places, tasks, strict=True):
        for (label, one), colour, line, mark in zip(found[task.title].items(), COLOURS, LINES, MARKS, strict=True):
            left.plot(one["steps"], one["loss_blocks"], color=colour, linestyle=line, linewidth=1.5, label=label)
            if one["bytes_per_client"]:
                right.plot(one["bytes_per_client"] / 1024, one["loss"], mark, color=colour, fillstyle="none",
                           markersize=9 if mark == "s" else 6)
            else:
                right.axhline(one["loss"], color=colour, linestyle=line, linewidth=1.5)
        left.axvspan(0, task.steps / 10, color="#eeeeee", zorder=0)
        left.set(xlabel="steps", ylabel="online loss of each block")
        left.set_title(f"{task.title} (grey: step sizes are chosen)", fontsize=10)
        right.set(xscale="log", xlabel="KiB per client", ylabel="online loss after the grey part")
        right.set_title("what it costs (dashed: alone, nothing travels)", fontsize=10)
        for axes in (left, right):
            axes.grid(alpha=0.25)
            for side in ("top", "right"):
                axes.spines[side].set_visible(False)
    picture.legend(*places[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=6, frameon=False,
                   fontsize=8, columnspacing=1.2)
    kit.save_figure(picture, out / "streams.png", shades=64, dpi=80)


def table(task: Task, found: dict[str, Any]) -> str:
    classes = task.data.classes is not None
    rows = [[label, f"{one['s']:.2g}{' (edge)' if one['at_the_edge'] else ''}", f"{one['loss']:.4f}",
             *([f"{one['accuracy']:.3f}"] if classes else []), f"{np.nanmin(one['loss_of_grid']):.4f}",
             f"{one['bytes_per_client'] / 1024:.1f}"] for label, one in found.items()]
    head = ["method", "s", "loss", *(["accuracy"] if classes else []), "best loss of the grid", "KiB per client"]
    notes = "\n".join(f"- {what}: {value:.6g}" for what, value in task.notes.items())
    return f"## {task.title}, {task.steps} steps\n\n{kit.table(head, rows)}\n\n{notes}\n"


def main(arguments: list[str] | None = None) -> None:
    given = kit.read_arguments(__doc__, "results/fedomd_streams", arguments, data=kit.FILES)
    settings, watch = QUICK if given.quick else Settings(), kit.Watch()
    tasks = [cover_types(settings, given.data), ratings(settings, given.data)]
    found: dict[str, dict[str, Any]] = {}
    for task in tasks:
        found[task.title] = {}
        for label, method in methods(settings, task.radius).items():
            found[task.title][label] = outcome(played(task, method))
            watch(f"{task.title}: {label}")
    text = "\n".join(table(task, found[task.title]) for task in tasks)
    (given.out / "streams.md").write_text(text)
    kit.save_numbers(given.out / "streams.json", {
        "settings": settings._asdict(), "grid": GRID, "seconds": watch.seconds, "found": found,
        "notes": {task.title: task.notes for task in tasks}})
    draw(given.out, tasks, found)
    print(text)
    print(f"see {given.out}")


if __name__ == "__main__":
    main()
