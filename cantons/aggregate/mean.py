"""Means, as sums: the only rules that can be chunked, reduced on workers or kept secret."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from cantons.protocol import Array, PyTree, Sum


class Mean(NamedTuple):
    """What a mean hands to the server: the value and the total weight behind it."""

    value: PyTree
    weight: Array


def _finish(key, total):
    value, weight = total
    return Mean(jax.tree.map(lambda leaf: leaf / jnp.maximum(weight, jnp.finfo(weight.dtype).tiny), value), weight)


# Every client counts the same.
mean = Sum(lift=lambda upload, message: (upload, jnp.ones(())), finish=_finish)

# An upload is a pair (value, weight), such as a model change and the number of examples behind it.
weighted_mean = Sum(
    lift=lambda upload, message: (jax.tree.map(lambda leaf: upload[1] * leaf, upload[0]), upload[1]),
    finish=_finish,
)
