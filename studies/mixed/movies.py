"""Which movie comes next? Clients pull movies together, a datacenter pushes them apart: "Mixed Federated Learning".

    python studies/mixed/movies.py [--quick] [--parts curves ...] [--rounds R] [--seeds N] [--strength S]
                                   [--minutes M] [--data DIR] [--out DIR]

Augenstein et al., 2022, sections 5.3, C.2.3, C.3 and C.4.4, on MovieLens 1M (movielens1m.npz). A dual encoder: clients
have the hinge loss of the movies that they rated one after the other, the datacenter has spreadout, which looks at the
table of movies and at no examples. Users are divided as in C.2.3; the fifth that the paper calls datacenter data is
kept apart and enters no loss, for Table 2 has no central data.

curves: Figures 3 and 6, against everything on the client. savings: Table 3, by our counters. dissimilarity: Figure 4
and the last column of Table 2. adaptive: Figure 12. strength: what spreadout is multiplied by, which the paper does not
say. limits: C.4.3, the largest step that learns. A cell is one method with one choice of options; its seeds are one
program. Its numbers go to DIR/cells at once, and a cell that is there, with the same settings, is not run again. With
--minutes, no cell begins that would not end in time if it took as long as the longest so far.

Without the file: made-up users, who have favourite movies.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib import pyplot

import cantons as ct
from cantons.data import from_sizes, movie_sequences
from cantons.data.federation import select_clients
from cantons.engine import shapes_that_travel
from cantons.metrics import dual_encoder_flops, leaves
from cantons.protocol import Batch, Problem, Recipe, SetMetric

sys.path.insert(0, str(Path(__file__).parents[1]))
import kit

FILE = "movielens1m.npz"
WEIGHTS = (0.5, 0.5)  # w_f and w_c of Table 11


class Settings(NamedTuple):
    """Tables 10 and 11, C.2.3 and C.3; context, width and strength are those of Ning et al.'s public code."""

    movies: int = 3952  # N; 3706 of them are rated
    width: int = 16  # d
    context: int = 10  # movies before the next one
    clients: int = 3865
    other_users: int = 483  # as many for validation, and for testing; the others are kept apart
    cohort: int = 100  # S
    steps: int = 10  # K
    batch_size: int = 16  # |B_i|
    step_size: float = 0.5  # eta
    strength: float = 0.001
    rounds: int = 2000
    every: int = 50
    seeds: int = 3
    compared: tuple[str, ...] = ("only FL", "all on clients", "parallel", "1-way", "2-way", "2-way, merge 1/2")
    adaptive: tuple[str, ...] = ("all on clients", "parallel", "1-way", "2-way, merge 1/2")
    adam_step: float = 0.01  # C.4.4
    strengths: tuple[float, ...] = (1.0, 0.1, 0.01, 0.001, 0.0001)
    strength_methods: tuple[str, ...] = ("parallel", "1-way")
    strength_seeds: int = 1
    probe_rounds: int = 100  # Figure 4
    probe_seeds: int = 5
    probe_strengths: tuple[float, ...] = (0.001, 1.0)
    limit_steps: tuple[float, ...] = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0)
    limit_methods: tuple[str, ...] = ("parallel", "1-way", "2-way", "2-way, merge 1/2")
    limit_rounds: int = 1000
    rows: int = 160  # n, of the table, that a client holds
    select_rounds: int = 100
    select_method: str = "1-way"  # which is run with rows, too


QUICK = Settings(movies=60, width=4, context=3, clients=20, other_users=5, cohort=3, steps=2, batch_size=4, rounds=6,
                 every=3, seeds=2, compared=("all on clients", "1-way"), adaptive=("1-way",), strengths=(1.0, 0.001),
                 strength_methods=("1-way",), probe_rounds=3, probe_seeds=2, probe_strengths=(0.001,),
                 limit_steps=(0.1, 0.5), limit_methods=("1-way",), limit_rounds=2, rows=30, select_rounds=2)


# The data


