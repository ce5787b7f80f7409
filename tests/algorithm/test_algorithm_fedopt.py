"""FedOpt's server optimisers by hand: the mean change, negated, is the gradient they see."""

import jax
import numpy as np
import optax
import pytest

import cantons as ct
from cantons.algorithm.parts.training import get_optimizer
from cantons.errors import InputError

pytestmark = pytest.mark.usefixtures("float64")

START = np.array([1.0, -2.0, 0.5])
LOCAL = {"step_size": 0.1, "steps": 2, "batch_size": None}


def begun(loop):
    return loop.begin(({"layer0": {"weight": START[:, None]}}, loop.start[1]))


def mean_change(quadratics, weight):
    return np.average(quadratics.descended(weight, 0.1, 2), axis=0, weights=quadratics.examples) - weight


def test_a_server_step_of_one_is_fedavg(plain_loop, least_squares, numbers):
    averaged = begun(plain_loop(least_squares, numbers, ct.fedavg(**LOCAL))).play(3)
    by_name = ct.fedopt(server_optimizer="sgd", server_step_size=1.0, **LOCAL)
    by_function = ct.fedopt(server_optimizer=optax.sgd, server_step_size=1.0, **LOCAL)
    for recipe in (by_name, by_function):
        stepped = begun(plain_loop(least_squares, numbers, recipe)).play(3)
        np.testing.assert_allclose(stepped.weight, averaged.weight, atol=1e-12)


def test_server_momentum_by_hand(plain_loop, least_squares, numbers, quadratics):
    recipe = ct.fedavgm(momentum=0.8, server_step_size=0.5, **LOCAL)
    weight, velocity = START, np.zeros(3)
    for _ in range(4):
        velocity = 0.8 * velocity + mean_change(quadratics, weight)
        weight = weight + 0.5 * velocity
    np.testing.assert_allclose(begun(plain_loop(least_squares, numbers, recipe)).play(4).weight, weight, atol=1e-12)


def test_no_momentum_is_fedavg(plain_loop, least_squares, numbers):
    averaged = begun(plain_loop(least_squares, numbers, ct.fedavg(**LOCAL))).play(2)
    heavy = begun(plain_loop(least_squares, numbers, ct.fedavgm(momentum=0.0, **LOCAL))).play(2)
    np.testing.assert_allclose(heavy.weight, averaged.weight, atol=1e-12)


SAME_CLIENTS = {"step_size": 0.1, "steps": 3, "batch_size": 4, "client_optimizer": "momentum", "clip_norm": 0.5,
                "server_step_size": 0.7, "weighting": "uniform"}


@pytest.mark.parametrize("recipe, same", [
    (ct.fedopt(**SAME_CLIENTS), ct.fedavg(**SAME_CLIENTS)),
    (ct.fedavgm(momentum=0.0, **SAME_CLIENTS), ct.fedavg(**SAME_CLIENTS)),
    (ct.fedprox(mu=0.0, **SAME_CLIENTS), ct.fedavg(**SAME_CLIENTS)),
    (ct.fedadam(**SAME_CLIENTS), ct.fedopt(server_optimizer=lambda rate: optax.adam(rate, 0.9, 0.99, 1e-3),
                                           **SAME_CLIENTS)),
    (ct.fedyogi(**SAME_CLIENTS), ct.fedopt(server_optimizer=lambda rate: optax.yogi(rate, 0.9, 0.99, 1e-3),
                                           **SAME_CLIENTS)),
], ids=lambda recipe: recipe.name)
def test_all_who_average_have_the_same_clients(recipe, same, plain_loop, least_squares, numbers):
    loops = [begun(plain_loop(least_squares, numbers, one)).play(3) for one in (recipe, same)]
    np.testing.assert_allclose(loops[0].weight, loops[1].weight, atol=1e-12)


def test_the_first_adam_step_is_the_step_size_times_the_sign(plain_loop, least_squares, numbers, quadratics):
    change = mean_change(quadratics, START)
    loop = begun(plain_loop(least_squares, numbers, ct.fedadam(server_step_size=0.02, epsilon=1e-12, **LOCAL))).play(1)
    np.testing.assert_allclose(loop.weight - START, 0.02 * np.sign(change), atol=1e-10)


