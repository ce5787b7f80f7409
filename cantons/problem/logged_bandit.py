"""Contextual bandits from a log: rows of a context, the action that was taken, what it brought and how likely it was.

Only the reward of the logged action is known, so what a model of rewards f(x, a) is fitted to is estimated. The
estimators are those of Vowpal Wabbit's `--cb_type`, in rewards where it has costs. With action b, reward r and
probability p of the log, K actions, and the log's own chance as the only chance, each has the expectation
1/K sum_a (f(x, a) - r(x, a))^2, up to a constant that f does not change:

    ips   1/K sum_a (f(x, a) - r^(a))^2     where r^(a) = [a = b] r / p
    dr    the same                          where r^(a) = g(x, a) + [a = b] (r - g(x, b)) / p
    mtr   1/(p K) (f(x, b) - r)^2

Horvitz and Thompson, 1952; Dudík, Langford and Li, "Doubly Robust Policy Evaluation and Learning", ICML 2011; Bietti,
Agarwal and Langford, "A Contextual Bandit Bake-off", JMLR 2021, section 2. g is a second model of rewards, fitted
beside f by the loss of mtr, as in Vowpal Wabbit.
"""

from __future__ import annotations

from typing import Any, Literal

import jax
import jax.numpy as jnp

from cantons.errors import InputError
from cantons.models import Architecture, Model, Named
from cantons.problem.arguments import made_for_data
from cantons.problem.assemble import assemble, convex_if_linear
from cantons.problem.bandit import of_actions
from cantons.problem.losses import Loss
from cantons.problem.shaped import Shaped
from cantons.problem.split import SPLITS, Split
from cantons.protocol import Array, Dense, Key, Problem, PyTree
from cantons.ranges import Count, NonNegative, checked

PARTS = ("rewards", "model")  # what is predicted with, and, for "dr", the second model


@checked
@made_for_data
def logged_bandit(data: Shaped, model: Architecture, *, estimator: Literal["ips", "dr", "mtr"] = "mtr",
                  actions: Count | None = None, split: Split = "none", l2: NonNegative = 0.0) -> Problem:
    """Learn the rewards of actions from a log, and score what the best predicted action would have brought.

    Targets are {"action": ..., "reward": ..., "propensity": ...}. `predict` gives a reward for each action. Scores:
    "reward", what the best predicted action brings by inverse propensity scoring; "reward_dr", the doubly robust
    estimate of the same; the loss of "mtr" as "loss", whatever is minimised; and "true_reward" where the targets hold
    all "rewards".

    model: the network, by its name or as a table with options; in Python what its function makes, such as `ct.mlp()`.
    estimator: of the loss: by inverse propensities ("ips"), doubly robust ("dr"), or on the action taken ("mtr").
    actions: how many there are, where the data do not say.
    split: what is private: "none", "all", the "input" or the "output" layer, "norm" layers, a pattern such as "*/bias",
        or "adapter".
    l2: half of it times the sum of the squares of all parameters is added to the loss.
    """
    kinds = len(data.actions or ()) if hasattr(data, "actions") else actions or 0  # shapes alone have no names
    if kinds < 2:
        raise InputError("logged_bandit learns from the log of a bandit with two actions or more, and this data is "
                         "none; make it with bandit_log, from_log or classification_log.")
    if actions not in (None, kinds):
        raise InputError(f"actions is {actions}, and the log has {kinds}; leave it out.")
    network = model(tuple(data.input_shape), kinds)
    doubly = estimator == "dr"
    loss = {"ips": ips_loss, "mtr": mtr_loss, "dr": dr_loss}[estimator]
    about: dict[str, Any] = {"name": "logged_bandit", "input_shape": list(data.input_shape), "estimator": estimator,
                             "actions": kinds, "split": split if isinstance(split, str) else dict(split), "l2": l2}
    spec = {**about, "model": {"name": model.name, **model.options}} if isinstance(model, Named) else None
    both = f"*/{split}" if doubly and isinstance(split, str) and split not in SPLITS else split  # a pattern
    problem = assemble(_pair(network) if doubly else network, Loss(loss, outputs="scores"), both, l2, spec)

    def predict(shared, private, inputs):
        values = problem.predict(shared, private, inputs)
        return values[..., 0] if doubly else values

    def score(shared, private, batch):
        outputs, targets = problem.predict(shared, private, batch.inputs), batch.targets
        values, model_of_rewards = (outputs[..., 0], outputs[..., 1]) if doubly else (outputs, outputs)
        greedy = values.argmax(axis=1)
        weights = (greedy == targets["action"]) / targets["propensity"]
        error = targets["reward"] - of_actions(model_of_rewards, targets["action"])
        found = {"loss": mtr_loss(values, targets), "reward": weights * targets["reward"],
                 "reward_dr": of_actions(model_of_rewards, greedy) + weights * error}
        return found | ({"true_reward": of_actions(targets["rewards"], greedy)} if "rewards" in targets else {})

    if doubly and problem.dense is not None:  # the second model is for training alone
        problem = problem._replace(dense=lambda shared, private: [Dense(_join(problem, shared, private)[PARTS[0]])])
    return problem._replace(predict=predict, score=score, maximise=("reward", "reward_dr", "true_reward"),
                            convex=None if doubly else convex_if_linear(model, l2, split))


