"""Summands of uploads: how they are weighed, joined and added up, whole arrays and rows of tables alike.

A `TableRows` never becomes a table of its own on the way to the sum: its rows are scattered into the one accumulator.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from cantons.protocol import Array, PyTree, TableRows

FEW = 4  # rows that all clients together send, times this, are at most a table's: then the rows are gathered


def zero_sum(summand: PyTree) -> PyTree:
    """The sum of nothing, for a summand given as shapes: a table in the place of some of its rows."""
    return _map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype),
                lambda rows: jnp.zeros((rows.size, *rows.values.shape[1:]), rows.values.dtype), summand)


def add_to(total: PyTree, summand: PyTree) -> PyTree:
    """The sum with one more summand in it."""
    return jax.tree.map(lambda leaf, here: here.at[leaf.ids].add(leaf.values, mode="drop") if isinstance(
        leaf, TableRows) else here + leaf, summand, total, is_leaf=_is_rows)


def dense(summand: PyTree) -> PyTree:
    """The same with tables in the place of rows."""
    return _map(lambda leaf: leaf, lambda rows: add_to(zero_sum(rows), rows), summand)


def weigh(arrives: Array, count: Array, summand: PyTree) -> PyTree:
    """A summand that counts so often, or not at all; what does not arrive may be anything, NaN too."""

    def weighed(leaf: Array) -> Array:
        return jnp.where(arrives, count.astype(leaf.dtype) * leaf, 0)

    return _map(weighed, lambda rows: TableRows(rows.ids, weighed(rows.values), rows.size), summand)


def join(summands: PyTree) -> PyTree:
    """One summand for several clients, whose summands are stacked: the sum of arrays, and the rows of all."""
    def flat(leaf: Array) -> Array:
        return leaf.reshape(-1, *leaf.shape[2:])

    return _map(lambda leaf: leaf.sum(axis=0),
                lambda rows: TableRows(flat(rows.ids), flat(rows.values), rows.size), summands)


def split(summand: PyTree, clients: int) -> tuple[PyTree, PyTree]:
    """What is to be added up on each device, and rows to be gathered from all: those that are far fewer than the table.

    Devices would wait for the sum of whole tables; the rows of all `clients` are sent sooner.
    """
    def few(leaf: Any) -> bool:
        return _is_rows(leaf) and FEW * clients * len(leaf.ids) <= leaf.size

    return (_map_leaves(lambda leaf: None if few(leaf) else leaf, summand),
            _map_leaves(lambda leaf: leaf if few(leaf) else None, summand))


def put_back(total: PyTree, gathered: PyTree) -> PyTree:
    """The sum of what was split, from the sum of its first part and the stacked rows of its second."""
    return jax.tree.map(lambda rows, here: here if rows is None else dense(join(rows)), gathered, total,
                        is_leaf=lambda leaf: leaf is None or _is_rows(leaf))


def _map_leaves(function: Callable[[Any], Any], tree: PyTree) -> PyTree:
    return jax.tree.map(function, tree, is_leaf=_is_rows)


def _map(of_array: Callable[[Any], Any], of_rows: Callable[[TableRows], Any], tree: PyTree) -> PyTree:
    return _map_leaves(lambda leaf: of_rows(leaf) if isinstance(leaf, TableRows) else of_array(leaf), tree)


def _is_rows(leaf: Any) -> bool:
    return isinstance(leaf, TableRows)
