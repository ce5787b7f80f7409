"""What a policy would have earned, told from the log of another: contexts, actions, rewards and probabilities.

Inverse propensity scoring (Horvitz and Thompson, 1952) and the doubly robust estimate of Dudík, Langford and Li,
"Doubly Robust Policy Evaluation and Learning", ICML 2011. Both are unbiased when the logged probabilities are right and
give every action of the policy a chance; the second is so also when only the predicted rewards are right.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from cantons.errors import InputError


class Estimate(NamedTuple):
    value: float  # the mean reward in a step
    error: float  # its standard error


def ips(actions: ArrayLike, rewards: ArrayLike, probabilities: ArrayLike, policy: ArrayLike) -> Estimate:
    """Each logged reward counts by how much likelier the policy is to choose that action than the log was.

    `actions`, `rewards` and `probabilities` [n] are the log: what was chosen, what it brought, and how likely that
    choice was. `policy` [n, actions] are the probabilities with which the policy would choose in the same contexts.

    >>> ips([0, 1], [1.0, 0.0], [0.5, 0.5], [[1, 0], [1, 0]]).value
    1.0
    """
    _, rewards, _, weights = _log(actions, rewards, probabilities, policy)
    return _estimate(weights * rewards)


def doubly_robust(actions: ArrayLike, rewards: ArrayLike, probabilities: ArrayLike, policy: ArrayLike,
                  predicted: ArrayLike) -> Estimate:
    """What a model says the policy earns, and by `ips` what the model is wrong by.

    `predicted` [n, actions] are rewards by a model, such as a bandit problem's `predict`, that was not fitted to this
    log; the rest is as in `ips`. The better the model, the smaller the error.
    """
    actions, rewards, policy, weights = _log(actions, rewards, probabilities, policy)
    predicted = np.asarray(predicted, float)
    if predicted.shape != policy.shape:
        raise InputError(f"predicted has shape {predicted.shape} and policy {policy.shape}; give a number for every "
                         "action in each context.")
    logged = predicted[np.arange(len(actions)), actions]
    return _estimate((policy * predicted).sum(axis=1) + weights * (rewards - logged))


def _log(actions: ArrayLike, rewards: ArrayLike, probabilities: ArrayLike,
         policy: ArrayLike) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The log and the policy as arrays, and what each logged step weighs."""
    chosen, earned, likely, wanted = np.asarray(actions), *(
        np.asarray(part, float) for part in (rewards, probabilities, policy))
    steps = len(chosen)
    if not steps or earned.shape != (steps,) or likely.shape != (steps,) or wanted.shape[:1] != (steps,) or (
            wanted.ndim != 2):
        raise InputError(f"a log has one action, reward and probability per step, and a policy one row; here they have "
                         f"shapes {chosen.shape}, {earned.shape}, {likely.shape} and {wanted.shape}.")
    if chosen.dtype.kind not in "iu" or chosen.min() < 0 or chosen.max() >= wanted.shape[1]:
        raise InputError(f"actions are whole numbers from 0 to {wanted.shape[1] - 1}, one for each column of policy.")
    if not (likely > 0).all() or likely.max() > 1:
        row = int(np.argmax(~((likely > 0) & (likely <= 1))))
        raise InputError(f"the logged probability in row {row} (from 0) is {likely[row]}, which is not above 0 and at "
                         "most 1; what was chosen had a chance: log it.")
    if wanted.min() < 0 or not np.allclose(wanted.sum(axis=1), 1, atol=1e-4):
        raise InputError("a row of policy does not sum to 1; give the probability of each action.")
    return chosen, earned, wanted, wanted[np.arange(steps), chosen] / likely


def _estimate(values: np.ndarray) -> Estimate:
    error = values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.nan
    return Estimate(float(values.mean()), float(error))
