"""Several populations of clients in one algorithm: what they send is added up for each group apart.

Where the problem has no groups, everything here leaves the algorithm as it is, to the bit.
"""

from __future__ import annotations

from typing import Any, TypeVar

import jax
import jax.numpy as jnp

from cantons.aggregate import as_sum
from cantons.errors import InputError
from cantons.protocol import Algorithm, Array, Problem, PyTree, Sum

Tree = TypeVar("Tree")


def place(group: Array, count: int, tree: Tree) -> Tree:
    """The arrays as one row of `count`, the others being zero.

    >>> place(1, 3, jnp.ones(2))[:, 0]
    Array([0., 1., 0.], dtype=float32)
    """
    def one(leaf):
        rows = jnp.arange(count).reshape(-1, *[1] * jnp.ndim(leaf))
        return jnp.where(rows == group, leaf, jnp.zeros_like(leaf))

    return jax.tree.map(one, tree)


def sum_of(problem: Problem, stacked: PyTree) -> PyTree:
    """The sum over groups of what there is one of for each; where there are no groups, what there is."""
    return jax.tree.map(lambda leaf: leaf.sum(axis=0), stacked) if problem.groups else stacked


def for_each_group(problem: Problem, tree: PyTree) -> PyTree:
    """As many copies as there are groups; where there are none, the tree itself."""
    count = len(problem.groups)
    return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (count, *jnp.shape(leaf))), tree) if count else tree


def mapped(problem: Problem, function: Any) -> Any:
    """The function of one population, for all groups at once."""
    return jax.vmap(function) if problem.groups else function


def by_group(whole: Algorithm, problem: Problem) -> Algorithm:
    """The algorithm whose aggregate has one row for each group; its message has `group` and `central_gradient`.

    A client says of which group it is, and is sent that group's row of the gradients that clients add to theirs.
    """
    count = len(problem.groups)
    if not count:
        return whole
    lift, finish = as_sum(whole.aggregate)

    def request(key, client, data):
        return data.group

    def select(message, group):
        return message._replace(group=group, central_gradient=jax.tree.map(
            lambda leaf: leaf[group], message.central_gradient))

    def lift_row(upload, message):
        return place(message.group, count, lift(upload, message))

    return whole._replace(request=request, select=select, aggregate=Sum(
        lift_row, lambda key, total: jax.vmap(lambda row: finish(key, row))(total)))


def refuse_groups(problem: Problem, rows: int | None) -> None:
    if rows is not None and problem.groups:
        raise InputError("rows is given, and clients that hold some rows only cannot be of several groups yet; leave "
                         "rows or the losses of groups out.")
