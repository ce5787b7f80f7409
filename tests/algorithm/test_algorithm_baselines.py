"""The two ends of the scale, each a plain gradient descent that can be written down."""

import jax
import numpy as np
import pytest

import cantons as ct

pytestmark = pytest.mark.usefixtures("float64")

START = np.array([1.0, -2.0, 0.5])


def begun(loop):
    return loop.begin(({"layer0": {"weight": START[:, None]}}, loop.start[1]))


def test_independent_clients_descend_each_on_its_own_loss(plain_loop, least_squares, numbers, quadratics):
    recipe = ct.independent(step_size=0.1, steps=2, batch_size=None)
    loop = begun(plain_loop(least_squares, numbers, recipe)).play(2).play(1, cohort=(0, 4))
    own = np.array([client.own["layer0"]["weight"][:, 0] for client in loop.clients])
    expected = quadratics.descended(START, 0.1, 4)
    expected[[0, 4]] = quadratics.descended(START, 0.1, 6)[[0, 4]]
    np.testing.assert_allclose(own, expected, atol=1e-12)
    np.testing.assert_array_equal(loop.weight, START)  # the server learns nothing


def test_an_independent_stranger_trains_before_it_predicts(plain_loop, least_squares, numbers, quadratics):
    loop = begun(plain_loop(least_squares, numbers, ct.independent(step_size=0.1, batch_size=None, fit_epochs=4)))
    loop.play(1, cohort=(1, 2))

    def model(index):
        model = loop.algorithm.model(jax.random.key(0), loop.message, loop.clients[index], loop.train.client(index))
        return model[0]["layer0"]["weight"][:, 0]

    np.testing.assert_allclose(model(0), quadratics.descended(START, 0.1, 4)[0], atol=1e-12)
    np.testing.assert_allclose(model(1), quadratics.descended(START, 0.1, 1)[1], atol=1e-12)


def test_independent_clients_may_train_their_private_part_alone(plain_loop, numbers):
    problem = ct.regression(numbers, ct.linear(), split="*/bias")
    recipe = ct.independent(parts="private", step_size=0.1, epochs=2, batch_size=None, fit_epochs=3)
    loop = plain_loop(problem, numbers, recipe).play(2, cohort=(0, 1, 2))
    for index, steps in ((0, 4), (1, 4), (4, 3)):  # the last has never acted, and tunes before it predicts
        shared, private, *_ = loop.algorithm.model(jax.random.key(0), loop.message, loop.clients[index],
                                                   loop.train.client(index))
        expected = loop.start[1]
        for _ in range(steps):
            gradient = jax.grad(problem.loss, 1)(loop.start[0], expected, loop.train.client(index).full())
            expected = jax.tree.map(lambda leaf, slope: leaf - 0.1 * slope, expected, gradient)
        np.testing.assert_allclose(private["layer0"]["bias"], expected["layer0"]["bias"], atol=1e-12)
        np.testing.assert_array_equal(shared["layer0"]["weight"], loop.start[0]["layer0"]["weight"])
        assert not jax.tree.leaves(loop.clients[index].own)  # no copy of the shared part


def test_central_with_full_batches_is_gradient_descent_on_the_pooled_data(
        plain_loop, least_squares, numbers, quadratics):
    loop = begun(plain_loop(least_squares, numbers, ct.central(step_size=0.1, steps=3, batch_size=None))).play(2)
    pooled = quadratics.mean(quadratics.examples)
    np.testing.assert_allclose(loop.weight, pooled.descended(START, 0.1, 6)[0], atol=1e-12)


def test_central_without_steps_makes_passes_over_everybodys_examples(plain_loop, least_squares, numbers, quadratics):
    recipe = ct.central(step_size=0.1, steps=None, epochs=3, batch_size=len(numbers.train.inputs))
    loop = begun(plain_loop(least_squares, numbers, recipe)).play(2)
    pooled = quadratics.mean(quadratics.examples)
    np.testing.assert_allclose(loop.weight, pooled.descended(START, 0.1, 6)[0], atol=1e-12)


def test_central_trains_private_parts_as_one_part_common_to_all(plain_loop, numbers):
    """With a private bias or a shared one, everything in one place is the same linear regression."""
    recipe = ct.central(step_size=0.1, steps=3, batch_size=None)
    split, whole = (plain_loop(ct.regression(numbers, ct.linear(), split=split), numbers, recipe).play(2)
                    for split in ("*/bias", "none"))
    np.testing.assert_allclose(split.weight, whole.weight, atol=1e-12)
    np.testing.assert_allclose(split.server.private["layer0"]["bias"], whole.server.shared["layer0"]["bias"],
                               atol=1e-12)
    shared, private = split.algorithm.model(jax.random.key(0), split.message, (), None)
    assert shared is split.message.shared and private is split.message.private
