"""Contextual bandits as federations: an example is a context, with a row of features and a reward for each action.

`synthetic_bandit` is realisable in the sense of Agarwal, Langford and Wei, "Federated Residual Learning", 2020 (v1),
section 5: the mean reward of an action is a global linear part plus a local one. `classification_bandit` turns any
labelled data into the usual simulation: actions are classes, and the right one brings 1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from cantons.data.build import federation
from cantons.data.federation import Federation, Population
from cantons.data.provenance import recorded
from cantons.data.ragged import Ragged, from_sizes
from cantons.data.seeds import generator
from cantons.errors import InputError, at_least, unknown


@recorded
def synthetic_bandit(
    clients: int = 20,
    *,
    actions: int = 5,
    features: int = 10,
    contexts: int = 1000,
    test_contexts: int = 100,
    share: float = 0.5,
    noise: float | str = 0.1,
    seed: int = 0,
) -> Federation:
    """Mean rewards 1/2 + w^g.x^g(a) + w_i.x^l(a), in [0, 1] whatever is drawn; the targets hold the means too.

    The first half of the `features` is global, the second local; both halves of each action's features are uniform on
    the unit sphere. ||w^g|| is `share` / 2 and ||w_i|| is (1 - `share`) / 2, of random direction. `noise` is the
    standard deviation of normal noise, which may take a reward out of [0, 1], or "bernoulli": a reward is 1 with its
    mean as probability, and 0 otherwise. Every client meets `contexts` of its own and is judged by `test_contexts`.
    """
    for name, value, least in (("clients", clients, 1), ("actions", actions, 1), ("features", features, 2),
                               ("contexts", contexts, 1), ("test_contexts", test_contexts, 0), ("share", share, 0)):
        at_least(name, value, least)
    if share > 1:
        raise InputError(f"share is {share}; give the global part of the rewards, from 0 to 1.")
    if isinstance(noise, str) and noise != "bernoulli":
        raise InputError(f"noise is {noise!r}; give a standard deviation, or \"bernoulli\".")
    if not isinstance(noise, str):
        at_least("noise", noise, 0)
    each, half = contexts + test_contexts, features // 2
    together = share / 2 * _directions(generator(seed, "bandit"), half)
    inputs = np.empty((clients, each, actions, features))
    means, rewards = np.empty((clients, each, actions)), np.empty((clients, each, actions))
    for client in range(clients):
        random = generator(seed, "bandit", str(client))
        own = (1 - share) / 2 * _directions(random, features - half)
        inputs[client, ..., :half] = _directions(random, each, actions, half)
        inputs[client, ..., half:] = _directions(random, each, actions, features - half)
        means[client] = 0.5 + inputs[client] @ np.concatenate([together, own])
        rewards[client] = (random.random(means[client].shape) < means[client] if isinstance(noise, str)
                           else means[client] + noise * random.normal(size=means[client].shape))
    held = np.tile(np.arange(each) >= contexts, clients)
    flat = [leaf.reshape(clients * each, *leaf.shape[2:]).astype(np.float32) for leaf in (inputs, rewards, means)]
    made = federation(flat[0], {"reward": flat[1], "mean": np.clip(flat[2], 0, 1)}, np.repeat(np.arange(clients), each),
                      test=held, name="synthetic_bandit", seed=seed)
    return replace(made, test_set="contexts of each client that it never meets")


def classification_bandit(source: Federation | Mapping[str, Any], *, swaps: int = 0, seed: int = 0) -> Federation:
    """Labelled data as a bandit: of as many actions as there are classes, the example's own class brings 1, others 0.

    `source` is a federation with classes, or how to make one, {name = "digits", clients = 20, ...}. Action a has the
    example's inputs, and a 1, in block a of its features, and 0 in the others: a linear model of them is one model per
    action. (A context takes K rows of K blocks; keep classes times inputs small.) With `swaps` every client has tastes
    of its own: that many pairs of classes, drawn for each client, change places before rewards are given.

    >>> data = classification_bandit({"name": "digits", "clients": 5, "partition": "iid"})
    >>> data.input_shape, data.train.targets.shape[1:]
    ((10, 650), (10,))
    """
    data = source if isinstance(source, Federation) else _named(source)
    kinds = data.classes
    if kinds is None:
        raise InputError("classification_bandit needs labels, and this data has none; give data with classes.")
    at_least("swaps", swaps, 0)
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
        central=data.central and contexts(data.central, None),
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
    rows = inputs.reshape(len(inputs), math.prod(inputs.shape[1:])).astype(np.float32)
    rows = np.concatenate([rows, np.ones((len(rows), 1), np.float32)], axis=1)
    wide = np.zeros((len(rows), actions, actions, rows.shape[1]), np.float32)
    wide[:, np.arange(actions), np.arange(actions)] = rows[:, None]
    return wide.reshape(len(rows), actions, actions * rows.shape[1])


class Contexts(NamedTuple):
    """What one client meets, in the order of the online clock's "cycle"."""

    inputs: np.ndarray  # [contexts, actions, features]
    rewards: np.ndarray  # [contexts, actions]
    means: np.ndarray | None  # expected rewards, where they are known


def contexts_of(data: Federation, *, test: bool = False) -> dict[str, Contexts]:
    """Every client's contexts, or its test ones, as plain arrays: to drive a bandit that is none of ours."""
    ragged, found = data.test if test else data.train, {}
    for name, start, size in zip(data.clients.names, ragged.starts, ragged.sizes, strict=True):
        own = slice(start, start + size)
        targets = ragged.targets if isinstance(ragged.targets, dict) else {"reward": ragged.targets}
        means = targets.get("mean")
        found[name] = Contexts(ragged.inputs[own], targets["reward"][own], None if means is None else means[own])
    return found


def _directions(random: np.random.Generator, *shape: int) -> np.ndarray:
    """Uniform on the unit sphere of the last axis."""
    drawn = random.normal(size=shape)
    return drawn / np.linalg.norm(drawn, axis=-1, keepdims=True)


def _taste(seed: int, name: str, kinds: int, swaps: int) -> np.ndarray:
    """The numbers 0..kinds-1, of which some pairs have changed places."""
    left, right = generator(seed, "taste", name).permutation(kinds)[: 2 * swaps].reshape(2, swaps)
    taste = np.arange(kinds)
    taste[left], taste[right] = right, left
    return taste


def _named(source: Mapping[str, Any]) -> Federation:
    from cantons.data import DATA  # not above: the list of all data has this file's in it

    name = source.get("name", "")
    if name not in DATA:
        raise unknown("data", name, DATA)
    return DATA[name](**{option: value for option, value in source.items() if option != "name"})
