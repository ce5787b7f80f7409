"""Low-rank adapters: every matrix W of the shared model is W + scale A B to a client, and A and B are its own.

Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models", ICLR 2022. A is drawn at random and B begins at 0, so
that every client begins with the shared model. Where the paper multiplies column vectors, B A, rows are multiplied
here, A B; its alpha / r is `scale`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp

from cantons.protocol import Array, Key, PyTree
from cantons.ranges import Count, Positive

KEY = 2**31 - 1  # folded into the key of a model: far from the numbers of its layers, which split the same key


class Adapter(NamedTuple):
    """The split "adapter" with its options.

    rank: of A B, or that of the matrix where it is smaller.
    scale: what A B is multiplied by.
    """

    rank: Count = 4
    scale: Positive = 1.0


def sides(shape: Sequence[int]) -> tuple[int, int]:
    """The rows and columns of an array as a matrix: of all ways to read it as one, that with the fewest of them.

    So a convolution is a matrix from patches to channels, and a projection to several heads one to all of them.

    >>> sides((200, 10)), sides((3, 3, 64, 128)), sides((128, 64, 3, 3)), sides((256, 4, 64))
    ((200, 10), (576, 128), (128, 576), (256, 256))
    """
    return min(((math.prod(shape[:axis]), math.prod(shape[axis:])) for axis in range(1, len(shape))), key=sum)


def draw_adapters(key: Key, shapes: dict[str, tuple[int, ...]], rank: int) -> dict[str, dict[str, Array]]:
    """A and B for every matrix, by its path."""
    adapters = {}
    for number, (path, shape) in enumerate(shapes.items()):
        rows, columns = sides(shape)
        inner = min(rank, rows, columns)
        drawn = jax.random.normal(jax.random.fold_in(jax.random.fold_in(key, KEY), number), (rows, inner))
        adapters[path] = {"A": drawn / rows**0.5, "B": jnp.zeros((inner, columns))}
    return adapters


def adapt(paths: Callable[[PyTree], list[str]], params: PyTree, adapters: dict[str, dict[str, Array]],
          scale: float) -> PyTree:
    """The parameters with A B added to those that have adapters."""
    def added(path: str, leaf: Array) -> Array:
        if path not in adapters:
            return leaf
        return leaf + scale * (adapters[path]["A"] @ adapters[path]["B"]).reshape(leaf.shape)

    leaves, structure = jax.tree.flatten(params)
    return jax.tree.unflatten(structure, map(added, paths(params), leaves))
