"""Fine-tuning: how a client fits its private part while the shared one stands still, w ~ argmin_w f(theta, w).

All of it is `tune(key, shared, private, data, round) -> Tuned`: from a private part to begin with to a better one. The
round is None at evaluations, and for tuners whose steps have no schedule. A tuning that diverges falls back to its
beginning, and says so. It has diverged if it does not end in numbers, or, after steps whose length is given, if the
loss soars: if it rises by more than ten times its first value, and by more than 10. From a loss near 0 sound steps may
lead far up, relative to it, by rounding or because training draws at random; steps that are too long multiply the loss
in each of them, and soon pass 10.
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

from cantons.algorithm.parts.schedule import StepSize
from cantons.algorithm.parts.training import Loss, Work
from cantons.algorithm.parts.trees import choose
from cantons.algorithm.parts.tuners import TUNERS, Tuner
from cantons.errors import InputError, listed
from cantons.protocol import Array, Batch, Data, Diagnostics, Examples, Key, Needs, Problem, PyTree
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


Tune = Callable[..., Tuned]  # (key, shared, private, data, round=None)
TunerTable = Annotated[str, Named("tuner", TUNERS)] | Annotated[dict, Named("tuner", TUNERS, may_vary=True)]


def tuner_of(problem: Problem, table: Any) -> tuple[Tune, Needs]:
    """The tuner that a name or a table describes, for the loss of a problem, and what it needs."""
    chosen = read_tuner(table)
    return tune_with(problem.loss, chosen), Needs(examples=_check_quadratic(problem, table) if chosen.quadratic
                                                  else lambda train: None)


def read_tuner(table: Any) -> Tuner:
    """The tuner that a name or a table describes."""
    options = {"name": table} if isinstance(table, str) else dict(table)
    return TUNERS[options.pop("name")](**options)


def tune_with(loss: Loss, tuner: Tuner) -> Tune:
    """Tune, or fall back."""
    solve = tuner.build(loss)

    def tune(key: Key, shared: PyTree, private: PyTree, data: Data, round: Array | None = None) -> Tuned:
        if not jax.tree.leaves(private):
            return Tuned(private, jnp.zeros((), bool))
        found = solve(key, shared, private, data, round)
        return fall_back_if_diverged(tuner.work, key, data, lambda part, batch: loss(shared, part, batch), private,
                                     found)

    return tune


def fall_back_if_diverged(work: Work | None, key: Key, data: Data, loss: Callable[[PyTree, Batch], Array],
                          before: PyTree, after: PyTree) -> Tuned:
    """What tuning ended with, or what it began with if it diverged.

    `work` is that of steps of a given length. After such work on batches, some examples are drawn anew to judge by;
    else all that a client has are looked at.
    """
    sound = jnp.stack([jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(after)]).all()
    if work is not None:
        key = jax.random.fold_in(key, OWN_DRAW)
        batch = data.full(key) if work.batch_size is None else data.sample(key, LOOKED_AT)
        first, last = (loss(parts, batch) for parts in (before, after))
        sound &= last <= first + SOARS * jnp.maximum(jnp.abs(first), 1)
    return Tuned(choose(sound, after, before), ~sound)


def round_of(tuner: Tuner) -> Callable[[Array], Array | None]:
    """What a message tells a tuner of the round: the number, if its steps have a schedule, or nothing."""
    return lambda round: round if tuner.scheduled else None


def descent_step(table: Any) -> StepSize | None:
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
            f"clients{among}: {listed(those)}; a smaller step size for tuning may help."]


NAMES_DIVERGED = Diagnostics(remarks=name_diverged)  # of algorithms that have nothing else to say


def _check_quadratic(problem: Problem, table: Any) -> Callable[[Examples], None]:
    """Refuse a loss whose second derivative in the private part is not the same everywhere, for some clients."""

    def check(train: Examples) -> None:
        shared, private = problem.init(jax.random.key(0))
        if not jax.tree.leaves(private):
            return
        ids = np.unique(np.linspace(0, train.population - 1, min(train.population, ASKED)).astype(np.int32))
        elsewhere = _moved(shared)  # where a model begins, a last layer of zeros may hide the private part
        if not all(_bends(problem.loss, train, ids, at, private) <= QUADRATIC for at in (shared, elsewhere)):
            name = table if isinstance(table, str) else table["name"]
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
