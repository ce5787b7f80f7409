"""Fine-tuning: how a client fits its private part while the shared one stands still, w ~ argmin_w f(theta, w).

All of it is `tune(key, shared, private, data) -> Tuned`: from a private part to begin with to a better one. A tuning
that diverges falls back to its beginning, and says so. It has diverged if it does not end in numbers, or, after steps
whose length is given, if the loss soars: if it rises by more than ten times its first value, and by more than 10. From
a loss near 0 sound steps may lead far up, relative to it, by rounding or because training draws at random; steps that
are too long multiply the loss in each of them, and soon pass 10.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from cantons.algorithm.parts.training import Loss, Work
from cantons.algorithm.parts.trees import choose
from cantons.algorithm.parts.tuners import TUNERS, Tuner
from cantons.errors import InputError, listed
from cantons.protocol import Array, Batch, Data, Examples, Key, Needs, Problem, PyTree
from cantons.ranges import Named

QUADRATIC = 1e-4  # how much the curvature may change from place to place, relative to itself, to count as constant
FAR = (1.0, 1e2, 1e4)  # how far away the curvature is looked at
ASKED = 4  # clients
SOARS = 10  # a loss that rises by so many times its first value, or 1 if that is more, has soared
LOOKED_AT = 32  # examples on which a tuning on batches is judged; two passes over all would cost more than the tuning
OWN_DRAW = 2**31 - 1  # the number of their draw, which no step has


class Tuned(NamedTuple):
    private: PyTree
    diverged: Array  # bool: it fell back to its beginning


Tune = Callable[[Key, PyTree, PyTree, Data], Tuned]
TunerTable = Annotated[str, Named("tuner", TUNERS)] | Annotated[dict, Named("tuner", TUNERS, may_vary=True)]


def tuner_of(problem: Problem, table: Any) -> tuple[Tune, Needs]:
    """The tuner that a name or a table describes, for the loss of a problem, and what it needs."""
    options = {"name": table} if isinstance(table, str) else dict(table)
    name = options.pop("name")
    chosen: Tuner = TUNERS[name](**options)
    solve = chosen.build(problem.loss)

    def tune(key: Key, shared: PyTree, private: PyTree, data: Data) -> Tuned:
        if not jax.tree.leaves(private):
            return Tuned(private, jnp.zeros((), bool))
        found = solve(key, shared, private, data)
        sound = jnp.stack([jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(found)]).all()
        if chosen.work is not None:
            batch = judged_on(chosen.work, jax.random.fold_in(key, OWN_DRAW), data)
            before, after = (problem.loss(shared, part, batch) for part in (private, found))
            sound &= after <= before + SOARS * jnp.maximum(jnp.abs(before), 1)
        return Tuned(choose(sound, found, private), ~sound)

    return tune, Needs(examples=_check_quadratic(problem, name) if chosen.quadratic else lambda train: None)


def judged_on(work: Work, key: Key, data: Data) -> Batch:
    """All of a client's examples for a tuner that looks at all at once, and else some of them, drawn anew."""
    return data.full(key) if work.batch_size is None else data.sample(key, LOOKED_AT)


def descent_step(table: Any) -> float | None:
    """The step size of gradient descent on all examples; None for other tuners."""
    name, options = (table, {}) if isinstance(table, str) else (table["name"], table)
    return options.get("step_size", inspect.signature(TUNERS[name]).parameters["step_size"].default) if (
        name == "gd") else None


def name_diverged(numbers: Mapping[str, np.ndarray], names: Sequence[str]) -> list[str]:
    """After a run: which clients' tunings fell back to their beginnings, and how often."""
    counted = np.asarray(numbers.get("diverged_tunings", ()))
    times = np.nan_to_num(counted)  # who is not scored has no number
    if not times.any():
        return []
    those = [f"{names[index]} {times[index]:g} times" for index in np.argsort(-times, kind="stable") if times[index]]
    among = f" among the {np.isfinite(counted).sum()} that were scored" if np.isnan(counted).any() else ""
    return [f"{times.sum():g} tunings diverged and fell back to their beginnings, of {len(those)} "
            f"clients{among}: {listed(those)}; a smaller step size of the tuner may help."]


def _check_quadratic(problem: Problem, name: str) -> Callable[[Examples], None]:
    """Refuse a loss whose second derivative in the private part is not the same everywhere, for some clients."""

    def check(train: Examples) -> None:
        shared, private = problem.init(jax.random.key(0))
        if not jax.tree.leaves(private):
            return
        ids = np.unique(np.linspace(0, train.population - 1, min(train.population, ASKED)).astype(np.int32))
        elsewhere = _moved(shared)  # where a model begins, a last layer of zeros may hide the private part
        if not all(_bends(problem.loss, train, ids, at, private) <= QUADRATIC for at in (shared, elsewhere)):
            raise InputError(f"the tuner {name} is for losses that are quadratic in the private part, and this one is "
                             "not; use newton_cg, which takes such steps on any smooth loss, or lbfgs, gd, sgd or "
                             "optimizer.")

    return check


def _moved(tree: PyTree) -> PyTree:
    """The same arrays, each number moved at random by half of its size at most, or by 1 where all of them are 0."""
    leaves, structure = jax.tree.flatten(tree)
    keys = jax.random.split(jax.random.key(1), max(1, len(leaves)))
    return jax.tree.unflatten(structure, [jnp.where(jnp.any(leaf), leaf * jax.random.uniform(
        key, leaf.shape, leaf.dtype, 0.5, 1.5), jax.random.normal(key, leaf.shape, leaf.dtype))
        for leaf, key in zip(leaves, keys, strict=False)])


@partial(jax.jit, static_argnums=0)
def _bends(loss: Loss, train: Any, ids: Array, shared: PyTree, private: PyTree) -> Array:
    """How much the Hessian in the private part, times a random vector, changes from place to place.

    Unlike differences of the loss itself, it does not see what is constant or linear, however large; and terms of
    higher order, however small, show far away.
    """
    start, restore = ravel_pytree(private)

    def of_client(index: Array) -> Array:
        batch = train.client(index).full()
        gradient = jax.grad(lambda vector: loss(shared, restore(vector), batch))
        one, other = jax.random.normal(jax.random.key(0), (2, *start.shape), start.dtype)

        def curved(point: Array) -> Array:
            return jax.jvp(gradient, (point,), (one,))[1]

        here = curved(start)
        change = jnp.stack([jnp.linalg.norm(curved(start + far * other) - here) for far in FAR]).max()
        return jnp.where(change == 0, 0.0, change / jnp.linalg.norm(here))

    return jax.lax.map(of_client, ids).max()
