"""FedResNaive, FedResSGD and FedResAvg against their listings in NumPy, and against what can be solved by hand."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import cantons as ct
from cantons.errors import InputError
from cantons.problem import masked_mean

pytestmark = pytest.mark.usefixtures("float64")

START = np.array([1.0, -2.0, 0.5])
OWN_START = np.array([-0.3, 0.2, 0.4])
ETA, LAMBDA, STEPS = 0.03, 0.05, 4
COHORTS = (0, 3), (1, 2, 3, 6), range(7), (5,), range(7)

# Every algorithm and option, with the same work on all examples at once.
WORK = {"step_size": ETA, "private_step_size": LAMBDA, "steps": STEPS, "batch_size": None}
RECIPES = {
    "naive, printed": ct.fedres_naive(**WORK),
    "naive, simultaneous": ct.fedres_naive(order="simultaneous", **WORK),
    "sgd": ct.fedres_sgd(**WORK),
    "avg I": ct.fedres_avg(option="I", server_scale=1.3, **WORK),
    "avg II": ct.fedres_avg(option="II", server_scale=1.3, **WORK),
}
each_recipe = pytest.mark.parametrize("name", RECIPES)


def close(found, expected):
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


def joint(shared=START, own=OWN_START):
    """(x.(w + theta) - y)^2: both parts look at the same features."""
    return ct.from_functions(lambda key: {"shared": jnp.asarray(shared), "private": jnp.asarray(own)},
                             lambda params, inputs: inputs @ (params["shared"] + params["private"]),
                             loss="squared", split="private")


def shared(loop):
    return np.asarray(loop.server.shared["shared"])


def privates(loop):
    return np.array([client.private["private"] for client in loop.clients])


def control(loop):
    return np.asarray(loop.server.control["shared"])


def controls(loop):
    return np.array([client.own_control["shared"] for client in loop.clients])


def same_bits(left, right):
    np.testing.assert_array_equal(shared(left), shared(right))
    np.testing.assert_array_equal(privates(left), privates(right))


# The listings, client by client, for the quadratics (w + theta)'H(w + theta) - 2r'(w + theta)


class Listing:
    """The paper's algorithms in its own symbols, on every client's whole loss."""

    def __init__(self, quadratics, name):
        self.quadratics, self.name, self.alpha = quadratics, name, 1.3 if "avg" in name else 1.0
        self.w, self.theta = START, np.tile(OWN_START, (7, 1))
        self.c, self.c_i = np.zeros(3), np.zeros((7, 3))
        self.met = {}  # the gradients that moved each client's w_i in this round

    def gradient(self, i, w, theta):
        return 2 * (self.quadratics.curvature[i] @ (w + theta) - self.quadratics.target[i])

    def round(self, cohort):
        self.met = {i: [] for i in cohort}
        before = self.c_i.copy()
        changes = [self.client(i) - self.w for i in cohort]
        self.w = self.w + self.alpha * np.mean(changes, axis=0)
        self.c = self.c + (self.c_i - before).sum(axis=0) / 7

    def client(self, i):
        w_i, theta = self.w, self.theta[i]
        if "naive" in self.name:
            for _ in range(STEPS):
                g, h = self.gradient(i, w_i, theta), self.gradient(i, w_i, theta)
                if self.name == "naive, printed":
                    h = self.gradient(i, w_i - ETA * g, theta)
                w_i, theta = w_i - ETA * g, theta - LAMBDA * h
                self.met[i].append(g)
        else:
            for _ in range(STEPS):
                theta = theta - LAMBDA * self.gradient(i, self.w, theta)
            for _ in range(STEPS):
                g = self.gradient(i, self.w if self.name == "sgd" else w_i, theta)
                w_i = w_i - ETA * (g - self.c_i[i] + self.c)
                self.met[i].append(g)
        self.theta[i] = theta
        if self.name == "avg II":
            self.c_i[i] = np.mean(self.met[i], axis=0)
        return w_i


@each_recipe
def test_rounds_follow_the_papers_listing_with_some_of_the_clients_or_all(name, plain_loop, numbers, quadratics):
    loop, listing = plain_loop(joint(), numbers, RECIPES[name]), Listing(quadratics, name)
    for cohort in COHORTS:
        before = shared(loop)
        loop.play(1, cohort)
        listing.round(cohort)
        close(shared(loop), listing.w)
        close(privates(loop), listing.theta)
        if name == "avg II":
            close(controls(loop), listing.c_i)
    # Everybody was there: corrections cancel, and w has moved by -(alpha eta / N) sum_i sum_k g.
    met = sum(np.sum(gradients, axis=0) for gradients in listing.met.values())
    close(shared(loop) - before, -listing.alpha * ETA / 7 * met)


def test_a_large_batch_is_steps_times_as_large(plain_loop, numbers):
    """A loss whose gradient is the number of examples in its batch."""
    problem = ct.Problem(init=lambda key: (jnp.zeros(()), jnp.zeros(())),
                         loss=lambda w, theta, batch: (w + theta) * batch.mask.sum(),
                         predict=lambda w, theta, inputs: w + theta, score=lambda w, theta, batch: {})
    options = {"step_size": 1.0, "private_step_size": 0.5, "steps": 3, "batch_size": 5}
    for recipe, rows in ((ct.fedres_sgd(**options), 3 * (3 * 5)), (ct.fedres_avg(**options), 3 * 5),
                         (ct.fedres_naive(**options), 3 * 5)):
        loop = plain_loop(problem, numbers, recipe).play(1)
        assert float(loop.server.shared) == -rows
        assert [float(client.private) for client in loop.clients] == [-0.5 * 3 * 5] * 7


@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("choose", [ct.fedres_sgd, ct.fedres_avg], ids=["sgd", "avg"])
def test_the_shared_part_learns_from_other_batches_than_the_private_part(choose, steps, plain_loop):
    """Parts that count the rows of their batches: the two counts meet no more often than chance lets them."""
    rows, size, clients = 40, 4, 50
    problem = ct.Problem(init=lambda key: (jnp.zeros(rows), jnp.zeros(rows)),
                         loss=lambda w, theta, batch: (w + theta) @ batch.inputs.sum(axis=0),
                         predict=lambda w, theta, inputs: inputs @ (w + theta), score=lambda w, theta, batch: {})
    data = ct.from_clients({str(number): (np.eye(rows), np.zeros(rows)) for number in range(clients)}, test=0)
    loop = plain_loop(problem, data, choose(step_size=1.0, steps=steps, batch_size=size)).play(1)
    private = -np.array([client.private for client in loop.clients])
    common = -np.array([loop.uploads[number].change for number in range(clients)])
    common /= steps if choose is ct.fedres_sgd else 1  # its one step is so many times as long
    assert (private.sum(axis=1) == steps * size).all() and (common.sum(axis=1) == steps * size).all()
    chance = (steps * size) ** 2 / rows
    assert (private * common).sum(axis=1).mean() < 1.6 * chance
    assert (private != common).any(axis=1).all()


# What becomes of them in special cases


def batches(**options):
    """The same draws for every algorithm that is given the same keys."""
    return {"step_size": ETA, "private_step_size": LAMBDA, "batch_size": 4, **options}


def test_with_one_step_avg_without_correction_is_sgd_bit_for_bit(plain_loop, numbers):
    averaged = plain_loop(joint(), numbers, ct.fedres_avg(option="I", **batches(steps=1)))
    large = plain_loop(joint(), numbers, ct.fedres_sgd(**batches(steps=1)))
    for cohort in COHORTS:
        same_bits(averaged.play(1, cohort), large.play(1, cohort))


def test_in_the_engine_too(played, numbers):
    states = [played(joint(), numbers, recipe, 5, clock=ct.rounds(cohort=4), seed=2)
              for recipe in (ct.fedres_avg(option="I", **batches(steps=1)), ct.fedres_sgd(**batches(steps=1)))]
    jax.tree.map(np.testing.assert_array_equal, *states)


def test_with_one_step_and_everybody_there_a_correction_changes_nothing(plain_loop, numbers):
    plain, corrected = (plain_loop(joint(), numbers, ct.fedres_avg(option=option, server_scale=1.2, **batches(steps=1)))
                        for option in ("I", "II"))
    for _ in range(4):
        close(shared(plain.play(1)), shared(corrected.play(1)))
        close(privates(plain), privates(corrected))
    assert np.abs(controls(corrected) - control(corrected)).min() > 0  # there was something to cancel


def test_in_the_first_round_there_is_nothing_to_correct_with(plain_loop, numbers):
    plain, corrected = (plain_loop(joint(), numbers, ct.fedres_avg(option=option, **batches(steps=STEPS))).play(1)
                        for option in ("I", "II"))
    same_bits(plain, corrected)
    assert np.abs(shared(plain.play(1)) - shared(corrected.play(1))).max() > 1e-3  # in the second there is


def test_clients_alike_have_nothing_to_correct(plain_loop):
    random = np.random.default_rng(4)
    rows = random.normal(size=(6, 3)), random.normal(size=6)
    data = ct.from_clients({name: rows for name in "abc"}, test=0)
    plain, corrected = (plain_loop(joint(), data, ct.fedres_avg(option=option, **WORK)).play(4)
                        for option in ("I", "II"))
    close(shared(plain), shared(corrected))
    close(privates(plain), privates(corrected))


def test_controls_stay_true_whoever_comes_and_whatever_is_lost(plain_loop, numbers):
    """c is the mean of all c_i; when all are there, w moves by -alpha eta K mean(c_i), for c_i is the mean gradient."""
    loop = plain_loop(joint(), numbers, ct.fedres_avg(server_scale=1.2, **batches(steps=3)))
    for cohort, lost in (((0, 3), ()), ((1, 2, 3, 6), (2,)), ((5,), (5,)), (range(7), (0, 6)), (range(7), ())):
        before = shared(loop)
        loop.play(1, cohort, lost)
        close((control(loop) - controls(loop)).sum(axis=0), 0)
    close(shared(loop) - before, -1.2 * ETA * 3 * controls(loop).mean(axis=0))


STILL = {"step_size": ETA, "private_step_size": 0.0, "steps": STEPS}


@pytest.mark.parametrize("recipe, known, batch_size", [
    (ct.fedres_naive, ct.fedavg(step_size=ETA, steps=STEPS, batch_size=4, weighting="uniform"), 4),
    (lambda **work: ct.fedres_avg(option="I", **work),
     ct.fedavg(step_size=ETA, steps=STEPS, batch_size=None, weighting="uniform"), None),
    (lambda **work: ct.fedres_avg(option="II", **work), ct.scaffold(step_size=ETA, steps=STEPS, batch_size=None), None),
], ids=["naive is FedAvg", "avg I is FedAvg", "avg II is SCAFFOLD"])
def test_with_private_parts_that_stay_at_zero(recipe, known, batch_size, plain_loop, least_squares, numbers):
    own = plain_loop(joint(own=np.zeros(3)), numbers, recipe(batch_size=batch_size, **STILL))
    other = plain_loop(least_squares, numbers, known)
    other.begin(({"layer0": {"weight": START[:, None]}}, other.start[1]))
    for cohort in COHORTS:
        close(shared(own.play(1, cohort)), other.play(1, cohort).weight)
    assert not privates(own).any()


@pytest.mark.parametrize("build", [ct.fedres_sgd, ct.fedres_avg])
def test_one_step_at_the_rates_of_theorem_one_is_block_gradient_descent_on_the_mean_loss(
        build, plain_loop, numbers, quadratics):
    """First all theta_i, then w, each by -eta times the gradient of (1/N) sum_i L_i in that block."""
    loop = plain_loop(joint(), numbers, build(step_size=0.2, preset="theorem1", steps=1, batch_size=None))

    def mean_loss(w, thetas):
        points = w + thetas
        curved = jnp.einsum("ij,ijk,ik->i", points, quadratics.curvature, points)
        return (curved - 2 * jnp.einsum("ij,ij->i", points, quadratics.target)).mean()

    w, thetas = jnp.asarray(START), jnp.tile(OWN_START, (7, 1))
    for _ in range(4):
        thetas = thetas - 0.2 * jax.grad(mean_loss, argnums=1)(w, thetas)
        w = w - 0.2 * jax.grad(mean_loss)(w, thetas)
        close(shared(loop.play(1)), w)
        close(privates(loop), thetas)


@each_recipe
def test_where_both_parts_see_the_same_features_only_their_sum_matters(name, plain_loop, numbers):
    moved = np.array([0.7, -1.1, 2.0])
    here, there = (plain_loop(joint(START + shift, OWN_START - shift), numbers, RECIPES[name]) for shift in (0, moved))
    for cohort in COHORTS[:3]:
        close(shared(here.play(1, cohort)) + moved, shared(there.play(1, cohort)))
        close(privates(here) - moved, privates(there))


@each_recipe
def test_softmax_never_moves_the_sum_over_classes(name, plain_loop, labels):
    """The gradient of a logit is its probability minus 1 if it is the label's: over the classes they add up to 0."""
    random = np.random.default_rng(5)
    w, theta = random.normal(size=(2, 3, 4))  # a row for each class
    problem = ct.from_functions(lambda key: {"shared": jnp.asarray(w), "private": jnp.asarray(theta)},
                                lambda params, inputs: inputs @ (params["shared"] + params["private"]).T,
                                split="private")
    loop = plain_loop(problem, labels, RECIPES[name]).play(1, (1, 4)).play(2)
    close(shared(loop).sum(axis=0), w.sum(axis=0))
    close(privates(loop).sum(axis=1), np.tile(theta.sum(axis=0), (7, 1)))
    assert np.abs(shared(loop) - w).max() > 1e-2 and np.abs(privates(loop) - theta).max() > 1e-2


