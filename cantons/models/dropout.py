"""Dropout: while a network is trained, some of its values are 0."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

import jax
import jax.numpy as jnp

from cantons.protocol import Array, Key


def dropper(rate: float, key: Key | None) -> Callable[[Array], Array]:
    """A function that sets each value to 0 with probability `rate`, drawn anew at each call.

    Values that are left are divided by 1 - rate, so that the expectation stays as it is and predictions need no
    correction. Without a key, or with rate 0, all values are left. Srivastava et al., "Dropout", JMLR 2014.
    """
    calls = count()

    def drop(values: Array) -> Array:
        if key is None or not rate:
            return values
        kept = jax.random.bernoulli(jax.random.fold_in(key, next(calls)), 1 - rate, values.shape)
        return jnp.where(kept, values / (1 - rate), 0)

    return drop


def rate_option(rate: float) -> dict[str, float]:
    """The rate among the options of a model that was written down without one before there was dropout."""
    return {"dropout": rate} if rate else {}
