"""Values of policies from another policy's log, where the true value is known."""

import numpy as np
import pytest

import cantons as ct
from cantons.data import contexts_of
from cantons.metrics import doubly_robust, ips

STEPS, LOGS = 400, 300


@pytest.fixture(scope="module")
def logs():
    """Many logs of one environment: (actions, rewards, probabilities) each; the policy asked about, and its value."""
    data = ct.synthetic_bandit(1, actions=4, contexts=STEPS, test_contexts=0)
    means = next(iter(contexts_of(data).values())).means.astype(float)
    random = np.random.default_rng(0)
    behaviour = random.dirichlet(np.ones(4), STEPS) * 0.8 + 0.05
    policy = np.eye(4)[means.argmax(axis=1)] * 0.9 + 0.025
    drawn = np.array([[random.choice(4, p=row / row.sum()) for row in behaviour] for _ in range(LOGS)])
    steps = np.arange(STEPS)
    rewards = (random.random(drawn.shape) < means[steps, drawn]).astype(float)
    return drawn, rewards, behaviour[steps, drawn], policy, means, (policy * means).sum(axis=1).mean()


def unbiased(estimates, value):
    estimates = np.array(estimates)
    return abs(estimates.mean() - value) < 4 * estimates.std() / np.sqrt(len(estimates))


def test_ips_is_unbiased(logs):
    *log, policy, _, value = logs
    found = [ips(*one, policy) for one in zip(*log, strict=True)]
    assert unbiased([one.value for one in found], value)
    # Contexts are the same in every log, so a single one errs by less than its standard error says, not by more.
    assert np.std([one.value for one in found]) < 1.1 * np.mean([one.error for one in found])


@pytest.mark.parametrize("wrong", [0.0, 0.3])
def test_doubly_robust_is_unbiased_whatever_the_model_says(logs, wrong):
    *log, policy, means, value = logs
    predicted = means + wrong * np.random.default_rng(1).normal(size=means.shape)
    assert unbiased([doubly_robust(*one, policy, predicted).value for one in zip(*log, strict=True)], value)


def test_doubly_robust_is_right_with_a_right_model_and_wrong_probabilities(logs):
    actions, rewards, probabilities, policy, means, value = logs
    guessed = np.full_like(probabilities, 0.25)
    log = list(zip(actions, rewards, guessed, strict=True))
    assert unbiased([doubly_robust(*one, policy, means).value for one in log], value)
    assert not unbiased([ips(*one, policy).value for one in log], value)


def test_a_good_model_lowers_the_error(logs):
    *log, policy, means, _ = logs
    one = [part[0] for part in log]
    assert doubly_robust(*one, policy, means).error < ips(*one, policy).error
    assert doubly_robust(*one, policy, np.zeros_like(means)) == ips(*one, policy)


def test_the_log_s_own_policy_earns_what_it_earned():
    found = ips([0, 1, 1], [1.0, 0.0, 1.0], [0.5, 0.5, 0.5], np.full((3, 2), 0.5))
    assert found.value == pytest.approx(2 / 3)


@pytest.mark.parametrize("change, words", [
    ({"probabilities": [0.5, 0.0]}, "above 0"),
    ({"actions": [0, 2]}, "from 0 to 1"),
    ({"rewards": [1.0]}, "one action, reward and probability per step"),
    ({"policy": [[1, 1], [1, 0]]}, "sum to 1"),
])
def test_a_log_that_cannot_be_is_refused(change, words):
    log = {"actions": [0, 1], "rewards": [1.0, 0.0], "probabilities": [0.5, 0.5], "policy": [[1, 0], [1, 0]]}
    with pytest.raises(ct.InputError, match=words):
        ips(**log | change)


def test_predictions_for_every_action_are_needed():
    with pytest.raises(ct.InputError, match="a number for every action"):
        doubly_robust([0], [1.0], [0.5], [[1, 0]], [1.0])
