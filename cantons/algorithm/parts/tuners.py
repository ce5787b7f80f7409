"""The tuners that a study may name: ways to w ~ argmin_w f(theta, w), for any loss f or for some."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optimistix
from jax.flatten_util import ravel_pytree

from cantons.algorithm.parts.schedule import StepSize, as_schedule, usual_step
from cantons.algorithm.parts.training import LocalOptimizer, Loss, Optimizer, Work, trainer
from cantons.protocol import Array, Data, Key, PyTree
from cantons.ranges import Count, NonNegative, Positive, Whole, checked
from cantons.solve.conjugate_gradients import conjugate_gradients

CG_STEPS = 10
HALVINGS = 30  # of a Newton step that would raise the loss; after so many it is given up

# What a tuner does, before anybody asks whether it ended well: (key, shared, private, data, round) -> private. Outside
# of rounds the round is None.
Solve = Callable[[Key, PyTree, PyTree, Data, Array | None], PyTree]
Objective = Callable[[Array], Array]  # a client's loss as a function of its private part, which is one vector


class Tuner(NamedTuple):
    """A way to tune, for any loss, and what it takes for granted."""

    build: Callable[[Loss], Solve]
    quadratic: bool = False  # the loss must be quadratic in the private part
    work: Work | None = None  # of one that takes steps of a given length, which may be too long
    scheduled: bool = False  # it must know the round


@checked
def gd(steps: Whole = 10, step_size: StepSize = 0.1) -> Tuner:
    """Gradient descent on all examples: Algorithm 2 of the FFGG paper. No steps leave the private part as it is."""
    return by_steps(Work(epochs=steps, batch_size=None), LocalOptimizer(), step_size)


@checked
def sgd(epochs: Count = 1, batch_size: Count = 32, step_size: StepSize = 0.1,
        clip_norm: Positive | None = None) -> Tuner:
    """Passes over a client's examples in batches."""
    return by_steps(Work(epochs=epochs, batch_size=batch_size), LocalOptimizer("sgd", clip_norm), step_size)


@checked
def optimizer(optimizer: Optimizer = "adam", steps: Count = 10, batch_size: Count | None = 32,
              step_size: StepSize = 0.01, clip_norm: Positive | None = None) -> Tuner:
    """So many steps of any optimiser, on batches drawn at random or, with none, on all examples."""
    return by_steps(Work(steps=steps, batch_size=batch_size), LocalOptimizer(optimizer, clip_norm), step_size)


@checked
def cg(steps: Count | None = None, tolerance: NonNegative | None = None) -> Tuner:
    """Conjugate gradients, for losses that are quadratic in the private part: so many steps, or to a tolerance.

    Without a count there are 10 steps, and with a tolerance as many as it takes, at most one for each number of the
    private part. With all of them, as a tolerance of 0 has it, the solution is exact: the nearest to the start, if
    there are several.
    """
    def solve(objective: Objective, start: Array) -> Array:
        most = steps or (CG_STEPS if tolerance is None else start.size)
        return start + conjugate_gradients(_curve(objective, start), jax.grad(objective)(start), most, tolerance)

    return Tuner(_on_all_examples(solve), quadratic=True)


@checked
def newton_cg(steps: Count = 5, cg_steps: Count = 10) -> Tuner:
    """Newton steps whose linear systems are solved by conjugate gradients: for any smooth loss, convex or not.

    Nocedal and Wright, "Numerical Optimization", Algorithm 7.1. A step is halved until the loss does not rise.
    """
    return Tuner(_on_all_examples(_newton_steps(steps, lambda objective, point, gradient: conjugate_gradients(
        _curve(objective, point), gradient, cg_steps))))


@checked
def newton(steps: Count = 5) -> Tuner:
    """Newton steps with the whole Hessian, for smooth losses of a small private part.

    A step is halved until the loss does not rise, and goes against the gradient where Newton's own would climb.
    """
    def solve(objective: Objective, point: Array, gradient: Array) -> Array:
        move = -_least_squares(jax.hessian(objective)(point), gradient)
        return jnp.where(move @ gradient < 0, move, -gradient)

    return Tuner(_on_all_examples(_newton_steps(steps, solve)))


