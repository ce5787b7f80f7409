"""Losses of each example in a batch, when a prediction counts as correct, and the mean over real rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from cantons.errors import InputError
from cantons.protocol import Array, PyTree

PerExample = Callable[[Array, PyTree], Array]  # (outputs [B, ...], targets [B, ...]) -> [B]


class Loss(NamedTuple):
    """What is minimised, and what counts as correct where that makes sense."""

    per_example: PerExample
    correct: Callable[[Array, Array], Array] | None = None  # (outputs, targets) -> [B], true or a fraction
    outputs: str = "numbers"  # what it takes outputs for, as `Problem.outputs` has it


def softmax(outputs: Array, targets: Array) -> Array:
    """Cross-entropy of the softmax of `outputs` [B, ..., classes] against integer labels 0, 1, ... [B, ...].

    An example with several labels, such as a text with one per token, has the mean of their losses.

    >>> softmax(jnp.zeros((1, 4)), jnp.array([2]))  # log(4)
    Array([1.3862944], dtype=float32)
    """
    return _each(_of_labels(outputs, targets))


def masked_softmax(outputs: Array, targets: Array) -> Array:
    """The same for examples with several labels, of which some are -1: the mean over those that are not."""
    return _told(_of_labels(outputs, targets), targets)


def _of_labels(outputs: Array, targets: Array) -> Array:
    """The cross-entropy of every label."""
    if not jnp.issubdtype(targets.dtype, jnp.integer):
        raise InputError(f"softmax loss got targets of type {targets.dtype}; give integer labels 0, 1, ... "
                         "or choose loss 'squared' (any numbers) or 'logistic' (labels -1 and 1).")
    if outputs.shape[:-1] != targets.shape:
        raise InputError(f"the outputs have shape {outputs.shape} and the labels {targets.shape}; give the model one "
                         "output per class for each label.")
    # As optax has it, but for the last index: the derivative of its `take` is a scatter, which the compiler works out
    # beforehand where no row is padding: 3 of the 4 seconds it took for 6400 rows of 100 labels.
    own = jnp.take_along_axis(outputs, targets[..., None], axis=-1)[..., 0]
    return jax.nn.logsumexp(outputs, axis=-1) - own


def squared(outputs: Array, targets: Array) -> Array:
    """(output - target)^2 summed over outputs: no factor 1/2, as in the Federated Residual Learning papers.

    >>> squared(jnp.array([3.0]), jnp.array([1.0]))
    Array([4.], dtype=float32)
    """
    errors = _like(targets, outputs) - targets
    return (errors**2).reshape(errors.shape[0], -1).sum(-1)


def logistic(outputs: Array, targets: Array) -> Array:
    """log(1 + exp(-target * output)) for labels -1 and 1.

    >>> logistic(jnp.array([0.0]), jnp.array([-1.0]))  # log(2)
    Array([0.6931472], dtype=float32)
    """
    return jax.nn.softplus(-targets * _like(targets, outputs))


def likeliest(outputs: Array, targets: Array) -> Array:
    """Is the largest output the label's? For examples with several labels: how often."""
    return _each(outputs.argmax(-1) == targets)


def likeliest_of_told(outputs: Array, targets: Array) -> Array:
    """The same without labels that are -1."""
    return _told(outputs.argmax(-1) == targets, targets)


def same_sign(outputs: Array, targets: Array) -> Array:
    """Are output and label on the same side of 0?"""
    return (_like(targets, outputs) > 0) == (targets > 0)


LOSSES = {
    "softmax": Loss(softmax, likeliest, "logits"),
    "masked_softmax": Loss(masked_softmax, likeliest_of_told, "logits"),
    "squared": Loss(squared),
    "logistic": Loss(logistic, same_sign, "log_odds"),
}
SQUARED_SIGN = Loss(squared, same_sign, "sign")  # for labels -1 and 1


def masked_mean(values: Array, mask: Array) -> Array:
    """The mean of `values` [B] over the rows whose mask is 1; 0 if there are none."""
    if values.shape != mask.shape:
        raise InputError(f"a loss gave values of shape {values.shape} for {mask.shape[0]} examples; let it "
                         "return one number per example, so that padding can be left out of their mean.")
    return (values * mask).sum() / jnp.maximum(mask.sum(), 1)


def _each(values: Array) -> Array:
    """One number per example: the mean over all axes but the first."""
    return values.mean(axis=tuple(range(1, values.ndim)))


def _told(values: Array, targets: Array) -> Array:
    """One number per example: the mean where its targets are not -1, and 0 if all of them are."""
    labels, told = tuple(range(1, values.ndim)), targets >= 0
    return jnp.where(told, values, 0).sum(labels) / jnp.maximum(told.sum(labels), 1)


def _like(targets: Array, outputs: Array) -> Array:
    """`outputs` in the shape of `targets`: a single output [B, 1] goes with plain targets [B]."""
    if outputs.shape == (*targets.shape, 1):
        return outputs[..., 0]
    if outputs.shape != targets.shape:  # or they would broadcast to [B, B] without a word
        raise InputError(f"the outputs have shape {outputs.shape} and the targets {targets.shape}; "
                         "give the model one output for each target.")
    return outputs
