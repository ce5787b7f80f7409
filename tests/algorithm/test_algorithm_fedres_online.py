"""FedRes under delay, on the loss (y - w.x_global - w_i.x_local)^2, whose gradients are -2 residual x.

Steps are numbered from 0 here; the paper's are numbered from 1.
"""

import itertools

import jax
import numpy as np
import pytest
from starting import start

import cantons as ct

pytestmark = pytest.mark.usefixtures("float64")

CLIENTS, ROWS, STEPS, STEP = 4, 6, 20, 0.03
RULES = ("none", "paired", "full")


def drawn(clients=CLIENTS, rows=ROWS, width=5, seed=0):
    random = np.random.default_rng(seed)
    return [(random.normal(size=(rows, width)), random.normal(size=rows)) for _ in range(clients)]


def federation(rows):
    return ct.from_clients({str(number): pair for number, pair in enumerate(rows)}, test=0)


def joint(data, shared=(0, 1, 2), private=(2, 3, 4), bias=False, **options):
    line = ct.linear(bias=bias)
    return ct.residual(data, shared_features=list(shared), private_features=list(private), shared_model=line,
                       private_model=line, **options)


class Path:
    """Every model on the way, and every loss charged; entry t holds what predicts in step t."""

    def __init__(self, problem, data, recipe, steps=STEPS, **clock):
        ticking = ct.online(**clock).build(data.population)
        session = start(ct.Local(), problem, recipe.build(problem, data.population), ticking, data, None, 0)
        state, self.states = session.begin(), []
        charged = [np.zeros(data.population)]
        for step in range(steps):
            self.states.append(jax.device_get(state))
            state = session.advance(state, step + 1)
            charged.append(np.asarray(state.in_flight.scores["loss"]))
        self.last = jax.device_get(state)
        self.losses = np.diff(charged, axis=0)
        everything = [*self.states, self.last]
        self.shared = np.array([flat(one.server.shared) for one in everything])
        clients = [one.clients for one in everything]
        self.private = np.array([rows(one.private if hasattr(one, "private") else one.parts) for one in clients])


def flat(tree):
    leaves = [np.ravel(leaf) for leaf in jax.tree.leaves(tree)]
    return np.concatenate(leaves) if leaves else np.zeros(0)


def rows(tree):
    leaves = [leaf.reshape(leaf.shape[0], -1) for leaf in jax.tree.leaves(tree)]
    return np.concatenate(leaves, axis=1) if leaves else np.zeros((0, 0))


def joint_descent(pairs, shared, private, delay=0, steps=STEPS, step_size=STEP):
    """Gradient descent on the summed loss of (w, w_1, ..., w_P) with gradients `delay` steps old; losses and points."""
    point = np.zeros(len(shared) + len(pairs) * len(private))
    gradients, losses, points = [], [], []
    for now in range(steps):
        if now > delay:
            point = point - step_size * gradients[now - 1 - delay]
        gradient, charged = np.zeros_like(point), []
        for number, (inputs, targets) in enumerate(pairs):
            row = now % len(targets)
            place = slice(len(shared) + number * len(private), len(shared) + (number + 1) * len(private))
            features = np.zeros_like(point)
            features[: len(shared)], features[place] = inputs[row][shared], inputs[row][private]
            error = targets[row] - point @ features
            charged.append(error**2)
            gradient -= 2 * error * features
        gradients.append(gradient)
        losses.append(charged)
        points.append(point)
    return np.array(losses), np.array(points)


@pytest.mark.parametrize("clients", [1, CLIENTS])
@pytest.mark.parametrize("alignment", RULES)
def test_without_delay_it_is_descent_on_the_summed_loss(clients, alignment):
    pairs = drawn(clients)
    data = federation(pairs)
    path = Path(joint(data), data, ct.fedres_online_sgd(step_size=STEP, alignment=alignment))
    losses, points = joint_descent(pairs, [0, 1, 2], [2, 3, 4])
    np.testing.assert_allclose(path.losses, losses, atol=1e-12)
    np.testing.assert_allclose(path.shared[:-1], points[:, :3], atol=1e-12)
    np.testing.assert_allclose(path.private[:-1].reshape(STEPS, -1), points[:, 3:], atol=1e-12)


def test_with_delay_the_three_rules_differ():
    data = federation(drawn())
    paths = [Path(joint(data), data, ct.fedres_online_sgd(step_size=STEP, alignment=rule), uplink=2, downlink=1)
             for rule in RULES]
    for one, other in ((0, 1), (1, 2), (0, 2)):
        assert np.abs(paths[one].losses - paths[other].losses).max() > 1e-3


