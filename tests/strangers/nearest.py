"""A rule from outside the package that keeps a state and reports: of all uploads, the mean of those that are nearest to
the aggregate of the round before; the others are set aside, and named."""

import jax
import jax.numpy as jnp

from cantons.protocol import Average, Report, StackRule
from cantons.recipe import rule


@rule
def nearest(*, aside: int = 1) -> StackRule:
    """The plain mean without the uploads furthest from the last aggregate.

    aside: how many uploads are set aside in a round.
    """

    def reduce(key, last, uploads, ids, expected):
        arrived = uploads.weight > 0
        parts = jax.tree.map(lambda rows, centre: ((rows - centre) ** 2).reshape(len(rows), -1).sum(axis=1),
                             uploads.value, last)
        distance = jnp.where(arrived, sum(jax.tree.leaves(parts)), -1.0)
        rank = jnp.argsort(jnp.argsort(-distance))  # 0 is the furthest
        rejected = arrived & (rank < jnp.minimum(aside, arrived.sum() - 1))
        weight = (arrived & ~rejected).astype(float)
        mean = jax.tree.map(lambda rows: jnp.tensordot(weight, rows, 1) / jnp.maximum(weight.sum(), 1), uploads.value)
        furthest = jnp.sqrt(jnp.maximum(distance.max(), 0))
        return Average(mean, weight.sum()), mean, Report({"furthest": furthest}, rejected)

    return StackRule(reduce, init=lambda value: jax.tree.map(jnp.zeros_like, value), reports=("furthest",))
