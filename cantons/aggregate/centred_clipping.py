"""Centred clipping: from the aggregate before, the mean of steps towards the uploads, none longer than a radius.

Karimireddy, He and Jaggi, "Learning from History for Byzantine Robust Optimization", ICML 2021, Algorithm 2 and eq. 10.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from cantons.aggregate.robust import Combined, Defence, robust
from cantons.aggregate.row_algebra import combine, squared_distances
from cantons.options import Flat
from cantons.protocol import StackRule
from cantons.ranges import Count, Positive
from cantons.recipe import rule


@rule
def centred_clipping(*, radius: Positive | None = 10.0, steps: Count = 1, max_weight: Positive | None = None,
                     defence: Flat[Defence]) -> StackRule:
    """The aggregate of the round before, moved by the mean of clipped differences to it; it begins at 0.

    It sees every upload, because bucketing and several steps ask for that: an engine that only sums cannot do it. It
    costs no bytes beyond the uploads. It remembers one aggregate, and reports which part of the rows was `clipped` in
    its last step.

    radius: a longer difference is shortened to this length, tau in the paper; none clips nothing.
    steps: how often a round repeats this from where it got to.
    max_weight: the weights that clients report count up to this; none ignores them.
    """

    def clip(last, rows, weight):
        share = weight / jnp.maximum(weight.sum(), jnp.finfo(weight.dtype).tiny)

        def step(_, point):
            length = jnp.sqrt(squared_distances(rows, point[0]))
            scale = jnp.ones_like(length) if radius is None else jnp.minimum(
                1, radius / jnp.maximum(length, jnp.finfo(length.dtype).tiny))
            pull = share * scale.astype(share.dtype)
            moved = jax.tree.map(lambda centre, mean: (1 - pull.sum()).astype(centre.dtype) * centre + mean, point[0],
                                 combine(pull, rows))
            return moved, jnp.where(scale < 1, share, 0).sum().astype(point[1].dtype)

        point, clipped = jax.lax.fori_loop(0, steps, step, (last, jnp.zeros(())))
        return Combined(point, point, {"clipped": clipped})

    return robust("centred_clipping", clip, defence, max_weight=max_weight, reports=("clipped",),
                  init=lambda value: jax.tree.map(jnp.zeros_like, value))