def test_adam_by_hand(plain_loop, least_squares, numbers, quadratics):
    recipe = ct.fedadam(server_step_size=0.02, beta1=0.8, beta2=0.95, epsilon=1e-3, **LOCAL)
    weight, first, second = START, np.zeros(3), np.zeros(3)
    for number in range(1, 5):
        change = mean_change(quadratics, weight)
        first = 0.8 * first + 0.2 * change
        second = 0.95 * second + 0.05 * change**2
        unbiased = first / (1 - 0.8**number), second / (1 - 0.95**number)
        weight = weight + 0.02 * unbiased[0] / (np.sqrt(unbiased[1]) + 1e-3)
    np.testing.assert_allclose(begun(plain_loop(least_squares, numbers, recipe)).play(4).weight, weight, atol=1e-12)


def test_yogi_by_hand(plain_loop, least_squares, numbers, quadratics):
    """Yogi moves its second moment by a bounded amount; optax starts both moments at 1e-6."""
    recipe = ct.fedyogi(server_step_size=0.02, beta1=0.8, beta2=0.95, epsilon=1e-3, **LOCAL)
    weight, first, second = START, np.full(3, 1e-6), np.full(3, 1e-6)
    for number in range(1, 5):
        gradient = -mean_change(quadratics, weight)
        first = 0.8 * first + 0.2 * gradient
        second = second - 0.05 * np.sign(second - gradient**2) * gradient**2
        unbiased = first / (1 - 0.8**number), second / (1 - 0.95**number)
        weight = weight - 0.02 * unbiased[0] / (np.sqrt(unbiased[1]) + 1e-3)
    np.testing.assert_allclose(begun(plain_loop(least_squares, numbers, recipe)).play(4).weight, weight, atol=1e-12)


def test_a_client_optimiser_starts_afresh_in_every_round(plain_loop, least_squares, numbers, quadratics):
    """Momentum is local work, not state: nothing of it survives the round."""
    recipe = ct.fedavg(step_size=0.1, steps=2, batch_size=None, client_optimizer="momentum", weighting="uniform")
    weight = START
    for _ in range(2):
        once = weight - 0.1 * quadratics.gradients(weight)
        twice = once - 0.1 * (0.9 * quadratics.gradients(weight) + quadratics.gradients(once))
        weight = twice.mean(axis=0)
    loop = begun(plain_loop(least_squares, numbers, recipe)).play(2)
    np.testing.assert_allclose(loop.weight, weight, atol=1e-12)
    assert not [leaf for leaf in jax.tree.leaves(loop.clients) if np.ndim(leaf)]


def test_options_out_of_range_are_refused(least_squares):
    with pytest.raises(InputError, match="momentum is -0.1"):
        ct.fedavgm(momentum=-0.1).build(least_squares, 7)


@pytest.mark.parametrize(("option", "choose"), [
    ("server_optimizer", lambda given: ct.fedopt(server_optimizer=given)),
    ("server_optimizer", lambda given: ct.ffgg(server_optimizer=given)),
    ("client_optimizer", lambda given: ct.fedavg(client_optimizer=given)),
    ("tuner.optimizer", lambda given: ct.ffgg(tuner={"name": "optimizer", "optimizer": given})),
    ("optimizer", lambda given: get_optimizer(given))])
def test_an_optimizer_is_a_known_name_or_a_function_and_anything_else_is_refused_when_it_is_chosen(option, choose):
    choose("adam"), choose(optax.adam)
    with pytest.raises(InputError, match="unknown optimizer 'adamm'. Did you mean 'adam'?"):
        choose("adamm")
    for other in ({"name": "adam"}, ["adam"], 3, None, optax.adam(0.1)):
        with pytest.raises(InputError, match=f"^{option} is .*; give an optimizer: one of 'adagrad', 'adam', "):
            choose(other)
