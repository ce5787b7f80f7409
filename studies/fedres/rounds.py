"""The experiments of "Federated Residual Learning" (v2: Wei, Agarwal and Langford), in rounds.

    python studies/fedres/rounds.py [--quick] [--out DIR]

Figure 1 (appendix E.1): two clients pull the shared model apart; which methods drift, and how far?
Figure 2 (appendix E.2): labels blend a common and an own model; who serves clients that differ?
Example 1: two users and three formulations, whose best losses are known in closed form.

Figures, numbers (rounds.json) and tables (rounds.md) go to DIR. What the paper leaves open is chosen in Settings.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib import pyplot

import cantons as ct

sys.path.insert(0, str(Path(__file__).parents[1]))
import kit


class Settings(NamedTuple):
    """What the paper says, and what it leaves open."""

    local_steps: tuple[int, ...] = (1, 5, 10, 50, 100)  # Figure 1: K
    drift_rounds: int = 300  # open
    alphas: tuple[float, ...] = (0.0, 0.25, 0.5, 0.75, 1.0)  # Figure 2
    rates: tuple[float, ...] = (0.1, 0.03, 0.01, 0.003, 0.001)  # for eta and for lambda, each
    pulls: tuple[float, ...] = (0.0, 0.01, 0.05, 0.2, 1.0, 5.0)  # mu of FedProx; the figure has 0.05
    steps: int = 50  # K
    batch_size: int = 10  # open
    rounds: int = 50  # open
    examples: int = 2000  # of each client, open: 960 to train, 240 to choose rates by, 800 to test
    seeds: int = 3  # open; each draws data, initial draws and batches anew
    tests: int = 20_000  # Example 1: examples of each user
    penalties: tuple[float, ...] = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)  # Example 1: lambda of (5)
    tosses: int = 4000  # Example 1: rounds of L2GD


QUICK = Settings(local_steps=(10,), drift_rounds=20, alphas=(1.0,), rates=(0.1,), pulls=(0.05,), steps=5, rounds=3,
                 examples=100, seeds=1, tests=500, penalties=(2.0,), tosses=100)
COLOURS = {"FedAvg": kit.GREY, "SCAFFOLD": kit.DARK, "FedProx": kit.ORANGE, "FedResNaive": kit.RED,
           "FedResSGD": kit.BLUE, "FedResAvg-I": kit.PINK, "FedResAvg-II": kit.GREEN, "alone": kit.BLACK}


# Figure 1: L_1 = .1 (w + theta_1)^2 + 10 w and L_2 = .1 theta_2^2 - 10 w


RATE = 0.01  # eta = lambda
FOUR: dict[str, Callable[..., Any]] = {
    "FedResNaive": ct.fedres_naive,
    "FedResSGD": ct.fedres_sgd,
    "FedResAvg-I": lambda **options: ct.fedres_avg(option="I", **options),
    "FedResAvg-II": lambda **options: ct.fedres_avg(option="II", **options),
}


def pulled_apart() -> tuple[ct.Problem, ct.Federation]:
    """An example is (is it client 1?, the slope of w, where theta_i starts): losses, not data, are given here."""
    starts = np.random.default_rng(0).normal(0, np.sqrt(0.1), 3)  # N(0, 0.1), read as a variance
    rows = np.array([[1.0, 10.0, starts[1]], [0.0, -10.0, starts[2]]])
    data = ct.federation(rows, np.zeros(2), ["first", "second"], test=0)

    def apply(params, inputs):
        first, slope, start = inputs.T
        own = start + params["private"]  # so every client has a start of its own
        return 0.1 * (first * params["shared"] + own) ** 2 + slope * params["shared"]

    problem = ct.from_functions(lambda key: {"shared": jnp.full((), starts[0]), "private": jnp.zeros(())}, apply,
                                loss=lambda outputs, targets: outputs, split="private")
    return problem, data


def naive_limit(steps: int) -> float:
    """Where w + theta_1 ends under FedResNaive as printed; f is the limit of the local steps alone."""
    shrink = 1 - 0.2 * RATE
    q = shrink**2
    f, total = -10 * RATE * shrink / (1 - q), (1 - q**steps) / (1 - q)
    balance = 2 * RATE**2 * steps / (0.1 * RATE + 0.2 * RATE * shrink)  # the sum of a round's w_i + theta_1 at rest
    return f + (balance - steps * f) / total


def uncorrected_limit(steps: int) -> float:
    """Where w + theta_1 ends under FedResAvg-I."""
    q = 1 - 0.2 * RATE
    f, total, kept = -10 * RATE / (1 - q), (1 - q**steps) / (1 - q), q**steps
    return -0.1 * RATE * f * (steps - total) / (1 - kept + 0.1 * RATE * total * kept)


LIMITS = {"FedResNaive": naive_limit, "FedResAvg-I": uncorrected_limit}


def drift(settings: Settings, out: Path) -> dict[str, Any]:
    problem, data = pulled_apart()
    figure, axes = pyplot.subplots(1, len(settings.local_steps), figsize=(2.4 * len(settings.local_steps), 2.6),
                                   sharey=True, squeeze=False, layout="constrained")
    found: dict[str, Any] = {}
    for steps, axis in zip(settings.local_steps, axes[0], strict=True):
        for name, build in FOUR.items():
            recipe = build(step_size=RATE, private_step_size=RATE, steps=steps, batch_size=None)
            result = ct.run(problem, data, recipe, rounds=settings.drift_rounds, evaluate_every=1, precision="float64")
            losses = result.arrays["train.personal.loss.mean"][1:]  # a client predicts as learned once it has acted
            limit = 0.05 * LIMITS[name](steps) ** 2 if name in LIMITS else 0.0
            found[f"K={steps} {name}"] = {"last": losses[-1], "limit": limit, "losses": losses.tolist()}
            axis.plot(np.arange(1, len(losses) + 1), np.maximum(losses, 1e-16), label=name, color=COLOURS[name],
                      linestyle={"FedResSGD": "--", "FedResAvg-I": "-."}.get(name, "-"))
            if limit > 1e-16:
                axis.axhline(limit, color=COLOURS[name], linewidth=0.6, linestyle=":")
        axis.set(title=f"K = {steps}", xlabel="round", yscale="log")
    axes[0, 0].set_ylabel("average loss")
    axes[0, -1].legend(fontsize=7)
    kit.save_figure(figure, out / "drift.png")
    return found


# Figure 2: y = argmax{(1 - alpha) W x + alpha Theta_i x + n}


class Method(NamedTuple):
    build: Callable[..., Any]
    personal: bool = False  # does it have a private part, and with it a lambda?
    options: Mapping[str, Any] = {}
    varied: Mapping[str, Iterable[float]] = {}


def methods(settings: Settings) -> dict[str, Method]:
    uniform = {"weighting": "uniform"}  # the paper's plain mean over clients
    return {
        "FedAvg": Method(ct.fedavg, options=uniform),
        "SCAFFOLD": Method(ct.scaffold),
        "FedProx": Method(ct.fedprox, options={"predict_with": "local", **uniform}, varied={"mu": settings.pulls}),
        **{name: Method(build, personal=True) for name, build in FOUR.items()},
        "alone": Method(ct.independent),  # not in the paper: what a client reaches without the others
    }


def played(method: Method, sets: list[ct.Federation], settings: Settings, rounds: list[int]) -> dict[str, Any]:
    """All data and all rates in one program: the combinations, and {set: losses [data, combination, round]}."""
    linear = ct.linear(bias=False)  # zeros to begin with
    problem = (ct.residual(sets[0], shared_model=linear, private_model=linear) if method.personal
               else ct.classification(sets[0], linear))
    axes = {"step_size": settings.rates, **({"private_step_size": settings.rates} if method.personal else {}),
            **method.varied}
    points = [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]
    recipes = [method.build(steps=settings.steps, batch_size=settings.batch_size, **method.options, **point)
               for point in points]
    histories = ct.rollouts(problem, [data for data in sets for _ in points], recipes * len(sets),
                            rounds=settings.rounds, evaluate_every=rounds,
                            seed=[place % settings.seeds for place in range(len(sets)) for _ in points])
    losses = {name: np.array([[row[f"{name}.personal.loss.mean"] for row in history] for history in histories])
              for name in ("validation", "test")}
    return {"points": points, **{name: values.reshape(len(sets), len(points), -1) for name, values in losses.items()}}


def heterogeneity(settings: Settings, out: Path) -> dict[str, Any]:
    rounds = sorted({round for round in (*range(1, 11), *range(15, settings.rounds, 5)) if round < settings.rounds}
                    | {settings.rounds})
    sets = [ct.with_validation(ct.synthetic_mixture(10, alpha=alpha, examples=settings.examples, test=0.4, seed=seed),
                               0.2)
            for alpha in settings.alphas for seed in range(settings.seeds)]
    found: dict[str, Any] = {"rounds": rounds}
    for name, method in methods(settings).items():
        runs = played(method, sets, settings, rounds)
        for place, alpha in enumerate(settings.alphas):
            here = slice(place * settings.seeds, (place + 1) * settings.seeds)
            for mu in settings.pulls if name == "FedProx" else [None]:
                label = name if mu is None else f"{name} mu={mu:g}"
                found[f"alpha={alpha:g} {label}"] = chosen(runs, here, mu)
    figure_two(settings, found, out)
    prox_figure(settings, found, out)
    return found


def chosen(runs: dict[str, Any], here: slice, mu: float | None) -> dict[str, Any]:
    """The test losses at the rates with the best last validation loss, averaged over the seeds."""
    points = [place for place, point in enumerate(runs["points"]) if mu is None or point["mu"] == mu]
    validation = runs["validation"][here, points, -1].mean(axis=0)
    best = points[np.nanargmin(validation)]
    curves = runs["test"][here, best]
    return {"rates": {name: rate for name, rate in runs["points"][best].items() if name != "mu"},
            "validation": float(np.nanmin(validation)), "last": float(curves[:, -1].mean()),
            "error": kit.standard_error(curves[:, -1]), "losses": curves.mean(axis=0).tolist(),
            "seeds": curves[:, -1].tolist()}


def labels(settings: Settings) -> dict[str, str]:
    """The methods of the figure, and what each is called in the numbers."""
    shown = 0.05 if 0.05 in settings.pulls else settings.pulls[0]
    return {name: f"FedProx mu={shown:g}" if name == "FedProx" else name for name in methods(settings)}


def figure_two(settings: Settings, found: dict[str, Any], out: Path) -> None:
    figure, axes = pyplot.subplots(1, len(settings.alphas), figsize=(2.4 * len(settings.alphas), 2.8), squeeze=False,
                                   layout="constrained")
    for alpha, axis in zip(settings.alphas, axes[0], strict=True):
        for name, label in labels(settings).items():
            axis.plot(found["rounds"], found[f"alpha={alpha:g} {label}"]["losses"], label=label, color=COLOURS[name],
                      linestyle=":" if name == "alone" else "--" if name in ("FedAvg", "FedResSGD") else "-")
        axis.set(title=f"alpha = {alpha:g}", xlabel="round", xscale="log")
    axes[0, 0].set_ylabel("average test loss")
    handles, names = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=len(names), fontsize=7)
    kit.save_figure(figure, out / "heterogeneity.png")


def prox_figure(settings: Settings, found: dict[str, Any], out: Path) -> None:
    figure, axis = pyplot.subplots(figsize=(4.2, 2.8), layout="constrained")
    places = np.arange(len(settings.pulls))
    for number, alpha in enumerate(settings.alphas):
        losses = [found[f"alpha={alpha:g} FedProx mu={mu:g}"]["last"] for mu in settings.pulls]
        axis.plot(places, losses, marker="o", markersize=3, label=f"alpha = {alpha:g}", color=f"C{number}")
    axis.set(xticks=places, xticklabels=[f"{mu:g}" for mu in settings.pulls], xlabel="mu", ylabel="test loss")
    axis.legend(fontsize=7)
    kit.save_figure(figure, out / "prox.png")


# Example 1: two users


def example_one(settings: Settings, out: Path) -> dict[str, Any]:
    """One model for both, a model for each, and models pulled towards their mean: found, and expected."""
    data = ct.restaurants(settings.tests, noise=1.0, test=0.5)
    linear = ct.linear(bias=False)
    one_model, joint = ct.regression(data, linear), ct.residual(data, shared_model=linear, private_model=linear)
    work = {"step_size": 0.05, "steps": 5, "batch_size": None}

    def row(expected: float, problem: ct.Problem, recipe: Any, rounds: int = 100) -> dict[str, float]:
        losses = ct.run(problem, data, recipe, rounds=rounds).arrays["test.personal.loss.mean"]
        # An error is N(0, expected), so its square has this deviation; l2gd never rests, so look at several rounds.
        return {"loss": losses[-5:].mean(), "expected": expected,
                "error": expected * np.sqrt(2 / data.test.sizes.sum())}

    def penalised(penalty: float) -> ct.Problem:
        """(5): at the best w the theta_i have mean 0, so the constraint need not be asked for."""
        def loss(shared, private, batch):
            return joint.loss(shared, private, batch) + penalty / 2 * sum(
                (leaf**2).sum() for leaf in jax.tree.leaves(private))

        return joint._replace(loss=loss)

    found = {"(1) fedres_sgd": row(1.0, joint, ct.fedres_sgd(**work)),
             "(1) fedres_avg": row(1.0, joint, ct.fedres_avg(**work)),
             "(4) fedavg": row(3.0, one_model, ct.fedavg(**work))}
    for penalty in settings.penalties:
        expected = 1 + 2 * (penalty / (2 + penalty)) ** 2
        found[f"(5) lambda={penalty:g}, fedres_sgd"] = row(expected, penalised(penalty), ct.fedres_sgd(**work))
        tossed = ct.l2gd(penalty=penalty, step_size=0.001)
        found[f"(5) lambda={penalty:g}, l2gd"] = row(expected, one_model, tossed, settings.tosses)
    figure, axis = pyplot.subplots(figsize=(4.2, 2.8), layout="constrained")
    line = np.linspace(0, max(settings.penalties), 100)
    axis.plot(line, 1 + 2 * (line / (2 + line)) ** 2, color=kit.GREY, label="closed form")
    for method, marker in (("fedres_sgd", "o"), ("l2gd", "x")):
        axis.plot(settings.penalties, [found[f"(5) lambda={penalty:g}, {method}"]["loss"]
                                       for penalty in settings.penalties], marker, label=f"(5), {method}")
    for name, style in (("(1) fedres_sgd", "--"), ("(4) fedavg", ":")):
        axis.axhline(found[name]["loss"], linestyle=style, color=kit.BLUE, label=name)
    axis.set(xlabel="lambda of (5)", ylabel="test loss")
    axis.legend(fontsize=7, loc="lower right", bbox_to_anchor=(1, 0.06))
    kit.save_figure(figure, out / "example1.png")
    return found


# What is written


def tables(settings: Settings, found: dict[str, Any]) -> str:
    drifts, blends, example = found["drift"], found["heterogeneity"], found["example1"]
    names = [*labels(settings).values()]
    return "\n\n".join([
        f"Average loss of E.1 after {settings.drift_rounds} rounds, and in brackets its limit by hand:",
        kit.table(["K", *FOUR], ([str(steps), *(
            "{last:.2g} ({limit:.2g})".format(**drifts[f"K={steps} {name}"]) for name in FOUR)]
            for steps in settings.local_steps)),
        f"Test loss of E.2 after {settings.rounds} rounds, mean and standard error over {settings.seeds} seeds:",
        kit.table(["alpha", *names], ([f"{alpha:g}", *(
            "{last:.3f} ± {error:.3f}".format(**blends[f"alpha={alpha:g} {name}"]) for name in names)]
            for alpha in settings.alphas)),
        "The rates chosen for them by validation loss, eta or eta / lambda:",
        kit.table(["alpha", *names], ([f"{alpha:g}", *(
            " / ".join(f"{rate:g}" for rate in blends[f"alpha={alpha:g} {name}"]["rates"].values()) for name in names)]
            for alpha in settings.alphas)),
        "Test loss of FedProx, predicting with the local copy, by mu:",
        kit.table(["alpha", *(f"{mu:g}" for mu in settings.pulls)], ([f"{alpha:g}", *(
            f"{blends[f'alpha={alpha:g} FedProx mu={mu:g}']['last']:.3f}" for mu in settings.pulls)]
            for alpha in settings.alphas)),
        "Example 1, test loss with sigma = 1:",
        kit.table(["formulation", "found", "closed form ± what a test set of this size may differ by"], (
            [name, f"{row['loss']:.3f}", f"{row['expected']:.3f} ± {row['error']:.3f}"]
            for name, row in example.items())),
    ]) + "\n"


def main(arguments: list[str] | None = None) -> None:
    given = kit.read_arguments(__doc__, "results/fedres_rounds", arguments)
    settings, watch = QUICK if given.quick else Settings(), kit.Watch()
    found: dict[str, Any] = {"settings": settings._asdict()}
    for name, part in {"drift": drift, "heterogeneity": heterogeneity, "example1": example_one}.items():
        found[name] = part(settings, given.out)
        watch(name)
    kit.save_numbers(given.out / "rounds.json", found)
    text = tables(settings, found)
    (given.out / "rounds.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
