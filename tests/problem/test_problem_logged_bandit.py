"""Learning from a log: in a small world all that could have been logged is enumerated, so expectations are exact."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import cantons as ct
from cantons.data import logs_of
from cantons.metrics import doubly_robust, ips
from cantons.models import Model
from cantons.problem import Shapes, paths, problem_from_spec
from cantons.problem.logged_bandit import dr_loss, ips_loss, mtr_loss
from cantons.protocol import Batch

RANDOM = np.random.default_rng(0)
CONTEXTS, KINDS = 4, 3
REWARDS = RANDOM.normal(size=(CONTEXTS, KINDS))  # of each action in each context
LOGGING = 0.8 * RANDOM.dirichlet(np.ones(KINDS), CONTEXTS) + 0.2 / KINDS
VALUES, GUESS = RANDOM.normal(size=(2, CONTEXTS, KINDS))
EVERYTHING = [(context, action) for context in range(CONTEXTS) for action in range(KINDS)]


def log(propensities=LOGGING):
    """Every choice that the logging policy could have made, once: with which contexts, and what was logged."""
    contexts, actions = map(np.array, zip(*EVERYTHING, strict=True))
    return contexts, {"action": actions, "reward": REWARDS[contexts, actions],
                      "propensity": propensities[contexts, actions]}


def expected(per_row):
    """The mean over contexts of the expectation over what the logging policy draws; `per_row` is of all choices."""
    contexts, actions = map(np.array, zip(*EVERYTHING, strict=True))
    return (LOGGING[contexts, actions] * np.asarray(per_row)).sum() / CONTEXTS


def expected_gradient(loss, values, targets, contexts):
    weights = LOGGING[contexts, targets["action"]] / CONTEXTS
    return jax.grad(lambda values: (weights * loss(values[contexts], targets)).sum())(jnp.asarray(values))


def told_everything(values):
    """The gradient of the mean squared error of all rewards, which no log tells."""
    return 2 * (values - REWARDS) / (KINDS * CONTEXTS)


def with_guess(guess):
    return lambda values, targets: dr_loss(jnp.stack([values, guess], axis=-1), targets)


@pytest.mark.parametrize("loss", [ips_loss, mtr_loss, "dr"])
def test_every_estimator_expects_the_gradient_of_one_who_is_told_all_rewards(float64, loss):
    contexts, targets = log()
    loss = with_guess(GUESS[contexts]) if loss == "dr" else loss
    np.testing.assert_allclose(expected_gradient(loss, VALUES, targets, contexts), told_everything(VALUES), atol=1e-12)


def test_wrong_propensities_do_no_harm_where_the_model_is_right_and_only_there(float64):
    contexts, targets = log(np.full((CONTEXTS, KINDS), 0.2))
    right, wrong = (with_guess(guess[contexts]) for guess in (REWARDS, GUESS))
    np.testing.assert_allclose(expected_gradient(right, VALUES, targets, contexts), told_everything(VALUES), atol=1e-12)
    for loss in (wrong, ips_loss, mtr_loss):
        assert np.abs(expected_gradient(loss, VALUES, targets, contexts) - told_everything(VALUES)).max() > 0.01


def test_the_three_losses_are_their_formulas_row_by_row(float64):
    contexts, targets = log()
    values, guess = VALUES[contexts], GUESS[contexts]
    found = [loss(values, targets) for loss in (ips_loss, mtr_loss, with_guess(guess))]
    for row, (action, reward, chance) in enumerate(zip(*targets.values(), strict=True)):
        by_ips = by_dr = 0.0
        for each in range(KINDS):
            estimate = reward / chance if each == action else 0.0
            by_ips += (values[row, each] - estimate) ** 2 / KINDS
            estimate = guess[row, each] + ((reward - guess[row, each]) / chance if each == action else 0.0)
            by_dr += (values[row, each] - estimate) ** 2 / KINDS
        by_mtr, of_guess = ((each[row, action] - reward) ** 2 / (chance * KINDS) for each in (values, guess))
        wanted = by_ips, by_mtr, by_dr + of_guess
        np.testing.assert_allclose([loss[row] for loss in found], wanted, rtol=1e-12)


def table(shape, outputs):
    """A model that knows every context by its number: a row of rewards for each."""
    return Model(lambda key: {"table": jnp.zeros((CONTEXTS, outputs))}, lambda params, inputs: params["table"][inputs])


def batch_of(contexts, targets):
    return Batch(contexts, targets, np.ones(len(contexts)))


def test_scores_are_estimates_of_what_the_best_predicted_action_brings(float64):
    contexts, targets = log()
    problem = ct.logged_bandit(Shapes(()), table, actions=KINDS)
    params = {"table": jnp.asarray(VALUES)}, {"table": None}
    targets = targets | {"rewards": REWARDS[contexts]}
    scores = problem.score(*params, batch_of(contexts, targets))
    greedy = VALUES.argmax(axis=1)
    value = REWARDS[np.arange(CONTEXTS), greedy].mean()
    for name in ("reward", "reward_dr", "true_reward"):
        assert expected(scores[name]) == pytest.approx(value, abs=1e-12)
    rows = targets["action"], targets["reward"], targets["propensity"], np.eye(KINDS)[greedy][contexts]
    assert scores["reward"].mean() == pytest.approx(ips(*rows).value)
    assert scores["reward_dr"].mean() == pytest.approx(doubly_robust(*rows, VALUES[contexts]).value)
    np.testing.assert_allclose(scores["loss"], mtr_loss(VALUES[contexts], targets))
    assert "true_reward" not in problem.score(*params, batch_of(*log()))


def test_the_second_model_of_dr_is_fitted_to_rewards_alone_and_scores_by_it(float64):
    contexts, targets = log()
    problem = ct.logged_bandit(Shapes(()), table, estimator="dr", actions=KINDS)
    params = {"rewards": {"table": jnp.asarray(VALUES)}, "model": {"table": jnp.asarray(GUESS)}}
    nothing = jax.tree.map(lambda leaf: None, params)
    batch = batch_of(contexts, targets)
    gradient = jax.grad(problem.loss)(params, nothing, batch)
    by_mtr = jax.grad(lambda guess: mtr_loss(guess[contexts], targets).mean())(jnp.asarray(GUESS))
    np.testing.assert_allclose(gradient["model"]["table"], by_mtr, rtol=1e-12)
    np.testing.assert_array_equal(problem.predict(params, nothing, np.arange(CONTEXTS)), VALUES)
    policy = np.eye(KINDS)[VALUES.argmax(axis=1)][contexts]
    assert problem.score(params, nothing, batch)["reward_dr"].mean() == pytest.approx(
        doubly_robust(*targets.values(), policy, GUESS[contexts]).value)


@pytest.mark.parametrize("split", ["output", "layer1/*", "none"])
def test_a_split_divides_both_models_alike_and_the_problem_can_be_written_down(split):
    def private(estimator):
        problem = ct.logged_bandit(Shapes((5,)), ct.mlp(hidden=[4]), estimator=estimator, actions=3, split=split)
        again = problem_from_spec(problem.spec)
        found = paths(jax.eval_shape(problem.init, jax.random.key(0))[1])
        assert paths(jax.eval_shape(again.init, jax.random.key(0))[1]) == found and again.spec == problem.spec
        return found

    dr = ct.logged_bandit(Shapes((5,)), ct.mlp(hidden=[4]), estimator="dr", actions=3, split=split)
    parts, rows = dr.init(jax.random.key(0)), np.ones((2, 5), np.float32)
    (left,) = dr.dense(*parts)  # what leaves the run: the model that predicts, and not the second one
    found = ct.mlp(hidden=[4])((5,), 3).apply(left.params, rows)
    np.testing.assert_allclose(found, dr.predict(*parts, rows), rtol=1e-6)
    alone = private("ips")
    assert private("mtr") == alone
    assert sorted(private("dr")) == sorted(f"{part}/{path}" for part in ("model", "rewards") for path in alone)


def test_clients_learn_from_what_they_logged():
    digits = ct.classification_log({"name": "digits", "clients": 6, "partition": "dirichlet", "alpha": 1.0})
    problem = ct.logged_bandit(digits, ct.linear(), estimator="dr")  # docs/logged_bandits.md has all three
    result = ct.run(problem, digits, ct.fedavg(step_size=0.1, epochs=5, batch_size=20), rounds=10, progress=False)
    logged = np.concatenate([one.rewards for one in logs_of(digits, test=True).values()]).mean()
    truth = result.final["test.personal.true_reward.mean"]
    assert truth > 0.6 > 0.3 > logged
    assert abs(result.final["test.personal.reward_dr.mean"] - truth) < 0.2
    best = result.outputs(digits.test.inputs[:9], client=0).argmax(axis=1)
    assert result.predict(digits.test.inputs[:9], client=0).tolist() == [digits.actions[place] for place in best]
    ones = np.array(result.clients["test.personal.reward"])
    assert ones.shape == (6,) and np.isfinite(ones).all()  # an estimate for each client


@pytest.mark.parametrize(("make", "words"), [
    (lambda: ct.logged_bandit(ct.digits(5), ct.linear()), "two actions or more, and this data is none"),
    (lambda: ct.logged_bandit(ct.digits(5), ct.linear(), actions=10), "the log of a bandit with two actions or more"),
    (lambda: ct.logged_bandit(Shapes((5,)), ct.linear(), actions=1), "two actions or more"),
    (lambda: ct.logged_bandit(ct.from_log(np.zeros((4, 2)), [0, 1, 0, 1], [0.0] * 4, [0.5] * 4, list("aabb")),
                              ct.linear(), actions=3), "actions is 3, and the log has 2"),
    (lambda: ct.regression(ct.from_log(np.zeros((4, 2)), [0, 1, 0, 1], [0.0] * 4, [0.5] * 4, list("aabb")),
                           ct.linear()), "use the problem they are made for, such as bandit or logged_bandit"),
])
def test_what_is_no_log_is_refused(make, words):
    with pytest.raises(ct.InputError, match=words):
        make()
