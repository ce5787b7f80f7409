"""Krum and Multi-Krum: the uploads whose n - f - 2 nearest others are nearest to them.

Blanchard, El Mhamdi, Guerraoui and Stainer, "Machine Learning with Adversaries: Byzantine Tolerant Gradient Descent",
NeurIPS 2017, Section 4. Proposition 4.2 asks for 2 f + 2 < n.
"""

from __future__ import annotations

import jax.numpy as jnp

from cantons.aggregate.robust import Combined, Defence, robust
from cantons.aggregate.row_algebra import combine, pairwise_distances, ranks
from cantons.options import Flat
from cantons.protocol import Array, PyTree, StackRule
from cantons.ranges import Count
from cantons.recipe import rule


@rule
def krum(*, defence: Flat[Defence]) -> StackRule:
    """The one upload that is nearest to its n - f - 2 nearest others; weights are ignored, and all others set aside.

    It must see every upload, so an engine that only sums cannot do it. It costs no bytes beyond the uploads.
    """
    return robust("krum", lambda state, rows, weight: _mean_of_best(rows, weight > 0, defence.f, 1), defence, _bears)


@rule
def multi_krum(*, keep: Count | None = None, defence: Flat[Defence]) -> StackRule:
    """The mean of the `keep` uploads with the best scores of Krum; weights are ignored, and all others set aside.

    It must see every upload, so an engine that only sums cannot do it. It costs no bytes beyond the uploads.

    keep: how many uploads are averaged, m in the paper; none for n - f.
    """
    return robust("multi_krum", lambda state, rows, weight: _mean_of_best(rows, weight > 0, defence.f, keep), defence,
                  _bears)


def _bears(rows: int) -> int:
    """2 f + 2 < n."""
    return (rows - 3) // 2


def _mean_of_best(rows: PyTree, there: Array, f: int, keep: int | None) -> Combined:
    count = there.sum()
    others = there & ~jnp.eye(len(there), dtype=bool)  # a row is not its own neighbour
    distance = jnp.where(others, pairwise_distances(rows), jnp.inf)
    near = ranks(distance) < jnp.maximum(count - f - 2, 1)
    score = jnp.where(there, jnp.where(near & others, distance, 0).sum(axis=1), jnp.inf)
    chosen = jnp.clip(count - f if keep is None else keep, 1, jnp.maximum(count, 1))
    # An absent row must not win against a score that is infinite because a distance overflows.
    kept = there & (ranks(jnp.where(there, jnp.minimum(score, jnp.finfo(score.dtype).max), jnp.inf)) < chosen)
    return Combined(combine(kept / chosen, rows), kept=kept)