# Appendix E.1: L_1 = .1 (w + theta_1)^2 + 10 w and L_2 = .1 theta_2^2 - 10 w


TWO = ct.federation(np.array([[1.0, 10.0], [0.0, -10.0]]), np.zeros(2), ["first", "second"], test=0)
# At one common w the last terms cancel; L_1 + L_2 is .1 (w + theta_1)^2 + .1 theta_2^2, best at 0.
PULLED_APART = ct.from_functions(
    lambda key: {"shared": jnp.full((), 0.7), "private": jnp.full((), -0.2)},
    lambda params, inputs: (0.1 * (inputs[:, 0] * params["shared"] + params["private"]) ** 2
                            + inputs[:, 1] * params["shared"]),
    loss=lambda outputs, targets: outputs, split="private")
RATE = 0.01
MANY = {"step_size": RATE, "private_step_size": RATE, "batch_size": None}


class Drift(NamedTuple):
    """w + theta_1 over the rounds: it moves from .5 towards `limit`, and the distance shrinks by `factor`."""

    limit: float
    factor: float


def geometric(q, K):
    return (1 - q**K) / (1 - q)


def naive_drift(K):
    """Locally u -> q u - 10 eta, which tends to f; a round moves u by -(.1 eta + .2 lambda) times the sum of K u's."""
    q = 1 - 0.2 * (RATE + RATE)
    f, S = -10 * RATE / (1 - q), geometric(q, K)
    return Drift(f - f * K / S, 1 - 0.3 * RATE * S)


