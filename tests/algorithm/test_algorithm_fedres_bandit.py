"""Federated bandits: who explores when, what is learned from it, and that nobody peeks at what was not chosen."""

import dataclasses
import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from starting import restored, start

import cantons as ct
from cantons.algorithm.fedres_bandit import inverse_gap_weights, theorem3_every
from cantons.data import Ragged, from_sizes

POPULATION, ACTIONS, STEPS = 4, 3, 24
HALVES = {"shared_features": "first_half", "private_features": "second_half"}


@pytest.fixture(scope="module")
def data():
    return ct.synthetic_bandit(POPULATION, actions=ACTIONS, features=4, contexts=STEPS, test_contexts=2)


@pytest.fixture(scope="module")
def problem(data):
    return ct.bandit(data, **HALVES)


def with_targets(data, change):
    """The same contexts with other targets: `change(targets)` gets them as [clients, steps, actions]."""
    shape = POPULATION, -1, data.input_shape[0]
    targets = change({name: np.array(leaf).reshape(shape) for name, leaf in data.train.targets.items()})
    targets = {name: leaf.reshape(-1, shape[2]) for name, leaf in targets.items()}
    return with_train(data, from_sizes(data.train.inputs, targets, data.train.sizes))


def with_train(data, train: Ragged):
    return dataclasses.replace(data, clients=dataclasses.replace(data.clients, train=train))


def telling(data):
    """Means that say which action was chosen: regret is the number of actions above it. Nobody learns from means."""
    targets = data.train.targets
    means = np.tile(np.arange(ACTIONS, dtype=np.float32), (len(targets["mean"]), 1))
    return with_train(data, from_sizes(data.train.inputs, targets | {"mean": means}, data.train.sizes))


def session_of(problem, data, recipe, clock=None, seed=0):
    algorithm = recipe.build(problem, data.population)
    return start(ct.Local(), problem, algorithm, (clock or ct.online()).build(data.population), data, None, seed)


def history(problem, data, recipe, clock=None, steps=STEPS):
    """The states before and after each step."""
    session = session_of(problem, data, recipe, clock)
    states = [session.begin()]
    for step in range(steps):
        states.append(session.advance(restored(session, jax.device_get(states[-1])), step + 1))
        states[-2] = jax.device_get(states[-2])
    return [*states[:-1], jax.device_get(states[-1])]


def increments(states, metric):
    """[steps, clients]: what each client was charged in each step."""
    return np.diff([state.in_flight.scores[metric] for state in states], axis=0)


def actions_of(states):
    return ACTIONS - 1 - np.round(increments(states, "regret")).astype(int)


def same_bits(left, right):
    jax.tree.map(np.testing.assert_array_equal, left, right)


def models(state):
    return state.server, state.clients.learner


# Choosing


def test_inverse_gap_weights_by_hand():
    found = inverse_gap_weights(jnp.array([[0.5, 1.0, 0.0]]), 2.0)
    np.testing.assert_allclose(found, [[1 / 4, 1 - 1 / 4 - 1 / 5, 1 / 5]], rtol=1e-6)


def test_inverse_gap_weights_sum_to_one_and_favour_the_best():
    values = jax.random.normal(jax.random.key(0), (50, 7))
    for gamma in (0.0, 1.0, 30.0, 1e6):
        found = inverse_gap_weights(values, gamma)
        np.testing.assert_allclose(found.sum(axis=1), 1, rtol=1e-6)
        assert (found > 0).all()
        np.testing.assert_allclose(found.max(axis=1), found[np.arange(50), values.argmax(axis=1)], rtol=1e-6)
        # The worse an action seems, the rarer it is.
        order = np.argsort(values, axis=1)
        assert (np.diff(np.take_along_axis(np.asarray(found), order, axis=1), axis=1) >= -1e-7).all()


def test_without_gamma_all_actions_are_as_likely():
    np.testing.assert_allclose(inverse_gap_weights(jnp.array([[3.0, 1.0, -1.0, 0.0]]), 0.0), 0.25)


