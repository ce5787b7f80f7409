"""Arithmetic on parameter trees, in the words the algorithms use."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from cantons.protocol import Array, PyTree


def add(left: PyTree, right: PyTree) -> PyTree:
    return jax.tree.map(jnp.add, left, right)


def subtract(left: PyTree, right: PyTree) -> PyTree:
    return jax.tree.map(jnp.subtract, left, right)


def scale(factor: Array | float, tree: PyTree) -> PyTree:
    return jax.tree.map(lambda leaf: factor * leaf, tree)


def descend(part: PyTree, step_size: Array | float, gradient: PyTree) -> PyTree:
    """A plain gradient step."""
    return subtract(part, scale(step_size, gradient))


def norm(tree: PyTree) -> Array:
    """The Euclidean norm of all entries together."""
    return jnp.sqrt(norm_squared(tree))


def norm_squared(tree: PyTree) -> Array:
    """For gradients: `norm` has none at 0."""
    return sum([(leaf**2).sum() for leaf in jax.tree.leaves(tree)], jnp.zeros(()))


def clip(tree: PyTree, most: float | None) -> PyTree:
    """The tree itself, or made as long as `most` where it is longer."""
    return tree if most is None else scale(jnp.minimum(1.0, most / jnp.maximum(norm(tree), most)), tree)


def zeros(tree: PyTree) -> PyTree:
    return jax.tree.map(jnp.zeros_like, tree)


def choose(first: Array, left: PyTree, right: PyTree) -> PyTree:
    """The left tree if `first` holds, else the right one."""
    return jax.tree.map(lambda one, other: jnp.where(first, one, other), left, right)
