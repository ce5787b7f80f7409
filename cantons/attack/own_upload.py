"""Attacks of a liar that knows nothing but itself: on its own upload, or on the examples it learns from."""

from __future__ import annotations

from typing import Annotated

import jax
import jax.numpy as jnp

from cantons.protocol import Attack, PyTree
from cantons.ranges import Finite, Positive, Range
from cantons.recipe import attack


@attack
def sign_flip() -> Attack:
    """A liar sends the negative of its upload; so in Mishchenko et al., Figure 4."""
    return _scaled(-1.0)


@attack
def scaling(*, factor: Finite = 10.0) -> Attack:
    """A liar sends a multiple of its upload.

    factor: what it is multiplied by; a negative one flips the sign too.
    """
    return _scaled(factor)


@attack
def noise(*, scale: Positive = 1.0) -> Attack:
    """A liar adds Gaussian noise to its upload.

    scale: the standard deviation of the noise in every coordinate.
    """

    def upload(key, honest):
        leaves, structure = jax.tree.flatten(honest.value)
        noisy = [leaf + scale * jax.random.normal(jax.random.fold_in(key, place), leaf.shape, leaf.dtype)
                 for place, leaf in enumerate(leaves)]
        return honest._replace(value=jax.tree.unflatten(structure, noisy))

    return Attack(upload=upload)


@attack
def not_finite() -> Attack:
    """A liar sends NaN in every coordinate; engines leave such uploads out before any rule sees them."""
    return Attack(upload=lambda key, honest: honest._replace(
        value=jax.tree.map(lambda leaf: jnp.full_like(leaf, jnp.nan), honest.value)))


@attack
def label_flip() -> Attack:
    """A liar learns from wrong targets: label C - 1 - y in place of y, and the negative of a number."""

    def targets(classes: int | None, targets: PyTree) -> PyTree:
        def flip(leaf):
            # -1 stands for no label.
            return -leaf if classes is None else jnp.where(leaf < 0, leaf, classes - 1 - leaf).astype(leaf.dtype)

        return jax.tree.map(flip, targets)

    return Attack(targets=targets)


@attack
def silence() -> Attack:
    """A liar takes part and sends nothing."""
    return Attack(silent=True)


@attack
def delay(*, factor: Annotated[float, Range(1, 1e6)] = 10.0) -> Attack:
    """A liar takes its time: it is honest, and what it sends is stale. For the clock asynchronous.

    factor: how many times as long its jobs take.
    """
    return Attack(slower=factor)


def _scaled(factor: float) -> Attack:
    return Attack(upload=lambda key, honest: honest._replace(
        value=jax.tree.map(lambda leaf: factor * leaf, honest.value)))
