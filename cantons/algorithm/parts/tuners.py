"""The tuners that a study may name: ways to w ~ argmin_w f(theta, w), for any loss f or for some."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import lineax
import optimistix
from jax.flatten_util import ravel_pytree

from cantons.algorithm.parts.training import LocalOptimizer, Loss, Optimizer, Work, trainer
from cantons.protocol import Array, Data, Key, PyTree
from cantons.ranges import Count, NonNegative, Positive, checked
from cantons.solve.conjugate_gradients import conjugate_gradients

HALVINGS = 30  # of a Newton step that would raise the loss; after so many it is given up
# Singular values below a share of the largest count as 0, so that of several solutions the nearest is found.
PSEUDO_INVERSE = lineax.AutoLinearSolver(well_posed=False)

Solve = Callable[[Key, PyTree, PyTree, Data], PyTree]  # what a tuner does, before anybody asks whether it ended well
Objective = Callable[[Array], Array]  # a client's loss as a function of its private part, which is one vector


class Tuner(NamedTuple):
    """A way to tune, for any loss, and what it takes for granted."""

    build: Callable[[Loss], Solve]
    quadratic: bool = False  # the loss must be quadratic in the private part
    may_rise: bool = True  # False: an end that is higher than the beginning has diverged, be it finite or not


@checked
def gd(steps: Count = 10, step_size: Positive = 0.1) -> Tuner:
    """Gradient descent on all examples: Algorithm 2 of the FFGG paper."""
    return _by_steps(Work(epochs=steps, batch_size=None), "sgd", step_size)


@checked
def sgd(epochs: Count = 1, batch_size: Count = 32, step_size: Positive = 0.1) -> Tuner:
    """Passes over a client's examples in batches."""
    return _by_steps(Work(epochs=epochs, batch_size=batch_size), "sgd", step_size)


@checked
def optimizer(optimizer: Optimizer = "adam", steps: Count = 10, batch_size: Count | None = 32,
              step_size: Positive = 0.01) -> Tuner:
    """So many steps of any optimiser, on batches drawn at random or, with none, on all examples."""
    return _by_steps(Work(steps=steps, batch_size=batch_size), optimizer, step_size)


@checked
def cg(steps: Count = 10, tolerance: NonNegative = 0.0) -> Tuner:
    """Conjugate gradients, for losses that are quadratic in the private part.

    With as many steps as the private part has numbers, and a tolerance of 0, the solution is exact: the nearest to the
    start, if there are several.
    """
    def solve(objective: Objective, start: Array) -> Array:
        return start + conjugate_gradients(_curve(objective, start), jax.grad(objective)(start), steps, tolerance)

    return Tuner(_on_all_examples(solve), quadratic=True)


@checked
def newton_cg(steps: Count = 5, cg_steps: Count = 10) -> Tuner:
    """Newton steps whose linear systems are solved by conjugate gradients: for any smooth loss, convex or not.

    Nocedal and Wright, "Numerical Optimization", Algorithm 7.1. A step is halved until the loss does not rise.
    """
    def solve(objective: Objective, start: Array) -> Array:
        def step(_, point):
            value, gradient = jax.value_and_grad(objective)(point)
            move = conjugate_gradients(_curve(objective, point), gradient, cg_steps)

            def rises(length):
                return ~(objective(point + length * move) <= value)

            length, _ = jax.lax.while_loop(lambda tried: rises(tried[0]) & (tried[1] < HALVINGS),
                                           lambda tried: (tried[0] / 2, tried[1] + 1), (jnp.ones_like(value), 0))
            return jnp.where(rises(length), point, point + length * move)

        return jax.lax.fori_loop(0, steps, step, start)

    return Tuner(_on_all_examples(solve))


@checked
def lbfgs(steps: Count = 20, tolerance: NonNegative = 0.0) -> Tuner:
    """L-BFGS with a backtracking search, by optimistix: for any smooth loss; points that the search tries are steps."""
    def solve(objective: Objective, start: Array) -> Array:
        tolerated = max(tolerance, float(jnp.finfo(start.dtype).eps))
        return optimistix.minimise(lambda point, _: objective(point), optimistix.LBFGS(tolerated, tolerated), start,
                                   max_steps=steps, throw=False).value

    return Tuner(_on_all_examples(solve))


@checked
def newton(steps: Count = 10, tolerance: NonNegative = 0.0) -> Tuner:
    """Newton's method for the root of the gradient, by optimistix: for losses that are convex in the private part.

    Its steps are never shortened, and go to whatever root is there: a tuning that ends higher than it began has
    diverged. The Hessian is made, so the private part should be small; where it is singular, steps are the shortest.
    """
    def solve(objective: Objective, start: Array) -> Array:
        tolerated = max(tolerance, float(jnp.finfo(start.dtype).eps))
        method: optimistix.Newton = optimistix.Newton(tolerated, tolerated, linear_solver=PSEUDO_INVERSE)
        return optimistix.root_find(lambda point, _: jax.grad(objective)(point), method, start, max_steps=steps,
                                    throw=False).value

    return Tuner(_on_all_examples(solve), may_rise=False)


@checked
def exact() -> Tuner:
    """The best private part, for losses that are quadratic in it; of several, the nearest to where it begins.

    Least squares by lineax. The Hessian is made, so the private part should be small.
    """
    def solve(objective: Objective, start: Array) -> Array:
        curvature = lineax.MatrixLinearOperator(jax.hessian(objective)(start))
        return start - lineax.linear_solve(curvature, jax.grad(objective)(start), PSEUDO_INVERSE, throw=False).value

    return Tuner(_on_all_examples(solve), quadratic=True)


TUNERS: dict[str, Callable[..., Tuner]] = {
    "cg": cg, "exact": exact, "gd": gd, "lbfgs": lbfgs, "newton": newton, "newton_cg": newton_cg,
    "optimizer": optimizer, "sgd": sgd}


def _by_steps(work: Work, how: Optimizer, step_size: float) -> Tuner:
    def build(loss: Loss) -> Solve:
        def solve(key, shared, private, data):
            train = trainer(lambda part, nothing, batch: loss(shared, part, batch), work, LocalOptimizer(how))
            return train(key, private, (), data, step_size).shared

        return solve

    return Tuner(build)


def _on_all_examples(solve: Callable[[Objective, Array], Array]) -> Callable[[Loss], Solve]:
    """Solve for the private part as one vector, with the loss of all examples at once."""
    def build(loss: Loss) -> Solve:
        def tune(key, shared, private, data):
            batch, (start, restore) = data.full(), ravel_pytree(private)
            return restore(solve(lambda vector: loss(shared, restore(vector), batch), start))

        return tune

    return build


def _curve(objective: Objective, point: Array) -> Callable[[Array], Array]:
    """The Hessian at a point times a vector."""
    return lambda along: jax.jvp(jax.grad(objective), (point,), (along,))[1]
