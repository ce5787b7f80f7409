"""The layer every network here is made of: a weight, a bias, and inputs @ weight + bias."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from cantons.protocol import Array, Key

Layer = dict[str, Array]
WEIGHTS = "*weight"  # a glob: the weights of dense and convolution layers, and no tables of vectors


def glorot(key: Key, shape: tuple[int, ...]) -> Layer:
    """Weights of `shape` [..., inputs, outputs], drawn as Glorot and Bengio (2010) do; biases 0."""
    return {"weight": jax.nn.initializers.glorot_uniform()(key, shape), "bias": jnp.zeros(shape[-1])}


def affine(layer: Layer, inputs: Array) -> Array:
    outputs = inputs @ layer["weight"]
    return outputs + layer["bias"] if "bias" in layer else outputs


def flat(inputs: Array) -> Array:
    """One row of numbers per example."""
    return inputs.reshape(inputs.shape[0], -1)
