"""Sums of what is made of each upload and the message it answers; and all uploads as they are."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp

from cantons.protocol import PyTree, Stack, Sum

Lift = Callable[[PyTree, PyTree], PyTree]  # (upload, the message it answers) -> a summand


def total(lift: Lift) -> Sum:
    """The plain sum."""
    return Sum(lift, finish=lambda key, summed: summed)


def mean_of(lift: Lift) -> Sum:
    """The mean over what arrived."""
    def finish(key, summed):
        value, count = summed
        return jax.tree.map(lambda leaf: leaf / jnp.maximum(count, jnp.finfo(count.dtype).tiny), value)

    return Sum(lambda upload, message: (lift(upload, message), jnp.ones(())), finish)


# The uploads themselves and how often each counts: for a server that must see them beside its own state.
rows = Stack(lambda key, uploads, ids, counts: (uploads, counts))