def test_between_explorations_the_best_predicted_action_is_taken(data, problem):
    states = history(problem, telling(data), ct.fedres_bandit(explore="every", every=4, alignment="paired"))
    contexts = data.train.inputs.reshape(POPULATION, STEPS, ACTIONS, -1)
    chosen = actions_of(states)
    for step, state in enumerate(states[:-1]):
        if (step + 1) % 4:
            for client in range(POPULATION):
                private = jax.tree.map(lambda leaf, i=client: leaf[i], state.clients.learner.private)
                values = problem.predict(state.server.shared, private, contexts[client, step][None])[0]
                assert chosen[step, client] == values.argmax()


def test_explorations_are_uniform_and_each_client_draws_its_own(data, problem):
    many = ct.synthetic_bandit(50, actions=ACTIONS, features=4, contexts=40, test_contexts=0)
    states = history(problem, telling(many), ct.fedres_bandit(explore="every", every=2), steps=40)
    explored = actions_of(states)[1::2]
    # 1000 draws: five standard deviations are 75.
    np.testing.assert_allclose(np.bincount(explored.ravel(), minlength=ACTIONS), 1000 / ACTIONS, atol=75)
    assert len(np.unique(explored, axis=1).T) == 50


# Learning


@pytest.mark.parametrize("alignment", ["none", "paired", "full"])
def test_models_move_after_explorations_alone(data, problem, alignment):
    states = history(problem, data, ct.fedres_bandit(explore="every", every=4, alignment=alignment))
    for number, (before, after) in enumerate(itertools.pairwise(states), start=1):
        moved = after.server.shared["layer0"]["weight"] != before.server.shared["layer0"]["weight"]
        own = (after.clients.learner.private["layer0"]["weight"]
               != before.clients.learner.private["layer0"]["weight"]).any(axis=(1, 2))
        assert moved.any() == (number % 4 == 0) and (own == (number % 4 == 0)).all()


def test_rewards_between_explorations_change_nothing(data, problem):
    def other(targets):
        targets["reward"][:, np.arange(STEPS) % 4 != 3] = 77.0
        return targets

    recipe = ct.fedres_bandit(explore="every", every=4)
    same_bits(*(models(history(problem, some, recipe)[-1]) for some in (data, with_targets(data, other))))


@pytest.mark.parametrize("explore, alignment", [("every", "full"), ("igw", "full"), ("igw", "none")])
def test_nobody_learns_from_a_reward_of_an_action_that_was_not_chosen(data, problem, explore, alignment):
    recipe = ct.fedres_bandit(explore=explore, every=2, alignment=alignment, step_size=0.2)
    before = history(problem, telling(data), recipe)
    chosen = actions_of(before).T[..., None]  # [clients, steps, 1]

    def other(targets):
        unseen = np.arange(ACTIONS) != chosen
        rumours = np.random.default_rng(0).normal(size=unseen.shape) * 1e6
        return targets | {"reward": np.where(unseen, rumours, targets["reward"]).astype(np.float32)}

    after = history(problem, with_targets(telling(data), other), recipe)
    same_bits(models(before[-1]), models(after[-1]))
    same_bits(before[-1].in_flight.scores, after[-1].in_flight.scores)
    assert np.abs(after[-1].server.shared["layer0"]["weight"]).max() > 0


def test_who_always_explores_has_the_same_regret_whatever_it_learns(data, problem):
    recipes = [ct.fedres_bandit(explore="every", every=1), ct.fedres_bandit(explore="uniform"),
               ct.fedres_bandit(explore="igw", gamma=0.0),
               ct.fedres_bandit(explore="every", every=1, regressor="private", method="adagrad", step_size=3.0)]
    runs = [history(problem, telling(data), recipe) for recipe in recipes]
    for run in runs[1:]:
        np.testing.assert_array_equal(actions_of(run), actions_of(runs[0]))
    for run in runs[1:3]:  # B = 1 is the uniform reference, in three programs: the last digit may differ
        jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-6), models(run[-1]), models(runs[0][-1]))


# With one action there is nothing to choose: what is left is the regressor on the examples of explorations


@pytest.fixture(scope="module")
def single():
    return ct.synthetic_bandit(POPULATION, actions=1, features=4, contexts=STEPS, test_contexts=0)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("options", [
    {"alignment": "full", "radius": 0.1}, {"alignment": "none", "combine": "mean", "method": "adagrad"},
], ids=str)
def test_with_one_action_it_is_the_regressor(single, options):
    problem, clock = ct.bandit(single), ct.online(uplink=[0, 1, 3, 0], downlink=[2, 0, 1, 0])
    bandit = history(problem, single, ct.fedres_bandit(explore="uniform", **options), clock)
    plain = history(problem, single, ct.fedres_online_sgd(**options), clock)
    close(models(bandit[-1]), (plain[-1].server, plain[-1].clients))
    close(increments(bandit, "loss"), increments(plain, "loss"))