def _join(problem: Problem, shared: PyTree, private: PyTree) -> PyTree:
    assert problem.join is not None
    return problem.join(shared, private)


def ips_loss(values: Array, targets: PyTree) -> Array:
    """How far the values [B, K] are from r/p at the logged action, and from 0 elsewhere.

    >>> log = {"action": jnp.array([1]), "reward": jnp.array([1.0]), "propensity": jnp.array([0.5])}
    >>> ips_loss(jnp.array([[1.0, 0.0]]), log)  # (1 - 0)^2 and (0 - 2)^2
    Array([2.5], dtype=float32)
    """
    estimates = _logged(values, targets) * (targets["reward"] / targets["propensity"])[:, None]
    return ((values - estimates) ** 2).mean(axis=1)


def mtr_loss(values: Array, targets: PyTree) -> Array:
    """The squared error of the logged action, which counts 1 / (p K).

    >>> log = {"action": jnp.array([1]), "reward": jnp.array([1.0]), "propensity": jnp.array([0.25])}
    >>> mtr_loss(jnp.array([[1.0, 0.0]]), log)
    Array([2.], dtype=float32)
    """
    errors = of_actions(values, targets["action"]) - targets["reward"]
    return errors**2 / (targets["propensity"] * values.shape[1])


def dr_loss(outputs: Array, targets: PyTree) -> Array:
    """How far the values outputs[..., 0] are from the doubly robust estimates by outputs[..., 1]; and mtr of these.

    >>> log = {"action": jnp.array([1]), "reward": jnp.array([1.0]), "propensity": jnp.array([0.5])}
    >>> dr_loss(jnp.array([[[0.0, 0.0], [0.0, 0.75]]]), log)  # 0.75 + (1 - 0.75) / 0.5 is 1.25; 0.25^2 / (0.5 * 2)
    Array([0.84375], dtype=float32)
    """
    values, model_of_rewards = outputs[..., 0], outputs[..., 1]
    guess = jax.lax.stop_gradient(model_of_rewards)  # it is fitted to rewards alone
    error = (targets["reward"] - of_actions(guess, targets["action"])) / targets["propensity"]
    estimates = guess + _logged(values, targets) * error[:, None]
    return ((values - estimates) ** 2).mean(axis=1) + mtr_loss(model_of_rewards, targets)


def _logged(values: Array, targets: PyTree) -> Array:
    """1 at the logged action of each row, and 0 elsewhere: [B, K]."""
    return jax.nn.one_hot(targets["action"], values.shape[1], dtype=values.dtype)


def _pair(model: Model) -> Model:
    """Two such models side by side, whose outputs are [B, K, 2]; a split divides both alike."""
    def init(key: Key) -> PyTree:
        return dict(zip(PARTS, map(model.init, jax.random.split(key)), strict=True))

    def both(apply):
        return lambda params, *args: jnp.stack([apply(params[part], *args) for part in PARTS], axis=-1)

    def inside(pattern):
        return None if pattern is None else f"*/{pattern}"

    return model._replace(init=init, apply=both(model.apply), train=model.train and both(model.train),
                          input_layer=inside(model.input_layer), output_layer=inside(model.output_layer),
                          norm_layers=tuple(f"*/{pattern}" for pattern in model.norm_layers))
