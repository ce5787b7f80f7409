"""How robust a rule is, measured: the least c for which it is a (delta, c)-robust aggregator, as far as was searched.

Definition 2 of Mishchenko et al., "Partially Personalized Federated Learning", after Karimireddy, He and Jaggi,
"Learning from History for Byzantine Robust Optimization", ICML 2021: of n uploads f lie, delta = f / n, the others have
the mean x and the mean squared distance sigma^2 of pairs, and E |aggregate - x|^2 <= c delta sigma^2 must hold whatever
liars send. The expectation is over the honest uploads and over the buckets that are drawn.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cantons.protocol import Array, Average, Key, StackRule

Draw = Callable[[Key, int, int], Array]  # (key, rows, coordinates) -> honest uploads

SPREADS = (-100.0, -10.0, -5.0, -3.0, -2.0, -1.5, -1.0, -0.5, 0.5, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 100.0)
NAMES = (*(f"mean {spread:+g} deviations" for spread in SPREADS), "one honest upload", "the furthest honest upload")


class Robustness(NamedTuple):
    """What was found for one rule and one way of drawing honest uploads."""

    c: float  # the largest E |aggregate - mean|^2 / (delta sigma^2) over the attacks
    attack: str  # which of them that was


def gaussian(key: Key, rows: int, coordinates: int) -> Array:
    """Honest uploads that differ by noise."""
    return jax.random.normal(key, (rows, coordinates))


def two_points(key: Key, rows: int, coordinates: int) -> Array:
    """Honest uploads of which, in every coordinate, half are -1 and half are 1: the mean is where nobody is."""
    return jnp.sign(jax.random.permutation(key, jnp.linspace(-1, 1, rows)[:, None] * jnp.ones(coordinates), axis=0,
                                           independent=True) + 1e-9)


def one_hot(key: Key, rows: int, coordinates: int) -> Array:
    """Honest uploads that each have a coordinate of their own, as clients with labels of their own do."""
    return jnp.sqrt(coordinates) * jax.nn.one_hot(jax.random.permutation(key, rows) % coordinates, coordinates)


def measure_robustness(rule: StackRule, rows: int, liars: int, draw: Draw, *, coordinates: int = 20, draws: int = 200,
                       seed: int = 0) -> Robustness:
    """The worst of simple attacks: the honest mean and so many standard deviations, and copies of one honest upload.

    A search gives a lower bound of c: a cleverer attack may do more harm.
    """
    honest = rows - liars

    def errors(key: Key) -> tuple[Array, Array]:
        values_key, rule_key = jax.random.split(key)
        values = draw(values_key, honest, coordinates)

        def error(lie: Array) -> Array:
            uploads = jnp.concatenate([values, jnp.broadcast_to(lie, (liars, coordinates))])
            found, *_ = rule.reduce(rule_key, rule.init(values[0] * 0), Average(uploads, jnp.ones(rows)),
                                    jnp.arange(rows), rows)
            return ((found.value - values.mean(axis=0)) ** 2).sum()

        return jax.lax.map(error, _lies(values)), 2 * values.var(axis=0, ddof=1).sum()

    found, spread = jax.jit(jax.vmap(errors))(jax.random.split(jax.random.key(seed), draws))
    ratios = np.mean(found, axis=0) / (liars / rows * np.mean(spread))
    worst = int(np.argmax(ratios))
    return Robustness(float(ratios[worst]), NAMES[worst])


def _lies(values: Array) -> Array:
    """What liars who agree may send, in the order of NAMES."""
    mean = values.mean(axis=0)
    furthest = values[jnp.argmax(((values - mean) ** 2).sum(axis=1))]
    return jnp.stack([*(mean + spread * values.std(axis=0) for spread in SPREADS), values[0], furthest])