@pytest.mark.parametrize(("up", "down"), [(3, 0), (0, 3), (1, 2)])
def test_common_delays_count_only_in_sum_and_make_joint_delayed_descent(up, down):
    pairs = drawn()
    data = federation(pairs)
    path = Path(joint(data), data, ct.fedres_online_sgd(step_size=STEP), uplink=up, downlink=down)
    np.testing.assert_allclose(path.losses, joint_descent(pairs, [0, 1, 2], [2, 3, 4], delay=3)[0], atol=1e-12)


def test_delays_that_differ_from_client_to_client_count_one_by_one():
    data = federation(drawn())
    paths = [Path(joint(data), data, ct.fedres_online_sgd(step_size=STEP), uplink=up, downlink=down)
             for up, down in (([3, 0, 1, 2], [0, 3, 2, 1]), ([0, 3, 2, 1], [3, 0, 1, 2]))]
    assert np.abs(paths[0].losses - paths[1].losses).max() > 1e-3


def test_nobody_moves_before_word_can_have_come():
    data = federation(drawn())
    up, down = np.array([4, 2, 3, 5]), np.array([1, 3, 0, 2])
    path = Path(joint(data), data, ct.fedres_online_sgd(step_size=STEP), uplink=up, downlink=down)
    moved = (path.shared != 0).any(axis=1)
    assert moved.argmax() == up.min() + 1  # the paper's min alpha_i + 2
    np.testing.assert_array_equal((path.private != 0).any(axis=2).argmax(axis=0), up + down + 1)  # its tau_i + 2


# Links that differ, clients that are silent now and then, and gradients that come alone or not at all.
UNEVEN = {
    "the same delays": {"uplink": 2, "downlink": 1},
    "delays that differ": {"uplink": [0, 2, 1, 3], "downlink": [1, 0, 2, 0]},
    "random delays": {"uplink": {"least": 0, "most": 3}},
    "silent clients": {"active": {"probability": [0.3, 1.0, 0.5, 0.8]}},
    "late and silent": {"uplink": [0, 2, 1, 3], "active": {"probability": 0.6}},
    "rare clients count more": {"active": {"probability": [0.3, 1.0, 0.5, 0.8]}, "weights": "inverse"},
}
LEARNERS = {f"fedres, {rule}": (ct.fedres_online_sgd, {"alignment": rule, "private_step_size": STEP}) for rule in RULES}
LEARNERS |= {f"central, {rule}": (ct.online_central, {"alignment": rule}) for rule in ("none", "paired")}


# Every learner under the links that are least even, and every kind of links once.
@pytest.mark.parametrize("links, learner", [
    *(("late and silent", learner) for learner in LEARNERS),
    *zip(sorted(set(UNEVEN) - {"late and silent"}), itertools.cycle(LEARNERS), strict=False)])
def test_a_sum_with_one_step_size_is_a_mean_with_another(learner, links):
    """A gradient that has not arrived counts as 0 in both."""
    data, (choose, options) = federation(drawn()), LEARNERS[learner]
    total = Path(joint(data), data, choose(step_size=STEP, **options), **UNEVEN[links])
    mean = Path(joint(data), data, choose(step_size=CLIENTS * STEP, combine="mean", **options), **UNEVEN[links])
    np.testing.assert_allclose(mean.losses, total.losses, atol=1e-12)
    np.testing.assert_allclose(mean.shared, total.shared, atol=1e-12)


@pytest.mark.parametrize("alignment", RULES)
def test_the_mean_of_what_arrived_is_a_gradient_by_itself_when_it_comes_alone(alignment):
    """One client's messages come at once and the others' never: for the server it is the only one there is."""
    pairs = drawn()
    recipe = ct.fedres_online_sgd(step_size=STEP, combine="arrived", alignment=alignment)
    one, many = (Path(joint(federation(pairs)), federation(some), recipe, uplink=up, steps=10)
                 for some, up in ((pairs[:1], 0), (pairs, [0, 99, 99, 99])))
    np.testing.assert_allclose(many.shared, one.shared, atol=1e-12)
    total = Path(joint(federation(pairs)), federation(pairs), ct.fedres_online_sgd(step_size=STEP, alignment=alignment),
                 steps=10)
    arrived = Path(joint(federation(pairs)), federation(pairs), ct.fedres_online_sgd(
        step_size=CLIENTS * STEP, private_step_size=STEP, combine="arrived", alignment=alignment), steps=10)
    np.testing.assert_allclose(arrived.shared, total.shared, atol=1e-12)


