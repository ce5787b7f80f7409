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
    return jnp.sqrt(sum([(leaf**2).sum() for leaf in jax.tree.leaves(tree)], jnp.zeros(())))


def zeros(tree: PyTree) -> PyTree:
    return jax.tree.map(jnp.zeros_like, tree)


def choose(first: Array, left: PyTree, right: PyTree) -> PyTree:
    """The left tree if `first` holds, else the right one."""
    return jax.tree.map(lambda one, other: jnp.where(first, one, other), left, right)
