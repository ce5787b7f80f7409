"""Tiny federations to check on: seven clients with 3 to 17 examples, and the same with as many each."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from cantons.data import Federation, from_clients, synthetic_bandit
from cantons.data.federation import gather
from cantons.data.ragged import Ragged
from cantons.study.example import Example, example_problems, random_sequences

SIZES = (3, 17, 5, 8, 11, 4, 9)  # training examples of each client: ragged on purpose
EACH = 8  # and where all have as many


@functools.cache
def examples() -> list[Example]:
    """The example problems on clients of unequal size."""
    longest, test = max(SIZES), 6
    random = np.random.default_rng(1)

    def client(of_labels: bool) -> tuple[np.ndarray, np.ndarray]:
        """Examples that follow a linear rule of this client's own, so that there is something to learn."""
        inputs = random.normal(size=(longest + test, 4))
        outputs = inputs @ random.normal(size=(4, 3)) + 0.1 * random.normal(size=(longest + test, 3))
        return inputs, outputs.argmax(axis=1) if of_labels else outputs[:, 0]

    labels, numbers = ({f"client{number}": client(of_labels) for number in range(len(SIZES) + 2 * of_labels)}
                       for of_labels in (True, False))
    share = test / (longest + test)
    contexts = synthetic_bandit(clients=len(SIZES), contexts=longest, test_contexts=3)
    found = example_problems(cut(from_clients(labels, classes=3, test=share, new=2), SIZES),
                             cut(from_clients(numbers, test=share), SIZES), cut(contexts, SIZES),
                             cut(random_sequences(len(SIZES), longest, test), SIZES))
    return found


def of_equal_size(data: Federation) -> Federation:
    """The same clients with as many examples each; some of them twice, where a client has fewer."""
    return cut(data, [EACH] * data.population)


def cut(data: Federation, sizes: Sequence[int]) -> Federation:
    """Client i has `sizes[i]` training examples: its first ones, and these again if it has fewer."""
    train: Ragged = data.train
    picked = np.concatenate([start + np.arange(wanted) % size for start, size, wanted in zip(
        np.asarray(train.starts), np.asarray(train.sizes), sizes, strict=True)])
    shorter = gather(train.inputs, train.targets, picked, np.asarray(sizes))
    return replace(data, clients=replace(data.clients, train=shorter))
