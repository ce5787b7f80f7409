"""The trimmed mean: every coordinate without its f largest and f smallest values.

Yin, Chen, Kannan and Bartlett, "Byzantine-Robust Distributed Learning: Towards Optimal Statistical Rates", ICML 2018,
Definition 2.
"""

from __future__ import annotations

import jax.numpy as jnp

from cantons.aggregate.robust import Combined, Defence, robust
from cantons.aggregate.row_algebra import sort_columns
from cantons.options import Flat
from cantons.protocol import StackRule
from cantons.recipe import rule


@rule
def trimmed_mean(*, defence: Flat[Defence]) -> StackRule:
    """The mean of every coordinate without its `f` largest and `f` smallest values; weights are ignored.

    Where fewer uploads arrive than 2 f + 1, fewer are left out. It must see every upload, so an engine that only sums
    cannot do it. It costs no bytes beyond the uploads.
    """

    def combine(state, rows, weight):
        there = weight > 0
        count = there.sum()
        trimmed = jnp.minimum(defence.f, jnp.maximum(count - 1, 0) // 2)
        place = jnp.arange(len(there))[:, None]
        inside = (place >= trimmed) & (place < count - trimmed)

        def mean(values):
            return jnp.where(inside, values, 0).sum(axis=0) / (count - 2 * trimmed).astype(values.dtype)

        return Combined(sort_columns(rows, there, mean))

    return robust("trimmed_mean", combine, defence)