def movie_data(folder: Path, settings: Settings, most: int | None = None) -> ct.Federation:
    """Clients, and the examples of the users who test; `most`: keep so many of each user's examples, the latest."""
    if (folder / FILE).exists():
        whole = movie_sequences(folder / FILE, context=settings.context, most=most, test=0.0)
    else:
        whole = made_up(settings, most)
    order = np.random.default_rng(0).permutation(whole.population)
    ends = np.cumsum([settings.clients, settings.other_users, settings.other_users])
    chosen = [np.isin(np.arange(whole.population), part) for part in np.split(order, ends)[:3]]
    test = select_clients(whole.clients, chosen[2]).train
    return replace(whole, clients=select_clients(whole.clients, chosen[0]), test_set="examples of users who only test",
                   sets={"test": from_sizes(test.inputs, test.targets, np.array([len(test.targets)]))})


def made_up(settings: Settings, most: int | None) -> ct.Federation:
    """Each user walks around among the movies near a favourite one."""
    random = np.random.default_rng(0)

    def user() -> tuple[np.ndarray, np.ndarray]:
        length = int(random.integers(settings.context + 4, 30))
        seen = ((random.integers(settings.movies) + random.permutation(30)[:length]) % settings.movies).astype(np.int32)
        rows = np.lib.stride_tricks.sliding_window_view(seen, settings.context + 1)[-(most or length):]
        return rows[:, :-1].copy(), rows[:, -1].copy()

    users = settings.clients + 3 * settings.other_users
    return ct.from_clients({f"user{number:03}": user() for number in range(users)}, classes=settings.movies, test=0)


def popular_recall(data: ct.Federation, nearest: int = 10) -> float:
    """What recall@10 would be if everybody were shown the ten movies that clients rated most."""
    counts = np.bincount(np.asarray(data.train.targets))
    return float(np.isin(data.sets["test"].targets, np.argsort(-counts)[:nearest]).mean())


def rows_looked_at(data: ct.Federation, settings: Settings, clients: int = 500) -> np.ndarray:
    """How many different movies clients meet in a round."""
    random, train = np.random.default_rng(0), data.train
    ends = np.cumsum(np.asarray(train.sizes))

    def met(client: int) -> int:
        drawn = random.integers(0, train.sizes[client], settings.steps * settings.batch_size) + ends[client] \
            - train.sizes[client]
        return len(np.unique(np.append(train.inputs[drawn], train.targets[drawn]))) - (train.inputs[drawn] < 0).any()

    return np.array([met(client) for client in random.permutation(data.population)[:clients]])


# The problem and the methods


def movie_problem(data: ct.Federation, settings: Settings, strength: float) -> Problem:
    """Hinge at clients and spreadout at the centre; all but the hinge is measured on the test set alone.

    An example's recall takes a cosine with each movie. For all clients, at every evaluation, that would be most of the
    work.
    """
    plain = ct.dual_encoder(data, vocabulary=settings.movies, width=settings.width)
    apart = ct.with_central_loss(plain, "spreadout", (0, 1)).central
    assert apart is not None

    def mean_of(value: Callable[[Any, Any, Batch], Any]) -> SetMetric:
        return SetMetric(lambda shared, private, batch: jnp.broadcast_to(
            value(shared, private, batch), batch.targets.shape), lambda values: float(np.mean(values)))

    measured = {
        "recall": mean_of(lambda shared, private, batch: plain.score(shared, private, batch)["recall@10"]),
        "spreadout": mean_of(lambda shared, private, batch: apart.loss(shared, private, None)),
        "length": mean_of(lambda shared, private, batch: jnp.linalg.norm(shared["table"], axis=1).mean())}
    lean = plain._replace(score=lambda *given: {"loss": plain.score(*given)["loss"]}, maximise=(), set_metrics=measured)
    return ct.with_central_loss(lean, {"name": "spreadout", "strength": strength}, WEIGHTS)


def methods(settings: Settings, step_size: float | None = None, steps: int | None = None, adam: float | None = None,
            rows: int | None = None) -> dict[str, Recipe]:
    """Tables 10 and 11, with some of it changed. With `adam`, that is the step of an Adam that makes the last step."""
    eta, count = step_size or settings.step_size, steps or settings.steps
    work: dict[str, Any] = {"step_size": eta, "steps": count, "batch_size": settings.batch_size}
    centre: dict[str, Any] = {"central_step_size": eta, "central_steps": count}
    served = {"server_optimizer": "adam", "server_step_size": adam} if adam else {}
    merged = {"merge_optimizer": "adam", "merge_step_size": adam} if adam else {}
    held = {"rows": rows} if rows else {}
    return {
        "only FL": ct.fedavg(**work, **held, weighting="uniform"),  # p_i = K |B_i|, the same for all
        # Spreadout is computed by each client in each of its steps; no examples are sent.
        "all on clients": ct.example_transfer(**work, **served, central_batch_size=1, central_batches=1),
        "parallel": ct.parallel_training(**work, **centre, **merged, **held),
        "1-way": ct.one_way_transfer(**work, **served, **held),
        "2-way": ct.two_way_transfer(**work, **centre, **merged, **held),
        "2-way, merge 1/2": ct.two_way_transfer(**work, **centre, **held, **merged or {"merge_step_size": 0.5}),
    }


