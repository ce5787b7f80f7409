"""Federated Residual Learning (v1), Appendix C and Example 2: who gets stuck, and what local models are for.

    python studies/fedres/appendix_c.py             # 50 rollouts of 20,000 steps
    python studies/fedres/appendix_c.py --quick     # a smoke test

Appendix C (Figures 6 and 7): one client, two global and two local features; both models start at (1, 0) and should go
to (0, 1), where the loss is 0. The noise N(0, 0.25) is read as a variance. Two readings that the library does not offer
are written out here: Algorithm 6 as printed, and a normalised gradient step, for which eta = 1 is not too long.
Example 2: clients whose models are u + v and u - v; nothing but a private part can tell them apart. The paper gives no
numbers for it: here are 10 clients, 5 features, u and v drawn from N(0, 1).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib import pyplot

import cantons as ct
from cantons.protocol import Problem, Recipe
from cantons.study.resolve import resolve

sys.path.insert(0, str(Path(__file__).parents[1]))
import kit


class Settings(NamedTuple):
    rollouts: int = 50
    steps: int = 20_000
    step_sizes: tuple[float, ...] = (0.02, 0.05, 0.1, 0.15, 0.2, 1.0)
    example_rollouts: int = 20  # of Example 2
    example_steps: int = 2000


QUICK = Settings(rollouts=4, steps=60, step_sizes=(0.1,), example_rollouts=4, example_steps=60)
CLIENTS, WIDTH, SLOW = 10, 5, 0.01  # of Example 2; the step size of its gradient steps
LATE = 0.1  # the last tenth of the steps is late
METHODS = {
    "FedRes.SGD, eta = 0.05": ct.fedres_online_sgd(step_size=0.05),
    "FedRes.ERM": ct.fedres_erm(),
    "fictitious play": ct.fictitious_play(),
}
COLOURS = (kit.BLUE, kit.GREEN, kit.RED, kit.PINK, kit.ORANGE, kit.DARK)


class Course(NamedTuple):
    """What happened in every rollout, looked at after so many steps."""

    steps: np.ndarray  # [times]
    charged: np.ndarray  # [times, rollouts]: the losses so far, summed over steps, a mean over clients
    shared: np.ndarray  # [times, rollouts, parameters]

    @property
    def running(self) -> np.ndarray:
        return self.charged[1:] / self.steps[1:, None]

    @property
    def recent(self) -> np.ndarray:
        """The mean loss since the last look."""
        return np.diff(self.charged, axis=0) / np.diff(self.steps)[:, None]

    @property
    def late(self) -> np.ndarray:
        first = np.searchsorted(self.steps, (1 - LATE) * self.steps[-1])
        with np.errstate(invalid="ignore"):  # where it has blown up
            return (self.charged[-1] - self.charged[first]) / (self.steps[-1] - self.steps[first])


def looks(steps: int) -> np.ndarray:
    """Often in the beginning, regularly later."""
    often = np.unique(np.geomspace(1, steps, 100).astype(int))
    return np.unique([0, *often, *np.linspace(0, steps, 101).astype(int)])


def course(problem: Problem, federations: list[ct.Federation], recipe: Recipe, steps: int) -> Course:
    """All rollouts in one program. They are looked at too often to work out a whole row of numbers every time."""
    engine = ct.Local().together()
    session = engine.start([resolve(problem, data, recipe, rounds=steps, clock=ct.online(), seed=seed, engine=engine,
                                    precision="float64").parts for seed, data in enumerate(federations)])
    state, times = session.begin(), looks(steps)
    charged, shared = [], []
    for until in times:
        state = session.advance(state, int(until))
        charged.append([one.progress.charged["loss"].mean() for one in session.evaluate(state)])
        shared.append([np.concatenate([[], *map(np.ravel, jax.tree.leaves(one.state.server.shared))])
                       for one in session.whole(state)])
    return Course(times, np.array(charged), np.array(shared))


# Appendix C


def rollouts_c(number: int, steps: int) -> list[np.ndarray]:
    """Rows (x^g, x^l) for each rollout; every target is 1."""
    found = []
    for seed in range(number):
        random = np.random.default_rng(seed)
        a, b, noise = random.normal(size=steps), random.normal(size=steps), random.normal(0, 0.25**0.5, steps)
        found.append(np.stack([a + noise, b, 1 - a, 1 - b], axis=1))
    return found


def problem_c(data: ct.Federation) -> Problem:
    """Both models start at (1, 0)."""
    plain = ct.linear(bias=False)
    problem = ct.residual(data, shared_features=[0, 1], private_features=[2, 3], shared_model=plain,
                          private_model=plain)

    def init(key):
        part = {"layer0": {"weight": jnp.array([[1.0], [0.0]])}}
        return part, part

    return problem._replace(init=init)


Solve = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]


def nearest(curvature: np.ndarray, moment: np.ndarray, last: np.ndarray) -> np.ndarray:
    left = moment - np.einsum("rij,rj->ri", curvature, last)
    return last + np.einsum("rij,rj->ri", np.linalg.pinv(curvature, rcond=1e-12, hermitian=True), left)


def algorithm_6(rows: list[np.ndarray], steps: int, printed: bool) -> Course:
    """Both sides move at once. In the server's sum an old example keeps its w^l_s if `printed`, or else gets w^l_t."""
    inputs = np.stack(rows, axis=1)  # [steps, rollouts, 4]
    number = inputs.shape[1]
    shared, private = np.tile([1.0, 0.0], (2, number, 1))
    products, sums, kept = np.zeros((number, 4, 4)), np.zeros((number, 4)), np.zeros((number, 2))
    times, charged, total, path = looks(steps), [np.zeros(number)], np.zeros(number), [shared]
    for step, row in enumerate(inputs[:steps]):
        seen, own = row[:, :2], row[:, 2:]
        total = total + (1 - (seen * shared).sum(axis=1) - (own * private).sum(axis=1)) ** 2
        products += row[:, :, None] * row[:, None, :]
        sums += row
        kept += seen * (1 - (own * private).sum(axis=1, keepdims=True))
        again = sums[:, :2] - np.einsum("rij,rj->ri", products[:, :2, 2:], private)
        left = sums[:, 2:] - np.einsum("rij,rj->ri", products[:, 2:, :2], shared)
        shared, private = (nearest(products[:, :2, :2], kept if printed else again, shared),
                           nearest(products[:, 2:, 2:], left, private))
        if step + 1 in times:
            charged.append(total)
            path.append(shared)
    return Course(times, np.array(charged), np.array(path))


