"""Compare states leaf by leaf, and name the first leaf that differs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from cantons.protocol import PyTree


def difference(left: PyTree, right: PyTree, digits: float | None = None) -> str:
    """The first leaf that differs, in words; nothing if all agree.

    They must agree in every bit, or up to `digits` (1e-12, say) relatively and absolutely. Numbers of single precision
    cannot be held to more than their own digits.
    """
    pairs = zip(jax.tree_util.tree_leaves_with_path(left), jax.tree.leaves(right), strict=True)
    for (path, one), other in pairs:
        here, there = numbers(one), numbers(other)
        if here.shape != there.shape or not _agree(here, there, digits):
            return f"{jax.tree_util.keystr(path) or 'it'} {_by_how_much(here, there)}"
    return ""


def numbers(leaf: Any) -> np.ndarray:
    """A leaf on the host; of a typed key, the numbers in it."""
    if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    return np.asarray(leaf)


def rows(tree: PyTree, ids: Sequence[int]) -> PyTree:
    """The rows of these clients."""
    return jax.tree.map(lambda leaf: leaf[np.array(ids)], tree)


def with_row(tree: PyTree, index: int, row: PyTree) -> PyTree:
    """The same rows, but for one."""
    return jax.tree.map(lambda leaf, new: jnp.asarray(leaf).at[index].set(new), tree, row)


def with_row_of_nan(tree: PyTree, index: int) -> PyTree:
    """NaN wherever the row at `index` has a real number."""
    return jax.tree.map(lambda leaf: jnp.asarray(leaf).at[index].set(jnp.nan)
                        if jnp.issubdtype(leaf.dtype, jnp.inexact) else leaf, tree)


def blank(tree: PyTree) -> PyTree:
    """Zeros of these shapes and types."""

    def zeros(leaf: Any) -> Any:
        if not jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            return jnp.zeros(leaf.shape, leaf.dtype)
        return jnp.broadcast_to(jax.random.key(0, impl=jax.random.key_impl(leaf)), leaf.shape)

    return jax.tree.map(zeros, tree)


def _agree(here: np.ndarray, there: np.ndarray, digits: float | None) -> bool:
    of_reals = np.issubdtype(here.dtype, np.inexact) or not np.issubdtype(here.dtype, np.number)
    if digits is None or here.dtype == bool:
        return np.array_equal(here, there, equal_nan=np.issubdtype(here.dtype, np.inexact))
    if of_reals and np.dtype(here.dtype).itemsize < 8:
        digits = max(digits, 1e-4)
    return np.allclose(here, there, rtol=digits, atol=digits, equal_nan=True)


def _by_how_much(here: np.ndarray, there: np.ndarray) -> str:
    if here.shape != there.shape:
        return f"has shape {here.shape} in one and {there.shape} in the other"
    apart = np.abs(here.astype(float) - there.astype(float))
    return f"differs by up to {np.nanmax(apart, initial=0):.3g}" if not np.isnan(apart).all() else "differs (NaN)"
