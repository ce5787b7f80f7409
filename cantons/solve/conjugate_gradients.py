"""Conjugate gradients that know when to stop: where a matrix is singular, or curves downwards."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp

from cantons.protocol import Array


def conjugate_gradients(curve: Callable[[Array], Array], gradient: Array, steps: int,
                        tolerance: float | Array | None = None) -> Array:
    """The move d with curve(d) = -gradient after so many steps at most; `curve` is a symmetric matrix times a vector.

    It ends sooner once the residual is `tolerance` times what it was, or is lost in rounding errors: without a
    tolerance the steps that are left change nothing, with one they are not computed. It also ends at
    a direction in which the matrix does not curve upwards, as in Nocedal and Wright, "Numerical Optimization",
    Algorithm 7.1; the first such direction is the gradient's own, and the move is against it. Of a singular system
    the shortest solution is found. Further steps from there would divide one rounding error by another.
    """
    rounding = jnp.finfo(gradient.dtype).eps
    least = 0.0 if tolerance is None else tolerance
    enough = jnp.maximum(jnp.asarray(least, gradient.dtype), rounding) ** 2 * (gradient @ gradient)

    def step(number, carry):
        move, residual, along, steepest, ended = carry
        curved = curve(along)
        length, rise, left = along @ along, along @ curved, residual @ residual
        steepest = jnp.maximum(steepest, rise / jnp.where(length > 0, length, 1))
        flat = ~(rise > 8 * rounding * steepest * length)
        ended = ended | (left <= enough) | (flat & (number > 0))
        size = jnp.where(flat, 1.0, left / jnp.where(flat, 1.0, rise))
        after = residual + size * curved
        onward = -after + (after @ after) / jnp.where(left > 0, left, 1) * along

        def unless_ended(new, old):
            return jnp.where(ended, old, new)

        return (unless_ended(move + size * along, move), unless_ended(after, residual), unless_ended(onward, along),
                steepest, ended | flat)

    first = jnp.zeros_like(gradient), gradient, -gradient, jnp.zeros((), gradient.dtype), jnp.zeros((), bool)
    if tolerance is None:  # a loop of known length, which accelerators need not wait for
        return jax.lax.fori_loop(0, steps, step, first)[0]
    _, last = jax.lax.while_loop(lambda at: (at[0] < steps) & ~at[1][-1], lambda at: (at[0] + 1, step(*at)), (0, first))
    return last[0]
