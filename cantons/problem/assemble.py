"""From a model, a loss and a split to a problem."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from cantons.errors import InputError
from cantons.models import Architecture, Model, Named
from cantons.problem.losses import LOSSES, Loss, masked_mean
from cantons.problem.shaped import check_tokens
from cantons.problem.split import Split, adapter_in, division_of, paths
from cantons.protocol import Convex, Dense, Problem, PyTree


def assemble(model: Model, loss: Loss, split: Split, l2: float = 0.0,
             spec: Mapping[str, Any] | None = None) -> Problem:
    """Fit `model`, split by the rule `split`. The loss, not the score, has l2/2 ||(shared, private)||^2."""
    shapes = jax.eval_shape(lambda: model.init(jax.random.key(0)))  # traced: no device is woken
    _only_floats(shapes)
    division = division_of(shapes, split, model)

    def init(key):
        return division.divide(key, jax.tree.map(jnp.asarray, model.init(key)))

    def predict(shared, private, inputs):
        return model.apply(division.join(shared, private), inputs)

    def mean_loss(shared, private, batch):
        if model.train is None or isinstance(batch.key, tuple):
            outputs = predict(shared, private, batch.inputs)
        else:
            outputs = model.train(division.join(shared, private), batch.inputs, batch.key)
        value = masked_mean(loss.per_example(outputs, batch.targets), batch.mask)
        return value + l2 / 2 * _squared_norm((shared, private)) if l2 else value

    def score(shared, private, batch):
        outputs = predict(shared, private, batch.inputs)
        values = {"loss": loss.per_example(outputs, batch.targets)}
        if loss.correct is not None:
            values["accuracy"] = loss.correct(outputs, batch.targets).astype(outputs.dtype)
        return values

    def check_inputs(inputs):
        if model.vocabulary is not None:
            check_tokens(inputs, model.vocabulary)

    return Problem(init, mean_loss, predict, score, spec=spec, check_inputs=check_inputs,
                   draws=model.train is not None, every_label=loss is LOSSES["softmax"], join=division.join,
                   outputs=loss.outputs,
                   dense=(lambda shared, private: [Dense(division.join(shared, private))]) if model.dense else None)


def convex_if_linear(model: Architecture, l2: float = 0.0, split: Split = "none") -> Convex | None:
    """Losses that are convex in the outputs are so in the parameters of a linear model; and l2 adds its curvature.

    Not so in those of adapters, which are multiplied with each other.
    """
    return Convex(l2) if is_linear(model) and adapter_in(split) is None else None


def is_linear(model: Architecture) -> bool:
    """Is it known to be linear in its parameters?"""
    return isinstance(model, Named) and model.name == "linear"


def _squared_norm(params: PyTree) -> jax.Array | float:
    return sum((leaf**2).sum() for leaf in jax.tree.leaves(params))


def _only_floats(shapes: PyTree) -> None:
    for path, leaf in zip(paths(shapes), jax.tree.leaves(shapes), strict=True):
        if not jnp.issubdtype(leaf.dtype, jnp.floating):
            raise InputError(f"parameter {path!r} has type {leaf.dtype}, but only real numbers can "
                             "be trained; keep it out of the parameters: make it a constant of the model.")
