"""Online gradient steps in a ball: plain, or with AdaGrad's step for each coordinate."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax

from cantons.algorithm.parts.schedule import StepSize, as_schedule
from cantons.algorithm.parts.trees import zeros
from cantons.protocol import PyTree
from cantons.ranges import Positive


class OnlineSteps(NamedTuple):
    """How a model moves along a gradient.

    step_size: of each step: a number, or a schedule over steps.
    method: "sgd", or "adagrad", which is what `vw --adaptive` does.
    radius: the largest norm of the model; none leaves it free.
    """

    step_size: StepSize = 0.05
    method: Literal["sgd", "adagrad"] = "sgd"
    radius: Positive | None = None


class PrivateSteps(NamedTuple):
    """What may be different for the private model.

    private_step_size: of the private model; the same as `step_size` unless given.
    private_radius: the largest norm of each private model; the same as `radius` unless given.
    """

    private_step_size: StepSize | None = None
    private_radius: Positive | None = None

    def of(self, steps: OnlineSteps) -> OnlineSteps:
        """The steps of the private model, where `steps` are those of the shared one."""
        return OnlineSteps(steps.step_size if self.private_step_size is None else self.private_step_size, steps.method,
                           steps.radius if self.private_radius is None else self.private_radius)


class Descent(NamedTuple):
    init: Callable[[PyTree], Any]  # point -> optimizer_state
    # (point, optimizer_state, gradient) -> (point, optimizer_state)
    move: Callable[[PyTree, Any, PyTree], tuple[PyTree, Any]]


def descent(steps: OnlineSteps) -> Descent:
    """Build steps against a gradient, each of which ends in the ball of that radius around 0.

    "adagrad" adds each squared gradient to a sum before it divides by the sum's root, and adds nothing else to it, as
    Vowpal Wabbit does with --adaptive: a coordinate that has never had a gradient stays where it is.
    """
    radius = steps.radius
    schedule = as_schedule(steps.step_size)
    adaptive = steps.method == "adagrad"

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
