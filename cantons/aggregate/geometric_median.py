"""The geometric median by smoothed Weiszfeld steps: the point with the least sum of distances to the uploads.

Pillutla, Kakade and Harchaoui, "Robust Aggregation for Federated Learning", IEEE Transactions on Signal Processing
2022 (RFA), Algorithm 2. It begins at the coordinate-wise median: a mean may be as far away as a liar likes, and every
step then only takes off a fixed part of the way back.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from cantons.aggregate.median import middle
from cantons.aggregate.robust import Combined, Defence, robust
from cantons.aggregate.row_algebra import combine, squared_distances
from cantons.options import Flat
from cantons.protocol import StackRule
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

        return Combined(jax.lax.fori_loop(0, steps, step, middle(rows, weight > 0)))

    return robust("geometric_median", rfa, defence, max_weight=max_weight)
