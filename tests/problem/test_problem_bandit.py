"""Joint rewards of actions, by hand: two actions, one global and one local feature."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import cantons as ct
from cantons.problem import Shapes, problem_from_spec
from cantons.protocol import Batch

CONTEXT = jnp.array([[[1.0, 0.0], [0.0, 1.0]], [[2.0, 1.0], [1.0, 3.0]]])  # [contexts, actions, features]
REWARDS = jnp.array([[1.0, 0.0], [0.5, 0.25]])
BATCH = Batch(CONTEXT, REWARDS, jnp.ones(2))
PROBLEM = ct.bandit(Shapes((2, 2)), shared_features=[0], private_features=[1])


def weights(value):
    return {"layer0": {"weight": jnp.array([[value]]), "bias": jnp.zeros(1)}}


REGISTRY = weights(0.5), weights(0.25)


def test_predicted_rewards_are_sums_of_two_models():
    np.testing.assert_allclose(PROBLEM.predict(*REGISTRY, CONTEXT), [[0.5, 0.25], [1.25, 1.25]])


def test_the_loss_is_the_mean_over_actions():
    np.testing.assert_allclose(PROBLEM.loss(*REGISTRY, BATCH), np.mean([0.25, 0.0625, 0.5625, 1.0]))


def test_the_score_is_that_of_the_best_predicted_action():
    scores = PROBLEM.score(*REGISTRY, BATCH)
    np.testing.assert_allclose(scores["reward"], [1.0, 0.5])  # of equals, the first
    np.testing.assert_allclose(scores["regret"], [0.0, 0.0])
    scores = PROBLEM.score(weights(-1.0), REGISTRY[1], BATCH)
    np.testing.assert_allclose(scores["reward"], [0.0, 0.25])
    np.testing.assert_allclose(scores["regret"], [1.0, 0.25])
    assert PROBLEM.maximise == ("reward",)


def test_regret_is_counted_in_means_where_they_are_known():
    means = jnp.array([[0.9, 0.1], [0.2, 0.8]])
    scores = PROBLEM.score(*REGISTRY, BATCH._replace(targets={"reward": REWARDS, "mean": means}))
    np.testing.assert_allclose(scores["regret"], [0.0, 0.6], rtol=1e-6)
    np.testing.assert_allclose(scores["reward"], [1.0, 0.5])


def test_the_two_halves_take_contexts_and_single_rows():
    joint = PROBLEM.residual
    np.testing.assert_allclose(joint.shared(REGISTRY[0], joint.features(CONTEXT)), 0.5 * CONTEXT[..., 0])
    np.testing.assert_allclose(joint.private(REGISTRY[1], CONTEXT[:, 1]), 0.25 * CONTEXT[:, 1, 1])
    row = Batch(CONTEXT[:, 0], REWARDS[:, 0], jnp.ones(2))
    np.testing.assert_allclose(PROBLEM.loss(*REGISTRY, row), np.mean([0.25, 0.5625]))


@pytest.mark.parametrize("side", ["shared", "private"])
def test_a_side_without_features_says_nothing(side):
    problem = ct.bandit(Shapes((2, 2)), **{f"{side}_features": "none"})
    shared, private = problem.init(jax.random.key(0))
    assert not jax.tree.leaves({"shared": shared, "private": private}[side])
    assert problem.predict(shared, private, CONTEXT).shape == (2, 2)


def test_networks_may_predict_rewards_too():
    problem = ct.bandit(Shapes((2, 2)), shared_model=ct.mlp(hidden=(3,)))
    parts = problem.init(jax.random.key(0))
    whole = problem.predict(*parts, CONTEXT)
    each = [problem.predict(*parts, CONTEXT[:, action]) for action in range(2)]
    np.testing.assert_allclose(whole, jnp.stack(each, axis=1), rtol=1e-6)


def test_it_is_rebuilt_from_its_names():
    again = problem_from_spec(ct.bandit(Shapes((2, 2)), shared_features=[0], private_features=[1]).spec)
    np.testing.assert_array_equal(again.predict(*REGISTRY, CONTEXT), PROBLEM.predict(*REGISTRY, CONTEXT))


def test_fedres_online_learns_from_all_rewards_if_it_may():
    data = ct.synthetic_bandit(3, actions=3, features=4, contexts=50, test_contexts=10)
    problem = ct.bandit(data, shared_features="first_half", private_features="second_half")
    run = ct.run(problem, data, ct.fedres_online_sgd(step_size=0.2), rounds=200, clock=ct.online())
    assert run.final["test.personal.regret.mean"] < 0.5 * run.history[0]["test.personal.regret.mean"]


def test_plain_rows_are_refused(numbers):
    with pytest.raises(ct.InputError, match="one row of features per action"):
        ct.bandit(numbers)


def test_a_missing_reward_is_refused():
    with pytest.raises(ct.InputError, match="one reward for each action"):
        PROBLEM.loss(*REGISTRY, BATCH._replace(targets=REWARDS[:, :1]))