def printed_drift(K):
    """In the printed order theta_1 sees the u that w_i has moved: u -> (1 - .2 lambda)((1 - .2 eta) u - 10 eta)."""
    shrunk = 1 - 0.2 * RATE
    f, S = -10 * RATE * shrunk / (1 - shrunk**2), geometric(shrunk**2, K)
    pace = 0.1 * RATE + 0.2 * RATE * shrunk  # a round moves u by -pace times the sum of K u's, plus 2 lambda eta K
    return Drift(f + (2 * RATE**2 * K / pace - K * f) / S, 1 - pace * S)


def uncorrected_drift(K):
    """First theta_1 shrinks u by Q; then u -> q u - 10 eta at client 1, and half of what its w_i moves is w's."""
    Q, q = (1 - 0.2 * RATE) ** K, 1 - 0.2 * RATE
    f, S = -10 * RATE / (1 - q), geometric(q, K)
    return Drift(-0.1 * RATE * f * (K - S) / (1 - Q + 0.1 * RATE * S * Q), Q * (1 - 0.1 * RATE * S))


def sgd_drift(K):
    return Drift(0.0, (1 - 0.2 * RATE) ** K * (1 - 0.1 * RATE * K))


def pulled_apart(played, recipe, rounds):
    """w, theta_1 and theta_2 after some rounds, and the mean loss."""
    state = played(PULLED_APART, TWO, recipe, rounds)
    server, thetas = state.server.shared, state.clients.private
    losses = [PULLED_APART.loss(server, {"shared": None, "private": thetas["private"][client]},
                                jax.tree.map(jnp.asarray, TWO.train).client(client).full()) for client in (0, 1)]
    return float(server["shared"]), *thetas["private"].tolist(), float(sum(losses) / 2)