def close(left, right):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12), left, right)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("every, up, down, rounds, options", [
    (2, 1, 0, 0, {}), (2, 2, 0, 1, {}), (3, 3, 4, 2, {}), (4, 7, 0, 1, {"alignment": "paired"}),
    (2, 4, 0, 2, {"alignment": "none", "combine": "mean"}),
    (3, 4, 0, 1, {"step_size": {"name": "sqrt_decay", "start": 0.3}, "combine": "mean", "radius": 0.2}),
], ids=str)
def test_a_delay_holds_back_as_many_explorations_as_the_paper_says(single, every, up, down, rounds, options):
    """ceil(tau / B), where no delay is tau = 1; in our count, where it is 0, that is one more than `rounds`."""
    assert -(-(up + down + 1) // every) == rounds + 1
    problem = ct.bandit(single)
    bandit = history(problem, single, ct.fedres_bandit(explore="every", every=every, **options),
                     ct.online(uplink=up, downlink=down))
    steps = STEPS // every
    explored = np.arange(POPULATION * STEPS).reshape(POPULATION, STEPS)[:, every - 1::every].ravel()
    rows = jax.tree.map(lambda leaf: leaf[explored], (single.train.inputs, single.train.targets))
    fewer = with_train(single, from_sizes(*rows, np.full(POPULATION, steps)))
    plain = history(problem, fewer, ct.fedres_online_sgd(**options), ct.online(uplink=rounds), steps)
    close(increments(bandit, "loss")[every - 1::every], increments(plain, "loss"))


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("explore, regressor, alignment", [
    ("every", "joint", "none"), ("igw", "shared", "none"), ("igw", "joint", "paired"), ("every", "shared", "full")])
def test_a_sum_with_one_step_size_is_a_mean_with_another(data, problem, explore, regressor, alignment):
    """An example that is not used, or has not arrived, counts as 0 in both."""
    clock = ct.online(uplink=[0, 1, 3, 0], downlink=[2, 0, 1, 0], active={"probability": 0.7})
    options = {"explore": explore, "every": 3, "regressor": regressor, "alignment": alignment, "private_step_size": 0.1}
    total, mean = (history(problem, data, ct.fedres_bandit(**options, **more), clock)[-1] for more in (
        {"step_size": 0.1}, {"step_size": POPULATION * 0.1, "combine": "mean"}))
    assert max(np.abs(leaf).max() for leaf in jax.tree.leaves(total.server.shared)) > 1e-3
    close(mean.server.shared, total.server.shared)
    close(mean.clients, total.clients)


def test_a_silent_client_counts_its_own_steps(data, problem):
    trace = np.ones((STEPS, POPULATION), bool)
    trace[::2, 1] = False
    recipe = ct.fedres_bandit(explore="every", every=4, alignment="paired")
    states = history(problem, data, recipe, ct.online(active=trace))
    np.testing.assert_array_equal(states[-1].clients.time, [STEPS, STEPS // 2, STEPS, STEPS])
    moves = [step + 1 for step, (before, after) in enumerate(itertools.pairwise(states))
             if (before.clients.learner.private["layer0"]["weight"][1]
                 != after.clients.learner.private["layer0"]["weight"][1]).any()]
    assert moves == [8, 16, 24]


# References, and what they are good for


@pytest.mark.parametrize("regressor, still", [("shared", "private"), ("private", "shared")])
def test_a_reference_keeps_one_model(data, problem, regressor, still):
    recipe = ct.fedres_bandit(explore="uniform", regressor=regressor)
    run = ct.run(problem, data, recipe, rounds=STEPS, clock=ct.online())
    parts = dict(zip(("shared", "private"), run.model.parts(0), strict=True))
    assert np.abs(parts[regressor]["layer0"]["weight"]).max() > 0
    assert np.abs(parts[still]["layer0"]["weight"]).max() == 0


def test_clients_alone_do_not_hear_of_each_other(data, problem):
    def other(targets):
        targets["reward"][1:] += 1
        return targets

    recipe = ct.fedres_bandit(explore="igw", regressor="alone")
    runs = [history(problem, some, recipe)[-1] for some in (data, with_targets(data, other))]
    same_bits(*(jax.tree.map(lambda leaf: leaf[0], run.clients) for run in runs))


@pytest.fixture(scope="module")
def regrets():
    """`regrets(option=...)`: the median over three seeds of the regret per step in a realisable environment."""
    environments = [ct.synthetic_bandit(10, actions=5, features=8, contexts=600, test_contexts=0, seed=seed)
                    for seed in range(3)]

    def median(**options):
        recipe = ct.fedres_bandit(step_size=0.1, combine="mean", **options)
        sessions = [session_of(ct.bandit(data, **HALVES), data, recipe, seed=seed)
                    for seed, data in enumerate(environments)]
        ends = [session.advance(session.begin(), 600) for session in sessions]
        return np.median([end.in_flight.scores["regret"].mean() / 600 for end in ends])

    return median


def test_in_a_realisable_environment_two_models_beat_one_and_gaps_beat_a_calendar(regrets):
    joint, calendar = regrets(explore="igw"), regrets(explore="every", every=10)
    assert joint < regrets(explore="igw", regressor="shared")
    assert joint < regrets(explore="igw", regressor="private")
    assert joint < calendar < regrets(explore="uniform")


# Theorem 3


def test_theorem_3_takes_the_smallest_of_three():
    ones = dict(norms=1.0, variance=1.0, smoothness=1.0, radius=1.0, lipschitz=1.0)
    assert theorem3_every(10_000, 1, 1, **ones) == pytest.approx(10_000**0.2)
    assert theorem3_every(10_000, 1000, 1, **ones) == pytest.approx(10.0)
    assert theorem3_every(8, 1000, 1, **{**ones, "lipschitz": 8.0, "smoothness": 1e-6}) == pytest.approx(1.0)


# Mistakes


@pytest.mark.parametrize("options, words", [
    ({"explore": "often"}, "explore is 'often'"),
    ({"regressor": "both"}, "regressor is 'both'"),
    ({"every": 0}, "every is 0; give 1 or more"),
    ({"gamma": -1.0}, "gamma is -1.0"),
])
def test_options_that_make_no_sense_are_refused(problem, options, words):
    with pytest.raises(ct.InputError, match=words):
        ct.fedres_bandit(**options).build(problem, POPULATION)


def test_a_problem_without_actions_is_refused(numbers):
    with pytest.raises(ct.InputError, match="make the problem with bandit"):
        ct.fedres_bandit().build(ct.residual(numbers), numbers.population)


def test_it_needs_a_stream(data, problem):
    with pytest.raises(ct.InputError, match="give it the online clock"):
        ct.run(problem, data, ct.fedres_bandit(), rounds=1)


# From the outside


def test_a_run_tells_regret_reward_and_loss_and_comes_back_from_its_folder(data, problem, tmp_path):
    run = ct.run(problem, data, ct.fedres_bandit(), rounds=6, clock=ct.online(), out=tmp_path / "run")
    final = run.final
    for metric in ("loss", "regret", "reward"):
        assert np.isfinite(final[f"online.personal.{metric}.mean"])
        assert np.isfinite(final[f"test.personal.{metric}.mean"])
    # The worst tenth of the clients has less reward and more regret than the others.
    assert final["online.personal.reward.worst10"] <= final["online.personal.reward.mean"]
    assert final["online.personal.regret.worst10"] >= final["online.personal.regret.mean"]
    again = ct.load(tmp_path / "run")
    contexts = data.test.inputs[:2]
    np.testing.assert_array_equal(run.outputs(contexts, client=1), again.outputs(contexts, client=1))


def test_resuming_gives_the_same_bits(data, problem, tmp_path):
    study = problem, data, ct.fedres_bandit(explore="igw")
    options = dict(clock=ct.online(uplink=2, downlink=1), evaluate_every=4)
    whole = ct.run(*study, rounds=12, **options)
    ct.run(*study, rounds=8, out=tmp_path / "run", **options)
    rest = ct.run(*study, rounds=12, out=tmp_path / "run", resume=True, **options)
    same_bits(whole.model.state, rest.model.state)
