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


def zeros(tree: PyTree) -> PyTree:
    return jax.tree.map(jnp.zeros_like, tree)
