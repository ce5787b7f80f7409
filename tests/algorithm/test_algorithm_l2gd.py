"""L2GD against the coin flips of its paper, simulated one by one in NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import cantons as ct
from cantons.errors import InputError

pytestmark = pytest.mark.usefixtures("float64")

START = np.array([1.0, -2.0, 0.5])


def begun(loop):
    return loop.begin(({"layer0": {"weight": START[:, None]}}, loop.start[1]))


def own_models(loop):
    return np.array([client.own["layer0"]["weight"][:, 0] for client in loop.clients])


def test_a_round_is_the_run_of_heads_and_the_run_of_tails_it_stands_for(
        plain_loop, least_squares, numbers, quadratics):
    """Every head moves all clients towards the mean of that moment, every tail is a gradient step."""
    step_size, penalty, heads_up = 0.05, 1.5, 0.4
    recipe = ct.l2gd(penalty=penalty, communication=heads_up, step_size=step_size)
    loop = begun(plain_loop(least_squares, numbers, recipe))
    models, draws = np.tile(START, (7, 1)), set()
    for _ in range(6):
        loop.play(1)
        pulls, local_steps = int(loop.message.pulls), int(loop.message.local_steps)
        draws.add((pulls, local_steps))
        for _ in range(pulls):
            towards = step_size * penalty * (1 - heads_up) / heads_up  # alpha lambda / (M p)
            models = models - towards * (models - models.mean(axis=0))
        for _ in range(local_steps):
            models = models - step_size * quadratics.gradients(models)
        np.testing.assert_allclose(own_models(loop), models, atol=1e-12)
        np.testing.assert_allclose(loop.weight, models.mean(axis=0), atol=1e-12)
    assert max(pulls for pulls, _ in draws) > 1 and max(steps for _, steps in draws) > 1  # else nothing was shown


def test_without_a_penalty_every_client_descends_alone(plain_loop, played, least_squares, numbers, quadratics):
    """As told by the loop's coin, and on two devices, where the same coin is thrown."""
    recipe = ct.l2gd(penalty=0.0, step_size=0.05)
    loop, steps = begun(plain_loop(least_squares, numbers, recipe)), 0
    for _ in range(5):
        steps += int(loop.play(1).message.local_steps)
    alone = quadratics.descended(START, 0.05, steps)
    np.testing.assert_allclose(own_models(loop), alone, atol=1e-12)
    state = played(least_squares, numbers, recipe, 5, engine=ct.Local(devices=2),
                   initial=({"layer0": {"weight": START[:, None]}}, {"layer0": {"weight": None}}))
    np.testing.assert_allclose(state.clients.own["layer0"]["weight"][..., 0], alone, atol=1e-12)


def test_when_a_pull_is_the_whole_way_all_agree_after_a_communication(plain_loop, least_squares, numbers, quadratics):
    """step_size penalty (1 - p) / p = 1: whatever the clients were, they go on from the mean."""
    loop = begun(plain_loop(least_squares, numbers, ct.l2gd(penalty=2.0, communication=0.5, step_size=0.5))).play(1)
    mean = loop.weight
    assert np.ptp(own_models(loop), axis=0).min() > 0.1
    stand_still = loop.message._replace(shared=loop.server.shared, pulls=jnp.int32(1), local_steps=jnp.int32(0))
    for index, client in enumerate(loop.clients):
        upload, moved = loop.algorithm.client_update(jax.random.key(0), stand_still, client, loop.train.client(index))
        np.testing.assert_array_equal(upload["layer0"]["weight"][:, 0], mean)
        np.testing.assert_array_equal(moved.own["layer0"]["weight"][:, 0], mean)


@pytest.mark.parametrize("devices", [1, 2])
def test_when_a_pull_is_the_whole_way_a_round_begins_at_the_mean(
        plain_loop, played, least_squares, numbers, quadratics, devices):
    """Whatever the clients were, after the run of heads all take their steps from one point; a loop tells how many."""
    recipe = ct.l2gd(penalty=2.0, communication=0.5, step_size=0.5)
    steps = int(begun(plain_loop(least_squares, numbers, recipe)).play(2).message.local_steps)
    start = {"layer0": {"weight": START[:, None]}}, {"layer0": {"weight": None}}
    before, after = (played(least_squares, numbers, recipe, rounds, engine=ct.Local(devices=devices), initial=start)
                     for rounds in (1, 2))
    apart, found = (state.clients.own["layer0"]["weight"][..., 0] for state in (before, after))
    assert np.ptp(apart, axis=0).min() > 0.1
    np.testing.assert_allclose(found, quadratics.descended(apart.mean(axis=0), 0.5, steps), atol=1e-12)


