"""Minimise any smooth function in a ball: projected gradient descent that gathers speed."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from optax.projections import projection_l2_ball

from cantons.protocol import Array, PyTree

HALVINGS = 40  # of a step at most: one that is still too long then is lost in rounding errors


def minimise(objective: Callable[[PyTree], Array], start: PyTree, steps: int, radius: float | None = None) -> PyTree:
    """So many steps from `start` down `objective`, within the ball of that radius around 0.

    Beck and Teboulle, "A Fast Iterative Shrinkage-Thresholding Algorithm", 2009, whose step sizes are found by
    backtracking; here they also grow again, and speed is lost when it leads uphill (O'Donoghue and Candès, "Adaptive
    Restart for Accelerated Gradient Schemes", 2015). On least squares it goes to the minimiser nearest to `start`. No
    step counts that ends higher than the lowest point so far.
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
        value, slope = jax.value_and_grad(height)(ahead)

        def tried(size):
            move = inside(ahead - size * slope) - ahead
            bound = value + slope @ move + move @ move / (2 * size)
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
