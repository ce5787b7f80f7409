"""What every robust rule shares: which uploads arrived, what weights count, bucketing, mixing, and how many may lie.

A rule's own file says how it combines rows; `robust` puts the rest around it, once for all.

Bucketing: Karimireddy, He and Jaggi, "Byzantine-Robust Learning on Heterogeneous Datasets via Bucketing", ICLR 2022,
Algorithm 1. Mixing: Allouah et al., "Fixing by Mixing: A Recipe for Optimal Byzantine ML under Heterogeneity",
AISTATS 2023, Algorithm 2.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp

from cantons.aggregate.row_algebra import combine, pairwise_distances, ranks, sort_columns
from cantons.errors import InputError
from cantons.protocol import Array, Average, Key, PyTree, Report, StackRule, stateless
from cantons.ranges import Count, Whole


class Defence(NamedTuple):
    """What can be asked of every rule that sees all uploads.

    f: how many liars the rule is to bear in a cohort. One that cannot bear so many, in buckets if there are any, is
        refused.
    bucket: uploads are shuffled and averaged in groups of so many before the rule sees them; 1 leaves them alone.
    mix: replace each upload, or bucket, by the mean of the n - f that are nearest to it (nearest-neighbour mixing).
    """

    f: Whole = 0
    bucket: Count = 1
    mix: bool = False


class Combined(NamedTuple):
    """What a rule makes of rows."""

    value: PyTree
    state: PyTree = ()
    numbers: Mapping[str, Array] = {}
    kept: Array | None = None  # bool, one for each row: which of them the value is made of; None: of all


# (state, rows, their weights: 0 for one that is absent) -> what the rule makes of them
Combine = Callable[[PyTree, PyTree, Array], Combined]


def minority(rows: int) -> int:
    """Fewer than half."""
    return (rows - 1) // 2


def robust(name: str, rule: Combine, defence: Defence, bears: Callable[[int], int] = minority, *,
           max_weight: float | None = None, init: Callable[[PyTree], PyTree] = stateless,
           reports: tuple[str, ...] = ()) -> StackRule:
    """`rule` behind bucketing and mixing; `bears` says how many of so many rows may lie.

    The weights that clients report are ignored, because a liar may claim any; with `max_weight` they count up to that.
    """

    def reduce(key, state, uploads, ids, expected):
        there = uploads.weight > 0
        weight = (there if max_weight is None else jnp.minimum(uploads.weight, max_weight) * there).astype(
            uploads.weight.dtype)
        rows, own, places = uploads.value, weight, jnp.arange(len(there))
        if defence.bucket > 1:
            places = draw_buckets(key, ids, there, defence.bucket)
            rows, own = average_buckets(rows, weight, places, -(-len(there) // defence.bucket))
            own = own if max_weight is not None else (own > 0).astype(own.dtype)
        if defence.mix:
            rows = mix_nearest(rows, own > 0, defence.f)
        found = rule(state, rows, own)
        # A mixed row is made of several uploads, and so none of them is set aside with it.
        set_aside = None if found.kept is None or defence.mix else there & ~found.kept[
            jnp.minimum(places, len(found.kept) - 1)]
        behind = weight.sum() if max_weight is not None else there.sum() * _middle(uploads.weight, there)
        return Average(found.value, behind), found.state, Report(found.numbers, set_aside)

    return StackRule(reduce, init, reports, bears=lambda cohort: _limit(name, defence, bears, int(cohort)))


def draw_buckets(key: Key, ids: Array, there: Array, size: int) -> Array:
    """The number of each upload's bucket; that of an absent one is beyond all.

    Shuffled by client id, and only those that arrived: the slots of a cohort differ with the number of devices.
    """
    lots = jax.vmap(lambda number: jax.random.bits(jax.random.fold_in(key, number)))(ids)
    order = jnp.lexsort((ids, lots, ~there))
    place = jnp.zeros_like(order).at[order].set(jnp.arange(len(order)))
    return jnp.where(there, place // size, len(ids))


def average_buckets(rows: PyTree, weight: Array, buckets: Array, count: int) -> tuple[PyTree, Array]:
    """The weighted mean of every bucket, and the weight behind it."""
    members = jnp.where(buckets == jnp.arange(count)[:, None], weight, 0)
    total = members.sum(axis=1)
    return combine(members / jnp.where(total > 0, total, 1)[:, None], rows), total


def mix_nearest(rows: PyTree, there: Array, f: int) -> PyTree:
    """Every row as the mean of the n - f that are nearest to it, itself among them."""
    distance = jnp.where(there, pairwise_distances(rows), jnp.inf)
    count = jnp.clip(there.sum() - f, 1, len(there))
    return combine(((ranks(distance) < count) & there) / count, rows)


def _middle(values: Array, there: Array) -> Array:
    """The median of some numbers."""
    last = jnp.maximum(there.sum() - 1, 0)
    return sort_columns(values[:, None], there, lambda rows: (rows[last // 2] + rows[(last + 1) // 2]) / 2)[0]


def _limit(name: str, defence: Defence, bears: Callable[[int], int], cohort: int) -> int:
    """How many liars the rule bears in such a cohort; a cohort or an f that does not suit it is refused."""
    f, bucket = defence.f, defence.bucket
    if bucket > cohort:
        raise InputError(f"{name} has buckets of {bucket} uploads, and a cohort has {cohort}; lower bucket.")
    rows = -(-cohort // bucket)
    among = f"a cohort of {cohort}" if bucket == 1 else f"the {rows} buckets that a cohort of {cohort} makes"
    most = bears(rows)
    if most < 0:
        raise InputError(f"{name} can do nothing with {among}; enlarge the cohort{', or lower bucket' * (bucket > 1)}.")
    if f > most:
        raise InputError(f"{name} bears at most {most} {'liar' if most == 1 else 'liars'} in {among}, and f is {f}; "
                         f"lower f{', or bucket' * (bucket > 1)}, or enlarge the cohort.")
    return most
