"""Contextual bandits as federations: an example is a context, with a row of features and a reward for each action.

`synthetic_bandit` is realisable in the sense of Agarwal, Langford and Wei, "Federated Residual Learning", 2020 (v1),
section 5: the mean reward of an action is a global linear part plus a local one.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Literal, NamedTuple

import numpy as np

from cantons.data.build import federation
from cantons.data.federation import Federation
from cantons.data.provenance import recorded
from cantons.data.seeds import generator
from cantons.memory import require
from cantons.ranges import INT32, Count, DataSeed, NonNegative, Part, Range, Whole


@recorded
def synthetic_bandit(
    clients: Count = 20,
    *,
    actions: Count = 5,
    features: Annotated[int, Range(2, INT32)] = 10,
    contexts: Count = 1000,
    test_contexts: Whole = 100,
    share: Part = 0.5,
    noise: NonNegative | Literal["bernoulli"] = 0.1,
    seed: DataSeed = 0,
) -> Federation:
    """Mean rewards 1/2 + w^g.x^g(a) + w_i.x^l(a), in [0, 1] whatever is drawn; the targets hold the means too.

    The first half of the features is global, the second local; both halves of each action's features are uniform on
    the unit sphere. w^g and w_i have random directions.

    clients: how many clients there are.
    actions: how many actions a context offers.
    features: numbers that describe an action.
    contexts: how many each client meets.
    test_contexts: how many more each client is judged by.
    share: the global part of the rewards, from 0 to 1: ||w^g|| is share / 2, and ||w_i|| is (1 - share) / 2.
    noise: the standard deviation of normal noise, which may take a reward out of [0, 1]; or "bernoulli", where a reward
        is 1 with its mean as probability, and 0 otherwise.
    seed: of everything that is drawn at random here.
    """
    require(12 * clients * (contexts + test_contexts) * actions * (features + 2),
            f"synthetic_bandit with {clients} clients, {contexts + test_contexts} contexts, {actions} actions and "
            f"{features} features")
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