@pytest.mark.parametrize("K", [1, 50])
@pytest.mark.parametrize("build, drift", [
    (lambda **work: ct.fedres_naive(order="simultaneous", **work), naive_drift),
    (ct.fedres_naive, printed_drift),
    (lambda **work: ct.fedres_avg(option="I", **work), uncorrected_drift),
    (ct.fedres_sgd, sgd_drift),
], ids=["naive", "naive as printed", "avg I", "sgd"])
def test_the_drift_of_appendix_e1_is_the_one_found_by_hand(build, drift, K, played):
    limit, factor = drift(K)
    rounds = 1000 // K
    w, first, second, loss = pulled_apart(played, build(steps=K, **MANY), rounds)
    close(w + first, limit + factor**rounds * (0.5 - limit))
    close(second, -0.2 * (1 - 0.2 * RATE) ** (K * rounds))
    close(loss, 0.05 * (w + first) ** 2 + 0.05 * second**2)


def corrected_round(u, before, K):
    """Client 1 steps along .2 u + 10 - c_1 + c, and c - c_1 is -10 - .1 `before`, the mean u of its last round."""
    path = [u * (1 - 0.2 * RATE) ** K]
    while len(path) <= K:
        path.append(path[-1] - RATE * (0.2 * path[-1] - 0.1 * before))
    return path[0] - 0.1 * RATE * sum(path[:-1]), np.mean(path[:-1])


