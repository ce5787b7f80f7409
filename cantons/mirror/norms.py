"""Norms over all entries of a tree at once, and what it means to be strongly convex in one."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from cantons.protocol import Array, PyTree


class Norm(NamedTuple):
    """A norm and the one that is dual to it: |<g, x>| <= dual_size(g) size(x)."""

    name: str
    size: Callable[[PyTree], Array]
    dual_size: Callable[[PyTree], Array]


class Convexity(NamedTuple):
    """B(y, x) >= constant / 2 * size(y - x)^2. The paper's section III asks for the constant 1."""

    constant: Array | float
    norm: Norm


def total(tree: PyTree) -> Array:
    """The sum of all entries."""
    sums = [jnp.sum(leaf) for leaf in jax.tree.leaves(tree)]
    return sum(sums[1:], start=sums[0]) if sums else jnp.zeros(())


def inner(left: PyTree, right: PyTree) -> Array:
    return total(jax.tree.map(jnp.multiply, left, right))


def largest(tree: PyTree) -> Array:
    """The largest absolute value of an entry."""
    sizes = [jnp.max(jnp.abs(leaf), initial=0.0) for leaf in jax.tree.leaves(tree)]
    return jnp.max(jnp.stack(sizes)) if sizes else jnp.zeros(())


def finite(tree: PyTree) -> Array:
    """Is every entry a finite number?"""
    return jnp.all(jnp.array([jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(tree)], bool))


def unit_of(tree: PyTree) -> Array:
    """The largest absolute value, or 1 if that is no good divisor.

    Homogeneous functions are divided by it. Its gradient would cancel there, so it is not followed.
    """
    unit = jax.lax.stop_gradient(largest(tree))
    return jnp.where((unit > 0) & jnp.isfinite(unit), unit, 1.0)


def power(base: Array, exponent: float) -> Array:
    """base ** exponent for base >= 0; at 0 it is 0 and so is its gradient, which may really be infinite."""
    zero = base == 0
    return jnp.where(zero, 0.0, jnp.where(zero, 1.0, base) ** exponent)


def dual_exponent(p: float) -> float:
    """q with 1/p + 1/q = 1."""
    return math.inf if p == 1 else 1.0 if p == math.inf else p / (p - 1)


def size(tree: PyTree, p: float) -> Array:
    """The l_p norm. Divided by the largest entry first, so large p and small entries do no harm.

    >>> size({"weight": jnp.array([3.0]), "bias": jnp.array(-4.0)}, 2)
    Array(5., dtype=float32)
    """
    if p == math.inf:
        return largest(tree)
    if p == 1:
        return total(jax.tree.map(jnp.abs, tree))
    unit = unit_of(tree)
    return unit * power(total(jax.tree.map(lambda leaf: power(jnp.abs(leaf) / unit, p), tree)), 1 / p)


def l_norm(p: float) -> Norm:
    return Norm(f"l{p:g}", lambda tree: size(tree, p), lambda tree: size(tree, dual_exponent(p)))