STYLES = {"only FL": kit.GREY, "all on clients": kit.BLACK, "parallel": kit.ORANGE, "1-way": kit.BLUE,
          "2-way": kit.GREEN, "2-way, merge 1/2": kit.RED}


# The cells


class Cell(NamedTuple):
    """Curves of one method: [runs, evaluations] for each number."""

    round: np.ndarray
    numbers: Mapping[str, np.ndarray]

    def last(self, name: str) -> np.ndarray:
        return self.numbers[name][:, -1]

    def joint(self, strength: float) -> np.ndarray:
        """f = w_f f_f + w_c f_c."""
        return WEIGHTS[0] * self.numbers["loss"] + WEIGHTS[1] * strength * self.numbers["spreadout"]


class Bench:
    """The data, whose cells are run once and kept."""

    def __init__(self, folder: Path, settings: Settings, out: Path, minutes: float | None, watch: kit.Watch):
        self.folder, self.settings, self.out, self.minutes, self.watch = folder, settings, out, minutes, watch
        self.data = movie_data(folder, settings)
        self.longest = 0.0  # seconds of a cell
        self.left_out: list[str] = []
        # On an accelerator all clients at once: they make equally many steps, however many examples they have.
        self.engine = ct.Local() if jax.default_backend() == "cpu" else ct.Local(group=settings.cohort)

    def cell(self, part: str, words: str, recipe: Recipe | Sequence[Recipe], rounds: int, seeds: int, every: int = 0,
             strength: float | None = None, data: ct.Federation | None = None) -> Cell | None:
        """The curves of one method, with as many runs as there are seeds, or recipes; None if time is up."""
        recipes = [recipe] * seeds if isinstance(recipe, Recipe) else list(recipe)
        every, data = every or self.settings.every, data or self.data
        strength = self.settings.strength if strength is None else strength
        file = self.out / "cells" / f"{part}-{words.replace('/', 'over').replace(' ', '_')}.json"
        about = json.loads(json.dumps({
            "method": recipes[0].name, "options": [one.options for one in recipes], "rounds": rounds, "every": every,
            "strength": strength, "seeds": seeds, "cohort": self.settings.cohort, "movies": self.settings.movies,
            "width": self.settings.width, "data": data.describe()}, default=str))
        known = json.loads(file.read_text()) if file.exists() else {}
        if known.get("about") != about:
            began = self.watch.seconds
            if self.minutes is not None and began + self.longest > 60 * self.minutes:
                self.left_out.append(f"{part}, {words}")
                return None
            histories = ct.rollouts(
                movie_problem(data, self.settings, strength), data, recipes, rounds=rounds, engine=self.engine,
                clock=ct.rounds(cohort=min(self.settings.cohort, data.population)), evaluate_every=every,
                seed=list(range(seeds)) if isinstance(recipe, Recipe) else [0] * len(recipes))
            took = self.watch.seconds - began
            known = {"about": about, "seconds": took, "round": [row["round"] for row in histories[0]],
                     "numbers": {short: [[row[name] for row in history] for history in histories]
                                 for name in histories[0][-1] if (short := shortened(name))}}
            file.parent.mkdir(parents=True, exist_ok=True)
            kit.save_numbers(file, known)
            self.longest = max(self.longest, took)
            self.watch(f"{part}, {words}: recall@10 {np.mean([run[-1] for run in known['numbers']['recall']]):.4f}, "
                       f"{took:.0f} s")
        return Cell(np.array(known["round"]), {name: np.array(values, float)
                                               for name, values in known["numbers"].items()})


