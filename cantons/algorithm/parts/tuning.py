"""Fine-tuners: how a client fits its private part while the shared one stands still, w ~ argmin_w f(theta, w).

All of them are `tune(key, shared, private, data) -> Tuned`: from a private part to begin with to a better one. A tuning
that does not end in numbers falls back to its beginning, and says so.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from cantons.algorithm.parts.training import LocalOptimizer, Loss, Optimizer, Work, trainer
from cantons.algorithm.parts.trees import choose
from cantons.errors import InputError
from cantons.protocol import Array, Data, Examples, Key, Needs, Problem, PyTree
from cantons.ranges import Count, Named, NonNegative, Positive, checked

QUADRATIC = 1e-3  # how far the third difference of a loss may be from 0, relative to the first, to count as quadratic


class Tuned(NamedTuple):
    private: PyTree
    diverged: Array  # bool: it fell back to its beginning


Tune = Callable[[Key, PyTree, PyTree, Data], Tuned]
Solve = Callable[[Key, PyTree, PyTree, Data], PyTree]  # what a tuner does, before anybody asks whether it ended well


class Tuner(NamedTuple):
    """A way to tune, for any loss, and what it takes for granted."""

    build: Callable[[Loss], Solve]
    quadratic: bool = False  # the loss must be quadratic in the private part


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

    With as many steps as the private part has numbers, and a tolerance of 0, the solution is exact.
    """
    def build(loss: Loss) -> Solve:
        def solve(key, shared, private, data):
            batch = data.full()
            gradient = jax.grad(lambda part: loss(shared, part, batch))

            def curve(along: PyTree) -> PyTree:
                return jax.jvp(gradient, (private,), (along,))[1]

            against = jax.tree.map(jnp.negative, gradient(private))
            move, _ = jax.scipy.sparse.linalg.cg(curve, against, tol=tolerance, maxiter=steps)
            return jax.tree.map(jnp.add, private, move)

        return solve

    return Tuner(build, quadratic=True)


@checked
def exact() -> Tuner:
    """The best private part, for losses that are quadratic in it; of several, the nearest to where it begins."""
    def build(loss: Loss) -> Solve:
        def solve(key, shared, private, data):
            batch = data.full()
            start, restore = ravel_pytree(private)

            def of_vector(vector: Array) -> Array:
                return loss(shared, restore(vector), batch)

            move, *_ = jnp.linalg.lstsq(jax.hessian(of_vector)(start), -jax.grad(of_vector)(start))
            return restore(start + move)

        return solve

    return Tuner(build, quadratic=True)


TUNERS: dict[str, Callable[..., Tuner]] = {"cg": cg, "exact": exact, "gd": gd, "optimizer": optimizer, "sgd": sgd}
TunerTable = Annotated[str, Named("tuner", TUNERS)] | Annotated[dict, Named("tuner", TUNERS)]


def tuner_of(problem: Problem, table: Any) -> tuple[Tune, Needs]:
    """The tuner that a name or a table describes, for the loss of a problem, and what it needs."""
    options = {"name": table} if isinstance(table, str) else dict(table)
    name = options.pop("name")
    chosen = TUNERS[name](**options)
    solve = chosen.build(problem.loss)

    def tune(key: Key, shared: PyTree, private: PyTree, data: Data) -> Tuned:
        if not jax.tree.leaves(private):
            return Tuned(private, jnp.zeros((), bool))
        found = solve(key, shared, private, data)
        sound = jnp.stack([jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(found)]).all()
        return Tuned(choose(sound, found, private), ~sound)

    return tune, Needs(examples=_check_quadratic(problem, name) if chosen.quadratic else lambda train: None)


def _by_steps(work: Work, how: Optimizer, step_size: float) -> Tuner:
    def build(loss: Loss) -> Solve:
        def solve(key, shared, private, data):
            train = trainer(lambda part, nothing, batch: loss(shared, part, batch), work, LocalOptimizer(how))
            return train(key, private, (), data, step_size).shared

        return solve

    return Tuner(build)


def _check_quadratic(problem: Problem, name: str) -> Callable[[Examples], None]:
    """Refuse a loss whose third difference along some line in the private part is not 0."""

    def check(train: Examples) -> None:
        shared, private = problem.init(jax.random.key(0))
        if not jax.tree.leaves(private):
            return
        batch = train.client(0).full()
        start, restore = ravel_pytree(private)
        along = jnp.asarray(np.random.default_rng(0).normal(size=start.shape), start.dtype)
        values = jnp.stack([problem.loss(shared, restore(start + t * along), batch) for t in range(4)])
        third = values[3] - 3 * values[2] + 3 * values[1] - values[0]
        if not abs(third) <= QUADRATIC * abs(values).max():
            raise InputError(f"the tuner {name} is for losses that are quadratic in the private part, and this one is "
                             "not; use gd, sgd or optimizer.")

    return check
