"""Mixed federated learning on least squares: beside plain NumPy, and in the cases where two algorithms are one."""

from dataclasses import replace

import jax
import numpy as np
import pytest

import cantons as ct
from cantons.aggregate import as_sum
from cantons.algorithm.parts.dissimilarity import dissimilarity
from cantons.data import from_sizes
from cantons.errors import InputError
from cantons.problem import with_central_loss
from cantons.protocol import CentralLoss, Datacenter

pytestmark = pytest.mark.usefixtures("float64")
W_F, W_C = 0.6, 0.4
START = np.array([1.0, -2.0, 0.5])
FULL = {"batch_size": None, "central_batch_size": None}
SAMPLED = {"batch_size": 2, "central_batch_size": 5}


@pytest.fixture(scope="module")
def problem(least_squares):
    return with_central_loss(least_squares, "same", [W_F, W_C])


@pytest.fixture(scope="module")
def play(played, problem, data):
    """`play(recipe, rounds)`: the server after some rounds from START."""

    def after(recipe, rounds=3, problem=problem, data=data, at=START, **more):
        start = {"layer0": {"weight": at[:, None]}}, {"layer0": {"weight": None}}
        return played(problem, data, recipe, rounds, initial=start, **more).server

    return after


def weight(tree):
    return np.asarray(tree["layer0"]["weight"][:, 0])


def shared(server):
    return weight(server.shared)


def same(one, other, digits=1e-13):
    np.testing.assert_allclose(one, other, rtol=0, atol=digits)


# Beside plain NumPy


class Oracle:
    """Algorithms 1 and 2 on quadratics with full batches, written from the paper's lines."""

    def __init__(self, quadratics, rows, eta=0.03, server=0.8, central=0.05, merge=0.9, client_steps=3,
                 central_steps=2):
        inputs, targets = rows
        self.curvature, self.target = inputs.T @ inputs / len(inputs), inputs.T @ targets / len(inputs)
        self.quadratics, self.eta, self.central, self.merge = quadratics, eta, central, merge
        self.server, self.client_steps, self.central_steps = server, client_steps, central_steps

    def central_gradient(self, x):
        return W_C * 2 * (self.curvature @ x - self.target)

    def clients(self, x, extra):
        """Where each client gets to, and the sum of all the gradients that they met."""
        here, met = np.tile(x, (len(self.quadratics.target), 1)), 0
        for _ in range(self.client_steps):
            gradients = W_F * self.quadratics.gradients(here)
            here, met = here - self.eta * (gradients + extra), met + gradients.sum(0)
        examples = self.client_steps * self.quadratics.examples
        return np.average(here - x, axis=0, weights=examples), met / (len(here) * self.client_steps)

    def centre(self, x, extra):
        here, met = x, 0
        for _ in range(self.central_steps):
            gradient = self.central_gradient(here)
            here, met = here - self.central * (gradient + extra), met + gradient
        return here - x, met / self.central_steps

    def one_way(self, x, rounds):
        for _ in range(rounds):
            x = x + self.server * self.clients(x, self.central_gradient(x))[0]
        return x

    def both(self, x, rounds, transfer):
        of_centre = of_clients = np.zeros(3)
        for _ in range(rounds):
            change, met = self.clients(x, of_centre)
            central, central_met = self.centre(x, of_clients)
            x = x + self.merge * (central + self.server * change)
            if transfer:
                of_centre, of_clients = central_met, met
        return x, of_centre, of_clients


SIZES = {"step_size": 0.03, "server_step_size": 0.8, "steps": 3}
CENTRE = {"central_step_size": 0.05, "central_steps": 2, "merge_step_size": 0.9}


def test_one_way_transfer_is_the_paper_s(play, quadratics, rows):
    found = play(ct.one_way_transfer(**SIZES, **FULL), 4)
    same(shared(found), Oracle(quadratics, rows).one_way(START, 4))


def test_parallel_training_is_the_paper_s(play, quadratics, rows):
    found = play(ct.parallel_training(**SIZES, **CENTRE, **FULL), 4)
    same(shared(found), Oracle(quadratics, rows).both(START, 4, transfer=False)[0])