@pytest.mark.parametrize("alignment", RULES)
def test_copies_of_a_client_averaged_are_one_client(alignment):
    pair = drawn(1)
    recipe = ct.fedres_online_sgd(step_size=STEP, combine="mean", alignment=alignment)
    one, many = (Path(joint(federation(pair)), data, recipe, uplink=1, downlink=1)
                 for data in (federation(pair), federation(3 * pair)))
    np.testing.assert_allclose(many.losses, np.tile(one.losses, 3), atol=1e-12)
    np.testing.assert_allclose(many.shared, one.shared, atol=1e-12)


@pytest.mark.parametrize("alignment", RULES)
def test_without_global_features_everybody_descends_alone(alignment):
    pairs = drawn()
    data = federation(pairs)
    recipe = ct.fedres_online_sgd(step_size=STEP, alignment=alignment)
    path = Path(joint(data, shared=()), data, recipe)
    alone = [joint_descent([pair], [], [2, 3, 4])[0] for pair in pairs]
    np.testing.assert_allclose(path.losses, np.concatenate(alone, axis=1), atol=1e-12)
    reference = Path(joint(data, shared=()), data, ct.online_independent(step_size=STEP))
    np.testing.assert_allclose(reference.losses, path.losses, atol=1e-12)


def test_without_local_features_it_is_central_descent():
    pairs = drawn()
    data = federation(pairs)
    losses, _ = joint_descent(pairs, [0, 1, 2], [], delay=3)
    problem = joint(data, private=())
    path = Path(problem, data, ct.fedres_online_sgd(step_size=STEP), uplink=1, downlink=2)
    np.testing.assert_allclose(path.losses, losses, atol=1e-12)
    central = Path(joint(data), data, ct.online_central(step_size=STEP), uplink=1, downlink=2)  # private parts or not
    np.testing.assert_allclose(central.losses, losses, atol=1e-12)


def test_alone_means_all_features_and_no_delay():
    pairs = drawn()
    data = federation(pairs)
    path = Path(joint(data, private=(3, 4)), data, ct.online_independent(step_size=STEP), uplink=4, downlink=2)
    alone = [joint_descent([pair], [0, 1, 2, 3, 4], [])[0] for pair in pairs]
    np.testing.assert_allclose(path.losses, np.concatenate(alone, axis=1), atol=1e-12)
    assert path.last.ledger[:, 3].sum() == 0


@pytest.mark.parametrize("alignment", RULES)
def test_iterates_stay_in_their_balls(alignment):
    data = federation(drawn())
    path = Path(joint(data), data, ct.fedres_online_sgd(step_size=0.3, radius=0.5, private_radius=0.25,
                                                        alignment=alignment), uplink=1)
    norms = np.linalg.norm(path.shared, axis=1), np.linalg.norm(path.private, axis=2)
    assert norms[0].max() <= 0.5 * (1 + 1e-12) and norms[1].max() <= 0.25 * (1 + 1e-12)
    assert norms[0].max() > 0.49 and norms[1].max() > 0.24


def test_the_server_needs_the_global_features_the_local_predictions_and_the_targets():
    """Its whole path comes back from these and its own past models; the local models' weights are never looked at."""
    pairs = drawn()
    data = federation(pairs)
    up, down = [2, 0, 1, 3], [0, 2, 1, 1]
    path = Path(joint(data), data, ct.fedres_online_sgd(step_size=STEP, alignment="paired"), uplink=up, downlink=down)
    letters = [[(inputs[now % ROWS][:3], path.private[now, i] @ inputs[now % ROWS][2:], targets[now % ROWS])
                for i, (inputs, targets) in enumerate(pairs)] for now in range(STEPS)]
    server = [np.zeros(3)]
    for now in range(STEPS):
        gradient = np.zeros(3)
        for i in range(CLIENTS):
            sent = now - up[i]
            if sent >= 0:
                features, local, target = letters[sent][i]
                gradient -= 2 * (target - server[max(sent - down[i], 0)] @ features - local) * features
        server.append(server[-1] - STEP * gradient)
    np.testing.assert_allclose(path.shared, server, atol=1e-12)


def test_with_the_same_features_the_server_moves_as_much_as_all_clients_together():
    data = federation(drawn())
    path = Path(joint(data, shared=range(5), private=range(5)), data,
                ct.fedres_online_sgd(step_size=STEP, alignment="paired"))
    np.testing.assert_allclose(path.shared, path.private.sum(axis=1), atol=1e-12)


