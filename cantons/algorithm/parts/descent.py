"""Online gradient steps in a ball: plain, or with AdaGrad's step for each coordinate."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from cantons.algorithm.parts.schedule import Schedule, as_schedule
from cantons.algorithm.parts.trees import zeros
from cantons.errors import one_of, positive
from cantons.protocol import PyTree


class Descent(NamedTuple):
    init: Callable[[PyTree], Any]  # point -> optimizer_state
    # (point, optimizer_state, gradient) -> (point, optimizer_state)
    move: Callable[[PyTree, Any, PyTree], tuple[PyTree, Any]]


def descent(method: str, step_size: float | dict | Schedule, radius: float | None = None) -> Descent:
    """Steps against a gradient, then back onto the ball of that radius around 0.

    "adagrad" adds each squared gradient to a sum before it divides by the sum's root, and adds nothing else to it, as
    Vowpal Wabbit does with --adaptive: a coordinate that has never had a gradient stays where it is.
    """
    one_of("method", method, ("sgd", "adagrad"))
    if radius is not None:
        positive("radius", radius)
    schedule = as_schedule(step_size)
    adaptive = method == "adagrad"

    def init(point):
        return jnp.zeros((), jnp.int32), zeros(point) if adaptive else ()

    def move(point, optimizer_state, gradient):
        count, squares = optimizer_state
        if adaptive:
            squares = jax.tree.map(lambda total, entry: total + entry**2, squares, gradient)
            gradient = jax.tree.map(lambda entry, total: entry * jnp.where(
                total > 0, jax.lax.rsqrt(jnp.where(total > 0, total, 1)), 0), gradient, squares)
        point = jax.tree.map(lambda here, entry: here - schedule(count).astype(here.dtype) * entry, point, gradient)
        if radius is not None and jax.tree.leaves(point):
            point = optax.projections.projection_l2_ball(point, radius)
        return point, (count + 1, squares)

    return Descent(init, move)
