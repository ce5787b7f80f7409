"""Several populations of clients: mixed algorithms beside plain NumPy, with a datacenter and without."""

from dataclasses import replace

import jax
import numpy as np
import pytest

import cantons as ct
from cantons.data import from_sizes
from cantons.protocol import CentralLoss

pytestmark = pytest.mark.usefixtures("float64")
GROUPS = {"phones": ["client0", "client3", "client4"], "cars": ["client1", "client2", "client5", "client6"]}
NUMBERS = np.array([0, 1, 1, 0, 0, 1, 1])
WEIGHTS = {"phones": 0.7, "cars": 0.3}
START = np.array([1.0, -2.0, 0.5])
WORK = {"step_size": 0.03, "steps": 3, "batch_size": None, "server_step_size": 0.8}
CENTRE = {"central_step_size": 0.05, "central_steps": 2, "central_batch_size": None}


@pytest.fixture(scope="module")
def data(numbers):
    random = np.random.default_rng(5)
    inputs = random.normal(size=(40, 3))
    rows = from_sizes(inputs, inputs @ np.array([2.0, -1.0, 0.5]), np.array([40]))
    return ct.by_name(replace(numbers, central=rows), clients=GROUPS)


@pytest.fixture(scope="module")
def problem(least_squares, data):
    """Two groups; the second is charged twice what the problem's own loss is."""
    twice = CentralLoss(lambda shared, private, batch: 2 * least_squares.loss(shared, private, batch))
    return ct.with_group_losses(least_squares, data, losses={"cars": twice}, weights=WEIGHTS)


@pytest.fixture(scope="module")
def mixed(problem):
    return ct.with_central_loss(problem, "same", [0.6, 0.4])


def after(played, problem, data, recipe, rounds=3, **more):
    start = {"layer0": {"weight": START[:, None]}}, {"layer0": {"weight": None}}
    return played(problem, data, recipe, rounds, initial=start, **more).server


def weight(tree):
    return np.asarray(tree["layer0"]["weight"])[..., 0]


class Side:
    """One term of the objective: gradients of its members at a point each, and how they work."""

    def __init__(self, gradients, examples, step_size, steps, server):
        self.gradients, self.examples, self.step_size, self.steps, self.server = (
            gradients, examples, step_size, steps, server)

    def work(self, x, extra):
        """How far the side moves when it adds `extra` to each gradient, and the mean gradient that it met."""
        here, met = np.tile(x, (len(self.examples), 1)), 0
        for _ in range(self.steps):
            found = self.gradients(here)
            here, met = here - self.step_size * (found + extra), met + found.mean(0) / self.steps
        return self.server * np.average(here - x, axis=0, weights=self.examples), met


def sides_of(quadratics, data=None):
    def group(number, charge):
        chosen = NUMBERS == number
        own = type(quadratics)(*(part[chosen] for part in quadratics))
        return Side(lambda x: charge * own.gradients(x), own.examples, WORK["step_size"], 3, WORK["server_step_size"])

    share = 1.0 if data is None else 0.6
    sides = [group(0, share * 0.7), group(1, share * 2 * 0.3)]
    if data is not None:
        inputs, targets = data.central.inputs, data.central.targets
        sides.append(Side(lambda x: 0.4 * 2 * (x @ inputs.T - targets) @ inputs / len(targets), np.ones(1),
                          CENTRE["central_step_size"], 2, 1.0))
    return sides


def mix(sides, x, rounds, merge, transfer):
    """Parallel training of n sides; with `transfer`, each adds the others' mean gradients of the round before."""
    met = np.zeros((len(sides), 3))
    for _ in range(rounds):
        found = [side.work(x, (met.sum(0) - own) * transfer) for side, own in zip(sides, met, strict=True)]
        x, met = x + merge * sum(change for change, _ in found), np.array([own for _, own in found])
    return x, met


@pytest.mark.parametrize("with_centre", [False, True])
@pytest.mark.parametrize("name", ["parallel_training", "two_way_transfer"])
def test_each_group_is_a_side_of_its_own(played, problem, mixed, data, quadratics, name, with_centre):
    recipe = getattr(ct, name)(**WORK, **CENTRE, merge_step_size=0.4)
    server = after(played, mixed if with_centre else problem, data, recipe, 4)
    x, met = mix(sides_of(quadratics, data if with_centre else None), START, 4, 0.4, name == "two_way_transfer")
    np.testing.assert_allclose(weight(server.shared), x, rtol=0, atol=1e-13)
    if name == "two_way_transfer":
        np.testing.assert_allclose(weight(server.federated_gradient), met[:2], rtol=0, atol=1e-12)


def test_groups_that_mean_nothing_change_nothing(played, least_squares, data, quadratics):
    """One local step with full batches: the sum over groups is one population's, if clients count alike in each."""
    halves = ct.with_group_losses(least_squares, data, weights=WEIGHTS)
    server = after(played, halves, data, ct.parallel_training(**{**WORK, "steps": 1}), 3)
    x, share = START, np.where(NUMBERS == 0, 0.7, 0.3)
    for _ in range(3):
        for_each = quadratics.examples / np.array([quadratics.examples[NUMBERS == own].sum() for own in NUMBERS])
        x = x - WORK["step_size"] * 0.8 * (share * for_each) @ quadratics.gradients(x)
    np.testing.assert_allclose(weight(server.shared), x, rtol=0, atol=1e-13)


