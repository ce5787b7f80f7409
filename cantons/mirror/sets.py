"""Convex sets as values: who is inside, the nearest point, a point to start from, how far apart its points are.

A point is a vector or a tree of arrays; sums, norms and matrices see all entries of the tree as one vector.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree

from cantons.errors import InputError
from cantons.mirror.norms import finite, largest, size
from cantons.protocol import Array, PyTree
from cantons.ranges import Bounds, Numbers, checked


class ConvexSet(NamedTuple):
    """A closed convex set, X in the paper."""

    kind: str  # decides which mirror maps have an exact step on it
    name: str  # for sentences
    options: Mapping[str, Any]  # what it was built from
    violation: Callable[[PyTree], Array]  # how far outside a point is, relative to the set's size; 0 inside
    start: Callable[[PyTree], PyTree]  # a point in the middle, shaped like the argument
    diameter: Callable[[PyTree], Array]  # the largest l2 distance of two points shaped like the argument
    project: Callable[[PyTree], PyTree] | None  # the nearest point in l2, where it is known exactly
    corner: Callable[[PyTree], PyTree] | None = None  # the point furthest in a direction, if the set is bounded
    most: Array | float | None = None  # no entry is larger; None: not known
    total: Array | float | None = None  # the entries are nonnegative and add up to this; None: they do not

    def contains(self, point: PyTree, tolerance: float = 1e-5) -> Array:
        """Is the point inside, up to `tolerance` times the set's size? What is not a number is outside."""
        return self.violation(point) <= tolerance


def known(tree: PyTree) -> bool:
    """What is still to come, inside a program being compiled, cannot be judged."""
    return not any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(tree))


def spread(value: PyTree, like: PyTree) -> PyTree:
    """One number for all entries, or a tree built like the point: as a tree with the point's shapes."""
    structure: Any = jax.tree.structure(value)
    if structure != jax.tree.structure(like):
        if structure != jax.tree.structure(0.0) or jnp.ndim(value) > 0:
            raise InputError("a bound or a centre is built unlike the point; give one number for all entries, or a "
                             "tree built like the point.")
        value = jax.tree.map(lambda leaf: value, like)

    def fit(part, leaf):
        shape = jnp.shape(leaf)
        if jnp.shape(part) not in ((), shape):
            raise InputError(f"a bound or a centre has the shape {jnp.shape(part)} where the point has {shape}; give "
                             "one number, or an array of the point's shape.")
        return jnp.broadcast_to(jnp.asarray(part, jnp.result_type(leaf)), shape)

    return jax.tree.map(fit, value, like)


def all_space() -> ConvexSet:
    """No constraint; for `entropy` and `log_barrier`, whose points are positive, the positive orthant."""
    return ConvexSet("all_space", "the whole space", {}, project=lambda point: point,
                     violation=lambda point: jnp.where(finite(point), 0.0, jnp.inf),
                     start=lambda like: jax.tree.map(jnp.zeros_like, like), diameter=lambda like: jnp.array(jnp.inf))


@checked
def box(low: Bounds, high: Bounds) -> ConvexSet:
    """low <= x <= high, entry by entry. A bound is one number or a tree like the point, and may be infinite.

    >>> bool(box(-3.0, 3.0).contains(jnp.array([2.0, -4.0])))
    False
    """
    lows, highs = jax.tree.leaves(low), jax.tree.leaves(high)
    if known((low, high)):
        pairs = zip(lows, highs, strict=True) if len(lows) == len(highs) else itertools.product(lows, highs)
        for lower, upper in pairs:
            if not np.all(np.asarray(lower) <= np.asarray(upper)):
                raise InputError(f"the box from {lower} to {upper} has no points; give low <= high.")

    def bounds(like):
        return spread(low, like), spread(high, like)

    def violation(point):
        def outside(leaf, lower, upper):
            # An infinite bound has no size to compare with, and cannot be overstepped.
            above, below = (jnp.where(jnp.isinf(bound), 0.0, distance / jnp.maximum(jnp.abs(bound), 1.0))
                            for bound, distance in ((upper, leaf - upper), (lower, lower - leaf)))
            return jnp.maximum(jnp.maximum(above, below), jnp.where(jnp.isfinite(leaf), 0.0, jnp.nan))

        return largest(jax.tree.map(outside, point, *bounds(point)))

    def start(like):
        def middle(lower, upper):
            # One unit inside the only bound there is; without any, zero.
            inner = jnp.where(jnp.isinf(lower), jnp.where(jnp.isinf(upper), 0.0, upper - 1), lower + 1)
            return jnp.where(jnp.isinf(lower) | jnp.isinf(upper), inner, lower / 2 + upper / 2)

        return jax.tree.map(middle, *bounds(like))

    def diameter(like):
        lower, upper = bounds(like)
        return size(jax.tree.map(jnp.subtract, upper, lower), 2)

    def corner(direction):
        return jax.tree.map(lambda to, lower, upper: jnp.where(to > 0, upper, lower), direction, *bounds(direction))

    most = max(float(np.max(upper)) for upper in highs) if known(high) else largest(high)
    return ConvexSet("box", "a box", {"low": low, "high": high}, violation, start, diameter, corner=corner, most=most,
                     project=lambda point: optax.projections.projection_box(point, *bounds(point)))


@checked
def affine(A: Numbers, b: Numbers) -> ConvexSet:
    """A x = b, where the columns of A belong to the entries of the point, flattened in the order of its leaves.

    >>> plane = affine([[1.0, 1.0, 1.0]], [1.0])
    >>> plane.project(jnp.array([1.0, 1.0, 2.0]))
    Array([0., 0., 1.], dtype=float32)
    """
    matrix, values = np.atleast_2d(np.asarray(A, np.float64)), np.atleast_1d(np.asarray(b, np.float64))
    if matrix.ndim != 2 or values.shape != matrix.shape[:1]:
        raise InputError(f"A has the shape {np.shape(A)} and b {np.shape(b)}; give one row of A and one entry of b for "
                         "each equation.")
    inverse = np.linalg.pinv(matrix)
    least = inverse @ values  # the solution of least norm
    scale = max(1.0, np.abs(values).max(initial=0.0))
    if not np.abs(matrix @ least - values).max(initial=0.0) <= 1e-8 * scale:
        raise InputError("the equations A x = b contradict each other: no x satisfies them all.")

    def flat(point):
        vector, back = ravel_pytree(point)
        if vector.size != matrix.shape[1]:
            raise InputError(f"A has {matrix.shape[1]} columns and the point {vector.size} entries; give A one column "
                             "for each entry.")
        return vector, back

    def residual(vector):
        return jnp.asarray(matrix, vector.dtype) @ vector - jnp.asarray(values, vector.dtype)

    def project(point):
        vector, back = flat(point)
        return back(vector - jnp.asarray(inverse, vector.dtype) @ residual(vector))

    def start(like):
        vector, back = flat(like)
        return back(jnp.asarray(least, vector.dtype))

    unique = np.linalg.matrix_rank(matrix) == matrix.shape[1]
    return ConvexSet("affine", "an affine set", {"matrix": matrix, "values": values},
                     lambda point: largest(residual(flat(point)[0])) / scale, start,
                     lambda like: jnp.array(0.0 if unique else jnp.inf), project)
