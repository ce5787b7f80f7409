"""FedRep, FedPer, Ditto and pFedMe: the methods they reduce to, and closed forms on least squares."""

import jax
import numpy as np
import pytest

import cantons as ct

pytestmark = pytest.mark.usefixtures("float64")
KEY = jax.random.key(0)
ETA, LAMBDA, WEIGHT = 0.07, 0.8, np.array([1.0, -2.0, 0.5])
START = {"layer0": {"weight": WEIGHT[:, None]}}, {"layer0": {"weight": None}}
BOTH = {"layer0": {"weight": WEIGHT[:, None]}}, {"layer0": {"weight": np.array([[0.3], [-0.4]])}}


@pytest.fixture(scope="module")
def parted(numbers):
    """The mean of (x theta + x[1, 2] w - y)^2."""
    return parted_of(numbers)


def parted_of(data):
    model = ct.linear(bias=False)
    return ct.residual(data, shared_features=[0, 1, 2], private_features=[1, 2], shared_model=model,
                       private_model=model)


def weight(tree):
    return np.asarray(tree["layer0"]["weight"])[..., 0]


def same(one, other, digits=1e-12):
    jax.tree.map(lambda left, right: np.testing.assert_allclose(left, right, rtol=0, atol=digits), one, other)


# FedPer and FedRep


def test_fedper_is_fedavg_of_the_shared_part(played, parted, numbers):
    options = {"step_size": ETA, "epochs": 2, "batch_size": 4}
    one, other = (played(parted, numbers, build(**options), 3, initial=BOTH) for build in (ct.fedper, ct.fedavg))
    same(one, other, 0)


def test_fedper_is_fedsim_with_equal_rates_that_counts_examples(played, parted, numbers):
    per = played(parted, numbers, ct.fedper(step_size=ETA, epochs=3, batch_size=None), 3, initial=BOTH)
    sim = played(parted, numbers, ct.fedsim(step_size=ETA, private_step_size=ETA, steps=3, batch_size=None,
                                            weighting="examples"), 3, initial=BOTH)
    same((per.server.shared, per.clients.private), (sim.server.shared, sim.clients.private))


def test_fedper_tells_the_shared_part_s_gradient_where_clients_predict_and_what_was_clipped(parted, numbers, own_rows):
    recipe = ct.fedper(step_size=ETA, epochs=1, batch_size=None, clip_norm=1e-3)
    result = ct.run(parted, numbers, recipe, rounds=1, initial=BOTH, precision="float64")
    theta, clients = weight(result.model.state.server.shared), weight(result.model.state.clients.private)
    norms = [np.linalg.norm(2 / len(y) * x.T @ (x @ theta + x[:, 1:] @ w - y))
             for (x, y), w in zip(own_rows(numbers), clients, strict=True)]
    np.testing.assert_allclose(result.clients["clients.gradient_norm"], norms, rtol=1e-10)
    np.testing.assert_array_equal(result.clients["clients.clipped"], 1)


def test_fedrep_is_fedalt_with_many_passes_for_the_head(played, parted, numbers):
    rates = {"step_size": ETA, "private_step_size": 0.2, "batch_size": None}
    rep = played(parted, numbers, ct.fedrep(head_epochs=4, **rates), 3, initial=BOTH)
    alt = played(parted, numbers, ct.fedalt(private_steps=4, steps=1, **rates), 3, initial=BOTH)
    same((rep.server.shared, rep.clients.private), (alt.server.shared, alt.clients.private))


@pytest.mark.parametrize("step_size", [0.03, {"name": "step_decay", "start": 0.2, "factor": 0.5, "every": 1}])
@pytest.mark.parametrize("build", [ct.fedrep, ct.fedalt, ct.fedsim, ct.local_ffgg])
def test_the_private_step_is_the_shared_one_unless_given(played, parted, numbers, build, step_size):
    left_open, given, other = (played(parted, numbers, build(step_size=step_size, batch_size=None, **more), 3,
                                      initial=BOTH).server.shared
                               for more in ({}, {"private_step_size": step_size}, {"private_step_size": 0.1}))
    same(left_open, given, 0)
    assert np.abs(weight(given) - weight(other)).max() > 1e-3


def first_fit(problem, data, recipe):
    """The private part with which a client predicts that has never acted, from WEIGHT and BOTH's private part."""
    if recipe.name == "parallel_training":
        problem = ct.with_central_loss(problem)
    algorithm = recipe.build(problem, data.population)
    message = algorithm.broadcast(KEY, algorithm.init_server(KEY, *BOTH), None)
    return weight(algorithm.model(KEY, message, algorithm.init_client(KEY, *BOTH), data.train.client(3))[1])