def normalised(rows: list[np.ndarray], steps: int, step_size: float) -> Course:
    """w += eta r x / |x|^2 with the residual r: a gradient step that knows how long its example is."""
    inputs = np.stack(rows, axis=1)
    weights = np.tile([1.0, 0.0, 1.0, 0.0], (inputs.shape[1], 1))
    times, charged, total, path = looks(steps), [np.zeros(len(weights))], np.zeros(len(weights)), [weights[:, :2]]
    for step, row in enumerate(inputs[:steps]):
        left = 1 - (row * weights).sum(axis=1)
        total = total + left**2
        weights = weights + step_size * (left / (row**2).sum(axis=1))[:, None] * row
        if step + 1 in times:
            charged.append(total)
            path.append(weights[:, :2])
    return Course(times, np.array(charged), np.array(path))


def summary(found: Course) -> dict[str, Any]:
    """Medians over rollouts, because a few first steps of a few rollouts dominate means."""
    distance = np.abs(found.shared - [0.0, 1.0]).max(axis=2)
    # There to stay: after the last look that found it elsewhere.
    reached = [int(found.steps[np.flatnonzero(far)[-1] + 1]) for far in (distance > 0.1).T if not far[-1]]
    # Beyond 1e3 a rollout that should go from (1, 0) to (0, 1) has blown up.
    lost = [int(found.steps[np.argmax(far)]) for far in (distance > 1e3).T if far.any()]
    return {
        "mean_loss": float(found.running[-1].mean()), "median_mean_loss": float(np.median(found.running[-1])),
        "late_loss": float(np.median(found.late)),
        "late_quartiles": [float(value) for value in np.quantile(found.late, [0.25, 0.75])],
        "final_shared": [float(value) for value in np.median(found.shared[-1], axis=0)],
        "arrived": len(reached), "median_arrival": float(np.median(reached)) if reached else None,
        "blown_up": len(lost), "median_blow_up": float(np.median(lost)) if lost else None,
        "rollouts": distance.shape[1]}


