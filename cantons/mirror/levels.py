"""Roots of decreasing functions of one number, and the level at which entries add up to a total."""

from __future__ import annotations

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp

from cantons.protocol import Array

Excess = Callable[[Array, Array], Array]  # (given, level) -> a number that falls as the level rises

_HALVINGS = 64


def bisect(excess: Excess, given: Array, low: Array, high: Array) -> Array:
    """Where `excess(given, .)` is zero, to the last digit of the bracket's ends; without a gradient."""
    given, low, high = jax.lax.stop_gradient((given, low, high))

    def halve(_, bracket):
        low, high = bracket
        middle = (low + high) / 2
        above = excess(given, middle) > 0
        return jnp.where(above, middle, low), jnp.where(above, high, middle)

    low, high = jax.lax.fori_loop(0, _HALVINGS, halve, (low, high))
    return (low + high) / 2


def root(excess: Excess, given: Array, low: Array, high: Array) -> Array:
    """Where `excess(given, .)` is zero, with the right gradient in `given`."""
    found = bisect(excess, given, low, high)
    # One Newton step from a root held fixed: it polishes, and by the implicit function theorem carries the gradient.
    derivative = jax.lax.stop_gradient(jax.grad(excess, argnums=1)(given, found))
    steep = derivative < 0
    return found - jnp.where(steep, excess(given, found) / jnp.where(steep, derivative, 1.0), 0.0)


def fill(to_primal: Callable[[Array], Array], to_dual: Callable[[Array], Array], dual: Array, total: float,
         cap: float = math.inf) -> Array:
    """The x with 0 <= x <= cap and sum x = total that minimises potential(x) - <dual, x>.

    For a potential that is a sum over entries, x = clip(to_primal(dual - level), 0, cap): only `level` is unknown.
    """

    def entries(dual, level):
        return jnp.clip(to_primal(dual - level), 0.0, cap)

    def excess(dual, level):
        return jnp.sum(entries(dual, level)) - total

    # Only differences of duals matter; counted from the largest, they are small where it counts.
    dual = dual - jax.lax.stop_gradient(jnp.max(dual))
    # An entry whose dual is -inf is zero at any level. At one end of the bracket all others are at least their fair
    # share, at the other at most.
    alive = dual > -jnp.inf
    ends = dual - to_dual(jnp.full_like(dual, total / jnp.sum(alive)))
    low, high = jnp.min(jnp.where(alive, ends, jnp.inf)), jnp.max(ends)
    # A level far from zero has no digits left for the sum to come out right: count from it, and find the rest.
    dual = dual - bisect(excess, dual, low, high)
    margin = 8 * jnp.finfo(dual.dtype).eps * jnp.maximum(jnp.abs(low), jnp.abs(high))
    return entries(dual, root(excess, dual, -margin, margin))