@pytest.mark.parametrize("build", [ct.fedrep, ct.fedalt, ct.fedsim])
def test_a_client_that_never_acted_is_fitted_with_the_private_step(parted, numbers, build):
    one, same_step, other = (first_fit(parted, numbers, build(batch_size=None, **steps)) for steps in (
        {"step_size": 0.03}, {"step_size": 0.2, "private_step_size": 0.03}, {"step_size": 0.2}))
    assert (one == same_step).all() and np.abs(one - other).max() > 1e-3


@pytest.mark.parametrize("build", [ct.fedrep, ct.fedalt, ct.fedsim, ct.fedper, ct.fedadam, ct.parallel_training])
def test_the_first_fit_of_a_client_is_clipped_as_its_other_steps_are(parted, numbers, build):
    clipped, free = (first_fit(parted, numbers, build(step_size=0.1, batch_size=None, clip_norm=bound))
                     for bound in (1e-9, None))
    began = weight(BOTH[1])
    same(clipped, began, 1e-8)
    assert np.abs(free - began).max() > 1e-2


@pytest.mark.parametrize("build", [ct.fedper, ct.parallel_training])
def test_the_first_fit_of_a_client_has_its_optimizer(parted, numbers, build):
    adam, sgd = (first_fit(parted, numbers, build(step_size=0.1, batch_size=None, client_optimizer=name))
                 for name in ("adam", "sgd"))
    assert np.abs(adam - sgd).max() > 1e-3


def test_a_pass_of_fedrep_has_as_many_steps_as_batches(played):
    """A client whose rows are all alike: every batch has the gradient of all rows."""
    x, y = np.array([1.0, 0.5, -1.0]), 2.0
    data = ct.from_clients({"c": (np.tile(x, (10, 1)), np.full(10, y))}, test=0)
    recipe = ct.fedrep(head_epochs=2, step_size=ETA, private_step_size=0.2, batch_size=4)
    found = played(parted_of(data), data, recipe, 1, initial=BOTH)
    theta, w = WEIGHT, np.array([0.3, -0.4])
    for _ in range(2 * 3):
        w = w - 0.2 * 2 * x[1:] * (x @ theta + x[1:] @ w - y)
    for _ in range(3):
        theta = theta - ETA * 2 * x * (x @ theta + x[1:] @ w - y)
    same(weight(found.server.shared), theta)
    same(weight(found.clients.private)[0], w)


@pytest.mark.parametrize("build", [ct.fedper, ct.fedrep])
def test_they_are_for_problems_with_a_private_part(least_squares, numbers, build):
    with pytest.raises(ct.InputError, match="needs a private part"):
        ct.run(least_squares, numbers, build(), rounds=1)


# Ditto


def test_the_shared_model_of_ditto_is_fedavg_s_bit_for_bit(played, least_squares, numbers):
    options = {"step_size": ETA, "epochs": 2, "batch_size": 4}
    found = played(least_squares, numbers, ct.ditto(penalty=LAMBDA, **options), 3, initial=START)
    same(found.server, played(least_squares, numbers, ct.fedavg(**options), 3, initial=START).server, 0)


def test_without_a_pull_ditto_trains_alone_bit_for_bit(played, least_squares, numbers):
    options = {"step_size": ETA, "epochs": 2, "batch_size": 4}
    found = played(least_squares, numbers, ct.ditto(penalty=0.0, **options), 3, initial=START)
    same(found.clients.own, played(least_squares, numbers, ct.independent(**options), 3, initial=START).clients.own, 0)


def test_ditto_descends_on_its_loss_with_the_pull_towards_the_model_it_was_sent(played, least_squares, numbers,
                                                                                quadratics):
    found = played(least_squares, numbers, ct.ditto(penalty=LAMBDA, step_size=ETA, epochs=2, batch_size=None), 3,
                   initial=START)
    shared, own = WEIGHT, np.tile(WEIGHT, (7, 1))
    for _ in range(3):
        for _ in range(2):
            own = own - ETA * (quadratics.gradients(own) + LAMBDA * (own - shared))
        shared = np.average(quadratics.descended(shared, ETA, 2), axis=0, weights=quadratics.examples)
    same(weight(found.clients.own), own)


def test_a_client_of_ditto_that_never_acted_makes_a_model_from_the_shared_one(least_squares, numbers, quadratics,
                                                                             own_rows):
    result = ct.run(least_squares, numbers, ct.ditto(penalty=LAMBDA, step_size=ETA, batch_size=None, fit_epochs=2),
                    rounds=3, cohort=2, precision="float64", initial=START)
    state = result.model.state
    shared, own = weight(state.server.shared), np.tile(weight(state.server.shared), (7, 1))
    for _ in range(2):
        own = own - ETA * (quadratics.gradients(own) + LAMBDA * (own - shared))
    losses = np.array([((x @ w - y) ** 2).mean() for (x, y), w in zip(own_rows(numbers), own, strict=True)])
    new = state.uploads == 0
    assert new.any()
    same(np.asarray(result.clients["train.personal.loss"])[new], losses[new], 1e-10)


# pFedMe