def appendix_c(number: int, steps: int, step_sizes: Iterable[float], out: Path) -> dict[str, Any]:
    rows = rollouts_c(number, steps)
    federations = [ct.from_clients({"alone": (row, np.ones(steps))}, test=0) for row in rows]
    problem = problem_c(federations[0])
    courses, watch = {}, kit.Watch()
    recipes = METHODS | {f"FedRes.SGD, eta = {size:g}": ct.fedres_online_sgd(step_size=size) for size in step_sizes}
    recipes["fictitious play, minimum norm"] = ct.fictitious_play(ties="minimum_norm")
    for name, recipe in recipes.items():
        courses[name] = course(problem, federations, recipe, steps)
        watch(name)
    courses["normalised step, eta = 1"] = normalised(rows, steps, 1.0)
    courses["Algorithm 6 as printed"] = algorithm_6(rows, steps, printed=True)
    courses["Algorithm 6, re-applied"] = algorithm_6(rows, steps, printed=False)
    _figure_6(courses, out / "appendix_c_losses.png")
    _figure_7(courses, out / "appendix_c_models.png")
    return {name: summary(found) for name, found in courses.items()}


# Example 2


def example_2(number: int, steps: int, out: Path) -> dict[str, Any]:
    federations, left_over = [], []
    for seed in range(number):
        random = np.random.default_rng(seed)
        common, own = random.normal(size=(2, WIDTH))
        clients, left = {}, []
        for index in range(CLIENTS):
            inputs = random.normal(size=(steps, WIDTH))
            sign = 1 if index < CLIENTS // 2 else -1
            clients[f"client{index}"] = inputs, inputs @ (common + sign * own)
            left.append(((inputs[int((1 - LATE) * steps):] @ own) ** 2).mean())
        federations.append(ct.from_clients(clients, test=0))
        left_over.append(np.mean(left))
    joint, for_all, alone = ({"shared_features": shared, "private_features": private} for shared, private in (
        ("all", "all"), ("all", "none"), ("none", "all")))
    sgd = ct.fedres_online_sgd(step_size=SLOW, combine="arrived")
    arms = {"one model for all, ERM": (for_all, ct.fedres_erm()), "one model for all, SGD": (for_all, sgd),
            "FedRes.ERM": (joint, ct.fedres_erm()), "FedRes.SGD": (joint, sgd),
            "fictitious play": (joint, ct.fictitious_play()),
            "each alone, ERM": (alone, ct.fedres_erm()), "each alone, SGD": (alone, sgd)}
    plain = ct.linear(bias=False)
    found, courses = {}, {}
    for name, (features, recipe) in arms.items():
        problem = ct.residual(federations[0], **features, shared_model=plain, private_model=plain)
        courses[name] = course(problem, federations, recipe, steps)
        ratio = courses[name].late / np.array(left_over)
        found[name] = {"late_loss": float(np.median(courses[name].late)), "over_vx2": float(np.median(ratio)),
                       "over_vx2_range": [float(ratio.min()), float(ratio.max())],
                       "median_mean_loss": float(np.median(courses[name].running[-1]))}
    _figure_example(courses, float(np.median(left_over)), out / "example_2.png")
    return {"left_over": float(np.median(left_over)), "arms": found}


# Pictures and tables


def _figure_6(courses: dict[str, Course], path: Path) -> None:
    picture, (left, right) = pyplot.subplots(1, 2, figsize=(9, 3.4))
    for name, colour in zip([*METHODS, "normalised step, eta = 1", "Algorithm 6 as printed"], COLOURS, strict=False):
        found, style = courses[name], "-" if name in METHODS else "--"
        left.plot(found.steps[1:], found.running.mean(axis=1), style, color=colour, label=name)
        # Below 1e-16 the difference of two sums is rounding error.
        right.plot(found.steps[1:], np.maximum(np.median(found.recent, axis=1), 1e-16), style, color=colour)
    left.set(xlabel="step", ylabel="mean loss so far, mean of rollouts", yscale="log", xscale="log")
    right.set(xlabel="step", ylabel="loss since the last look, median", yscale="log", xscale="log")
    picture.legend(*left.get_legend_handles_labels(), loc="lower center", ncol=3, frameon=False)
    picture.tight_layout(rect=(0, 0.13, 1, 1))
    kit.save_figure(picture, path, dpi=80, bbox_inches="tight")


