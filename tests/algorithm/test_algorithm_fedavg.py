"""FedAvg and its kin on least squares, where every local path and its limit are known by hand."""

import jax
import numpy as np
import pytest
from starting import scores, start

import cantons as ct
from cantons.errors import InputError

pytestmark = pytest.mark.usefixtures("float64")

START = np.array([1.0, -2.0, 0.5])
ONE_STEP = {"steps": 1, "batch_size": None}


def begun(loop, weight=START):
    """From a point that is nobody's optimum."""
    return loop.begin(({"layer0": {"weight": weight[:, None]}}, loop.start[1]))


def test_one_full_step_with_uniform_weights_is_gradient_descent_on_the_mean_loss(
        plain_loop, least_squares, numbers, quadratics):
    loop = begun(plain_loop(least_squares, numbers, ct.fedavg(step_size=0.1, weighting="uniform", **ONE_STEP))).play(5)
    np.testing.assert_allclose(loop.weight, quadratics.mean().descended(START, 0.1, 5)[0], atol=1e-12)


def test_one_full_step_weighted_by_examples_is_gradient_descent_on_the_pooled_data(
        plain_loop, least_squares, numbers, quadratics):
    loop = begun(plain_loop(least_squares, numbers, ct.fedavg(step_size=0.1, **ONE_STEP))).play(5)
    pooled = quadratics.mean(quadratics.examples)
    np.testing.assert_allclose(loop.weight, pooled.descended(START, 0.1, 5)[0], atol=1e-12)


def test_fedsgd_is_gradient_descent_on_the_pooled_data(plain_loop, least_squares, numbers, quadratics):
    loop = begun(plain_loop(least_squares, numbers, ct.fedsgd(step_size=0.1))).play(3)
    pooled = quadratics.mean(quadratics.examples)
    np.testing.assert_allclose(loop.weight, pooled.descended(START, 0.1, 3)[0], atol=1e-12)


@pytest.mark.parametrize("server_step_size", [1.0, 0.5])
def test_several_local_steps_average_where_the_clients_get_to(server_step_size, plain_loop, least_squares, numbers,
                                                              quadratics):
    recipe = ct.fedavg(step_size=0.1, steps=4, batch_size=None, server_step_size=server_step_size)
    weight = START
    for _ in range(2):
        reached = np.average(quadratics.descended(weight, 0.1, 4), axis=0, weights=quadratics.examples)
        weight = weight + server_step_size * (reached - weight)
    np.testing.assert_allclose(begun(plain_loop(least_squares, numbers, recipe)).play(2).weight, weight, atol=1e-12)


def test_epochs_of_full_batches_are_as_many_steps(plain_loop, least_squares, numbers, quadratics):
    loop = begun(plain_loop(least_squares, numbers, ct.fedavg(step_size=0.1, epochs=3, batch_size=None))).play(1)
    reached = quadratics.descended(START, 0.1, 3)
    np.testing.assert_allclose(loop.weight, np.average(reached, axis=0, weights=quadratics.examples), atol=1e-12)


def test_a_batch_larger_than_every_client_is_a_full_batch(plain_loop, least_squares, numbers, quadratics):
    loop = begun(plain_loop(least_squares, numbers, ct.fedavg(step_size=0.1, batch_size=32))).play(1)
    reached = quadratics.descended(START, 0.1, 1)
    np.testing.assert_allclose(loop.weight, np.average(reached, axis=0, weights=quadratics.examples), atol=1e-12)


def test_clipping_keeps_the_direction_of_a_large_gradient_and_bounds_its_length(
        plain_loop, least_squares, numbers, quadratics):
    loop = begun(plain_loop(least_squares, numbers, ct.fedavg(step_size=0.1, clip_norm=0.5, **ONE_STEP))).play(1)
    gradients = quadratics.gradients(START)
    lengths = np.linalg.norm(gradients, axis=1, keepdims=True)
    assert (lengths > 0.5).any()
    moves = np.array([upload.change["layer0"]["weight"][:, 0] for upload in loop.uploads.values()])
    np.testing.assert_allclose(moves, -0.1 * gradients * np.minimum(1, 0.5 / lengths), atol=1e-12)
    assert (np.linalg.norm(moves, axis=1) <= 0.1 * 0.5 + 1e-12).all()


def test_weights_in_the_upload_are_the_examples_or_all_one(plain_loop, least_squares, numbers):
    for weighting, expected in (("examples", numbers.train.sizes), ("uniform", np.ones(7))):
        loop = plain_loop(least_squares, numbers, ct.fedavg(weighting=weighting, **ONE_STEP)).play(1)
        np.testing.assert_array_equal([upload.weight for upload in loop.uploads.values()], expected)


@pytest.mark.parametrize("options, part", [
    ({"weighting": "size"}, "'size'; give one of 'examples', 'uniform'"),
    ({"step_size": 0.0}, "step_size is 0.0"),
    ({"epochs": 0}, "epochs is 0"),
    ({"steps": 0}, "steps is 0"),
    ({"batch_size": 0}, "batch_size is 0"),
    ({"clip_norm": 0.0}, "clip_norm is 0.0"),
    ({"server_step_size": 0.0}, "server_step_size is 0.0"),
    ({"fit_epochs": 0}, "fit_epochs is 0"),
    ({"client_optimizer": "sdg"}, "Did you mean 'sgd'?"),
    ({"step_size": {"name": "linaer", "peak": 0.1, "rounds": 3}}, "Did you mean 'linear'?"),
])
def test_an_option_out_of_range_is_refused_by_name(options, part, least_squares):
    with pytest.raises(InputError, match=part.replace("?", r"\?")):
        ct.fedavg(**options).build(least_squares, 7)


