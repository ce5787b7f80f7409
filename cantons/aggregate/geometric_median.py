"""The geometric median by smoothed Weiszfeld steps: the point with the least sum of distances to the uploads.

Pillutla, Kakade and Harchaoui, "Robust Aggregation for Federated Learning", IEEE Transactions on Signal Processing
2022 (RFA), Algorithm 2. It begins at the mean of the half of the rows nearest to the coordinate-wise median: the mean
of all may be as far away as a liar likes, and every step then only takes off a fixed part of the way back; the median
itself may be one of the rows, and a Weiszfeld step does not leave a row again.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from cantons.aggregate.median import middle
from cantons.aggregate.robust import Combined, Defence, robust
from cantons.aggregate.row_algebra import combine, squared_distances
from cantons.options import Flat
from cantons.protocol import Array, PyTree, StackRule
from cantons.ranges import Count, Positive
from cantons.recipe import rule


@rule
def geometric_median(*, steps: Count = 8, smoothing: Positive = 1e-6, max_weight: Positive | None = None,
                     defence: Flat[Defence]) -> StackRule:
    """The geometric median of the uploads (RFA).

    It must see every upload in each step, so an engine that only sums cannot do it in one round. It costs no bytes
    beyond the uploads.

    steps: Weiszfeld steps.
    smoothing: a distance below this counts as this, nu in the paper.
    max_weight: the weights that clients report count up to this; none ignores them.
    """

    def rfa(state, rows, weight):
        def step(_, point):
            pull = weight / jnp.maximum(smoothing, jnp.sqrt(squared_distances(rows, point)))
            return combine(pull / jnp.maximum(pull.sum(), jnp.finfo(pull.dtype).tiny), rows)

        return Combined(jax.lax.fori_loop(0, steps, step, _nearest_half(rows, weight > 0)))

    return robust("geometric_median", rfa, defence, max_weight=max_weight)


def _nearest_half(rows: PyTree, there: Array) -> PyTree:
    """The mean of the rows that are not further from the coordinate-wise median than most."""
    distance = squared_distances(rows, middle(rows, there))
    near = there & (distance <= jnp.sort(jnp.where(there, distance, jnp.inf))[there.sum() // 2])
    return combine(near / jnp.maximum(near.sum(), 1), rows)