@pytest.mark.parametrize("gradient", ["change", "raw"])
def test_two_way_transfer_is_the_paper_s_with_its_divisor_mended(play, quadratics, rows, gradient):
    found = play(ct.two_way_transfer(**SIZES, **CENTRE, **FULL, federated_gradient=gradient), 4)
    x, of_centre, of_clients = Oracle(quadratics, rows).both(START, 4, transfer=True)
    same(shared(found), x)
    same(weight(found.central_gradient), of_centre)
    same(weight(found.federated_gradient), of_clients, 1e-12)


@pytest.mark.parametrize("optimizer", ["momentum", "adam"])
def test_the_centre_s_gradient_is_the_mean_of_those_it_met_whatever_its_optimiser(play, rows, optimizer):
    found = play(ct.two_way_transfer(**SIZES, **FULL, central_step_size=0.01, central_steps=5,
                                     central_optimizer=optimizer), 1)
    inputs, targets = rows
    gradient = W_C * 2 * inputs.T @ (inputs @ START - targets) / len(inputs)
    before = np.linalg.norm(gradient)
    assert 0.8 * before < np.linalg.norm(weight(found.central_gradient)) < before  # it falls on the way


def test_clients_with_an_optimiser_send_their_raw_gradients(play):
    change, raw = (play(ct.two_way_transfer(**SIZES, **CENTRE, **FULL, federated_gradient="raw",
                                            client_optimizer=name), 2) for name in ("sgd", "momentum"))
    assert not np.allclose(shared(change), shared(raw))
    assert np.linalg.norm(weight(raw.federated_gradient)) < 1.5 * np.linalg.norm(weight(change.federated_gradient))


# Where two algorithms are one: on sampled batches, for cohorts with and without replacement


CLOCKS = {"everybody": None, "four": ct.rounds(cohort=4), "replacement": ct.rounds(cohort=4, replace=True)}


@pytest.mark.parametrize(("clock", "weighting", "merge"), [
    ("everybody", "examples", 1.0), ("everybody", "per_step", 0.5), ("four", "examples", 0.5),
    ("four", "per_step", 1.0), ("replacement", "examples", 1.0), ("replacement", "per_step", 0.5)])  # every pair
def test_with_one_step_each_parallel_training_is_one_way_transfer(play, clock, weighting, merge):
    one = {"step_size": 0.05, "steps": 1, "weighting": weighting, **SAMPLED}
    parallel = play(ct.parallel_training(**one, server_step_size=0.7, central_step_size=0.05 * 0.7, central_steps=1,
                                         merge_step_size=merge), clock=CLOCKS[clock])
    one_way = play(ct.one_way_transfer(**one, server_step_size=0.7 * merge), clock=CLOCKS[clock])
    same(shared(parallel), shared(one_way))


@pytest.mark.parametrize("clock", CLOCKS)
def test_with_one_step_example_transfer_is_one_way_transfer(play, clock):
    one = {"step_size": 0.05, "steps": 1, "server_step_size": 0.7, **SAMPLED}
    same(shared(play(ct.example_transfer(**one), clock=CLOCKS[clock])),
         shared(play(ct.one_way_transfer(**one), clock=CLOCKS[clock])))


@pytest.mark.parametrize("work", [{"steps": 4}, {"epochs": 2, "steps": None}])
def test_the_first_round_of_two_way_transfer_is_that_of_parallel_training(play, work):
    both = {**CENTRE, **SAMPLED, **work}
    one, other = ct.two_way_transfer(**both), ct.parallel_training(**both)
    same(shared(play(one, 1)), shared(play(other, 1)), 0)
    assert np.abs(shared(play(one, 2)) - shared(play(other, 2))).max() > 1e-3


def test_with_one_step_two_way_transfer_follows_this_and_the_last_gradient(play, problem, rows):
    """The paper's A.3 says that it is the others: it is not."""
    random = np.random.default_rng(8)
    clients = {f"c{number}": (random.normal(size=(6, 3)), random.normal(size=6)) for number in range(4)}
    alike = replace(ct.from_clients(clients, test=0), central=from_sizes(*rows, np.array([len(rows[1])])))
    recipe = ct.two_way_transfer(step_size=0.05, steps=1, central_step_size=0.05, central_steps=1, **FULL)

    def gradient(x):
        both = [W_F * np.mean([2 * u.T @ (u @ x - v) / len(v) for u, v in clients.values()], axis=0)]
        return both[0] + W_C * 2 * rows[0].T @ (rows[0] @ x - rows[1]) / len(rows[1])

    x, before = START, None
    for count in range(1, 4):
        x, before = x - 0.05 * (gradient(x) + (0 if before is None else gradient(before))), x
        same(shared(play(recipe, count, data=alike)), x)


