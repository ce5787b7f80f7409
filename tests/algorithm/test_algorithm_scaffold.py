"""SCAFFOLD on least squares: the control variates' bookkeeping, and the drift they take away."""

import jax
import numpy as np
import pytest

import cantons as ct
from cantons.errors import InputError

pytestmark = pytest.mark.usefixtures("float64")

START = np.array([1.0, -2.0, 0.5])
STEP_SIZE, STEPS = 0.03, 5


def begun(loop, weight=START):
    return loop.begin(({"layer0": {"weight": weight[:, None]}}, loop.start[1]))


def initial(weight):
    return {"layer0": {"weight": weight[:, None]}}, {"layer0": {"weight": None}}


def controls(loop):
    """c_i, one row per client."""
    return np.array([client.own_control["layer0"]["weight"][:, 0] for client in loop.clients])


def control(loop):
    return np.asarray(loop.server.control["layer0"]["weight"][:, 0])


@pytest.mark.parametrize("option", ["I", "II"])
def test_with_one_step_and_everybody_there_it_is_gradient_descent(
        option, plain_loop, played, least_squares, numbers, quadratics):
    recipe = ct.scaffold(option=option, step_size=0.1, steps=1, batch_size=None)
    loop = begun(plain_loop(least_squares, numbers, recipe)).play(5)
    end = quadratics.mean().descended(START, 0.1, 5)[0]
    np.testing.assert_allclose(loop.weight, end, atol=1e-12)
    # And each client's control is its gradient at the model before the last step.
    before = quadratics.mean().descended(START, 0.1, 4)[0]
    np.testing.assert_allclose(controls(loop), quadratics.gradients(before), atol=1e-12)
    # On two devices too.
    state = played(least_squares, numbers, recipe, 5, engine=ct.Local(devices=2), initial=initial(START))
    np.testing.assert_allclose(state.server.shared["layer0"]["weight"][:, 0], end, atol=1e-12)
    np.testing.assert_allclose(state.clients.own_control["layer0"]["weight"][..., 0], quadratics.gradients(before),
                               atol=1e-12)


@pytest.mark.parametrize("weighting", ["uniform", "examples"])
@pytest.mark.parametrize("option", ["I", "II"])
def test_the_servers_control_is_the_mean_of_all_controls_even_after_lost_uploads(
        option, weighting, plain_loop, least_squares, numbers):
    recipe = ct.scaffold(option=option, step_size=STEP_SIZE, steps=3, batch_size=4, weighting=weighting)
    loop = begun(plain_loop(least_squares, numbers, recipe))
    for cohort, lost in (((0, 3), ()), ((1, 2, 3, 6), (2,)), ((5,), (5,)), (range(7), (0, 6))):
        loop.play(1, cohort, lost)
        np.testing.assert_allclose(control(loop), controls(loop).mean(axis=0), atol=1e-12)
    assert np.abs(controls(loop)[5]).max() > 0  # it lost one upload, and came again


def test_the_first_round_moves_the_server_as_fedavg_does_under_either_option(plain_loop, least_squares, numbers):
    options = {"step_size": STEP_SIZE, "steps": STEPS, "batch_size": None}
    averaged = begun(plain_loop(least_squares, numbers, ct.fedavg(weighting="uniform", **options))).play(1)
    for option in ("I", "II"):
        loop = begun(plain_loop(least_squares, numbers, ct.scaffold(option=option, **options))).play(1)
        np.testing.assert_allclose(loop.weight, averaged.weight, atol=1e-12)


def test_weighting_by_examples_weighs_the_changes_as_fedavg_does(plain_loop, least_squares, numbers):
    options = {"step_size": STEP_SIZE, "steps": STEPS, "batch_size": None, "weighting": "examples"}
    averaged = begun(plain_loop(least_squares, numbers, ct.fedavg(**options))).play(1, cohort=(1, 2, 5))
    corrected = begun(plain_loop(least_squares, numbers, ct.scaffold(**options))).play(1, cohort=(1, 2, 5))
    np.testing.assert_allclose(corrected.weight, averaged.weight, atol=1e-12)
    assert np.abs(control(corrected) - controls(corrected).mean(axis=0)).max() < 1e-12


def test_weighting_by_examples_leaves_the_limit_where_it_is(played, least_squares, numbers, quadratics):
    """Where nothing moves any more, c_i is client i's gradient, so every client steps along c, their plain mean."""
    recipe = ct.scaffold(step_size=STEP_SIZE, steps=STEPS, batch_size=None, weighting="examples")
    state = played(least_squares, numbers, recipe, 800, initial=initial(START))
    optimum, weighted = quadratics.mean().optimum, quadratics.mean(quadratics.examples).optimum
    np.testing.assert_allclose(state.server.shared["layer0"]["weight"][:, 0], optimum, atol=1e-10)
    assert np.linalg.norm(weighted - optimum) > 0.01


