"""Contextual bandits with joint rewards: what an action brings is a shared plus a private model of its features.

Agarwal, Langford and Wei, "Federated Residual Learning", 2020 (v1), section 5: f(x^g(a); w^g) + f(x^l(a); w_i). An
example is a context: one row of features per action as inputs, and what each action would bring as targets. Whoever
chooses among actions may look at the reward of the chosen one alone (`fedres_bandit` does); the mean loss here looks at
all of them, so it serves to judge a model, or to train one that is told everything.
"""

from __future__ import annotations

import math

import jax.numpy as jnp

from cantons.errors import InputError
from cantons.models import Architecture
from cantons.problem.arguments import made_for_data
from cantons.problem.losses import masked_mean
from cantons.problem.residual import Features, residual
from cantons.problem.shaped import Shaped, Shapes
from cantons.protocol import Array, Problem, PyTree, Residual
from cantons.ranges import checked


@checked
@made_for_data
def bandit(data: Shaped, *, shared_features: Features = "all", private_features: Features = "all",
           shared_model: Architecture | None = None, private_model: Architecture | None = None) -> Problem:
    """Rewards of actions by a shared and a private model; scores what the greedy action brings.

    Inputs are [actions, features], targets the rewards [actions], or {"reward": ..., "mean": ...} where the expected
    ones are known: regret is counted in these. `predict` gives a reward for each action. The residual takes contexts,
    and also single rows of chosen actions.

    shared_features: which columns the shared model sees: "all", "none", "first_half", "second_half" or a list.
    private_features: the same for the private models.
    shared_model: a network, like `model` of classification; linear unless given.
    private_model: the same for the private models.
    """
    shape = tuple(data.input_shape)
    if len(shape) != 2:
        raise InputError("a bandit's inputs are one row of features per action, [actions, features], and here an input "
                         f"has shape {shape}; make data with synthetic_bandit, or classification_bandit.")
    rows = residual(Shapes(shape[1:]), shared_features=shared_features, private_features=private_features,
                    shared_model=shared_model, private_model=private_model, loss="squared")
    joint = rows.residual
    assert joint is not None

    def predict(shared, private, inputs):
        return on_rows(joint.shared)(shared, joint.features(inputs)) + on_rows(joint.private)(private, inputs)

    def errors(values, targets):
        rewards = rewards_of(targets)
        if values.shape != rewards.shape:  # or they would broadcast without a word
            raise InputError(f"the predicted rewards have shape {values.shape} and the targets {rewards.shape}; give "
                             "one reward for each action.")
        return ((values - rewards) ** 2).reshape(values.shape[0], -1).mean(axis=1)

    def joint_loss(values, targets, mask):
        return masked_mean(errors(values, targets), mask)

    def mean_loss(shared, private, batch):
        return joint_loss(predict(shared, private, batch.inputs), batch.targets, batch.mask)

    def score(shared, private, batch):
        values = predict(shared, private, batch.inputs)
        greedy = values.argmax(axis=1)
        return {"loss": errors(values, batch.targets), "reward": of_actions(rewards_of(batch.targets), greedy),
                "regret": regret_of(batch.targets, greedy)}

    spec = None if rows.spec is None else {
        name: value for name, value in rows.spec.items() if name not in ("loss", "labels", "clip")} | {
        "name": "bandit", "input_shape": list(shape)}
    return Problem(rows.init, mean_loss, predict, score, maximise=("reward",), spec=spec, residual=Residual(
        joint.features, on_rows(joint.shared), on_rows(joint.private), joint_loss), check_inputs=rows.check_inputs)


def on_rows(apply):
    """A model of rows of features, for arrays [..., features]: the rows of all actions at once, or of one."""
    def wide(params, inputs):
        *leading, width = inputs.shape
        return apply(params, inputs.reshape(math.prod(leading), width)).reshape(leading)

    return wide


def rewards_of(targets: PyTree) -> Array:
    """What each action brings in each context."""
    return targets["reward"] if isinstance(targets, dict) else targets


def regret_of(targets: PyTree, actions: Array) -> Array:
    """How much less the actions [B] are expected to bring than the best ones; in rewards, where no mean is known.

    >>> regret_of({"reward": jnp.zeros((1, 2)), "mean": jnp.array([[0.25, 0.75]])}, jnp.array([0]))
    Array([0.5], dtype=float32)
    """
    means = targets["mean"] if isinstance(targets, dict) and "mean" in targets else rewards_of(targets)
    return means.max(axis=1) - of_actions(means, actions)


def of_actions(values: Array, actions: Array) -> Array:
    """Of each row's values [B, actions, ...] those of one action."""
    return values[jnp.arange(values.shape[0]), actions]
