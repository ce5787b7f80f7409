"""PyTorch's convolutions as patches and a matrix product, as `models/conv.py` has them and for the same reasons.

On two CPU cores a round of ten clients with the CNN of two convolutions took 5.1 s with the compiler's own ones.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import jax.numpy as jnp

from cantons.protocol import Array


def convolve(images: Array, kernel: Array, stride: Sequence[int], padding: Sequence[int],
             dilation: Sequence[int]) -> Array:
    """Slide `kernel` [out, in, ...] over `images` [B, in, ...], which have one or more axes in space: [B, out, ...]."""
    outputs, channels, *sides = kernel.shape
    values = jnp.pad(jnp.moveaxis(images, 1, -1), ((0, 0), *((side, side) for side in padding), (0, 0)))
    reaches = [size - (side - 1) * apart for size, side, apart in zip(values.shape[1:], sides, dilation, strict=False)]
    patches = [values[:, *(slice(start * apart, start * apart + reach, step) for start, apart, reach, step in zip(
        starts, dilation, reaches, stride, strict=True))] for starts in itertools.product(*map(range, sides))]
    weight = jnp.moveaxis(kernel, (0, 1), (-1, -2)).reshape(math.prod(sides) * channels, outputs)
    return jnp.moveaxis(jnp.concatenate(patches, axis=-1) @ weight, -1, 1)


def with_patches(native: Callable[..., Array]) -> Callable[..., Array]:
    """PyTorch's operation `aten.convolution`; grouped and transposed ones, and those of one image, as `native` does."""
    def convolution(images, kernel, bias, stride, padding, dilation, transposed, output_padding, groups):
        space = kernel.ndim - 2
        if transposed or groups != 1 or images.ndim != kernel.ndim:
            return native(images, kernel, bias, stride, padding, dilation, transposed, output_padding, groups)
        stride, padding, dilation = (list(each) * (space // len(each)) for each in (stride, padding, dilation))
        found = convolve(images, kernel, stride, padding, dilation)
        return found if bias is None else found + bias.reshape(-1, *[1] * space)

    return convolution