def test_without_a_central_loss_one_way_transfer_is_fedavg_to_the_bit(play, least_squares):
    alone = with_central_loss(least_squares, "same", [1.0, 0.0])
    work = {"step_size": 0.05, "epochs": 1, "steps": None, "batch_size": 4, "server_step_size": 0.7}
    fedavg = play(ct.fedavg(**work), problem=alone)
    np.testing.assert_array_equal(shared(play(ct.one_way_transfer(**work), problem=alone)), shared(fedavg))
    same(shared(play(ct.parallel_training(**work), problem=alone)), shared(fedavg))
    assert not np.allclose(shared(play(ct.two_way_transfer(**work), problem=alone)), shared(fedavg))


def test_per_step_weights_undo_what_unequal_numbers_of_steps_do(play, least_squares, quadratics):
    """One epoch is a step for each example: as printed, a client's pull grows with the square of their number."""
    alone = with_central_loss(least_squares, "same", [1.0, 0.0])
    work = {"step_size": 1e-7, "steps": None, "batch_size": 1}
    steps = quadratics.examples

    def direction(weights):
        mean = np.average(quadratics.gradients(START), axis=0, weights=weights)
        return -mean / np.linalg.norm(mean)

    for weighting, expected in (("examples", steps**2), ("per_step", steps)):
        moved = shared(play(ct.one_way_transfer(**work, weighting=weighting), 1, problem=alone)) - START
        same(moved / np.linalg.norm(moved), direction(expected), 1e-5)
    assert np.abs(direction(steps**2) - direction(steps)).max() > 0.1


def test_the_joint_optimum_is_a_fixed_point_of_transfer_and_not_of_parallel_training(play, least_squares, rows):
    """Homogeneous clients without noise. With equal Hessians parallel training stays there too, however large G is."""
    random = np.random.default_rng(9)
    own = random.normal(size=(8, 3)), random.normal(size=8)
    halves = with_central_loss(least_squares, "same", [0.5, 0.5])

    def beside(other):
        mixed = replace(ct.from_clients({name: own for name in "abc"}, test=0),
                        central=from_sizes(*other, np.array([len(other[1])])))
        return mixed, np.linalg.solve(sum(u.T @ u / len(v) for u, v in (own, other)),
                                      sum(u.T @ v / len(v) for u, v in (own, other)))

    def moved(recipe, mixed, optimum, rounds=1, at=None):
        """How far the joint optimum is left, or how far from it one is who began elsewhere."""
        start = optimum if at is None else at
        return np.abs(shared(play(recipe, rounds, problem=halves, data=mixed, at=start)) - optimum).max()

    work = {"step_size": 0.1, "steps": 4, **FULL}
    centre = {"central_step_size": 0.1, "central_steps": 4}
    one_way, parallel = ct.one_way_transfer(**work), ct.parallel_training(**work, **centre)
    two_way = ct.two_way_transfer(**work, **centre, merge_step_size=0.5)
    centre_s = beside(rows)
    assert moved(one_way, *centre_s) < 1e-15
    assert moved(parallel, *centre_s) > 1e-2
    assert moved(one_way, *centre_s, 300, at=START) < 1e-12
    assert moved(two_way, *centre_s, 300, at=START) < 1e-12
    assert moved(parallel, *centre_s, 300, at=START) > 1e-2
    assert moved(parallel, *beside((own[0], own[1] + 3.0))) < 1e-15


def test_adam_at_the_server_first_steps_along_signs(play):
    moved = shared(play(ct.one_way_transfer(**{**SIZES, "server_step_size": 0.01}, server_optimizer="adam",
                                            **FULL), 1)) - START
    np.testing.assert_allclose(np.abs(moved), 0.01, rtol=1e-5)


# Losses without data, and what is refused


