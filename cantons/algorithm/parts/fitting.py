"""What a client predicts with that has no private part of its own yet: one that is fitted then and there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from cantons.algorithm.parts.schedule import StepSize
from cantons.algorithm.parts.training import PLAIN_STEPS, LocalOptimizer, Loss, Trained, Work
from cantons.algorithm.parts.tuners import by_steps
from cantons.algorithm.parts.tuning import Tuned, fall_back_if_diverged, tune_with
from cantons.protocol import Array, Data, Key, PersonalModel, PyTree

Fit = Callable[[Key, PyTree, PyTree, Data, Array], PersonalModel]


def fitter(loss: Loss, work: Work, step_size: StepSize, optimizer: LocalOptimizer = PLAIN_STEPS) -> Fit:
    """Build `fit(key, shared, private, data, visits)`: the model a client predicts with.

    A client that has acted keeps what it learned. A client that has never acted, because it is new or keeps
    nothing, fits its private part to its own training data while the shared part stands still; if that diverges, it
    predicts with the private part that it began with.
    """
    tune = tune_with(loss, by_steps(work, optimizer, step_size))

    def fit(key: Key, shared: PyTree, private: PyTree, data: Data, visits: Array) -> PersonalModel:
        if not jax.tree.leaves(private):
            return PersonalModel(shared, private)
        fitted: Tuned = jax.lax.cond(visits == 0, lambda: tune(key, shared, private, data), lambda: keep_part(private))
        return PersonalModel(shared, fitted.private, numbers_of(fitted))

    return fit


def fit_whole_model(loss: Loss, work: Work, key: Key, data: Data, began: tuple[PyTree, PyTree],
                train: Callable[[], Trained], visits: Array | int = 0,
                own: tuple[PyTree, PyTree] | None = None) -> PersonalModel:
    """The whole model that a client predicts with: its `own`, or if it has never acted what `train` gives.

    If that diverges, the client predicts with the model that it began with.
    """
    def first_time() -> Tuned:
        trained = train()
        return fall_back_if_diverged(work, key, data, lambda parts, batch: loss(parts[0], parts[1], batch), began,
                                     (trained.shared, trained.private))

    fitted = first_time() if own is None else jax.lax.cond(visits == 0, first_time, lambda: keep_part(own))
    shared, private = fitted.private
    return PersonalModel(shared, private, numbers_of(fitted))


def mark_as_acted(client: Any) -> Any:
    """A client whose private part was trained before the run: it has acted, and keeps what it learned."""
    return client._replace(visits=jnp.ones_like(client.visits))


def keep_part(part: PyTree) -> Tuned:
    return Tuned(part, jnp.zeros((), bool))


def numbers_of(fitted: Tuned) -> dict[str, Array]:
    return {"diverged_tunings": fitted.diverged.astype(jnp.int32)}
