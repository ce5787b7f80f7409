"""Compression of what a server sends to clients: in fewer bytes, and right in the mean or in the long run.

"int8" rounds at random, so that what arrives is the value in expectation: Alistarh et al., "QSGD:
Communication-Efficient SGD via Gradient Quantization and Encoding", NeurIPS 2017, with the largest entry for a scale.
"top_k" sends the largest entries and adds the others to what is sent next: Stich, Cordonnier and Jaggi, "Sparsified SGD
with Memory", NeurIPS 2018. What travels is the compressed form itself, so its bytes are counted like any others.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated, Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

from cantons.algorithm.parts.trees import add, subtract, zeros
from cantons.protocol import Array, Key, PyTree
from cantons.ranges import Range

LEVELS = 127  # of int8 on either side of 0
ROUNDING = 2**32 - 1  # folded into the centre's key of a round, where batches fold the number of a central step


class Compression(NamedTuple):
    """How the transferred gradient is compressed on its way to clients.

    compression: of the gradient that is sent to clients: "none"; "int8", one byte for each entry and one scale for each
        array, rounded at random so that the mean is right; "top_k", the largest entries of each array and their places,
        where the server adds what it has not sent to the gradient of the next round.
    top_share: with "top_k", the share of each array's entries that is sent.
    """

    compression: Literal["none", "int8", "top_k"] = "none"
    top_share: Annotated[float, Range(0, 1, above=True)] = 0.1


class Int8(NamedTuple):
    """A tree in bytes: `levels` times `scale`."""

    levels: PyTree  # int8, each array in its own shape
    scale: PyTree  # one number for each array


class Largest(NamedTuple):
    """The largest entries of each array of a tree; the others are taken for 0."""

    values: PyTree
    places: PyTree  # int32: their places in the flattened array


class Sent(NamedTuple):
    travels: PyTree
    residual: PyTree  # what is left for later


class Compressor(NamedTuple):
    """How a tree gets to clients, round by round."""

    init: Callable[[PyTree], PyTree]  # a tree to look like -> the residual before the first round
    compress: Callable[[Key, PyTree, PyTree], Sent]  # (the centre's key of the round, tree, residual)
    decompress: Callable[[Any, PyTree], PyTree]  # (what has travelled, a tree to look like) -> what it stands for


def compressor_of(chosen: Compression) -> Compressor:
    if chosen.compression == "top_k":
        return top_k(chosen.top_share)
    return IN_BYTES if chosen.compression == "int8" else WHOLE


def round_to_bytes(key: Key, tree: PyTree) -> Int8:
    """Each entry as one of two neighbouring multiples of the scale, by chances that make the mean right."""
    leaves, structure = jax.tree.flatten(tree)
    keys = jax.tree.unflatten(structure, jax.random.split(jax.random.fold_in(key, ROUNDING), len(leaves)))

    def levels(key: Key, leaf: Array, scale: Array) -> Array:
        exact = jnp.clip(leaf / jnp.where(scale > 0, scale, 1), -LEVELS, LEVELS)
        below = jnp.floor(exact)
        return (below + jax.random.bernoulli(key, exact - below)).astype(jnp.int8)

    scale = jax.tree.map(lambda leaf: jnp.abs(leaf).max(initial=0) / LEVELS, tree)
    return Int8(jax.tree.map(levels, keys, tree, scale), scale)


def top_k(share: float) -> Compressor:
    """The largest entries, with error feedback: what was sent and the residual add up to all there was to send."""

    def compress(key: Key, tree: PyTree, residual: PyTree) -> Sent:
        owed = add(tree, residual)

        def places(leaf: Array) -> Array:
            count = math.ceil(share * leaf.size)
            return jax.lax.top_k(jnp.abs(leaf.ravel()), count)[1].astype(jnp.int32)

        chosen = jax.tree.map(places, owed)
        travels = Largest(jax.tree.map(lambda leaf, places: leaf.ravel()[places], owed, chosen), chosen)
        return Sent(travels, subtract(owed, decompress(travels, tree)))

    def decompress(sent: Largest, like: PyTree) -> PyTree:
        return jax.tree.map(lambda leaf, values, places: jnp.zeros(leaf.size, values.dtype).at[places].set(
            values).reshape(leaf.shape), like, *sent)

    return Compressor(zeros, compress, decompress)


WHOLE = Compressor(lambda tree: (), lambda key, tree, residual: Sent(tree, ()), lambda sent, like: sent)
IN_BYTES = Compressor(
    lambda tree: (), lambda key, tree, residual: Sent(round_to_bytes(key, tree), ()),
    lambda sent, like: jax.tree.map(lambda levels, scale: levels * scale, *sent))