def test_a_central_loss_may_look_at_no_examples(play, least_squares, numbers):
    pull = CentralLoss(lambda shared, private, batch: (shared["layer0"]["weight"] ** 2).sum() / 2, needs_data=False)
    weighed = with_central_loss(least_squares, pull, [0.0, 1.0])
    found = play(ct.parallel_training(central_step_size=0.1, central_steps=3, steps=1), 2, problem=weighed,
                 data=numbers)
    same(shared(found), START * 0.9**6)


def test_what_a_mixed_run_lacks_is_said(problem, data, numbers, least_squares):
    def refusal(problem, data, recipe):
        with pytest.raises(InputError) as said:
            ct.run(problem, data, recipe, rounds=1)
        return str(said.value)

    assert "central_loss" in refusal(least_squares, data, ct.one_way_transfer())
    assert "[central]" in refusal(problem, numbers, ct.parallel_training())
    assert "has 40" in refusal(problem, data, ct.two_way_transfer(central_batch_size=41))
    assert "raw" in refusal(problem, data, ct.two_way_transfer(client_optimizer="adam"))
    assert "raw" in refusal(problem, data, ct.two_way_transfer(clip_norm=1.0))


@pytest.mark.parametrize("weights", [[-1.0, 1.0], [0.0, 0.0], [1.0], [0.2, 0.3, 0.5], [float("nan"), 1.0]])
def test_weights_that_make_no_sense_are_refused(least_squares, weights):
    with pytest.raises(InputError, match="weights"):
        with_central_loss(least_squares, "same", weights)


def test_everything_in_one_place_is_gradient_descent_on_both_losses(play, quadratics, rows):
    inputs, targets = rows
    pooled, x = quadratics.mean(quadratics.examples), START
    for _ in range(6):
        centre = W_C * 2 * inputs.T @ (inputs @ x - targets) / len(targets)
        x = x - 0.05 * (W_F * pooled.gradients(x)[0] + centre)
    same(shared(play(ct.central(step_size=0.05, steps=2, batch_size=None), 3)), x)


def test_the_weight_is_inside_everything_that_clients_minimise(numbers):
    joint = ct.residual(numbers, shared_features=[0, 1], private_features=[2])
    weighed = with_central_loss(joint, "same", [0.25, 1.0])
    outputs, targets, mask = np.ones(4), np.arange(4.0), np.ones(4)
    assert weighed.residual.loss(outputs, targets, mask) == 0.25 * joint.residual.loss(outputs, targets, mask)
    bowl = with_central_loss(ct.regression(numbers, ct.linear(), l2=0.8), "same", [0.25, 1.0])
    assert bowl.convex.curvature == 0.25 * 0.8


# Clients of every kind, in both precisions and on two devices


@pytest.mark.parametrize("build", [ct.one_way_transfer, ct.parallel_training, ct.two_way_transfer])
def test_a_client_without_examples_counts_for_nothing(problem, data, build):
    """p_i = K_i = 0 in an epoch, also where a client is alone and there is nothing to divide by."""
    key = jax.random.key(0)
    algorithm = build(step_size=0.05, steps=None, **SAMPLED).build(problem, data.population)
    lift, finish = as_sum(algorithm.aggregate)
    server, client = algorithm.init_server(key, *problem.init(key)), algorithm.init_client(key, *problem.init(key))
    if build is ct.two_way_transfer:
        server = server._replace(central_gradient=jax.tree.map(np.ones_like, server.shared))
    message = algorithm.broadcast(key, server, Datacenter(data.central.client(0), key))
    there, nobody = (lift(algorithm.client_update(key, message, client, examples)[0], message)
                     for examples in (data.train.client(1), data.train.client(1).hidden()))
    mean = finish(key, there)
    jax.tree.map(same, finish(key, jax.tree.map(np.add, there, nobody)), mean)
    jax.tree.map(same, finish(key, nobody), jax.tree.map(np.zeros_like, mean))