@pytest.mark.parametrize("K", [1, 50])
def test_a_corrected_average_finds_the_optimum_of_appendix_e1(K, played):
    rounds = 1000 // K
    u, before = 0.5, -100  # which stands for the c_1 = c = 0 of the start
    for _ in range(rounds):
        u, before = corrected_round(u, before, K)
    w, first, second, loss = pulled_apart(played, ct.fedres_avg(option="II", steps=K, **MANY), rounds)
    close(w + first, u)
    close(second, -0.2 * (1 - 0.2 * RATE) ** (K * rounds))
    close(loss, 0.05 * u**2 + 0.05 * second**2)
    # A round is a linear map of (u, before), and it contracts: to 0, the optimum.
    images = np.array([corrected_round(1.0, 0.0, K), corrected_round(0.0, 1.0, K)])
    assert np.abs(np.linalg.eigvals(images)).max() < 1 - 0.002 * K


def test_uncorrected_the_loss_stands_still_while_the_model_wanders_off_for_ever(played):
    K, rounds = 10, 1500
    recipe, limit = ct.fedres_avg(option="I", steps=K, **MANY), uncorrected_drift(K).limit
    earlier, later = (pulled_apart(played, recipe, rounds + more) for more in (0, 7))
    close(earlier[0] + earlier[1], limit)
    close(later[0] + later[1], limit)
    close(later[0] - earlier[0], 7 * (1 - (1 - 0.2 * RATE) ** K) * limit)
    assert limit > 0.1