def test_a_group_of_which_nobody_came_keeps_its_gradient(played, problem, data):
    """A cohort of one client is of one group; the other does not move and is remembered as it was."""
    recipe = ct.two_way_transfer(**WORK)
    one, two, three = (after(played, problem, data, recipe, rounds, clock=ct.rounds(cohort=1), seed=4)
                       for rounds in (1, 2, 3))
    for before, now in ((one, two), (two, three)):
        kept = (weight(before.federated_gradient) == weight(now.federated_gradient)).all(axis=1)
        assert kept.sum() == 1


def test_the_dissimilarity_of_n_terms_is_equation_7(mixed, data, quadratics):
    start = {"layer0": {"weight": START[:, None]}}, {"layer0": {"weight": None}}
    row = ct.run(mixed, data, ct.two_way_transfer(**WORK, **CENTRE), rounds=1, initial=start,
                 precision="float64").history[0]
    sides = sides_of(quadratics, data)
    gradients = [side.gradients(np.tile(START, (len(side.examples), 1))).mean(0) for side in sides]
    apart = sum(gradient @ gradient / share for gradient, share in zip(
        gradients, np.array([0.6 * 0.7, 0.6 * 0.3, 0.4]), strict=True))
    together = sum(gradients) @ sum(gradients)
    np.testing.assert_allclose(row["server.dissimilarity_G2"], apart - together, rtol=1e-12)
    np.testing.assert_allclose(row["server.dissimilarity_B2"], apart / together, rtol=1e-12)


def test_two_devices_and_vectorised_clients_agree(played, mixed, data):
    recipe, clock = ct.two_way_transfer(**{**WORK, "batch_size": 2}, **CENTRE), ct.rounds(
        cohort={"phones": 2, "cars": 3})
    one, two, together = (after(played, mixed, data, recipe, 3, clock=clock, engine=engine) for engine in (
        ct.Local(devices=1), ct.Local(devices=2), ct.Local(devices=1, group=3)))
    for other in (two, together):
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=0, atol=1e-13), one, other)


def test_all_of_each_group_s_gradient_is_what_is_sent_uncompressed(played, mixed, data):
    chosen = {}, {"compression": "top_k", "top_share": 1.0}, {"compression": "top_k", "top_share": 0.5}
    plain, all_sent, most_sent = (after(played, mixed, data, ct.two_way_transfer(**WORK, **CENTRE, **options))
                                  for options in chosen)
    np.testing.assert_allclose(weight(all_sent.shared), weight(plain.shared), rtol=0, atol=1e-13)
    assert weight(most_sent.residual).shape == (2, 3) and (weight(most_sent.residual) != 0).any(axis=1).all()


def test_a_group_is_one_number_more_to_send(problem, data):
    found = {name: ct.run(problem, data, getattr(ct, name)(**WORK), rounds=1).summary
             for name in ("parallel_training", "two_way_transfer")}
    model, number = 3 * 4, 4
    assert found["parallel_training"]["down_bytes_per_message"] == model + 4 + number, "the step size too"
    assert found["two_way_transfer"]["down_bytes_per_message"] == 2 * model + 4 + number, "not every group's gradient"
    assert found["parallel_training"]["up_bytes_per_upload"] == model + 4 + number, "the weight too"


def test_every_algorithm_minimises_the_losses_of_groups(played, problem, data, quadratics):
    """FedAvg knows nothing of groups: its mean is over the cohort, of losses that have their weights inside."""
    found = after(played, problem, data, ct.fedavg(step_size=0.03, batch_size=None, weighting="uniform"), 1)
    charge = np.where(NUMBERS == 0, 0.7, 2 * 0.3)
    expected = START - 0.03 * (charge[:, None] * quadratics.gradients(START)).mean(0)
    np.testing.assert_allclose(weight(found.shared), expected, rtol=0, atol=1e-13)


# Refusals


def test_what_cannot_be_mixed_is_refused(least_squares, numbers, data, problem):
    with pytest.raises(ct.InputError, match="the data has no groups; make some"):
        ct.with_group_losses(least_squares, numbers)
    with pytest.raises(ct.InputError, match="the groups phones, cars; name some of them for losses, each"):
        ct.with_group_losses(least_squares, data, weights={"phones": 1.0})
    with pytest.raises(ct.InputError, match="given for bikes, phones, cars, and the data"):
        ct.with_group_losses(least_squares, data, losses={"bikes": "same"})
    with pytest.raises(ct.InputError, match="weights of all groups are 0"):
        ct.with_group_losses(least_squares, data, weights={"phones": 0.0, "cars": 0.0})
    with pytest.raises(ct.InputError, match="losses for the groups phones, cars, and the data has no groups"):
        ct.run(problem, numbers, ct.parallel_training(), rounds=1)
    for build in (ct.parallel_training, ct.two_way_transfer):
        with pytest.raises(ct.InputError, match="cannot be of several groups yet"):
            build(rows=5).build(problem, data.population)
    with pytest.raises(ct.InputError, match="has an aggregation of its own"):
        ct.run(problem, data, ct.parallel_training(), rounds=1, aggregate=ct.median())
    with pytest.raises(ct.InputError, match="needs a loss of the datacenter"):
        ct.run(least_squares, data, ct.parallel_training(), rounds=1)
