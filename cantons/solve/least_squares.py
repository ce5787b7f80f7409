"""Least squares from sums of products, which grow with the dimension and not with the examples; in a ball, too."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from cantons.protocol import Array, PyTree
from cantons.solve.bisection import halve


class Normal(NamedTuple):
    """The normal equations `curvature @ vector = moment` of some examples; those of more examples are the sum."""

    curvature: Array  # sum of x x'
    moment: Array  # sum of y x
    examples: Array


def vector(params: PyTree) -> Array:
    """All parameters, end to end."""
    return ravel_pytree(params)[0] if jax.tree.leaves(params) else jnp.zeros(0)


def features(apply: Callable[[PyTree, PyTree], Array], params: PyTree, inputs: PyTree) -> Array:
    """One row per input: a linear model's outputs are these rows times its parameters as one vector."""
    flat, tree = ravel_pytree(params)

    def output(flat, row):
        return apply(tree(flat), jax.tree.map(lambda leaf: leaf[None], row))[0]

    return jax.vmap(jax.grad(output), in_axes=(None, 0))(flat, inputs)


def no_equations(params: PyTree) -> Normal:
    """Of no example yet."""
    blank = jnp.zeros_like(vector(params))
    return Normal(jnp.outer(blank, blank), blank, jnp.zeros(()))


def equations(rows: Array, targets: Array) -> Normal:
    return Normal(rows.T @ rows, rows.T @ targets.astype(rows.dtype), jnp.full((), rows.shape[0], float))


def solver(radius: float | None = None, ties: str = "nearest") -> Callable[[Normal, PyTree], PyTree]:
    """Build `solve(normal, start)`: the exact least squares in the ball of that radius around 0.

    Where many points are equally good it takes the one "nearest" to `start`, or that of "minimum_norm". Without any
    example it stays at `start`. The cost is an eigendecomposition.
    """

    def solve(normal: Normal, start: PyTree) -> PyTree:
        flat, tree = ravel_pytree(start)
        if not flat.size:
            return start
        values, axes = jnp.linalg.eigh(normal.curvature)
        # What the sums cannot tell from 0 is 0: their rounding errors grow with the root of their length.
        doubt = jnp.finfo(values.dtype).eps * (flat.size + jnp.sqrt(normal.examples)) * values[-1]
        steep = values > doubt
        inverse = jnp.where(steep, 1 / jnp.where(steep, values, 1), 0)
        begin = flat if ties == "nearest" else jnp.zeros_like(flat)
        # As a correction of `begin`, which leaves directions without curvature alone and is good to the last digits.
        found = axes.T @ begin + inverse * (axes.T @ (normal.moment - normal.curvature @ begin))
        if radius is not None:
            found = _in_ball(jnp.where(steep, values, 0), axes.T @ normal.moment, found, steep, radius)
        return tree(jnp.where(normal.examples > 0, axes @ found, flat))

    return solve


def _in_ball(values: Array, moment: Array, found: Array, steep: Array, radius: float) -> Array:
    """The best point of the ball, given the best of all; everything in the axes of the curvature."""
    best, loose = jnp.where(steep, found, 0), jnp.where(steep, 0, found)
    moment = jnp.where(steep, moment, 0)
    norm = jnp.linalg.norm(best)
    room = jnp.sqrt(jnp.maximum(radius**2 - norm**2, 0))
    loose = loose * jnp.minimum(1, room / jnp.maximum(jnp.linalg.norm(loose), jnp.finfo(values.dtype).tiny))

    # Outside, the answer is (values + shift)^-1 moment for the one shift that makes it as long as the radius.
    def at(shift):
        return jnp.where(steep, moment / jnp.where(steep, values + shift, 1), 0)

    bounds = jnp.zeros_like(norm), jnp.linalg.norm(moment) / radius
    # Every halving gives one more bit of the shift; a few bits more, in case it is much smaller than its bound. The
    # upper end is taken, because the answer there is inside.
    _, shift = halve(lambda shift: jnp.linalg.norm(at(shift)) > radius, *bounds, jnp.finfo(values.dtype).nmant + 16)
    return jnp.where(norm <= radius, best + loose, at(shift))
