"""The coordinate-wise median: half of the clients may lie about a coordinate before it leaves the range of the others.

Yin, Chen, Kannan and Bartlett, "Byzantine-Robust Distributed Learning: Towards Optimal Statistical Rates", ICML 2018.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from cantons.protocol import Average, Report, StackRule
from cantons.recipe import rule


@rule
def median() -> StackRule:
    """The median of every coordinate over the clients whose uploads arrived; weights are ignored."""

    def reduce(key, state, uploads, ids, expected):
        def middle(rows):
            arrived = (uploads.weight > 0).reshape(-1, *[1] * (rows.ndim - 1))
            return jnp.nanmedian(jnp.where(arrived, rows, jnp.nan), axis=0)

        return Average(jax.tree.map(middle, uploads.value), uploads.weight.sum()), state, Report()

    return StackRule(reduce)
