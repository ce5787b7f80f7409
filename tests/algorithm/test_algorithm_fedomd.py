"""FedOMD on points that follow targets, where every step is known by hand. Steps count from 0; the paper's from 1."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import starting

import cantons as ct
from cantons.mirror import ball, euclidean, p_norm

pytestmark = pytest.mark.usefixtures("float64")

CLIENTS, STEPS = 5, 24
BOX = {"name": "box", "low": -1.0, "high": 1.0}


def targets(clients=CLIENTS, steps=STEPS, width=1, seed=0):
    return np.random.default_rng(seed).normal(0.5, 1.0, (clients, steps, width)).astype(np.float32).astype(float)


def federation(values):
    return ct.from_clients({str(number): (own, np.zeros(len(own))) for number, own in enumerate(values)}, test=0)


class Path:
    """The points that predict in each step, and what they were charged."""

    def __init__(self, values, recipe, steps=STEPS, loss="half_squared", start=0.0, problem=None, **clock):
        data = federation(values)
        problem = problem or ct.target(data, loss=loss, start=start)
        session = starting.start(ct.Local(), problem, recipe.build(problem, data.population),
                                   ct.online(**clock).build(data.population), data, None, 0)
        state, self.points, charged, everyone = session.begin(), [], [], []
        for step in range(steps):
            self.points.append(np.asarray(state.clients.point["point"]))
            state = session.advance(state, step + 1)
            charged.append(np.asarray(state.in_flight.scores["loss"]))
            everyone.append(np.asarray(state.in_flight.scores.get("global_loss", np.zeros(data.population))))
        self.last, self.points = state, np.array(self.points)
        self.losses, self.global_losses = (np.diff(part, axis=0, prepend=0) for part in (charged, everyone))


def by_hand(values, step_size, tau, low=-np.inf, high=np.inf, steps=STEPS, start=0.0):
    """Algorithm 1 for half squares in a box."""
    points, path = np.full(values.shape[::2], start), []
    for now in range(steps):
        if now and now % tau == 0:
            points = np.tile(points.mean(axis=0), (len(points), 1))
        path.append(points)
        points = np.clip(points - step_size(now + 1) * (points - values[:, now]), low, high)
    return np.array(path)


@pytest.mark.parametrize("tau", [1, 4, 7])
def test_algorithm_1_in_a_box(tau):
    values = targets()
    path = Path(values, ct.fedomd(step_size=0.3, within=BOX), sync=tau)
    np.testing.assert_allclose(path.points, by_hand(values, lambda t: 0.3, tau, -1, 1), atol=1e-12)


def test_synchronised_always_and_unconstrained_it_is_descent_on_the_mean_loss():
    values = targets()
    path = Path(values, ct.fedomd(step_size=0.3))
    point = np.zeros(1)
    for now in range(STEPS):
        np.testing.assert_allclose(path.points[now], np.tile(point, (CLIENTS, 1)), atol=1e-12)
        point = point - 0.3 * (point - values[:, now].mean(axis=0))


def test_an_active_box_breaks_that():
    values = 3 * targets()
    path = Path(values, ct.fedomd(step_size=0.9, within=BOX))
    mean = by_hand(values.mean(axis=0, keepdims=True), lambda t: 0.9, 1, -1, 1)
    assert np.abs(path.points[:, :1] - mean).max() > 1e-3


@pytest.mark.parametrize("clock", [{"sync": 1}, {"sync": 6}, {"sync": 6, "counted": 2}])
def test_identical_clients_are_one_client(clock):
    values = np.repeat(targets(1), CLIENTS, axis=0)
    path = Path(values, ct.fedomd(step_size=0.3, within=BOX), **clock)
    np.testing.assert_allclose(path.points, np.repeat(by_hand(values[:1], lambda t: 0.3, 1, -1, 1), CLIENTS, axis=1),
                               atol=1e-12)


def test_one_client_does_not_care_when_it_synchronises():
    paths = [Path(targets(1), ct.fedomd(step_size=0.3), **clock).points for clock in (
        {"sync": 1}, {"sync": 5}, {"sync": [1, 4, 17]}, {"sync": {"probability": 0.3}})]
    for one, other in itertools.pairwise(paths):
        np.testing.assert_allclose(one, other, atol=1e-13)


def test_the_map_and_the_step_size_scale_together():
    values = targets(width=3)
    one, other = (Path(values, ct.fedomd(step_size=0.2 * scale, mirror=euclidean(scale), within=BOX), sync=3)
                  for scale in (1.0, 4.0))
    np.testing.assert_allclose(one.points, other.points, atol=1e-12)


def test_counting_everybody_is_counting_all():
    values = targets()
    one, other = (Path(values, ct.fedomd(step_size=0.3), sync=4, **extra) for extra in ({}, {"counted": CLIENTS}))
    np.testing.assert_allclose(one.points, other.points, atol=1e-13)


def test_the_mean_of_the_few_who_are_counted_goes_to_all():
    values = targets()
    path = Path(values, ct.fedomd(step_size=0.3), sync=4, counted=2)
    for now in range(4, STEPS, 4):
        assert np.ptp(path.points[now]) < 1e-12  # everybody has it
        before = path.points[now - 1] - 0.3 * (path.points[now - 1] - values[:, now - 1])
        means = [before[list(pair)].mean() for pair in itertools.combinations(range(CLIENTS), 2)]
        assert np.abs(np.array(means) - path.points[now, 0, 0]).min() < 1e-12
    np.testing.assert_array_equal(path.last.uploads.sum(), 2 * (STEPS // 4))
    np.testing.assert_array_equal(path.last.downloads, STEPS // 4)


def test_an_explicit_list_is_the_papers_set_of_synchronisations():
    values = targets()
    listed = Path(values, ct.fedomd(step_size=0.3), sync=[1, 7, 13, 19])
    periodic = Path(values, ct.fedomd(step_size=0.3), sync=6)
    np.testing.assert_allclose(listed.points, periodic.points, atol=1e-13)


def test_a_meeting_at_the_end_touches_the_last_points_alone_and_the_last_loss_no_point():
    values = targets()
    other = np.concatenate([values[:, :-1], values[:, -1:] + 1], axis=1)
    apart, together, changed = (Path(own, ct.fedomd(step_size=0.3), sync=meetings) for own, meetings in (
        (values, [1, 7]), (values, [1, 7, STEPS]), (other, [1, 7, STEPS])))
    np.testing.assert_array_equal(together.points[:-1], apart.points[:-1])
    assert np.ptp(together.points[-1]) < 1e-12 < np.ptp(apart.points[-1])
    np.testing.assert_array_equal(changed.points, together.points)


def test_drift_is_bounded_by_twice_the_steps_since_the_last_synchronisation():
    values = targets(width=2)
    path = Path(values, ct.fedomd(step_size=0.1, within=BOX), sync=6)
    gradients = np.linalg.norm(path.points - values.swapaxes(0, 1), axis=2)
    drift = np.linalg.norm(path.points - path.points.mean(axis=1, keepdims=True), axis=2)
    since = np.arange(STEPS) % 6
    assert (drift <= 2 * 0.1 * gradients.max() * since[:, None] + 1e-12).all()


def test_never_synchronised_entropy_on_linear_losses_is_a_softmax_of_the_past():
    values = targets(width=4)
    path = Path(values, ct.fedomd(step_size=0.5, mirror="entropy", within="simplex"), loss="linear", start=0.25,
                sync=STEPS)
    past = np.concatenate([np.zeros((CLIENTS, 1, 4)), np.cumsum(values, axis=1)[:, :-1]], axis=1)
    expected = np.asarray(jax.nn.softmax(-0.5 * past, axis=-1)).swapaxes(0, 1)
    np.testing.assert_allclose(path.points, expected, atol=1e-12)


def test_p_norm_2_is_euclid():
    values = targets(width=3)
    one, other = (Path(values, ct.fedomd(step_size=0.3, mirror=map_, within=ball(0.5)), sync=3)
                  for map_ in (euclidean(), p_norm(2.0)))
    np.testing.assert_allclose(one.points, other.points, atol=1e-12)


def test_constant_losses_make_it_fedavg():
    values = np.repeat(targets(steps=1), STEPS, axis=1)
    data = federation(values[:, :1])
    problem = ct.target(data)
    averaged = ct.run(problem, data, ct.fedavg(step_size=0.3, steps=6, batch_size=None, weighting="uniform"), rounds=3,
                      precision="float64")
    path = Path(values, ct.fedomd(step_size=0.3), steps=19, sync=6)
    np.testing.assert_allclose(path.points[18, 0], averaged.model.state.server.shared["point"], atol=1e-12)


def test_steps_of_1_over_t_make_the_running_mean_of_the_mean_targets():
    values = targets()
    recipe = ct.fedomd(step_size={"name": "inverse", "start": 1.0})
    paths = {tau: Path(values, recipe, sync=tau, score="everyone") for tau in (1, 6)}
    means = np.cumsum(values.mean(axis=0)[:, 0])[:-1] / np.arange(1, STEPS)
    for path in paths.values():
        np.testing.assert_allclose(path.points.mean(axis=1)[1:, 0], means, atol=1e-12)
    # Regret grows with the period by half the summed variance over clients, exactly.
    regrets = {tau: path.global_losses.mean(axis=1).sum() for tau, path in paths.items()}
    variance = paths[6].points[..., 0].var(axis=1).sum()
    np.testing.assert_allclose(regrets[6] - regrets[1], variance / 2, atol=1e-12)


def test_everybody_is_charged_the_loss_of_all():
    values = targets(width=2)
    path = Path(values, ct.fedomd(step_size=0.3, within=BOX), sync=5, score="everyone")
    gaps = path.points[:, :, None] - values.swapaxes(0, 1)[:, None]  # step, model, target
    np.testing.assert_allclose(path.global_losses, (gaps**2).sum(-1).mean(axis=2) / 2, atol=1e-12)
    np.testing.assert_allclose(path.losses, np.einsum("tiid->ti", gaps**2) / 2, atol=1e-12)


def test_the_average_of_all_predictions_is_kept():
    values = targets()
    path = Path(values, ct.fedomd(step_size=0.3), sync=5)
    average = np.asarray(path.last.clients.total["point"]) / STEPS
    np.testing.assert_allclose(average, path.points.mean(axis=0), atol=1e-12)


def test_private_parts_are_never_averaged(numbers):
    problem = ct.regression(numbers, ct.linear(), split="*/bias")
    result = ct.run(problem, numbers, ct.fedomd(step_size=0.05), rounds=12, clock=ct.online(sync=3),
                    precision="float64")
    clients = result.model.state.clients
    assert np.ptp(clients.point["layer0"]["weight"], axis=0).max() < 1e-12  # just synchronised
    assert np.ptp(clients.private["layer0"]["bias"], axis=0).max() > 1e-3


def test_a_network_in_a_ball(labels):
    problem = ct.classification(labels, ct.mlp(hidden=(8,)))
    result = ct.run(problem, labels, ct.fedomd(step_size=0.5, within={"name": "ball", "radius": 4.0}), rounds=40,
                    clock=ct.online(sync=4, batch=2))
    norms = np.sqrt(sum((leaf.reshape(len(leaf), -1) ** 2).sum(axis=1)
                        for leaf in jax.tree.leaves(result.model.state.clients.point)))
    assert norms.max() <= 4.0001
    assert result.final["train.personal.loss.mean"] < result.history[0]["train.personal.loss.mean"]


def test_adagrad_scales_each_coordinate():
    values = targets(1, width=3)
    path = Path(values, ct.fedomd(step_size=0.5, adaptive="adagrad", within=BOX))
    point, squares = np.zeros(3), np.zeros(3)
    for now in range(STEPS):
        np.testing.assert_allclose(path.points[now, 0], point, atol=1e-12)
        gradient = point - values[0, now]
        squares += gradient**2
        point = np.clip(point - 0.5 * gradient / np.sqrt(squares), -1, 1)


def test_distance_over_gradients_needs_no_step_size():
    """The optimum is 100 away: fixed steps must be told, this one finds out."""
    values = targets(steps=400, width=1) + 100
    path = Path(values, ct.fedomd(adaptive="dog"), steps=400, sync=4)
    assert np.abs(path.points[-50:] - values.mean()).mean() < 5


@pytest.mark.parametrize("feedback", ["two_point", "one_point"])
def test_gradients_estimated_from_losses_are_right_on_average(feedback):
    data = federation(targets(1, width=2))
    problem = ct.target(data)
    from cantons.algorithm.fedomd import gradient_estimator

    estimate = gradient_estimator(problem, feedback, 0.5)
    batch = data.train.client(0).sample(jax.random.key(3), 1)
    point = {"point": jnp.array([0.3, -0.8])}
    keys = jax.random.split(jax.random.key(0), 40_000)
    found = jax.vmap(lambda key: estimate(key, point, {}, batch)[0]["point"])(keys)
    exact = jax.grad(problem.loss)(point, {}, batch)["point"]
    error = np.asarray(found).std(axis=0) / np.sqrt(len(keys))
    assert (np.abs(np.asarray(found).mean(axis=0) - exact) < 5 * error).all()


@pytest.mark.parametrize(("recipe", "words"), [
    (lambda: ct.fedomd(mirror="entropy", within="all"), "unknown within 'all'"),
    (lambda: ct.fedomd(mirror="entropy", within={"name": "ball", "radius": 1.0}), "entropy"),
    (lambda: ct.fedomd(mirror={"name": "p_norm", "p": 1.5}, within="simplex"), "simplex"),
    (lambda: ct.fedomd(adaptive="adagrad", within="simplex"), "adagrad"),
])
def test_pairs_without_an_exact_step_are_refused(recipe, words):
    data = federation(targets())
    with pytest.raises(ct.InputError, match=words):
        recipe().build(ct.target(data), CLIENTS)


@pytest.mark.parametrize(("options", "words"), [
    ({"sync": []}, "give a period, or the steps"),
    ({"sync": [1, 9, 4]}, "they begin with 1 and rise"),
    ({"sync": [3, 9]}, "they begin with 1 and rise"),
    ({"sync": 0}, "sync"),
    ({"sync": {"chance": 0.1}}, "key probability"),
    ({"counted": 6}, "counted is 6 but there are only 5 clients"),
    ({"score": "nobody"}, "score"),
])
def test_synchronisations_that_make_no_sense_are_refused(options, words):
    with pytest.raises(ct.InputError, match=words):
        ct.online(**options).build(CLIENTS)


def test_a_period_longer_than_the_run_is_refused():
    data = federation(targets())
    with pytest.raises(ct.InputError, match="clients would never meet"):
        ct.run(ct.target(data), data, ct.fedomd(), rounds=10, clock=ct.online(sync=11))


def test_a_start_outside_the_set_is_refused():
    data = federation(targets())
    with pytest.raises(ct.InputError, match="the start is outside a box"):
        ct.run(ct.target(data, start=2.0), data, ct.fedomd(within=BOX), rounds=10, clock=ct.online())


def test_a_client_whose_loss_is_not_a_number_abstains_and_is_counted():
    values = targets()
    data = federation(values)
    broken = ct.target(data)

    def infinite_beyond(shared, private, batch):
        return jnp.where(batch.inputs[0, 0] > 2.0, jnp.nan, ct.target(data).loss(shared, private, batch))

    problem = broken._replace(loss=infinite_beyond, score=lambda shared, private, batch: {
        "loss": infinite_beyond(shared, private, batch)[None]})
    path = Path(values, ct.fedomd(step_size=0.3), problem=problem, sync=4)
    silent = values[..., 0].T > 2.0
    assert silent.sum() > 0
    np.testing.assert_array_equal(path.last.rejected, silent.sum(axis=0))
    np.testing.assert_array_equal(path.last.in_flight.met, STEPS)  # the example is gone all the same
    assert np.isfinite(path.points).all() and np.isfinite(path.losses).all()
    step, client = np.argwhere(silent & (np.arange(STEPS)[:, None] % 4 != 3))[0]
    np.testing.assert_array_equal(path.points[step + 1, client], path.points[step, client])


def test_with_late_labels_a_client_learns_from_what_it_met_before():
    values = targets()
    path = Path(values, ct.fedomd(step_size=0.3), sync=4, label_delay=3)
    points = np.zeros((CLIENTS, 1))
    for now in range(STEPS):
        if now % 4 == 0 and now > 3:  # before that there was nothing to send
            points = np.tile(points.mean(axis=0), (CLIENTS, 1))
        np.testing.assert_allclose(path.points[now], points, atol=1e-12)
        np.testing.assert_allclose(path.losses[now], (points[:, 0] - values[:, now, 0]) ** 2 / 2, atol=1e-12)
        if now >= 3:
            points = points - 0.3 * (points - values[:, now - 3])
    np.testing.assert_array_equal(path.last.uploads, STEPS // 4)


def test_late_labels_and_bandits_do_not_go_together():
    from cantons.data import synthetic_bandit

    data = synthetic_bandit(clients=3, contexts=5, test_contexts=1)
    with pytest.raises(ct.InputError, match="label_delay = 0"):
        ct.run(ct.bandit(data), data, ct.fedres_bandit(), rounds=3, clock=ct.online(label_delay=2))
