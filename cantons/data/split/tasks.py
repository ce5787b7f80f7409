"""Many related binary tasks from one multi-class set: each client tells one class from a common one.

Agarwal, Langford and Wei, "Federated Residual Learning", 2020 (v1), section 6.1. Of K classes a random
set A of floor(0.3 K) is merged into one class C_0. Every client gets N rows of C_0 and a bucket of N
rows of one other class, all disjoint, with N = min(N_0, #A // clients); `most` is N_0. The paper leaves
open how the held-out rows are chosen, so ours are drawn uniformly before anything else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, NamedTuple

import jax
import numpy as np
from numpy.typing import ArrayLike

from cantons.data.checks import as_rows, check_numbers
from cantons.data.federation import Federation, Population, gather
from cantons.data.ragged import Ragged
from cantons.data.seeds import generator
from cantons.errors import InputError, at_least, fraction, one_of
from cantons.protocol import PyTree

DRAWS = 100  # of the set A, before giving up on serving every client


class Tasks(NamedTuple):
    """Who gets which rows. Classes are numbered in sorted order of their labels."""

    merged: np.ndarray  # bool[K]: is the class in A?
    opposed: np.ndarray  # int[clients]: the class each client tells from C_0
    train: np.ndarray  # int[clients, 2 N]: rows, in a random order
    test: list[np.ndarray]  # held-out rows of each client's two classes, as many of one as of the other
    draws: int  # how often A was drawn until every client could be served


def task_protocol(
    inputs: PyTree,
    labels: ArrayLike,
    clients: int,
    *,
    holdout: float = 0.3,
    most: int = 30,
    least: int = 1,
    labels_as: Literal["class", "sign"] = "class",
    test_most: int | None = None,
    halves: bool = False,
    name: str = "tasks",
    seed: int = 0,
) -> Federation:
    """One binary task per client; C_0 is label 1 (or +1.0 as a "sign") and the client's other class 0 (-1.0).

    The fraction `holdout` of the rows is for testing alone; clients with the same class share those. `most`
    and `least` bound N, the training rows of either class, and `test_most` does so for the test rows. `halves` shuffles
    the columns, all clients' alike: the first half of them are then the paper's random global features.
    """
    one_of("labels_as", labels_as, ("class", "sign"))
    classes, codes = np.unique(labels, return_inverse=True)
    inputs, codes, _ = as_rows(inputs, codes)
    tasks = draw_tasks(codes, clients, holdout=holdout, most=most, least=least, test_most=test_most,
                       seed=seed)
    used = np.unique(np.concatenate([tasks.train.ravel(), *tasks.test]))
    check_numbers("inputs", jax.tree.map(lambda leaf: leaf[used], inputs), lambda row: f"row {used[row]} (from 0)")
    positive = tasks.merged[codes].astype(np.int32)
    targets = positive if labels_as == "class" else (2 * positive - 1).astype(np.float32)

    def pack(rows: Sequence[np.ndarray]) -> Ragged:
        packed = gather(inputs, targets, np.concatenate(rows), np.array([len(own) for own in rows]))
        return _shuffle_columns(packed, seed) if halves else packed

    names = tuple(f"{number} (A vs {classes[other]})" for number, other in enumerate(tasks.opposed))
    merged = ", ".join(map(str, classes[tasks.merged]))
    notes = (f"each client tells one class from a common one, A: “{names[0]}” is client 0, who tells A from "
             f"{classes[tasks.opposed[0]]}", f"A, the common class, merges {merged} (draw {tasks.draws})")
    return Federation(
        Population(pack(list(tasks.train)), pack(tasks.test), names),
        classes=2 if labels_as == "class" else None,
        name=name,
        test_set="held-out rows of each client's two classes",
        notes=notes,
    )


def _shuffle_columns(packed: Ragged, seed: int) -> Ragged:
    if not isinstance(packed.inputs, np.ndarray) or packed.inputs.ndim != 2:
        raise InputError("halves shuffles columns, and these inputs are not rows of numbers; flatten them.")
    return replace(packed, inputs=packed.inputs[:, np.concatenate(feature_halves(packed.inputs.shape[1], seed=seed))])


def draw_tasks(labels: np.ndarray, clients: int, *, holdout: float, most: int, least: int,
               test_most: int | None, seed: int) -> Tasks:
    """Choose A, and each client's rows, for labels in 0..K-1."""
    at_least("clients", clients, 1)
    fraction("holdout", holdout)
    at_least("least", least, 1)
    at_least("most", most, least)
    kinds = int(labels.max(initial=-1)) + 1
    if kinds < 4:
        raise InputError(f"the task protocol merges 30% of the classes, and there are only {kinds}; "
                         "it needs at least 4.")
    random = generator(seed, "tasks")
    held, rest = np.split(random.permutation(len(labels)), [round(holdout * len(labels))])
    counts = np.bincount(labels[rest], minlength=kinds)
    merged, each, draws = _merged_classes(random, counts, clients, most, least)

    positives = rest[merged[labels[rest]]][: clients * each].reshape(clients, each)
    of_class = [rest[labels[rest] == kind] for kind in np.flatnonzero(~merged)]
    buckets = np.concatenate([own[: len(own) // each * each].reshape(-1, each) for own in of_class])
    negatives = random.choice(buckets, clients, replace=False)
    train = random.permuted(np.concatenate([positives, negatives], axis=1), axis=1)
    opposed = labels[negatives[:, 0]]

    in_common = held[merged[labels[held]]]

    def balanced(kind: int) -> np.ndarray:
        other = held[labels[held] == kind]
        size = min(len(other), len(in_common), *([] if test_most is None else [test_most]))
        return np.concatenate([random.choice(side, size, replace=False) for side in (in_common, other)])

    return Tasks(merged, opposed, train, [balanced(kind) for kind in opposed], draws)


def _merged_classes(random: np.random.Generator, counts: np.ndarray, clients: int, most: int,
                    least: int) -> tuple[np.ndarray, int, int]:
    """An A with which N is at least `least` and every client finds a bucket; N; and how often A was drawn."""
    kinds, served = len(counts), 0
    for draw in range(1, DRAWS + 1):
        merged = random.permutation(kinds) < 3 * kinds // 10
        numbers = np.arange(1, min(clients, int(counts.sum())) + 1)  # no client without a row
        each = np.minimum(most, counts[merged].sum() // numbers)
        buckets = (counts[~merged, None] // np.maximum(each, 1)).sum(axis=0)
        possible = (each >= least) & (buckets >= numbers)
        if len(numbers) == clients and possible[-1]:
            return merged, int(each[-1]), draw
        served = max(served, int(numbers[possible].max(initial=0)))
    raise InputError(f"there are not enough rows for the tasks of {clients} clients: in {DRAWS} draws of the "
                     f"common class at most {served} could be served; lower clients to that, or least.")


def feature_halves(width: int, *, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """The columns of the global features, a random width // 2 of them, and those of the local ones."""
    at_least("width", width, 2)
    shuffled = generator(seed, "halves").permutation(width)
    return np.sort(shuffled[: width // 2]), np.sort(shuffled[width // 2 :])
