"""Attacks of liars that see the uploads of all honest clients in a round, and agree on what they send."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from cantons.protocol import Array, Attack, PyTree
from cantons.ranges import Finite, Positive, Whole
from cantons.recipe import attack


@attack
def inner_product(*, epsilon: Positive = 5.0) -> Attack:
    """Liars send the honest mean, times -epsilon: its inner product with the aggregate shall be negative.

    Xie, Koyejo and Gupta, "Fall of Empires: Breaking Byzantine-tolerant SGD by Inner Product Manipulation", UAI 2019.

    epsilon: how far they go the wrong way.
    """
    return Attack(together=lambda key, values, honest, liars: jax.tree.map(
        lambda mean: -epsilon * mean, _mean(values, honest)))


@attack
def a_little_is_enough(*, z: Finite | None = None) -> Attack:
    """Liars send the honest mean minus z honest standard deviations in every coordinate: near enough to be believed.

    Baruch, Baruch and Goldberg, "A Little Is Enough: Circumventing Defenses For Distributed Learning", NeurIPS 2019,
    Algorithm 3.

    z: how many standard deviations; none for the most that leaves a majority on the liars' side, z_max in the paper.
    """

    def together(key, values, honest, liars):
        mean = _mean(values, honest)
        number = honest.sum()
        if z is None:
            needed = (number + liars.sum()) // 2 + 1 - liars.sum()  # of the honest, on the liars' side of the mean
            share = jnp.clip((number - needed) / jnp.maximum(number, 1), 0.5, 1 - 1e-6)
            away = jax.scipy.stats.norm.ppf(share)
        else:
            away = jnp.asarray(z, float)

        def lie(rows, centre):
            there = _column(honest, rows)
            variance = jnp.where(there, (rows - centre) ** 2, 0).sum(axis=0) / jnp.maximum(number, 1).astype(rows.dtype)
            return centre - away.astype(rows.dtype) * jnp.sqrt(variance)

        return jax.tree.map(lie, values, mean)

    return Attack(together=together)


@attack
def mimic(*, target: Whole = 0) -> Attack:
    """Liars all send what one honest client sends, so that it counts for many; nothing about it can be found odd.

    Karimireddy, He and Jaggi, "Byzantine-Robust Learning on Heterogeneous Datasets via Bucketing", ICLR 2022,
    Section 3.

    target: whom they copy, by its place among the honest clients of a round in the order of the data.
    """

    def together(key, values, honest, liars):
        place = jnp.argmax(jnp.cumsum(honest) > jnp.minimum(target, honest.sum() - 1))
        return jax.tree.map(lambda rows: rows[place], values)

    return Attack(together=together)


def _mean(values: PyTree, honest: Array) -> PyTree:
    number = jnp.maximum(honest.sum(), 1)
    return jax.tree.map(lambda rows: jnp.where(_column(honest, rows), rows, 0).sum(axis=0) / number.astype(rows.dtype),
                        values)


def _column(honest: Array, rows: Array) -> Array:
    return honest.reshape(-1, *[1] * (rows.ndim - 1))
