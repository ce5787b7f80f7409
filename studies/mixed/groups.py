"""Is it worth while to split one population in two? The question at the end of "Mixed Federated Learning".

    python studies/mixed/groups.py [--quick] [--sets writers labels] [--data DIR] [--out DIR]

Augenstein et al., 2022, section 6: a split by traits should lower sigma^2, the variance within a population, and raise
G and B, the dissimilarity between populations; gradient transfer, whose bounds have sigma^2 alone, should gain, and
parallel training lose. Clients are split by traits and at random. writers: MNIST by who wrote it; traits are pupils,
and employees of the census bureau. labels: clients with few kinds of digits (Dirichlet); the trait is the half of the
digits that a client has most of. Weights are the groups' shares of the clients, so that every split minimises what one
population does.

variances: sigma^2, G^2 and B^2 at the same points, on the path of FedAvg, from every client's full gradient. ends: each
method with each step size; a cell is one method with one choice of options, and its seeds are one program. Its numbers
go to DIR/cells at once, and a cell that is there, with the same settings, is not run again.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib import pyplot

import cantons as ct
from cantons.data import dirichlet

sys.path.insert(0, str(Path(__file__).parents[1]))
import kit


class Settings(NamedTuple):
    clients: int = 100
    alpha: float = 0.3
    hidden: int = 64
    cohort: int = 20
    batch_size: int = 16
    rounds: int = 200
    every: int = 20
    seeds: int = 5
    steps: tuple[int, ...] = (5, 40)  # K
    step_sizes: tuple[float, ...] = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2)
    points: tuple[int, ...] = (0, 20, 100)  # rounds after which variances are taken
    rows: int = 20_000  # of labels
    least: int = 100  # rows of a writer


QUICK = Settings(clients=8, hidden=4, cohort=4, rounds=4, every=2, seeds=2, steps=(2,), step_sizes=(0.1,),
                 points=(0, 1), rows=500)
Populations = Mapping[str, ct.Federation]
COLOURS = {"one population": kit.GREY, "one population, server 2": kit.BLACK,
           "parallel, traits": kit.ORANGE, "2-way, traits": kit.BLUE, "parallel, random": kit.PINK,
           "2-way, random": kit.GREEN}


HALVES = {"low": [0, 1, 2, 3, 4], "high": [5, 6, 7, 8, 9]}
PUPILS = 4  # the part of the forms that they filled in


def populations(name: str, folder: Path, settings: Settings) -> dict[str, ct.Federation]:
    """One population, and the same clients split by traits and at random."""
    if name == "digits":
        data = ct.digits(clients=settings.clients, partition="dirichlet", alpha=settings.alpha)
        return {"one": data, "traits": ct.by_label(data, labels=HALVES), "random": ct.at_random(data, names=["a", "b"])}
    with np.load(folder / "mnist.npz", allow_pickle=False) as file:
        inputs, targets, writer, form = (file[key] for key in ("x", "y", "writer", "hsf"))
    if name == "writers":
        chosen = np.isin(writer, np.flatnonzero(np.bincount(writer) >= settings.least))
        clients = np.array([f"{who} {'pupil' if part == PUPILS else 'employee'}" for who, part in zip(
            writer[chosen], form[chosen], strict=True)])
    else:
        chosen = np.random.default_rng(0).permutation(len(targets))[: settings.rows]
        clients = dirichlet(targets[chosen], settings.clients, alpha=settings.alpha)
    data = ct.federation((inputs[chosen] / 255).astype(np.float32), targets[chosen].astype(np.int32), clients,
                         classes=10, test=0.2, name=name)
    of_kind = {kind: [name for name in data.clients.names if name.endswith(kind)] for kind in ("pupil", "employee")}
    traits = ct.by_name(data, clients=of_kind) if name == "writers" else ct.by_label(data, labels=HALVES)
    return {"one": data, "traits": traits, "random": ct.at_random(data, names=["a", "b"])}


def shares(data: ct.Federation) -> dict[str, float]:
    """The part of the clients that each group has."""
    groups = data.clients.groups
    assert groups is not None
    return {name: float(np.mean(groups.numbers == number)) for number, name in enumerate(groups.names)}


# How much gradients differ


def variances(found: Populations, settings: Settings, watch: kit.Watch) -> str:
    data = found["one"]
    problem = ct.classification(data, ct.mlp(hidden=[settings.hidden]))
    rows = []
    for rounds in settings.points:
        shared, private = problem.init(jax.random.key(0))
        if rounds:
            recipe = ct.fedavg(steps=settings.steps[0], batch_size=settings.batch_size, weighting="uniform")
            result = ct.run(problem, data, recipe, rounds=rounds, cohort=settings.cohort, evaluate_every=rounds)
            shared = result.model.state.server.shared
        gradients = all_gradients(problem, data, shared, private)
        mean = gradients.mean(axis=0)
        whole = ((gradients - mean) ** 2).sum(axis=1).mean()
        rows.append([str(rounds), "one population", f"{whole:.4g}", "", ""])
        for name, split in ((name, found[name]) for name in ("traits", "random")):
            numbers, share = split.clients.groups.numbers, np.array(list(shares(split).values()))
            means = np.array([gradients[numbers == number].mean(axis=0) for number in (0, 1)])
            within = ((gradients - means[numbers]) ** 2).sum(axis=1).mean()
            apart = (share * (means**2).sum(axis=1)).sum()  # |w_g m_g|^2 / w_g
            together = (mean**2).sum()
            rows.append([str(rounds), name, f"{within:.4g}", f"{apart - together:.4g}", f"{apart / together:.4g}"])
        watch(f"variances after {rounds} rounds")
    return kit.table(["after round", "split", "sigma^2 within", "G^2", "B^2"], rows, numbers=True)


def all_gradients(problem: ct.Problem, data: ct.Federation, shared: Any, private: Any) -> np.ndarray:
    """Every client's full gradient at one point, a row each."""
    train = jax.tree.map(jnp.asarray, data.train)

    def one(index: Any) -> Any:
        gradient = jax.grad(problem.loss)(shared, private, train.client(index).full())
        return jnp.concatenate([leaf.ravel() for leaf in jax.tree.leaves(gradient)])

    return np.asarray(jax.lax.map(one, jnp.arange(data.population)), np.float64)