def shortened(name: str) -> str:
    """Our word for a number of an evaluation; empty for those that are not kept."""
    for start in ("test.shared.", "server.dissimilarity_"):
        if name.startswith(start) and name.count(".") == start.count("."):
            return name.removeprefix(start)
    return ""


def present(cells: Mapping[Any, Cell | None]) -> dict[Any, Cell]:
    return {name: cell for name, cell in cells.items() if cell is not None}


def mean_and_error(values: np.ndarray, digits: int = 4) -> str:
    return f"{values.mean():.{digits}f} ± {kit.standard_error(values):.{digits}f}"


# The parts: each draws a figure and gives a table


def curves(bench: Bench) -> str:
    settings, known = bench.settings, methods(bench.settings)
    cells = present({name: bench.cell("curves", name, known[name], settings.rounds, settings.seeds)
                     for name in settings.compared})
    draw_curves(bench, "curves", cells, f"Figures 3 and 6, {settings.seeds} seeds")
    return table_of_curves(bench, cells)


def adaptive(bench: Bench) -> str:
    settings, known = bench.settings, methods(bench.settings, adam=bench.settings.adam_step)
    cells = present({name: bench.cell("adaptive", name, known[name], settings.rounds, settings.seeds)
                     for name in settings.adaptive})
    draw_curves(bench, "adaptive", cells, f"Figure 12, Adam with a step of {settings.adam_step:g}, "
                                          f"{settings.seeds} seeds")
    return table_of_curves(bench, cells)


def draw_curves(bench: Bench, part: str, cells: Mapping[str, Cell], title: str) -> None:
    figure, plots = pyplot.subplots(1, 3, figsize=(14, 4), layout="constrained")
    for name, cell in cells.items():
        shown = {"recall@10": cell.numbers["recall"], "hinge loss": cell.numbers["loss"],
                 "w_f hinge + w_c spreadout": cell.joint(bench.settings.strength)}
        for axes, (label, values) in zip(plots, shown.items(), strict=True):
            kit.plot_band(axes, cell.round, values, values.mean(axis=0), STYLES[name], label=name)
            axes.set(xlabel="round", ylabel=f"{label}, test users")
    plots[0].axhline(popular_recall(bench.data), color=kit.GREY, linestyle=":", label="the ten most rated")
    plots[0].legend(fontsize=8)
    figure.suptitle(f"Movies: {title}, from the smallest to the largest")
    kit.save_figure(figure, bench.out / f"{part}.png", shades=64)


def table_of_curves(bench: Bench, cells: Mapping[str, Cell]) -> str:
    """After the last round, and when nine tenths of the best recall were reached."""
    goal = 0.9 * max((float(cell.last("recall").mean()) for cell in cells.values()), default=0)

    def first(cell: Cell) -> str:
        reached = cell.numbers["recall"].mean(axis=0) >= goal
        return str(int(cell.round[reached.argmax()])) if reached.any() else "never"

    rows = [[name, mean_and_error(cell.last("recall")), mean_and_error(cell.last("loss")),
             mean_and_error(cell.last("spreadout"), 1), mean_and_error(cell.joint(bench.settings.strength)[:, -1]),
             first(cell)] for name, cell in cells.items()]
    rows.append(["the ten most rated", f"{popular_recall(bench.data):.4f}", "", "", "", ""])
    return kit.table(["method", "recall@10", "hinge loss", "spreadout", "w_f hinge + w_c spreadout",
                      f"rounds to a recall of {goal:.4f}"], rows, numbers=True)


def dissimilarity(bench: Bench) -> str:
    """C.1: one step a round, five runs, the maximum over runs in each round."""
    settings, found = bench.settings, []
    one = methods(settings, steps=1)
    figure, plots = pyplot.subplots(1, 2, figsize=(11, 3.5), layout="constrained")
    for strength in settings.probe_strengths:
        cell = bench.cell("dissimilarity", f"1-way {strength:g}", one["1-way"], settings.probe_rounds,
                          settings.probe_seeds, every=1, strength=strength)
        if cell is None:
            continue
        tops = {which: cell.numbers[which].max(axis=0) for which in ("G2", "B2")}
        for axes, which in zip(plots, tops, strict=True):
            axes.semilogy(cell.round, tops[which], label=f"strength {strength:g}")
            axes.set(xlabel="round", ylabel={"G2": "G~²", "B2": "B~²"}[which])
        later = cell.round >= min(10, cell.round[-1])
        found.append([f"{strength:g}", *(f"{tops[which][later].max():.4g}" for which in tops),
                      *(f"{tops[which][0]:.4g}" for which in tops)])
    plots[0].legend()
    figure.suptitle(f"Movies: Figure 4, the largest of {settings.probe_seeds} runs in each round")
    kit.save_figure(figure, bench.out / "dissimilarity.png", shades=64)
    head = ["strength", "max G~², rounds 10 to 100", "max B~²", "G~² after one round", "B~² after one round"]
    return kit.table(head, [*found, ["Table 2", "0.03", "1.50", "", ""]], numbers=True)


