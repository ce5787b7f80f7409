"""Vectors of length 1, for cosines."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from cantons.protocol import Array

SHORTEST = 1e-12  # squared: shorter vectors stay short, and zero stays zero


def unit_rows(rows: Array) -> Array:
    """Each row divided by its length.

    >>> unit_rows(jnp.array([[3.0, 4.0], [0.0, 0.0]]))
    Array([[0.6, 0.8],
           [0. , 0. ]], dtype=float32)
    """
    return rows * jax.lax.rsqrt(jnp.maximum((rows**2).sum(axis=-1, keepdims=True), SHORTEST))