# Example 1: two users who agree on cleanness and price, and not on noise and spice


SIGMA = 0.5
TASTES = np.array([[1.0, -1, 1, -1], [1, -1, -1, 1]])


@pytest.fixture(scope="module")
def users():
    """Rows whose second moments are exactly those of N(0, I), with noise of variance sigma^2 that no row explains."""
    rows = 2 * np.concatenate([np.eye(4), -np.eye(4)])
    noise = np.tile(SIGMA * np.array([1.0, -1, -1, 1]), 2)
    return ct.from_clients({user: (rows, rows @ taste + noise) for user, taste in zip("AB", TASTES, strict=True)},
                           test=0)


def preferences(penalty=0.0):
    """The squared loss of w + theta, and with penalty/2 ||theta||^2: (5), for at the best w the theta_i have mean 0."""
    plain = joint(np.zeros(4), np.zeros(4))
    return plain, plain._replace(loss=lambda w, theta, batch: (
        masked_mean(plain.score(w, theta, batch)["loss"], batch.mask) + penalty / 2 * (theta["private"] ** 2).sum()))


def mean_loss(problem, data, state):
    rows = jax.tree.map(jnp.asarray, data.train)
    return np.mean([problem.loss(state.server.shared, jax.tree.map(lambda leaf, i=i: leaf[i], state.clients.private),
                                 rows.client(i).full()) for i in range(data.population)])


@pytest.mark.parametrize("penalty", [0.0, 0.5, 3.0])
def test_the_losses_of_example_one_with_models_of_their_own(penalty, played, users):
    """sigma^2 + 2 (penalty / (2 + penalty))^2; without a penalty, the noise alone is left."""
    plain, penalised = preferences(penalty)
    recipe = ct.fedres_sgd(step_size=0.2, private_step_size=0.2, steps=2, batch_size=None)
    state = played(penalised, users, recipe, 400)
    close(mean_loss(plain, users, state), SIGMA**2 + 2 * (penalty / (2 + penalty)) ** 2)
    # The best theta_A is (0, 0, t, -t); without a penalty w may take its part of it.
    t = 2 / (2 + penalty)
    close(state.server.shared["shared"] + state.clients.private["private"], TASTES * [1, 1, t, t])
    if penalty:
        close(state.server.shared["shared"], [1, -1, 0, 0])  # not (1, 1, 0, 0), as appendix B has it


def test_the_loss_of_example_one_with_one_model_for_both(played, users):
    problem = ct.regression(users, ct.linear(bias=False))
    state = played(problem, users, ct.fedavg(step_size=0.2, steps=2, batch_size=None), 100)
    close(state.server.shared["layer0"]["weight"][:, 0], [1, -1, 0, 0])
    errors = [((x @ state.server.shared["layer0"]["weight"][:, 0] - y) ** 2).mean()
              for x, y in zip(np.split(users.train.inputs, 2), np.split(users.train.targets, 2), strict=True)]
    close(np.mean(errors), SIGMA**2 + 2)


# Step sizes, newcomers and refusals


def sent(recipe, round=0):
    algorithm = recipe.build(joint(), 16)
    server = algorithm.init_server(jax.random.key(0), *joint().init(jax.random.key(0)))
    message = algorithm.broadcast(jax.random.key(0), server._replace(round=jnp.int32(round)), None)
    return float(message.step_size), float(message.private_step_size)