# Where the methods end


def curves(words: str, problem: ct.Problem, data: ct.Federation, recipe: Any, cohort: Any, settings: Settings,
           watch: kit.Watch) -> dict[str, list[list[float]]]:
    """Of one method, [seeds][evaluations] for each number."""
    histories = ct.rollouts(problem, data, recipe, rounds=settings.rounds, clock=ct.rounds(cohort=cohort),
                            seed=list(range(settings.seeds)), evaluate_every=settings.every)
    names = {"round": "round", "loss": "test.shared.loss.mean", "accuracy": "test.shared.accuracy.mean"}
    watch(f"{words}: loss {np.mean([history[-1][names['loss']] for history in histories]):.4f}")
    return {short: [[row[name] for row in history] for history in histories] for short, name in names.items()}


def ends(name_of_set: str, populations: Populations, settings: Settings, out: Path, watch: kit.Watch) -> str:
    data, model, rows = populations["one"], ct.mlp(hidden=[settings.hidden]), []
    cells = kit.Cells(out / "cells", settings, watch)
    figure, plots = pyplot.subplots(1, len(settings.steps), figsize=(6 * len(settings.steps), 4), layout="constrained",
                                    squeeze=False)
    for axes, steps in zip(plots[0], settings.steps, strict=True):
        for name, colour in COLOURS.items():
            method, _, which = name.partition(", ")
            found = {}
            for size in settings.step_sizes:
                work = {"step_size": size, "steps": steps, "batch_size": settings.batch_size}
                own, problem, cohort = data, ct.classification(data, model), settings.cohort
                # Two groups of half the weight add up to local steps of half the length and a server step of 2.
                recipe = ct.fedavg(**work, weighting="uniform", server_step_size=2.0 if which == "server 2" else 1.0)
                if method != "one population":
                    own = populations[which]
                    problem = ct.with_group_losses(ct.classification(own, model), own, weights=shares(own))
                    cohort = {group: max(1, round(share * settings.cohort)) for group, share in shares(own).items()}
                    recipe = ct.parallel_training(**work) if method == "parallel" else ct.two_way_transfer(
                        **work, merge_step_size=0.5)
                words = f"{name_of_set}-{name}-{steps}-{size}".replace(", ", "_").replace(" ", "_")
                found[size] = cells(words, partial(curves, words, problem, own, recipe, cohort, settings, watch))
            last = {size: np.array(each["loss"], float)[:, -1] for size, each in found.items()}
            best = min(last, key=lambda size: np.nan_to_num(last[size].mean(), nan=np.inf))
            curve = np.array(found[best]["loss"], float).mean(axis=0)
            axes.plot(found[best]["round"][0], curve, color=colour, label=f"{name}, eta = {best}")
            accuracy = np.array(found[best]["accuracy"], float)[:, -1]
            error = kit.standard_error(last[best])
            rows.append([str(steps), name, f"{best:g}", f"{last[best].mean():.4f} ± {error:.4f}",
                         f"{accuracy.mean():.4f}"])
        axes.set(xlabel="round", ylabel="loss on the clients' test rows", title=f"K = {steps}", yscale="log")
        axes.legend(fontsize=8)
    figure.suptitle(f"{name_of_set}: {settings.seeds} seeds, each method at its best step")
    kit.save_figure(figure, out / f"{name_of_set}.png")
    return kit.table(["K", "method", "best eta", "loss", "accuracy"], rows, numbers=True)


def main(arguments: Sequence[str] | None = None) -> None:
    given = kit.read_arguments(__doc__, "results/mixed/groups", arguments, data=kit.FILES,
                               sets={"nargs": "*", "choices": ["writers", "labels", "digits"]})
    settings, watch = QUICK if given.quick else Settings(), kit.Watch()
    there = (given.data / "mnist.npz").exists() and not given.quick
    given.out.mkdir(parents=True, exist_ok=True)
    page: list[str] = []
    for name in given.sets or (["writers", "labels"] if there else ["digits"]):
        found = populations(name, given.data, settings)
        watch(found["traits"].describe().replace("\n", "; "))
        page += [f"## {name}: variances", "", variances(found, settings, watch), "", f"## {name}: ends", "",
                 ends(name, found, settings, given.out, watch), ""]
        (given.out / "groups.md").write_text("\n".join(page))
    watch(f"done: {given.out / 'groups.md'}")


if __name__ == "__main__":
    main()