def strength(bench: Bench) -> str:
    """What spreadout is multiplied by: the length of rows says what became of the first rounds."""
    settings, known, rows = bench.settings, methods(bench.settings), []
    figure, plots = pyplot.subplots(1, len(settings.strength_methods), figsize=(11, 4), layout="constrained",
                                    sharey=True, squeeze=False)
    for axes, name in zip(plots[0], settings.strength_methods, strict=True):
        for value, colour in zip(settings.strengths, kit.COLOURS, strict=False):
            cell = (bench.cell("curves", name, known[name], settings.rounds, settings.seeds)
                    if value == settings.strength else
                    bench.cell("strength", f"{name} {value:g}", known[name], settings.rounds, settings.strength_seeds,
                               strength=value))
            if cell is None:
                continue
            recall = cell.numbers["recall"]
            kit.plot_band(axes, cell.round, recall, recall.mean(axis=0), colour, label=f"{value:g}")
            rows.append([name, f"{value:g}", mean_and_error(cell.last("recall")), mean_and_error(cell.last("loss")),
                         f"{cell.last('spreadout').mean():.1f}", f"{cell.numbers['length'][:, 0].mean():.3f}",
                         f"{cell.last('length').mean():.3f}"])
        axes.set(xlabel="round", ylabel="recall@10, test users", title=name)
        axes.legend(fontsize=8, title="strength")
    kit.save_figure(figure, bench.out / "strength.png", shades=64)
    return kit.table(["method", "strength", "recall@10", "hinge loss", "spreadout",
                      f"length of rows after {settings.every} rounds", "at the end"], rows, numbers=True)


def limits(bench: Bench) -> str:
    """The largest step that beats the ten most rated movies; all steps of a method are one program."""
    settings, rows = bench.settings, []
    bar = popular_recall(bench.data)
    figure, axes = pyplot.subplots(figsize=(6, 4), layout="constrained")
    for name in settings.limit_methods:
        recipes = [methods(settings, step_size=size)[name] for size in settings.limit_steps]
        cell = bench.cell("limits", name, recipes, settings.limit_rounds, 1, every=settings.limit_rounds)
        if cell is None:
            continue
        ends = np.nan_to_num(cell.last("recall"))
        axes.semilogx(settings.limit_steps, ends, "o-", color=STYLES[name], label=name)
        good = [size for size, recall in zip(settings.limit_steps, ends, strict=True) if recall > bar]
        rows.append([name, f"{max(good, default=float('nan')):g}", f"{settings.limit_steps[int(ends.argmax())]:g}",
                     f"{ends.max():.4f}"])
    axes.axhline(bar, color=kit.GREY, linestyle=":", label="the ten most rated")
    axes.set(xlabel="eta", ylabel=f"recall@10 after {settings.limit_rounds} rounds")
    axes.legend()
    kit.save_figure(figure, bench.out / "limits.png", shades=64)
    return kit.table(["method", f"largest eta with a recall above {bar:.4f}", "best eta", "its recall"], rows,
                     numbers=True)