def test_under_option_two_the_server_moves_by_all_the_gradients_met_on_the_way(plain_loop, least_squares, numbers):
    """sum_i (c - c_i) = 0, so corrections cancel: x moves by -step K mean(c_i), and c_i is now a mean gradient."""
    loop = begun(plain_loop(least_squares, numbers, ct.scaffold(step_size=STEP_SIZE, steps=STEPS, batch_size=3)))
    for _ in range(3):
        before = loop.weight
        loop.play(1)
        np.testing.assert_allclose(loop.weight - before, -STEP_SIZE * STEPS * controls(loop).mean(axis=0), atol=1e-12)


def test_clients_alike_have_nothing_to_correct(plain_loop):
    random = np.random.default_rng(4)
    inputs, targets = random.normal(size=(6, 3)), random.normal(size=6)
    data = ct.from_clients({name: (inputs, targets) for name in "abc"}, test=0)
    problem = ct.regression(data, ct.linear(bias=False))
    options = {"step_size": STEP_SIZE, "steps": STEPS, "batch_size": None}
    averaged = begun(plain_loop(problem, data, ct.fedavg(weighting="uniform", **options))).play(3)
    corrected = begun(plain_loop(problem, data, ct.scaffold(**options))).play(3)
    np.testing.assert_allclose(corrected.weight, averaged.weight, atol=1e-12)


@pytest.mark.parametrize("option", ["I", "II"])
def test_drift_is_gone_so_the_limit_is_the_optimum(option, played, least_squares, numbers, quadratics):
    recipe = ct.scaffold(option=option, step_size=STEP_SIZE, steps=STEPS, batch_size=None)
    state = played(least_squares, numbers, recipe, 800, initial=initial(START))
    optimum = quadratics.mean().optimum
    np.testing.assert_allclose(state.server.shared["layer0"]["weight"][:, 0], optimum, atol=1e-10)
    np.testing.assert_allclose(state.clients.own_control["layer0"]["weight"][..., 0],
                               quadratics.gradients(optimum), atol=1e-9)


def test_fedavg_drifts_to_another_limit(played, least_squares, numbers, quadratics):
    """It stops where the mean of K-step descents is the identity: mean[(I - Q)(w - w_i*)] = 0."""
    recipe = ct.fedavg(step_size=STEP_SIZE, steps=STEPS, batch_size=None, weighting="uniform")
    state = played(least_squares, numbers, recipe, 800, initial=initial(START))
    left = np.eye(3) - np.linalg.matrix_power(np.eye(3) - 2 * STEP_SIZE * quadratics.curvature, STEPS)
    own = np.linalg.solve(quadratics.curvature, quadratics.target[..., None])
    fixed = np.linalg.solve(left.mean(axis=0), (left @ own).mean(axis=0))[:, 0]
    np.testing.assert_allclose(state.server.shared["layer0"]["weight"][:, 0], fixed, atol=1e-10)
    assert np.linalg.norm(fixed - quadratics.mean().optimum) > 0.01


def test_the_optimum_with_matching_controls_is_a_fixed_point(plain_loop, least_squares, numbers, quadratics):
    optimum = quadratics.mean().optimum
    loop = begun(plain_loop(least_squares, numbers, ct.scaffold(step_size=STEP_SIZE, steps=STEPS, batch_size=None)),
                 optimum)
    for client, gradient in enumerate(quadratics.gradients(optimum)):
        own_control = jax.tree.map(lambda leaf, gradient=gradient: gradient[:, None], loop.server.shared)
        loop.clients[client] = loop.clients[client]._replace(own_control=own_control)
    loop.play(1, cohort=(2, 5)).play(2)
    np.testing.assert_allclose(loop.weight, optimum, atol=1e-12)
    np.testing.assert_allclose(controls(loop), quadratics.gradients(optimum), atol=1e-12)


def test_the_private_part_is_trained_without_a_correction(plain_loop, numbers, own_rows):
    """In the first round all corrections are 0 and the bias moves as under FedAvg; later only the weight's do."""
    problem = ct.regression(numbers, ct.linear(), split="*/bias")
    loop = plain_loop(problem, numbers, ct.scaffold(step_size=0.1, steps=1, batch_size=None)).play(1)
    weight, biases = loop.weight, [client.private["layer0"]["bias"][0] for client in loop.clients]
    loop.play(1)
    for (x, y), before, client in zip(own_rows(numbers), biases, loop.clients, strict=True):
        after = before - 0.1 * 2 * (x @ weight + before - y).mean()
        np.testing.assert_allclose(client.private["layer0"]["bias"][0], after, atol=1e-12)


def test_there_are_two_options_and_no_third(least_squares):
    with pytest.raises(InputError, match="option is 'III'"):
        ct.scaffold(option="III").build(least_squares, 7)
