"""Convolutional networks, without the compiler's own convolution.

Federated training gives every client its own kernels. Under `vmap` a native convolution becomes a grouped
one, 3x slower on a GPU, and inside `scan` the CPU leaves its fast path. Patches and a matrix product win on
both. Their gradient is left to JAX: a backward pass by hand saved 5 to 8% on a CPU and would cost forward
mode, and with it Hessian-vector products. Patches are made before the product and never within it: JAX 0.11 stops
the process where it tries that on a GPU (openxla/xla, issue 47381).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import jax
import jax.numpy as jnp

from cantons.errors import InputError, at_least
from cantons.models.base import Model, Named
from cantons.models.dropout import dropper, rate_option
from cantons.models.layer import affine, flat, glorot
from cantons.protocol import Array
from cantons.ranges import Count, Decay, checked

SIDE = 3  # of every kernel


def conv(images: Array, kernel: Array, stride: int = 1, padding: int = 0) -> Array:
    """Slide `kernel` [h, w, in, out] over `images` [B, H, W, in], every `stride` pixels: [B, (H-h)/stride+1, ..., out].

    Images first get `padding` rows and columns of zeros on each side.
    """
    rows, columns, channels, outputs = kernel.shape
    if padding:
        images = jnp.pad(images, ((0, 0), (padding, padding), (padding, padding), (0, 0)))
    height, width = images.shape[1] - rows + 1, images.shape[2] - columns + 1
    shifted = [images[:, i : i + height : stride, j : j + width : stride]
               for i in range(rows) for j in range(columns)]
    patches = jax.lax.optimization_barrier(jnp.concatenate(shifted, axis=-1))
    return patches @ kernel.reshape(rows * columns * channels, outputs)


def max_pool(images: Array) -> Array:
    """The largest of every 2 x 2 pixels; an odd last row or column is left out."""
    batch, height, width, channels = images.shape
    even = images[:, : height // 2 * 2, : width // 2 * 2]
    return even.reshape(batch, height // 2, 2, width // 2, 2, channels).max((2, 4))


@checked
def cnn(channels: Sequence[Count] = (32, 64), dense: Count = 128, dropout: Decay = 0.0) -> Named:
    """3 x 3 convolutions with relu, 2 x 2 max-pooling, a dense layer with relu, a dense layer to the outputs.

    With the defaults it is the CNN of the pfl-research benchmarks (Granqvist et al., 2024). Inputs are images
    [H, W, channels], or greyscale [H, W].

    channels: of each convolution, one after another.
    dense: the width of the dense layer between.
    dropout: the probability with which a number that enters a dense layer is 0 in training.
    """
    at_least("the number of convolutions in channels", len(channels), 1)

    def build(input_shape: tuple[int, ...], outputs: int) -> Model:
        if len(input_shape) not in (2, 3):
            raise InputError(f"cnn got inputs of shape {input_shape}; "
                             "give images [H, W, channels] or [H, W], or use mlp.")
        height, width, colours = (*input_shape, 1)[:3]
        border = len(channels) * (SIDE - 1)
        if min(height, width) < border + 2:
            raise InputError(f"cnn got images of {height} x {width}, but {len(channels)} convolutions and "
                             f"a pooling need {border + 2} or more; give larger images or fewer channels.")
        pooled = (height - border) // 2 * ((width - border) // 2) * channels[-1]
        kernels = [(SIDE, SIDE, *pair) for pair in itertools.pairwise([colours, *channels])]
        shapes = [*kernels, (pooled, dense), (dense, outputs)]

        def init(key):
            keys = jax.random.split(key, len(shapes))
            return {f"layer{i}": glorot(keys[i], shape) for i, shape in enumerate(shapes)}

        def forward(params, inputs, key=None):
            drop = dropper(dropout, key)
            *convolutions, middle, final = (params[f"layer{i}"] for i in range(len(shapes)))
            values = inputs.reshape(-1, height, width, colours)
            for layer in convolutions:
                values = jax.nn.relu(conv(values, layer["weight"]) + layer["bias"])
            values = jax.nn.relu(affine(middle, drop(flat(max_pool(values)))))
            return affine(final, drop(values))

        return Model(init, forward, input_layer="layer0/*", output_layer=f"layer{len(shapes) - 1}/*",
                     train=forward if dropout else None)

    return Named("cnn", {"channels": list(channels), "dense": dense, **rate_option(dropout)}, build)
