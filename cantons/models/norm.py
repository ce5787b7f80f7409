"""Normalisation without running statistics: each example is brought to mean 0 and variance 1 by itself."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from cantons.models.layer import Layer
from cantons.protocol import Array

EPSILON = 1e-5  # added to variances, as PyTorch has it


def norm(width: int) -> Layer:
    """The layer that changes nothing after normalising: scales 1, shifts 0."""
    return {"scale": jnp.ones(width), "shift": jnp.zeros(width)}


def layer_norm(layer: Layer, values: Array) -> Array:
    """Normalise over the last axis. Ba, Kiros and Hinton, "Layer Normalization", 2016."""
    return _standard(values, (-1,)) * layer["scale"] + layer["shift"]


def group_norm(layer: Layer, images: Array, groups: int) -> Array:
    """Normalise each group of channels over all pixels of an image. Wu and He, "Group Normalization", ECCV 2018."""
    parts = images.reshape(*images.shape[:-1], groups, -1)
    return _standard(parts, (1, 2, 4)).reshape(images.shape) * layer["scale"] + layer["shift"]


def _standard(values: Array, axes: tuple[int, ...]) -> Array:
    centred = values - values.mean(axes, keepdims=True)
    return centred * jax.lax.rsqrt((centred**2).mean(axes, keepdims=True) + EPSILON)