@checked
def lbfgs(steps: Count = 20, tolerance: NonNegative = 0.0) -> Tuner:
    """L-BFGS with a backtracking search, by optimistix: for any smooth loss; points that the search tries are steps."""
    def solve(objective: Objective, start: Array) -> Array:
        tolerated: Any = jnp.maximum(tolerance, jnp.finfo(start.dtype).eps)
        return optimistix.minimise(lambda point, _: objective(point), optimistix.LBFGS(tolerated, tolerated), start,
                                   max_steps=steps, throw=False).value

    return Tuner(_on_all_examples(solve))


@checked
def exact() -> Tuner:
    """The best private part, for losses that are quadratic in it; of several, the nearest to where it begins.

    The Hessian is made, so the private part should be small.
    """
    def solve(objective: Objective, start: Array) -> Array:
        return start - _least_squares(jax.hessian(objective)(start), jax.grad(objective)(start))

    return Tuner(_on_all_examples(solve), quadratic=True)


TUNERS: dict[str, Callable[..., Tuner]] = {
    "cg": cg, "exact": exact, "gd": gd, "lbfgs": lbfgs, "newton": newton, "newton_cg": newton_cg,
    "optimizer": optimizer, "sgd": sgd}


def by_steps(work: Work, how: LocalOptimizer, step_size: StepSize) -> Tuner:
    """Steps of the private part alone; outside of rounds they have the peak, or the first value, of a schedule."""
    scheduled = callable(step_size) or isinstance(step_size, dict)
    schedule, usual = as_schedule(step_size) if scheduled else None, usual_step(step_size)  # a plain number may be 0

    def build(loss: Loss) -> Solve:
        def solve(key, shared, private, data, round):
            train = trainer(lambda part, nothing, batch: loss(shared, part, batch), work, how)
            return train(key, private, (), data, usual if round is None or schedule is None else schedule(round)).shared

        return solve

    return Tuner(build, work=work, scheduled=scheduled)


def _on_all_examples(solve: Callable[[Objective, Array], Array]) -> Callable[[Loss], Solve]:
    """Solve for the private part as one vector, with the loss of all examples at once."""
    def build(loss: Loss) -> Solve:
        def tune(key, shared, private, data, round):
            batch, (start, restore) = data.full(), ravel_pytree(private)
            return restore(solve(lambda vector: loss(shared, restore(vector), batch), start))

        return tune

    return build


def _curve(objective: Objective, point: Array) -> Callable[[Array], Array]:
    """The Hessian at a point times a vector."""
    return lambda along: jax.jvp(jax.grad(objective), (point,), (along,))[1]


def _newton_steps(steps: int, solve: Callable[[Objective, Array, Array], Array]) -> Callable[[Objective, Array], Array]:
    """So many steps, each along solve(objective, point, gradient) and halved until the loss does not rise."""
    def descend(objective: Objective, start: Array) -> Array:
        def step(_, point):
            value, gradient = jax.value_and_grad(objective)(point)
            move = solve(objective, point, gradient)

            def rises(length):
                return ~(objective(point + length * move) <= value)

            length, _ = jax.lax.while_loop(lambda tried: rises(tried[0]) & (tried[1] < HALVINGS),
                                           lambda tried: (tried[0] / 2, tried[1] + 1), (jnp.ones_like(value), 0))
            return jnp.where(rises(length), point, point + length * move)

        return jax.lax.fori_loop(0, steps, step, start)

    return descend


def _least_squares(matrix: Array, vector: Array) -> Array:
    """The shortest of the best solutions: singular values that are rounding errors of the largest count as 0.

    lineax.linear_solve would do the same, but version 0.1 refuses what is inside shard_map, on two devices or more;
    so does optimistix's Newton, which calls it.
    """
    return jnp.linalg.lstsq(matrix, vector)[0]