def test_presets_choose_the_rates_of_the_theorems(plain_loop, numbers):
    fading = {"name": "step_decay", "start": 0.8, "factor": 0.5, "every": 1}
    for build in (ct.fedres_sgd, ct.fedres_avg):
        assert sent(build(step_size=fading, preset="theorem1"), 2) == (0.2, 0.2 / 16)
        assert sent(build(step_size=fading), 2) == (0.2, 0.2)
        assert sent(build(step_size=fading, private_step_size=0.3), 2) == (0.2, 0.3)
        assert sent(build(step_size=0.3, private_step_size=fading), 1) == (0.3, 0.4)
    assert sent(ct.fedres_avg(step_size=fading, preset="theorem2"), 2) == (0.2, 0.2 / 4)
    work = {"step_size": ETA, "steps": 3, "batch_size": None}
    loop = plain_loop(joint(), numbers, ct.fedres_avg(preset="theorem2", **work)).play(1)
    changes = [upload.change["shared"] for upload in loop.uploads.values()]
    close(shared(loop) - START, np.sqrt(7) * np.mean(changes, axis=0))


@pytest.mark.parametrize("name", ["sgd", "avg II"])
def test_a_newcomer_fits_its_private_part_and_one_who_has_acted_does_not(name, plain_loop, numbers, quadratics):
    recipe = RECIPES[name]
    loop = plain_loop(joint(), numbers, recipe).play(2, cohort=range(6))
    message = loop.message._replace(shared=loop.server.shared)

    def model(index):
        parts = loop.algorithm.model(jax.random.key(0), message, loop.clients[index], loop.train.client(index))
        return parts[0]["shared"], parts[1]["private"]

    np.testing.assert_array_equal(model(2)[1], privates(loop)[2])
    w, own = model(6)
    np.testing.assert_array_equal(w, shared(loop))
    steps = 5  # fit_epochs, a pass being one step on all examples
    close(own + w, quadratics.descended(np.tile(w + OWN_START, (7, 1)), LAMBDA, steps)[6])


@pytest.mark.parametrize("recipe, part", [
    (lambda: ct.fedres_naive(order="sideways"), "order is 'sideways'"),
    (lambda: ct.fedres_naive(private_step_size=-0.1), "private_step_size is -0.1; give 0 or more"),
    (lambda: ct.fedres_naive(step_size=0.0), "step_size is 0.0; give a number above 0"),
    (lambda: ct.fedres_sgd(steps=0), "steps is 0; give 1 or more"),
    (lambda: ct.fedres_sgd(preset="theorem2"), "preset is 'theorem2'; give one of 'theorem1'"),
    (lambda: ct.fedres_sgd(preset="theorem1", private_step_size=0.1), "'theorem1' chooses private_step_size, .*0.1"),
    (lambda: ct.fedres_avg(option="III"), "option is 'III'"),
    (lambda: ct.fedres_avg(server_scale=0.0), "server_scale is 0.0; give a number above 0"),
    (lambda: ct.fedres_avg(preset="theorem2", server_scale=1.0), "'theorem2' chooses server_scale, .* given as 1.0"),
    (lambda: ct.fedres_avg(fit_epochs=0), "fit_epochs is 0"),
])
def test_what_cannot_be_meant_is_refused(recipe, part):
    with pytest.raises(InputError, match=part):
        recipe().build(joint(), 7)


@pytest.mark.parametrize("recipe", [ct.fedres_naive(), ct.fedres_sgd(), ct.fedres_avg()], ids=lambda one: one.name)
def test_a_problem_without_a_private_part_is_refused(recipe, least_squares, numbers):
    with pytest.raises(InputError, match=f"{recipe.name} needs a private part and this problem has none"):
        ct.run(least_squares, numbers, recipe, rounds=1)


def test_an_upload_counted_twice_would_break_the_controls_and_nothing_else(numbers):
    twice = ct.rounds(cohort=3, replace=True)
    with pytest.raises(InputError, match="fedres_avg breaks when one upload counts twice"):
        ct.run(joint(), numbers, ct.fedres_avg(), rounds=1, clock=twice)
    assert not ct.fedres_avg(option="I").build(joint(), 7).needs.counts_once
