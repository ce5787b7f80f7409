"""Which rows clients have met that go through their examples in the order of storage, again and again."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from cantons.protocol import Clock


def times_met(examples: np.ndarray, sizes: np.ndarray) -> list[np.ndarray]:
    """How often a client that goes round and round has met each of its rows, after so many examples.

    >>> times_met(np.array([5, 0]), np.array([3, 2]))
    [array([2, 2, 1]), array([0, 0])]
    """
    rounds = [divmod(int(met), max(int(size), 1)) for met, size in zip(examples, sizes, strict=True)]
    return [full + (np.arange(size) < more) for (full, more), size in zip(rounds, sizes, strict=True)]


def met_rows(starts: np.ndarray, sizes: np.ndarray, met: np.ndarray, batch: int) -> np.ndarray:
    """The rows that each client meets next, having `met` examples so often before: [steps, clients, batch].

    >>> met_rows(np.array([0, 3]), np.array([3, 2]), np.array([[0, 0], [1, 1]]), batch=2).tolist()
    [[[0, 1], [3, 4]], [[2, 0], [3, 4]]]
    """
    places = np.asarray(met, np.int64)[:, :, None] * batch + np.arange(batch)
    return np.asarray(starts)[:, None] + places % np.asarray(sizes)[:, None]


def who_acts(clock: Clock, population: int) -> Callable[[int, int], np.ndarray]:
    """Build `acts(first, last)`: who meets examples in these steps, as the clock plans it: [steps, clients].

    That a plan's key has no say in it is true of traces and of arrivals drawn from a seed of their own. A clock of
    another kind may plan otherwise: hold the number of meetings against those of the run.
    """
    if clock.full:
        return lambda first, last: np.ones((last - first, population), bool)
    key = jax.random.key(0)
    plans = jax.jit(jax.vmap(lambda round: clock.plan(clock.arrays, key, round).acts))
    return lambda first, last: np.asarray(plans(jnp.arange(first, last, dtype=jnp.int32)))