@pytest.mark.parametrize("delay", [0, 1, 4])
def test_the_aligned_rule_is_stable_up_to_the_delayed_limit_and_not_beyond(delay):
    """One unchanging example: stable if and only if eta times the curvature is below 2 sin(pi / (2 (2 tau + 1)))."""
    inputs, targets = np.array([[0.8, 0.6]]), np.array([1.0])
    data = federation([(inputs, targets)])
    limit = 2 * np.sin(np.pi / (2 * (2 * delay + 1))) / (2 * (inputs**2).sum())
    late = []
    for factor in (0.97, 1.03):
        recipe = ct.fedres_online_sgd(step_size=factor * limit)
        path = Path(joint(data, shared=[0], private=[1]), data, recipe, steps=700, uplink=delay)
        late.append(np.median(path.losses[-50:]) / np.median(path.losses[50:100]))
    assert late[0] < 0.5 and late[1] > 2


def test_a_batch_is_one_example_with_the_mean_loss():
    """A batch of b is a stream of b-row losses: descend on their means by hand."""
    pairs = drawn(rows=6)
    data = federation(pairs)
    path = Path(joint(data), data, ct.fedres_online_sgd(step_size=STEP), uplink=1, batch=3, steps=8)
    shared, private = [np.zeros(3)], [[np.zeros(3)] for _ in pairs]
    halves = []
    for now in range(8):
        if now >= 2:
            shared.append(shared[-1] - STEP * sum(half[0] for half in halves[now - 2]))
            for own, half in zip(private, halves[now - 2], strict=True):
                own.append(own[-1] - STEP * half[1])
        halves.append([])
        for number, (inputs, targets) in enumerate(pairs):
            rows = (3 * now + np.arange(3)) % 6
            errors = targets[rows] - inputs[rows][:, :3] @ shared[-1] - inputs[rows][:, 2:] @ private[number][-1]
            np.testing.assert_allclose(path.losses[now, number], (errors**2).mean(), atol=1e-12)
            halves[-1].append(tuple(-2 * errors @ inputs[rows][:, part] / 3 for part in (slice(0, 3), slice(2, 5))))


def test_adagrad_divides_by_the_root_of_all_squares_so_far():
    pairs = drawn(1)
    data = federation(pairs)
    path = Path(joint(data), data, ct.fedres_online_sgd(step_size=0.5, method="adagrad"))
    point, squares = np.zeros(6), np.zeros(6)
    (inputs, targets), = pairs
    for now in range(STEPS):
        features = inputs[now % ROWS][[0, 1, 2, 2, 3, 4]]
        error = targets[now % ROWS] - point @ features
        np.testing.assert_allclose(path.losses[now, 0], error**2, rtol=1e-10)
        gradient = -2 * error * features
        squares += gradient**2
        point -= 0.5 * gradient / np.sqrt(squares)


def test_a_clipped_output_keeps_its_error_and_its_gradient():
    """As in Vowpal Wabbit: the error is that of the clipped output, the gradient looks past the clipping."""
    data = federation([(np.array([[2.0, 1.0]]), np.array([-1.0]))])
    problem = joint(data, shared=[0], private=[1], clip=1.0, labels="sign")
    shared, private = ({"layer0": {"weight": np.array([[value]])}} for value in (3.0, 1.0))
    loss, gradients = jax.value_and_grad(problem.loss, argnums=(0, 1))(shared, private, data.train.client(0).full())
    assert loss == 4.0  # the output is 7, clipped to 1
    assert (float(gradients[0]["layer0"]["weight"][0, 0]), float(gradients[1]["layer0"]["weight"][0, 0])) == (8.0, 4.0)


def test_a_network_on_one_side_and_classes_work_too(labels):
    problem = ct.residual(labels, shared_model=ct.mlp(hidden=(8,)))
    result = ct.run(problem, labels, ct.fedres_online_sgd(step_size=0.1, combine="mean"), rounds=60,
                    clock=ct.online(uplink=1, downlink=1, batch=2))
    first, last = (result.history[place]["train.personal.loss.mean"] for place in (0, -1))
    assert last < first
    assert result.final["online.personal.accuracy.mean"] > 0.3


@pytest.mark.parametrize(("options", "words"), [
    ({"shared": (), "private": ()}, "both feature sets are empty"),
    ({"shared": (7,)}, "column 7; inputs have 5 columns"),
    ({"shared": (1, 1)}, "names a column twice"),
])
def test_features_that_are_not_there_are_refused(options, words):
    with pytest.raises(ct.InputError, match=words):
        joint(federation(drawn()), **options)


def test_a_problem_without_halves_is_refused(least_squares):
    with pytest.raises(ct.InputError, match="joint prediction"):
        ct.fedres_online_sgd().build(least_squares, 3)