def test_the_dissimilarity_is_the_distance_of_the_two_gradients_and_never_below_0():
    of_clients, of_centre = np.random.default_rng(3).normal(size=(2, 4))
    found = dissimilarity([of_clients, of_centre], (W_F, W_C))
    apart = W_F * W_C * ((of_clients / W_F - of_centre / W_C) ** 2).sum()
    same(found["dissimilarity_G2"], apart)
    same(found["dissimilarity_G2"], (found["dissimilarity_B2"] - 1) * ((of_clients + of_centre) ** 2).sum())
    same(dissimilarity([W_F * of_clients, W_C * of_clients], (W_F, W_C))["dissimilarity_G2"], 0.0)


def test_the_clients_gradient_is_a_mean_over_steps_whatever_their_numbers(play, quadratics):
    """One example a step: a client makes as many steps as it has examples, and with tiny ones its gradients stay."""
    found = play(ct.two_way_transfer(steps=None, batch_size=1, central_batch_size=5, step_size=1e-8), 1)
    expected = W_F * np.average(quadratics.gradients(START), axis=0, weights=quadratics.examples)
    same(weight(found.federated_gradient), expected, 1e-5)


def test_the_clients_gradient_from_changes_is_that_of_raw_gradients(play):
    """Unequal numbers of steps, sampled batches, cohorts with replacement, two devices."""
    ragged = {**CENTRE, **SAMPLED, "steps": None, "epochs": 2, "step_size": 0.03}
    one, other = (play(ct.two_way_transfer(**ragged, federated_gradient=name), 4, clock=CLOCKS["replacement"],
                       engine=ct.Local(devices=2)) for name in ("change", "raw"))
    same(weight(one.federated_gradient), weight(other.federated_gradient), 1e-11)
    same(shared(one), shared(other), 1e-12)


@pytest.mark.parametrize("devices, x64, digits", [(1, False, 1e-6), (2, False, 1e-6), (2, True, 1e-13)])
def test_so_it_is_in_single_precision_and_on_two_devices(play, least_squares, devices, x64, digits):
    """Properties 1, 3, 4 and 5 of the above, on sampled batches and cohorts with replacement."""
    one = {"step_size": 0.05, "steps": 1, **SAMPLED}
    three = {**SIZES, **CENTRE, **SAMPLED}

    def after(recipe, rounds=2, **more):
        return play(recipe, rounds, clock=CLOCKS["replacement"], engine=ct.Local(devices=devices), **more)

    with jax.enable_x64(x64):
        one_way = shared(after(ct.one_way_transfer(**one)))
        assert one_way.dtype == (np.float64 if x64 else np.float32)
        same(shared(after(ct.parallel_training(**one, central_step_size=0.05, central_steps=1))), one_way, digits)
        same(shared(after(ct.example_transfer(**one))), one_way, digits)
        two_way = after(ct.two_way_transfer(**three), 1)
        same(shared(two_way), shared(after(ct.parallel_training(**three), 1)), digits)
        raw = after(ct.two_way_transfer(**three, federated_gradient="raw"), 1)
        same(weight(two_way.federated_gradient), weight(raw.federated_gradient), 100 * digits)  # divided by the step
        nothing = with_central_loss(least_squares, CentralLoss(lambda shared, private, batch: 0.0, False), [1.0, 1.0])
        same(shared(after(ct.one_way_transfer(**SIZES, **SAMPLED), problem=nothing)),
             shared(after(ct.fedavg(**SIZES, batch_size=2, weighting="uniform"), problem=least_squares)), digits)


@pytest.mark.parametrize("private", ["start", "trained"])
def test_the_centre_s_private_part_stays_or_is_trained(played, numbers, rows, private):
    """Two linear models, of the inputs 0 and 1 and of input 2: trained together, they are one."""
    problem = with_central_loss(ct.residual(
        numbers, shared_features=[0, 1], private_features=[2], shared_model=ct.linear(bias=False),
        private_model=ct.linear(bias=False)), "same", [0.5, 1.0])
    data = replace(numbers, central=from_sizes(*rows, np.array([len(rows[1])])))
    server = played(problem, data, ct.only_central(central_step_size=0.05, central_steps=3, central_batch_size=None,
                                                   central_private=private), 2).server
    moves = np.array([1.0, 1.0, private == "trained"])
    inputs, targets = rows
    x = np.zeros(3)
    for _ in range(6):
        x = x - 0.05 * moves * (2 * inputs.T @ (inputs @ x - targets) / len(targets))
    found = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves((server.shared, server.private))])
    same(found, x)
