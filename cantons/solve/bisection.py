"""Bisection: an interval around a point that is looked for, made smaller by halves."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp

from cantons.protocol import Array


def halve(above: Callable[[Array], Array], low: Array, high: Array, halvings: int) -> tuple[Array, Array]:
    """The ends of the interval after some halvings; `above(middle)` says that the point lies above the middle.

    >>> low, high = halve(lambda middle: middle**2 < 2, jnp.array(1.0), jnp.array(2.0), 10)
    >>> bool(low <= 2**0.5 <= high), float(high - low) == 2**-10
    (True, True)
    """

    def once(_, ends):
        low, high = ends
        middle = (low + high) / 2
        higher = above(middle)
        return jnp.where(higher, middle, low), jnp.where(higher, high, middle)

    return jax.lax.fori_loop(0, halvings, once, (low, high))
