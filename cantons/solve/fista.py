"""FISTA: projected gradient descent that gathers speed, for smooth functions.

Beck and Teboulle, "A Fast Iterative Shrinkage-Thresholding Algorithm", 2009, with backtracking, restarted where
momentum leads uphill (O'Donoghue and Candès, "Adaptive Restart for Accelerated Gradient Schemes", 2015). It stands here
twice:

- `minimise_for_steps` is part of an algorithm. It takes a fixed number of steps, so that it can be vectorised over
  clients, in the run's own precision, in a ball; steps may grow again; and it never ends above its start.
- `build_minimiser` is for measuring. It goes on until a tolerance is met, in double precision, in any set with a
  nearest point; steps only shrink; and it says how near it came.

To make them one would change the last digits of either.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from optax.projections import projection_l2_ball

from cantons.protocol import Array, PyTree

TOLERANCE = 1e-9  # of the gradient's length at the start
ITERATIONS = 20_000
HALVINGS = 40  # of a step at most: one that is still too long then is lost in rounding errors


def minimise_for_steps(objective: Callable[[PyTree], Array], start: PyTree, steps: int,
                       radius: float | None = None) -> PyTree:
    """So many steps from `start` down `objective`, within the ball of that radius around 0.

    On least squares it goes to the minimiser nearest to `start`. No step counts that ends higher than the lowest point
    so far.
    """
    flat, tree = ravel_pytree(start)
    if not flat.size:
        return start

    def height(point):
        return objective(tree(point))

    def inside(point):
        return point if radius is None else projection_l2_ball(point, radius)

    def step(_, carry):
        best, lowest, point, ahead, speed, size = carry
        value, gradient = jax.value_and_grad(height)(ahead)

        def tried(size):
            move = inside(ahead - size * gradient) - ahead
            bound = value + gradient @ move + move @ move / (2 * size)
            return move, height(ahead + move) > bound + 10 * jnp.finfo(flat.dtype).eps * jnp.abs(value)

        def too_long(carry):
            size, halvings = carry
            return tried(size)[1] & (halvings < HALVINGS)

        size, _ = jax.lax.while_loop(too_long, lambda carry: (carry[0] / 2, carry[1] + 1), (2 * size, 0))
        new = ahead + tried(size)[0]
        faster = (1 + jnp.sqrt(1 + 4 * speed**2)) / 2
        uphill = (ahead - new) @ (new - point) > 0
        ahead = jnp.where(uphill, new, new + (speed - 1) / faster * (new - point))
        here = height(new)
        lower = here < lowest
        return (jnp.where(lower, new, best), jnp.where(lower, here, lowest), new, ahead, jnp.where(uphill, 1, faster),
                size)

    begin = inside(flat)
    one = jnp.ones((), flat.dtype)
    return tree(jax.lax.fori_loop(0, steps, step, (begin, height(begin), begin, begin, one, one))[0])


class Minimum(NamedTuple):
    point: PyTree
    value: Array
    error: Array  # the length of the last gradient step, in units of the gradient at the start


def build_minimiser(objective: Callable[[PyTree, PyTree], Array], project: Callable[[PyTree], PyTree]
                    ) -> Callable[[PyTree, PyTree], Minimum]:
    """Build `minimise(start, given)` for a smooth convex `objective(point, given)` on a set with a nearest point.

    It ends when a projected gradient step, divided by its step size, is TOLERANCE of the gradient at the start, or
    after ITERATIONS.
    """

    @jax.jit
    def minimise(start: PyTree, given: PyTree) -> Minimum:
        both = jax.value_and_grad(objective)
        unit = _length(both(start, given)[1])
        unit = jnp.where(unit > 0, unit, 1.0)

        def step(state):
            point, ahead, momentum, steep, _, count = state
            value, gradient = both(ahead, given)

            def reached(steep):
                there = project(jax.tree.map(lambda leaf, part: leaf - part / steep, ahead, gradient))
                move = jax.tree.map(jnp.subtract, there, ahead)
                model = value + _inner(gradient, move) + steep / 2 * _inner(move, move)
                rounding = 1e-14 * (1 + jnp.abs(value))
                return there, objective(there, given) <= model + rounding

            steep = jax.lax.while_loop(lambda steep: ~reached(steep)[1] & (steep < 1e30), lambda steep: 2 * steep,
                                       steep)
            there = reached(steep)[0]
            error = steep * _length(jax.tree.map(jnp.subtract, there, ahead)) / unit
            onward = jax.tree.map(jnp.subtract, there, point)
            uphill = _inner(jax.tree.map(jnp.subtract, ahead, there), onward) > 0
            momentum = jnp.where(uphill, 1.0, momentum)
            after = (1 + jnp.sqrt(1 + 4 * momentum**2)) / 2
            ahead = jax.tree.map(lambda leaf, part: leaf + (momentum - 1) / after * part, there, onward)
            return there, ahead, after, steep, error, count + 1

        first = start, start, jnp.ones(()), jnp.full((), 1e-3), jnp.full((), jnp.inf), 0
        point, *_, error, _ = jax.lax.while_loop(
            lambda state: (state[4] > TOLERANCE) & (state[5] < ITERATIONS), step, first)
        return Minimum(point, objective(point, given), error)

    return minimise


def _inner(left: PyTree, right: PyTree) -> Array:
    products = jax.tree.map(lambda one, other: (one * other).sum(), left, right)
    return sum(jax.tree.leaves(products), jnp.zeros(()))


def _length(tree: PyTree) -> Array:
    return jnp.sqrt(_inner(tree, tree))
