"""Which rows clients have met that go through their examples in the order of storage, again and again."""

from __future__ import annotations

import numpy as np


def times_met(examples: np.ndarray, sizes: np.ndarray) -> list[np.ndarray]:
    """How often a client that goes round and round has met each of its rows, after so many examples.

    >>> times_met(np.array([5, 0]), np.array([3, 2]))
    [array([2, 2, 1]), array([0, 0])]
    """
    rounds = [divmod(int(met), max(int(size), 1)) for met, size in zip(examples, sizes, strict=True)]
    return [full + (np.arange(size) < more) for (full, more), size in zip(rounds, sizes, strict=True)]


def met_rows(starts: np.ndarray, sizes: np.ndarray, steps: np.ndarray, batch: int) -> np.ndarray:
    """The rows that each client meets in each of these steps, going round and round: [steps, clients, batch].

    >>> met_rows(np.array([0, 3]), np.array([3, 2]), np.arange(2), batch=2).tolist()
    [[[0, 1], [3, 4]], [[2, 0], [3, 4]]]
    """
    places = np.asarray(steps, np.int64)[:, None, None] * batch + np.arange(batch)
    return np.asarray(starts)[:, None] + places % np.asarray(sizes)[:, None]
