"""The mean of uploads whose norms are bounded: nobody moves it by more than its share of the radius.

Sun, Kairouz, Suresh and McMahan, "Can You Really Backdoor Federated Learning?", 2019, Section 4 (norm thresholding).
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from cantons.aggregate.mean import divided
from cantons.protocol import Average, Report, SumRule
from cantons.ranges import Positive
from cantons.recipe import rule


@rule
def norm_bound(*, radius: Positive = 1.0, max_weight: Positive | None = None) -> SumRule:
    """The mean of the uploads, each shortened to the length `radius` where it is longer.

    It is a sum, so an engine that only sums can do it, and it costs no bytes beyond the uploads. It bounds what liars
    can do in one round, and not where they lead in many. It reports which part of the uploads was `clipped`.

    radius: the longest an upload may be, in the Euclidean norm, M in the paper.
    max_weight: the weights that clients report count up to this; none ignores them.
    """

    def lift(state, upload):
        squares = jax.tree.map(lambda leaf: (leaf ** 2).sum(), upload.value)
        length = jnp.sqrt(sum(jax.tree.leaves(squares), jnp.zeros(())))
        scale = jnp.minimum(1, radius / jnp.maximum(length, jnp.finfo(length.dtype).tiny))
        weight = jnp.ones(()) if max_weight is None else jnp.minimum(upload.weight, max_weight)
        value = jax.tree.map(lambda leaf: (weight * scale).astype(leaf.dtype) * leaf, upload.value)
        return Average(value, weight), jnp.where(scale < 1, weight, 0)

    def finish(key, state, total, expected):
        uploads, clipped = total
        return divided(uploads), state, Report({"clipped": clipped / jnp.maximum(
            uploads.weight, jnp.finfo(uploads.weight.dtype).tiny)})

    return SumRule(lift, finish, reports=("clipped",))