# Fine-tuning


def test_the_shared_model_of_fine_tuning_is_fedavgs_bit_for_bit(plain_loop, least_squares, numbers):
    options = {"step_size": 0.1, "epochs": 2, "batch_size": 4}
    plain = begun(plain_loop(least_squares, numbers, ct.fedavg(**options))).play(3)
    tuned = begun(plain_loop(least_squares, numbers, ct.fedavg_finetune(**options))).play(3)
    np.testing.assert_array_equal(plain.weight, tuned.weight)


def test_fine_tuning_descends_from_the_average_on_the_clients_own_examples(
        plain_loop, least_squares, numbers, quadratics):
    recipe = ct.fedavg_finetune(step_size=0.1, tune_step_size=0.03, tune_epochs=6, **ONE_STEP)
    loop = begun(plain_loop(least_squares, numbers, recipe)).play(2)
    expected = quadratics.descended(loop.weight, 0.03, 6)
    for index in (0, 3):
        shared, _ = _model(loop, index)
        np.testing.assert_allclose(shared["layer0"]["weight"][:, 0], expected[index], atol=1e-12)


# A private part: y = x.w + b_i, the bias stays at its client


@pytest.fixture(scope="module")
def own_bias(numbers):
    return ct.regression(numbers, ct.linear(), split="*/bias")


def test_both_parts_move_in_the_same_steps_and_the_private_one_stays_at_home(plain_loop, own_bias, numbers, own_rows):
    loop = plain_loop(own_bias, numbers, ct.fedavg(step_size=0.1, **ONE_STEP))
    weight, biases = np.zeros(3), np.zeros(7)
    for cohort in (range(7), (1, 4)):
        loop.play(1, cohort=cohort)
        moves, sizes = [], []
        for index in cohort:
            x, y = own_rows(numbers)[index]
            errors = x @ weight + biases[index] - y
            moves.append(-0.1 * 2 * x.T @ errors / len(x))
            biases[index] -= 0.1 * 2 * errors.mean()
            sizes.append(len(x))
        weight = weight + np.average(moves, axis=0, weights=sizes)
    np.testing.assert_allclose(loop.weight, weight, atol=1e-12)
    np.testing.assert_allclose([client.private["layer0"]["bias"][0] for client in loop.clients], biases, atol=1e-12)
    assert loop.server.shared["layer0"]["bias"] is None


def test_a_client_that_never_acted_fits_its_private_part_while_the_shared_part_stands_still(
        plain_loop, own_bias, numbers, own_rows):
    """On the bias alone the loss is (b - b*)^2 + constant, so k steps shrink the distance by (1 - 2 step)^k."""
    loop = plain_loop(own_bias, numbers, ct.fedavg(step_size=0.1, fit_epochs=3, **ONE_STEP)).play(4, cohort=(0, 1, 2))
    x, y = own_rows(numbers)[5]
    best = (y - x @ loop.weight).mean()
    shared, private = _model(loop, 5)
    np.testing.assert_allclose(private["layer0"]["bias"][0], best * (1 - 0.8**3), atol=1e-12)
    np.testing.assert_array_equal(shared["layer0"]["weight"][:, 0], loop.weight)


def test_a_client_that_acted_predicts_with_the_private_part_it_has(plain_loop, own_bias, numbers):
    loop = plain_loop(own_bias, numbers, ct.fedavg(**ONE_STEP)).play(2, cohort=(0, 1))
    _, private = _model(loop, 1)
    np.testing.assert_array_equal(private["layer0"]["bias"], loop.clients[1].private["layer0"]["bias"])


def test_a_new_client_is_personalised_on_its_training_rows_whatever_its_test_rows_are(labels):
    problem = ct.logistic(labels, split="*/bias")
    algorithm = ct.fedavg(batch_size=None, fit_epochs=4).build(problem, 7)
    found = []
    for data in (labels, _other_test_rows(labels)):
        session = start(ct.Local(devices=1), problem, algorithm, ct.rounds().build(7), data, None, 0)
        found.append(scores(session, session.begin(), "new"))
    before, after = found
    jax.tree.map(np.testing.assert_array_equal, before["train"], after["train"])
    assert (before["test"]["personal"]["loss"] != after["test"]["personal"]["loss"]).all()
    # And personalised it was: fitting lowers the loss on the rows it looks at.
    assert (before["train"]["personal"]["loss"] < before["train"]["shared"]["loss"]).all()


def _model(loop, index):
    """The parts client `index` would predict with now."""
    message = loop.algorithm.broadcast(jax.random.key(0), loop.server, None)
    return jax.jit(lambda message, client, train: loop.algorithm.model(
        jax.random.key(0), message, client, train.client(index))[:2])(message, loop.clients[index], loop.train)


def _other_test_rows(data):
    def shifted(population):
        test = population.test
        moved = type(test)(test.inputs, (test.targets + 1) % 3, test.starts, test.sizes, test.longest, test.uniform)
        return type(population)(population.train, moved, population.names)

    return type(data)(shifted(data.clients), shifted(data.new), classes=data.classes)
