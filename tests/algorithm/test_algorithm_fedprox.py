"""FedProx on least squares: the local objective gains mu/2 ||w - w_t||^2, and stays a quadratic."""

import jax
import numpy as np
import pytest

import cantons as ct
from cantons.errors import InputError

pytestmark = pytest.mark.usefixtures("float64")

START = np.array([1.0, -2.0, 0.5])
STEPS, STEP_SIZE, MU = 5, 0.05, 0.7


def begun(loop, weight=START):
    return loop.begin(({"layer0": {"weight": weight[:, None]}}, loop.start[1]))


def test_without_a_pull_it_is_fedavg(plain_loop, least_squares, numbers):
    options = {"step_size": 0.1, "epochs": 2, "batch_size": 4}
    averaged = begun(plain_loop(least_squares, numbers, ct.fedavg(**options))).play(3)
    pulled = begun(plain_loop(least_squares, numbers, ct.fedprox(mu=0.0, **options))).play(3)
    np.testing.assert_allclose(averaged.weight, pulled.weight, atol=1e-12)


def test_its_fixed_point_is_the_one_found_by_hand(plain_loop, least_squares, numbers, quadratics):
    """K steps from w end at v + Q(w - v), where v solves A v = 2r + mu w with A = 2H + mu, and Q = (I - step A)^K.

    The mean of these ends is w itself exactly where mean[(I - Q)(w - v)] = 0, a linear equation in w.
    """
    pull = 2 * quadratics.curvature + MU * np.eye(3)
    left = np.eye(3) - np.linalg.matrix_power(np.eye(3) - STEP_SIZE * pull, STEPS)  # I - Q
    solved = np.linalg.inv(pull)
    equation = (left @ (np.eye(3) - MU * solved)).mean(axis=0)
    fixed = np.linalg.solve(equation, np.einsum("ijk,ik->j", left @ solved, 2 * quadratics.target) / 7)
    recipe = ct.fedprox(mu=MU, step_size=STEP_SIZE, steps=STEPS, batch_size=None, weighting="uniform")
    loop = begun(plain_loop(least_squares, numbers, recipe), fixed).play(3)
    np.testing.assert_allclose(loop.weight, fixed, atol=1e-12)
    assert np.linalg.norm(fixed - quadratics.mean().optimum) > 1e-3  # and it is not the optimum


def test_the_first_local_step_feels_no_pull(plain_loop, least_squares, numbers):
    """The pull is towards where the client starts, so it is 0 there."""
    options = {"step_size": 0.1, "steps": 1, "batch_size": None}
    averaged = begun(plain_loop(least_squares, numbers, ct.fedavg(**options))).play(2)
    pulled = begun(plain_loop(least_squares, numbers, ct.fedprox(mu=5.0, **options))).play(2)
    np.testing.assert_allclose(averaged.weight, pulled.weight, atol=1e-12)


def test_a_stronger_pull_keeps_every_client_nearer_to_where_it_started(plain_loop, least_squares, numbers):
    def distances(mu):
        loop = begun(plain_loop(least_squares, numbers, ct.fedprox(mu=mu, step_size=0.02, steps=20, batch_size=None)))
        changes = [upload.change for upload in loop.play(1).uploads.values()]
        return np.array([np.linalg.norm(leaf) for leaf in jax.tree.leaves(changes)])

    assert (distances(8.0) < distances(1.0)).all() and (distances(1.0) < distances(0.0)).all()


# Predicting with the copy that was not averaged yet, as in appendix E.2 of "Federated Residual Learning"


LOCAL = {"step_size": STEP_SIZE, "steps": STEPS, "batch_size": None, "weighting": "uniform"}


def predicting(loop, index, step_size=STEP_SIZE):
    message = loop.message._replace(shared=loop.server.shared, step_size=step_size)
    parts = loop.algorithm.model(jax.random.key(0), message, loop.clients[index], loop.train.client(index))
    return parts[0]["layer0"]["weight"][:, 0]


def test_a_client_may_predict_with_its_own_copy_while_the_shared_model_stays_what_it_was(
        plain_loop, least_squares, numbers, quadratics):
    shared, local = (begun(plain_loop(least_squares, numbers, ct.fedprox(mu=MU, predict_with=which, **LOCAL))).play(2)
                     for which in ("shared", "local"))
    before = shared.weight
    for loop in (shared, local):
        loop.play(1)
    np.testing.assert_array_equal(shared.weight, local.weight)
    pull = 2 * quadratics.curvature + MU * np.eye(3)
    centres = np.linalg.solve(pull, (2 * quadratics.target + MU * before)[..., None])[..., 0]
    shrunk = np.linalg.matrix_power(np.eye(3) - STEP_SIZE * pull, STEPS)
    copies = centres + np.einsum("ijk,ik->ij", shrunk, before - centres)
    for index in range(7):
        np.testing.assert_allclose(predicting(local, index), copies[index], atol=1e-12)
        np.testing.assert_array_equal(predicting(shared, index), shared.weight)
    np.testing.assert_allclose(local.weight, copies.mean(axis=0), atol=1e-12)


def test_without_a_pull_copies_have_another_loss_than_fedavgs_average(plain_loop, least_squares, numbers, quadratics):
    averaged = begun(plain_loop(least_squares, numbers, ct.fedavg(**LOCAL))).play(3)
    local = begun(plain_loop(least_squares, numbers, ct.fedprox(mu=0.0, predict_with="local", **LOCAL))).play(3)
    np.testing.assert_allclose(local.weight, averaged.weight, atol=1e-12)

    def losses(points):
        return np.einsum("ij,ijk,ik->i", points, quadratics.curvature, points) - 2 * (points * quadratics.target).sum(1)

    own = losses(np.array([predicting(local, index) for index in range(7)]))
    assert (own < losses(np.tile(averaged.weight, (7, 1)))).all()


def test_a_stranger_trains_a_copy_first_and_an_absent_client_keeps_its_old_one(
        plain_loop, least_squares, numbers, quadratics):
    loop = begun(plain_loop(least_squares, numbers, ct.fedprox(mu=0.0, predict_with="local", **LOCAL)))
    loop.play(1, cohort=range(6))
    kept = predicting(loop, 2)
    loop.play(1, cohort=(0, 4))
    np.testing.assert_array_equal(predicting(loop, 2), kept)
    # A schedule may have come to its end, and sends a step size of 0 by then.
    trained = quadratics.descended(loop.weight, STEP_SIZE, STEPS)[6]
    np.testing.assert_allclose(predicting(loop, 6, step_size=0.0), trained, atol=1e-12)


def test_it_predicts_with_one_of_the_two(least_squares):
    with pytest.raises(InputError, match="predict_with is 'both'"):
        ct.fedprox(predict_with="both").build(least_squares, 7)


def test_a_negative_pull_is_refused(least_squares):
    with pytest.raises(InputError, match="mu is -1"):
        ct.fedprox(mu=-1).build(least_squares, 7)
