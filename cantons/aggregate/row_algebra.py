"""What robust rules compute on stacked uploads, leaf by leaf: no copy for each pair of rows, and sorting in blocks."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp

from cantons.protocol import Array, PyTree

BLOCK = 1 << 18  # coordinates that are sorted at a time: a sort holds two copies of what it sorts


def combine(coefficients: Array, rows: PyTree) -> PyTree:
    """Linear combinations of rows: one for a vector of coefficients, one for each row of a matrix of them."""

    def of_leaf(leaf):
        # "highest": a GPU would otherwise multiply with ten bits.
        return jnp.tensordot(coefficients.astype(leaf.dtype), leaf, 1, precision="highest")

    return jax.tree.map(of_leaf, rows)


def squared_distances(rows: PyTree, point: PyTree) -> Array:
    """Of every row to a point."""
    parts = jax.tree.map(lambda leaf, centre: ((leaf - centre) ** 2).reshape(len(leaf), -1).sum(axis=1), rows, point)
    return sum(jax.tree.leaves(parts), jnp.zeros(()))


def pairwise_distances(rows: PyTree) -> Array:
    """Squared, of every row to every row.

    One row after another and from differences: a Gram matrix would lose the digits that tell rows apart which have a
    large part in common, and all differences at once would be n^2 uploads.
    """
    return jax.lax.map(lambda point: squared_distances(rows, point), rows)


def sort_columns(rows: PyTree, there: Array, summarise: Callable[[Array], Array]) -> PyTree:
    """`summarise` the sorted values of every coordinate, [rows, coordinates]; those of absent rows come last."""

    def of_block(block):
        return summarise(jnp.sort(jnp.where(there[:, None], block, jnp.inf), axis=0))

    def of_leaf(leaf):
        columns = leaf.reshape(len(leaf), -1)
        width = columns.shape[1]
        if width <= BLOCK:
            return of_block(columns).reshape(leaf.shape[1:])
        starts = jnp.minimum(jnp.arange(0, width, BLOCK), width - BLOCK)  # the last block begins inside the one before
        found = jax.lax.map(lambda start: of_block(jax.lax.dynamic_slice_in_dim(columns, start, BLOCK, 1)), starts)
        rest = width - BLOCK * (len(found) - 1)
        return jnp.concatenate([found[:-1].reshape(-1), found[-1, -rest:]]).reshape(leaf.shape[1:])

    return jax.tree.map(of_leaf, rows)


def ranks(values: Array) -> Array:
    """The place of every value among those of its row, from 0 for the smallest."""
    return jnp.argsort(jnp.argsort(values, axis=-1), axis=-1)