def near(quadratics, shared, penalty=LAMBDA):
    """argmin_theta f_i(theta) + lambda/2 ||theta - w||^2, for every client."""
    return np.linalg.solve(2 * quadratics.curvature + penalty * np.eye(3),
                           (2 * quadratics.target + penalty * shared)[..., None])[..., 0]


@pytest.mark.parametrize("steps", [1, 3])
def test_pfedme_descends_on_moreau_envelopes(played, least_squares, numbers, quadratics, steps):
    found = played(least_squares, numbers, ct.pfedme(penalty=LAMBDA, step_size=ETA, steps=steps, tuner="exact",
                                                     server_step_size=0.6), 3, initial=START)
    shared = WEIGHT
    for _ in range(3):
        own = np.tile(shared, (7, 1))
        for _ in range(steps):
            own = own - ETA * LAMBDA * (own - near(quadratics, own))
        shared = (1 - 0.6) * shared + 0.6 * own.mean(axis=0)
    same(weight(found.server.shared), shared)


def test_a_strong_pull_makes_pfedme_gradient_descent(played, least_squares, numbers, quadratics):
    """lambda (w - theta(w)) goes to the gradient at w."""
    found = played(least_squares, numbers, ct.pfedme(penalty=1e7, step_size=ETA, steps=1, tuner="exact"), 3,
                   initial=START)
    shared = WEIGHT
    for _ in range(3):
        shared = shared - ETA * quadratics.gradients(shared).mean(axis=0)
    same(weight(found.server.shared), shared, 1e-5)


def test_a_client_of_pfedme_predicts_with_its_model_near_the_shared_one(least_squares, numbers, quadratics, own_rows):
    """Also a client that has never acted: what it keeps is nothing."""
    result = ct.run(least_squares, numbers, ct.pfedme(penalty=LAMBDA, step_size=ETA, tuner="exact"), rounds=2, cohort=3,
                    precision="float64")
    own = near(quadratics, weight(result.model.state.server.shared))
    losses = [((x @ w - y) ** 2).mean() for (x, y), w in zip(own_rows(numbers), own, strict=True)]
    same(result.clients["train.personal.loss"], losses, 1e-10)
    assert not jax.tree.leaves(result.model.state.clients.private)


def test_a_personal_model_that_diverges_is_the_shared_one(played, least_squares, numbers):
    wild = {"name": "gd", "steps": 40, "step_size": 1e30}
    found = played(least_squares, numbers, ct.pfedme(steps=2, tuner=wild), 3, initial=START)
    same(weight(found.server.shared), WEIGHT, 0)
    assert (found.clients.diverged == 6).all()


# Clipping


def clipped(vector, most):
    return vector * min(1, most / np.linalg.norm(vector))


@pytest.mark.parametrize("most", [0.3, 1e3])
def test_no_gradient_is_longer_than_the_clip_norm(played, own_rows, numbers, parted, most):
    rows = [(x, x[:, 1:], y) for x, y in own_rows(numbers)]
    w, rates = np.array([0.3, -0.4]), {"step_size": ETA, "batch_size": None, "clip_norm": most}

    def gradients(A, B, y, theta, own):
        residual = 2 / len(y) * (A @ theta + B @ own - y)
        return A.T @ residual, B.T @ residual

    def together(A, B, y):
        both = clipped(np.concatenate(gradients(A, B, y, WEIGHT, w)), most)
        return WEIGHT - ETA * both[:3]

    def in_turn(A, B, y, private_rate=0.2):
        own = w - private_rate * clipped(gradients(A, B, y, WEIGHT, w)[1], most)
        return WEIGHT - ETA * clipped(gradients(A, B, y, WEIGHT, own)[0], most)

    tiny = {"name": "gd", "steps": 1, "step_size": 1e-20}
    for recipe, turn in ((ct.fedsim(**rates, private_step_size=0.2), together),
                         (ct.fedalt(**rates, private_step_size=0.2), in_turn),
                         (ct.local_ffgg(**rates, private_step_size=0.2, tuner=tiny), in_turn)):
        found = played(parted, numbers, recipe, 1, initial=BOTH)
        same(weight(found.server.shared), np.mean([turn(*each) for each in rows], axis=0))


# What they would have the user know


@pytest.mark.parametrize("build", [ct.ditto, ct.pfedme, ct.fedavg_finetune])
def test_methods_for_whole_models_tell_of_a_private_part(parted, least_squares, numbers, build):
    def heard(problem):
        sentences = []
        ct.run(problem, numbers, build(), rounds=1, callbacks=[Heard(sentences)], progress=None)
        return [sentence for sentence in sentences if "whole models" in sentence]

    (said,) = heard(parted)
    assert heard(least_squares) == []
    assert f"{build.__name__} personalises whole models" in said and 'split = "none"' in said


class Heard(ct.Callback):
    def __init__(self, sentences):
        self.sentences = sentences

    def noticed(self, sentence):
        self.sentences.append(sentence)
