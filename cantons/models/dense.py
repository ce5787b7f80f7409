"""Networks of dense layers; inputs of any shape are flattened."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp

from cantons.models.base import Model, Named
from cantons.models.dropout import dropper, rate_option
from cantons.models.layer import affine, flat, glorot
from cantons.ranges import Count, Decay, checked


def linear(bias: bool = True) -> Named:
    """One dense layer that starts at zero, so that a convex problem starts at one point whatever the seed.

    bias: add a constant to each output.
    """

    def build(input_shape: tuple[int, ...], outputs: int) -> Model:
        def init(key):
            del key  # nothing is drawn at random
            layer = {"weight": jnp.zeros((math.prod(input_shape), outputs))}
            return {"layer0": layer | {"bias": jnp.zeros(outputs)} if bias else layer}

        def apply(params, inputs):
            return affine(params["layer0"], flat(inputs))

        return Model(init, apply, input_layer="layer0/*", output_layer="layer0/*", dense=True)

    return Named("linear", {"bias": bias}, build)


@checked
def mlp(hidden: Sequence[Count] = (200, 200), dropout: Decay = 0.0) -> Named:
    """Dense layers of these widths with relu between them, then a dense layer to the outputs.

    hidden: the width of each hidden layer.
    dropout: the probability with which a number that a hidden layer gives is 0 in training.
    """

    def build(input_shape: tuple[int, ...], outputs: int) -> Model:
        shapes = list(itertools.pairwise([math.prod(input_shape), *hidden, outputs]))
        last = len(shapes) - 1

        def init(key):
            keys = jax.random.split(key, len(shapes))
            return {f"layer{i}": glorot(keys[i], shape) for i, shape in enumerate(shapes)}

        def forward(params, inputs, key=None):
            values, drop = flat(inputs), dropper(dropout, key)
            for i in range(last):
                values = drop(jax.nn.relu(affine(params[f"layer{i}"], values)))
            return affine(params[f"layer{last}"], values)

        return Model(init, forward, input_layer="layer0/*", output_layer=f"layer{last}/*",
                     train=forward if dropout else None, dense=True)

    return Named("mlp", {"hidden": list(hidden), **rate_option(dropout)}, build)
