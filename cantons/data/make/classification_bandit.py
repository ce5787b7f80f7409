"""Labelled data as a contextual bandit, the usual simulation: actions are classes, and the right one brings 1."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from cantons.data.centres import map_kinds
from cantons.data.federation import Federation, Population
from cantons.data.ragged import Ragged, from_sizes
from cantons.data.registry import make_data
from cantons.data.seeds import generator
from cantons.errors import InputError
from cantons.memory import require
from cantons.ranges import DataSeed, Whole, checked


@checked
def classification_bandit(source: Federation | Mapping[str, Any], *, swaps: Whole = 0,
                          seed: DataSeed = 0) -> Federation:
    """Labelled data as a bandit: of as many actions as there are classes, the example's own class brings 1, others 0.

    Action a has the example's inputs, and a 1, in block a of its features, and 0 in the others: a linear model of them
    is one model per action. (A context takes K rows of K blocks; keep classes times inputs small.)

    source: a federation with classes, or how to make one, {name = "digits", clients = 20, ...}.
    swaps: how many pairs of classes, drawn for each client, change places before rewards are given; so every client
        has tastes of its own.
    seed: of these pairs.

    >>> data = classification_bandit({"name": "digits", "clients": 5, "partition": "iid"})
    >>> data.input_shape, data.train.targets.shape[1:]
    ((10, 650), (10,))
    """
    data = source if isinstance(source, Federation) else make_data(source)
    kinds = data.classes
    if kinds is None:
        raise InputError("classification_bandit needs labels, and this data has none; give data with classes.")
    if 2 * swaps > kinds:
        raise InputError(f"swaps is {swaps}, and {kinds} classes make {kinds // 2} pairs; lower it.")

    def contexts(ragged: Ragged, names: tuple[str, ...] | None) -> Ragged:
        labels = np.asarray(ragged.targets)
        if names is not None and swaps:
            tastes = np.array([_taste(seed, name, kinds, swaps) for name in names])
            labels = tastes[np.repeat(np.arange(len(names)), ragged.sizes), labels]
        return from_sizes(blocks(np.asarray(ragged.inputs), kinds), np.eye(kinds, dtype=np.float32)[labels],
                          np.asarray(ragged.sizes))

    def population(some: Population) -> Population:
        return replace(some, train=contexts(some.train, some.names), test=contexts(some.test, some.names))

    return replace(
        data,
        clients=population(data.clients),
        new=data.new and population(data.new),
        central=map_kinds(lambda rows: contexts(rows, None), data.central),
        validation=data.validation and contexts(data.validation, data.clients.names),
        classes=None,
        name=f"{data.name} as a bandit",
        notes=(*data.notes, *([f"every client swaps {swaps} pairs of classes"] if swaps else [])),
        spec=data.spec and {"name": "classification_bandit", "source": data.spec, "swaps": swaps, "seed": seed},
    )


def blocks(inputs: np.ndarray, actions: int) -> np.ndarray:
    """[n, ...] inputs as [n, actions, actions * (width + 1)]: in row a, the inputs and a 1 stand in block a.

    >>> blocks(np.array([[7.0]]), 2)[0].tolist()
    [[7.0, 1.0, 0.0, 0.0], [0.0, 0.0, 7.0, 1.0]]
    """
    require(8 * actions**2 * (inputs.size + len(inputs)), f"a bandit of {actions} actions and {len(inputs)} contexts")
    rows = inputs.reshape(len(inputs), math.prod(inputs.shape[1:])).astype(np.float32)
    rows = np.concatenate([rows, np.ones((len(rows), 1), np.float32)], axis=1)
    wide = np.zeros((len(rows), actions, actions, rows.shape[1]), np.float32)
    wide[:, np.arange(actions), np.arange(actions)] = rows[:, None]
    return wide.reshape(len(rows), actions, actions * rows.shape[1])


def _taste(seed: int, name: str, kinds: int, swaps: int) -> np.ndarray:
    """The numbers 0..kinds-1, of which some pairs have changed places."""
    left, right = generator(seed, "taste", name).permutation(kinds)[: 2 * swaps].reshape(2, swaps)
    taste = np.arange(kinds)
    taste[left], taste[right] = right, left
    return taste