def test_the_minimiser_of_the_penalised_objective_does_not_move_on_average(
        plain_loop, least_squares, numbers, quadratics):
    """One flip moves x by -(1 - p) step (gradient + penalty (x - mean)) in expectation: 0 at the minimiser."""
    penalty, heads_up, step_size = 1.5, 0.3, 0.05
    # Stationarity, 2(H_i x_i - r_i) + penalty (x_i - mean) = 0, is linear in all models at once.
    system = np.zeros((7, 3, 7, 3))
    for i in range(7):
        system[i, :, i, :] += 2 * quadratics.curvature[i] + penalty * np.eye(3)
        for j in range(7):
            system[i, :, j, :] -= penalty / 7 * np.eye(3)
    best = np.linalg.solve(system.reshape(21, 21), 2 * quadratics.target.reshape(21)).reshape(7, 3)
    loop = plain_loop(least_squares, numbers, ct.l2gd(penalty=penalty, communication=heads_up, step_size=step_size))
    loop.play(1)
    shared = {"layer0": {"weight": jnp.asarray(best.mean(axis=0)[:, None])}}
    head, tail = (loop.message._replace(shared=shared, pulls=jnp.int32(pulls), local_steps=jnp.int32(1 - pulls))
                  for pulls in (1, 0))
    update = jax.jit(lambda message, client, train, index: loop.algorithm.client_update(
        jax.random.key(0), message, client, train.client(index))[0])
    for index, model in enumerate(best):
        client = loop.clients[index]._replace(own={"layer0": {"weight": jnp.asarray(model[:, None])}})
        after_head, after_tail = (update(message, client, loop.train, index)["layer0"]["weight"][:, 0]
                                  for message in (head, tail))
        np.testing.assert_allclose(heads_up * after_head + (1 - heads_up) * after_tail, model, atol=1e-12)


def flips(problem, heads_up, draws=4000):
    """The runs of heads and of tails that many rounds stand for."""
    algorithm = ct.l2gd(communication=heads_up).build(problem, 7)
    server = algorithm.init_server(jax.random.key(0), (), ())
    broadcast = jax.jit(jax.vmap(lambda key: algorithm.broadcast(key, server, None)))
    message = broadcast(jax.random.split(jax.random.key(5), draws))
    return np.asarray(message.pulls), np.asarray(message.local_steps)


@pytest.mark.parametrize("heads_up", [0.2, 0.7])
def test_a_communication_comes_once_in_as_many_flips_as_the_paper_says(heads_up, least_squares):
    """Heads after tails: p(1 - p) of all flips, so a round stands for 1 / (p(1 - p)) of them on average."""
    heads, tails = flips(least_squares, heads_up)
    for run, ends in ((heads, 1 - heads_up), (tails, heads_up)):
        deviation = np.sqrt((1 - ends) / ends**2 / len(run))
        assert run.min() == 1 and abs(run.mean() - 1 / ends) < 4 * deviation
        assert abs((run == 1).mean() - ends) < 4 * np.sqrt(ends * (1 - ends) / len(run))
    both = heads + tails
    assert abs(both.mean() - 1 / (heads_up * (1 - heads_up))) < 4 * both.std() / np.sqrt(len(both))


def test_the_coin_falls_the_same_in_either_precision(least_squares):
    wide = flips(least_squares, 0.2)
    with jax.enable_x64(False):
        np.testing.assert_array_equal(wide, flips(least_squares, 0.2))


def test_a_client_predicts_with_its_own_model_and_a_stranger_with_one_tuned_from_the_mean(
        plain_loop, least_squares, numbers, quadratics):
    recipe = ct.l2gd(penalty=1.0, communication=0.5, step_size=0.05, fit_epochs=3)
    loop = begun(plain_loop(least_squares, numbers, recipe)).play(2, cohort=range(6))
    message = loop.message._replace(shared=loop.server.shared, pulls=jnp.int32(1))

    def model(index):
        model = loop.algorithm.model(jax.random.key(0), message, loop.clients[index], loop.train.client(index))
        return model[0]["layer0"]["weight"][:, 0]

    np.testing.assert_array_equal(model(2), own_models(loop)[2])
    tuned = quadratics.descended(loop.weight, 0.05, 3)[6]
    np.testing.assert_allclose(model(6), loop.weight + (1 - 0.05) * (tuned - loop.weight), atol=1e-12)


@pytest.mark.parametrize("options, part", [
    ({"penalty": -1.0}, "penalty is -1.0"),
    ({"communication": 1.0}, "communication is 1.0"),
    ({"penalty": 40.0, "step_size": 0.1}, "beyond the mean ever further"),
    ({"penalty": 4, "step_size": 1}, "beyond the mean ever further"),
])
def test_settings_that_cannot_converge_are_refused(options, part, least_squares):
    with pytest.raises(InputError, match=part):
        ct.l2gd(**options).build(least_squares, 7)


def test_runs_that_are_one_program_may_differ_in_penalty_and_step(least_squares, numbers):
    recipes = [ct.l2gd(penalty=penalty, step_size=size) for penalty, size in ((0.1, 0.05), (2.0, 0.02))]
    together = ct.rollouts(least_squares, numbers, recipes, rounds=3, seed=[0, 0], precision="float64")
    for recipe, rows in zip(recipes, together, strict=True):
        alone = ct.run(least_squares, numbers, recipe, rounds=3, precision="float64").final
        assert rows[-1]["train.personal.loss.mean"] == pytest.approx(alone["train.personal.loss.mean"], rel=1e-12)