def _figure_7(courses: dict[str, Course], path: Path) -> None:
    shown = [*METHODS, "Algorithm 6 as printed"]
    picture, grid = pyplot.subplots(1, len(shown), figsize=(10.5, 2.9), sharey=True)
    for axes, name in zip(grid, shown, strict=True):
        found = courses[name]
        for component, colour, wanted in ((0, COLOURS[0], 0), (1, COLOURS[2], 1)):
            low, middle, high = np.quantile(found.shared[:, :, component], [0.1, 0.5, 0.9], axis=1)
            axes.plot(found.steps, middle, color=colour, label=f"component {component + 1}, should be {wanted}")
            axes.fill_between(found.steps, low, high, color=colour, alpha=0.2, linewidth=0)
        axes.set(title=name, xlabel="step", ylim=(-0.3, 1.3))
        axes.title.set_fontsize(10)
    picture.legend(*grid[0].get_legend_handles_labels(), loc="lower center", ncol=2, frameon=False)
    picture.tight_layout(rect=(0, 0.08, 1, 1))
    kit.save_figure(picture, path, dpi=80, bbox_inches="tight")


def _figure_example(courses: dict[str, Course], left_over: float, path: Path) -> None:
    picture, axes = pyplot.subplots(figsize=(6.5, 3.6))
    styles = {"ERM": "-", "SGD": "--", "play": ":"}
    for name, found in courses.items():
        colour = COLOURS[2 if name.startswith("one") else 0 if name.startswith("each") else 1]
        style = next(style for word, style in styles.items() if name.endswith(word))
        axes.plot(found.steps[1:], np.maximum(np.median(found.recent, axis=1), 1e-16), style, color=colour, label=name)
    axes.axhline(left_over, color="#4D4D4D", linewidth=0.8)
    axes.text(courses["FedRes.ERM"].steps[-1], left_over / 3, "(v x)²", color="#4D4D4D", ha="right", va="top")
    axes.set(xlabel="step", ylabel="loss since the last look, median", yscale="log", xscale="log")
    axes.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
    picture.tight_layout()
    kit.save_figure(picture, path, dpi=80, bbox_inches="tight")


def tables(found: dict[str, Any]) -> str:
    rows = []
    for name, row in found["appendix_c"].items():
        low, high = row["late_quartiles"]
        arrived, blown_up = (f"{row[number]} of {row['rollouts']}" + (f", step {row[when]:.0f}" if row[number] else "")
                             for number, when in (("arrived", "median_arrival"), ("blown_up", "median_blow_up")))
        numbers = [f"{row['mean_loss']:.3g}", f"{row['median_mean_loss']:.3g}",
                   f"{_tiny(row['late_loss'])} ({_tiny(low)}, {_tiny(high)})",
                   ", ".join(f"{round(value, 3) + 0:.3f}" for value in row["final_shared"])]
        lost = row["blown_up"] > row["rollouts"] / 2
        rows.append([name, *([""] * len(numbers) if lost else numbers), arrived, blown_up])
    first = kit.table(["Appendix C", "mean loss", "median of mean losses", "late loss (quartiles)", "w^g at the end",
                       "arrived", "blown up"], rows, numbers=True)
    rows = []
    for name, row in found["example_2"]["arms"].items():
        low, high = row["over_vx2_range"]
        rows.append([name, _tiny(row["late_loss"]), f"{_tiny(row['over_vx2'])} ({_tiny(low)}, {_tiny(high)})",
                     f"{row['median_mean_loss']:.2g}"])
    second = kit.table(["Example 2", "late loss", "over (v x)² (range)", "median of mean losses"], rows, numbers=True)
    return f"{first}\n\n{second}\n"


def _tiny(value: float) -> str:
    """A late loss is the difference of two sums, and known to so many digits."""
    return f"{value:.2g}" if value > 1e-14 else "< 1e-14"


def main(arguments: list[str] | None = None) -> None:
    given = kit.read_arguments(__doc__, "results/fedres_appendix_c", arguments)
    settings, watch = QUICK if given.quick else Settings(), kit.Watch()
    with jax.enable_x64(True):
        found = {"rollouts": settings.rollouts, "steps": settings.steps,
                 "appendix_c": appendix_c(settings.rollouts, settings.steps, settings.step_sizes, given.out),
                 "example_2": example_2(settings.example_rollouts, settings.example_steps, given.out)}
    kit.save_numbers(given.out / "appendix_c.json", {**found, "seconds": round(watch.seconds, 1)})
    (given.out / "tables.md").write_text(tables(found))
    print(tables(found))
    watch(f"everything; pictures and tables are in {given.out}")


if __name__ == "__main__":
    main()