def savings(bench: Bench) -> str:
    """Table 3: of one client, the operations of a local step and the traffic of a round.

    A client has room for n rows of the table; so many movies are what a user with at most n - context examples has met.
    """
    settings = bench.settings
    data = movie_data(bench.folder, settings, most=settings.rows - settings.context)
    problem = movie_problem(data, settings, settings.strength)
    whole, some = methods(settings), methods(settings, rows=settings.rows)
    rows = []
    for name, recipe in {"all on clients": whole["all on clients"],
                         **{name: some[name] for name in ("parallel", "1-way", "2-way")}}.items():
        down, up = ({path: int(np.prod(shape)) * np.dtype(kind).itemsize for path, shape, kind in leaves(tree)}
                    for tree in shapes_that_travel(problem, recipe.build(problem, data.population), data.train))
        table = sum(size for path, size in [*down.items(), *up.items()] if path.endswith("table"))
        everything = name == "all on clients"
        rows.append([name, f"{operations(settings, everything) / 1e6:.3f}",
                     f"{counted_operations(problem, settings, everything) / 1e6:.3f}", f"{table / 1024:.1f}",
                     f"{(sum(down.values()) + sum(up.values())) / 1024:.1f}"])
    page = kit.table(["method", "MFLOP a step, by C.3", "by XLA", "KiB a round, of the table", "in all"], rows,
                     numbers=True)
    asked = rows_looked_at(bench.data, settings)
    page += (f"\n\nWith all their examples, clients look at {asked.mean():.0f} different movies in a round on average, "
             f"{asked.max()} at most of {len(asked)} clients. With the latest {settings.rows - settings.context} "
             f"examples of each user, after {settings.select_rounds} rounds:\n\n")
    name, ends = settings.select_method, []
    for words, recipe in (("whole tables", whole[name]), (f"{settings.rows} rows", some[name])):
        cell = bench.cell("savings", f"{name}, {words}", recipe, settings.select_rounds, 1,
                          every=settings.select_rounds, data=data)
        if cell is not None:
            ends.append([name, words, *(f"{cell.last(key)[0]:.6f}" for key in ("loss", "recall"))])
    return page + kit.table(["method", "clients hold", "hinge loss", "recall@10"], ends, numbers=True)


def operations(settings: Settings, everything: bool) -> float:
    return dual_encoder_flops(settings.batch_size, settings.width, settings.movies if everything else None)


def counted_operations(problem: Problem, settings: Settings, everything: bool) -> float:
    """XLA's count of the operations in the gradient of one local step; spreadout comes from the d x d matrix."""
    held = settings.movies if everything else settings.rows
    shared = jax.eval_shape(lambda: problem.init(jax.random.key(0)))[0]
    shared["table"] = jax.ShapeDtypeStruct((held, settings.width), shared["table"].dtype)
    batch = Batch(*(jax.ShapeDtypeStruct((settings.batch_size, *shape), kind) for shape, kind in (
        ((settings.context,), jnp.int32), ((), jnp.int32), ((), jnp.float32))))

    def loss(shared: Any, batch: Batch) -> Any:
        assert problem.central is not None
        own = problem.loss(shared, {}, batch)
        return own + problem.central.loss(shared, {}, None) if everything else own

    cost = jax.jit(jax.grad(loss)).lower(shared, batch).compile().cost_analysis()
    return float((cost[0] if isinstance(cost, list) else cost)["flops"])


PARTS: dict[str, Callable[[Bench], str]] = {
    "curves": curves, "savings": savings, "dissimilarity": dissimilarity, "adaptive": adaptive, "strength": strength,
    "limits": limits}


def main(arguments: Sequence[str] | None = None) -> None:
    given = kit.read_arguments(
        __doc__, "results/mixed/movies", arguments, data=kit.FILES,
        parts={"nargs": "*", "choices": list(PARTS), "default": list(PARTS)},
        rounds={"type": int, "help": "in place of the usual number"},
        seeds={"type": int, "help": "of a method in curves and adaptive"},
        strength={"type": float, "help": "what spreadout is multiplied by"},
        minutes={"type": float, "help": "when to end; after all cells if left out"})
    settings = (QUICK if given.quick else Settings())._replace(
        **{name: getattr(given, name) for name in ("rounds", "seeds", "strength") if getattr(given, name) is not None})
    watch = kit.Watch()
    bench = Bench(given.data, settings, given.out, given.minutes, watch)
    watch(bench.data.describe().replace("\n", "; "))
    page: list[str] = []
    for part in given.parts:
        page += [f"## {part}", "", PARTS[part](bench), ""]
        (given.out / "movies.md").write_text("\n".join([*page, *not_run(bench.left_out)]))
    watch(f"done: {given.out / 'movies.md'}")


def not_run(cells: Iterable[str]) -> list[str]:
    return [f"Not run, for lack of time: {'; '.join(cells)}.", ""] if cells else []


if __name__ == "__main__":
    main()
