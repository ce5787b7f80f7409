"""Regret against the best fixed pair in hindsight: by hand, by dense least squares, by scipy, and in runs."""

import jax
import numpy as np
import pytest
import scipy.optimize

import cantons as ct
from cantons.regret import hindsight
from cantons.regret.average import average_regret, best_in_hindsight
from cantons.regret.best_pair import BestPair, best_pair, best_pair_by_solver
from cantons.regret.cycle import times_met
from cantons.regret.fedres_bounds import (
    Measured,
    fedres_theorem1_bound,
    fedres_theorem2_bound,
    fedres_theorem2_step_size,
    measured,
)

ONES = np.ones((2, 1))


def federation(rows=(7, 3, 12, 0), wide=3, own=(2, 5, 0, 2), seed=0):
    """Clients of unequal size: one with fewer rows than columns, one without local features, one without rows."""
    random = np.random.default_rng(seed)
    return ([random.normal(size=(count, wide)) for count in rows],
            [random.normal(size=(count, columns)) for count, columns in zip(rows, own, strict=True)],
            [random.normal(size=count) for count in rows],
            [random.uniform(0.1, 2, size=count) for count in rows])


def stacked(inputs_global, inputs_local, targets, weights):
    """One weighted design for all: the shared block, then a block for each client."""
    places = np.cumsum([inputs_global[0].shape[1], *(here.shape[1] for here in inputs_local)])
    design, wanted = [], []
    for client, (there, here) in enumerate(zip(inputs_global, inputs_local, strict=True)):
        rows = np.zeros((len(there), places[-1]))
        rows[:, :places[0]] = there
        rows[:, places[client]:places[client + 1]] = here
        root = np.sqrt(np.broadcast_to(weights[client], len(there)))
        design.append(root[:, None] * rows)
        wanted.append(root * targets[client])
    return np.concatenate(design), np.concatenate(wanted), places


def joined(pair):
    return np.concatenate([pair.shared, *pair.private])


TWISTS = {
    "as it is": lambda there, here: (there, here),
    "the same features for both": lambda there, here: (there, there),
    "a column twice": lambda there, here: (np.concatenate([there, there[:, :1]], axis=1), here),
    "a constant in both": lambda there, here: tuple(
        np.concatenate([part, np.ones((len(part), 1))], axis=1) for part in (there, here)),
    "no shared features": lambda there, here: (there[:, :0], here),
    "private features that say nothing": lambda there, here: (there, 0 * here),
    "shared features that say nothing": lambda there, here: (0 * there, here),
    "hardly any difference": lambda there, here: (
        there, there + 1e-5 * np.sin(np.arange(there.size)).reshape(there.shape)),
}


def test_two_clients_by_hand():
    """The second has nothing but the shared model, so this must say 1, and the first adds what it lacks: 3 - 1."""
    found = best_pair([ONES, ONES], [ONES, 0 * ONES], [np.array([2.0, 4.0]), np.array([1.0, 1.0])], [1.0, 1.0])
    np.testing.assert_allclose(found.shared, [1])
    np.testing.assert_allclose(found.private, [[2], [0]], atol=1e-12)


def test_what_both_models_could_say_is_divided_so_that_the_norm_is_smallest():
    found = best_pair([ONES], [ONES], [np.array([3.0, 3.0])], [1.0])
    np.testing.assert_allclose(joined(found), [1.5, 1.5])


@pytest.mark.parametrize("twist", TWISTS)
def test_the_best_pair_is_the_dense_least_squares_solution_of_smallest_norm(twist):
    there, here, targets, weights = federation()
    there, here = zip(*(TWISTS[twist](*client) for client in zip(there, here, strict=True)), strict=True)
    found = joined(best_pair(there, here, targets, weights))
    design, wanted, _ = stacked(there, here, targets, weights)
    dense = np.linalg.lstsq(design, wanted)[0]
    tolerance = 1e-4 if twist == "hardly any difference" else 1e-9
    np.testing.assert_allclose(found, dense, rtol=tolerance, atol=tolerance)
    assert ((design @ found - wanted) ** 2).sum() <= ((design @ dense - wanted) ** 2).sum() * (1 + 1e-9) + 1e-12


def test_rows_of_no_weight_and_clients_without_rows_change_nothing():
    there, here, targets, weights = federation()
    weights[0][2] = 0
    found = best_pair(there, here, targets, weights)
    again = best_pair(*([np.delete(part[0], 2, axis=0), *part[1:3]] for part in (there, here, targets, weights)))
    np.testing.assert_allclose(found.shared, again.shared)
    np.testing.assert_allclose(found.private[0], again.private[0])
    np.testing.assert_array_equal(found.private[3], 0)


def in_balls_by_scipy(design, wanted, places, radius, private_radius):
    edges = [0, *places]
    bounds = [radius] + [private_radius] * (len(places) - 1)

    def ball(block):
        return {"type": "ineq", "fun": lambda point: bounds[block]**2 - (point[edges[block]:edges[block + 1]]**2).sum()}

    return scipy.optimize.minimize(
        lambda point: (((design @ point - wanted)**2).sum(), 2 * design.T @ (design @ point - wanted)),
        np.zeros(places[-1]), jac=True, method="SLSQP", constraints=[ball(block) for block in range(len(places))],
        options={"ftol": 1e-14, "maxiter": 2000}).fun


@pytest.mark.parametrize("twist", TWISTS)
@pytest.mark.parametrize("radii", [(0.3, 0.3), (0.05, 0.6), (1.0, 0.01)])
def test_in_balls_the_loss_is_that_of_a_general_solver(twist, radii):
    there, here, targets, weights = federation()
    there, here = zip(*(TWISTS[twist](*client) for client in zip(there, here, strict=True)), strict=True)
    found = best_pair(there, here, targets, weights, *radii)
    design, wanted, places = stacked(there, here, targets, weights)
    loss = ((design @ joined(found) - wanted) ** 2).sum()
    assert np.linalg.norm(found.shared) <= radii[0] * (1 + 1e-12)
    assert all(np.linalg.norm(own) <= radii[1] * (1 + 1e-12) for own in found.private)
    reference = in_balls_by_scipy(design, wanted, places, *radii)
    assert abs(loss - reference) < 1e-7  # of the solver's own making: constraints hold to about that
    assert loss < reference + 1e-9


@pytest.mark.parametrize("twist", TWISTS)
@pytest.mark.parametrize("radii", [(0.3, 0.3), (0.05, 0.6), (1.0, 0.01)])
def test_in_balls_the_loss_is_least_to_ten_digits(twist, radii):
    """By a certificate: any multipliers of the balls give a lower bound, the best of ridge regressions."""
    there, here, targets, weights = federation()
    there, here = zip(*(TWISTS[twist](*client) for client in zip(there, here, strict=True)), strict=True)
    found = joined(best_pair(there, here, targets, weights, *radii))
    design, wanted, places = stacked(there, here, targets, weights)
    gradient = 2 * design.T @ (design @ found - wanted)
    ridge, allowance = np.zeros(places[-1]), 0.0
    for block in range(len(places)):
        mine = slice(places[block - 1] if block else 0, places[block])
        norm = found[mine] @ found[mine]
        multiplier = max(0.0, -gradient[mine] @ found[mine] / (2 * norm)) if norm else 0.0
        ridge[mine] = np.sqrt(multiplier)
        allowance += multiplier * radii[block > 0] ** 2
    longer, zeros = np.concatenate([design, np.diag(ridge)]), np.zeros(places[-1])
    least = np.linalg.lstsq(longer, np.append(wanted, zeros))[0]
    bound = ((longer @ least - np.append(wanted, zeros)) ** 2).sum() - allowance
    assert -1e-12 < ((design @ found - wanted) ** 2).sum() - bound < 1e-10 * (wanted @ wanted)


def test_a_ball_by_hand():
    """(3 - w)^2 with |w| <= 1, and a second client for whom nothing is left over."""
    found = best_pair([ONES[:1]], [0 * ONES[:1]], [np.array([3.0])], [1.0], radius=1.0)
    np.testing.assert_allclose(found.shared, [1], atol=1e-10)
    both = best_pair([ONES[:1]], [ONES[:1]], [np.array([3.0])], [1.0], radius=1.0)
    np.testing.assert_allclose(joined(both), [1, 1], atol=1e-10)


def test_a_ball_that_holds_the_best_pair_changes_nothing():
    inputs = federation()
    free = best_pair(*inputs)
    wide = max(np.linalg.norm(part) for part in (free.shared, *free.private))
    np.testing.assert_array_equal(joined(free), joined(best_pair(*inputs, radius=1.0001 * wide)))


def squared(outputs, targets):
    return (outputs - targets) ** 2, 2 * (outputs - targets)


def logistic(outputs, targets):
    return np.logaddexp(0, -targets * outputs), -targets / (1 + np.exp(targets * outputs))


def test_the_solver_finds_the_exact_pair_where_there_is_one():
    there, here, targets, weights = federation()
    by_solver = best_pair_by_solver(there, here, targets, weights, squared)
    design, wanted, _ = stacked(there, here, targets, weights)
    exact = joined(best_pair(there, here, targets, weights))
    losses = [((design @ point - wanted) ** 2).sum() for point in (joined(by_solver), exact)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-8)


def test_the_solver_serves_other_losses_and_several_outputs():
    there, here, targets, _ = federation(rows=(40, 30), own=(2, 1))
    signs = [np.sign(target) for target in targets]
    found = best_pair_by_solver(there, here, signs, [1.0, 0.5], logistic)
    gradients = [weight * logistic(output, sign)[1] for weight, output, sign in
                 zip((1.0, 0.5), found.outputs(there, here), signs, strict=True)]
    np.testing.assert_allclose(sum(part.T @ own for part, own in zip(there, gradients, strict=True)), 0, atol=1e-6)
    np.testing.assert_allclose(here[1].T @ gradients[1], 0, atol=1e-6)

    def each_output(outputs, target):  # every output has the same target, so all columns are alike
        values, gradient = squared(outputs, target[:, None])
        return values.sum(axis=1), gradient

    several = best_pair_by_solver(there, here, targets, [1.0, 1.0], each_output, outputs=2)
    np.testing.assert_allclose(several.shared[:, 0], best_pair(there, here, targets, [1.0, 1.0]).shared, atol=1e-6)
    np.testing.assert_allclose(several.shared[:, 1], several.shared[:, 0], atol=1e-6)


def test_regret_by_hand():
    """Targets 0 and 2 with a constant model: the best is 1 and costs 1 + 1; playing 0 all along costs 0 + 4."""
    best, cost = best_in_hindsight([ONES], [0 * ONES], [np.array([0.0, 2.0])], [np.ones(2)], np.ones(1))
    np.testing.assert_allclose(best.shared, [1])
    np.testing.assert_allclose(cost, [2])
    assert average_regret([4.0], cost, np.ones(1), steps=2) == pytest.approx(1.0)


def test_playing_the_best_pair_is_no_regret():
    there, here, targets, counts = federation()
    weights = np.array([1.0, 3.0, 0.5, 2.0])
    best, cost = best_in_hindsight(there, here, targets, counts, weights)
    played = [count @ (output - target) ** 2
              for count, output, target in zip(counts, best.outputs(there, here), targets, strict=True)]
    assert average_regret(played, cost, weights, steps=10) == 0


def test_no_fixed_pair_does_better():
    there, here, targets, counts = federation()
    weights = np.array([1.0, 3.0, 0.5, 2.0])
    best, cost = best_in_hindsight(there, here, targets, counts, weights)
    random = np.random.default_rng(1)
    for _ in range(20):
        other = BestPair(best.shared + 0.1 * random.normal(size=3),
                         tuple(own + 0.1 * random.normal(size=own.shape) for own in best.private))
        played = [count @ (output - target) ** 2
                  for count, output, target in zip(counts, other.outputs(there, here), targets, strict=True)]
        assert average_regret(played, cost, weights, steps=10) > 0


def test_a_clients_weight_is_how_often_its_rows_count():
    there, here, targets, _ = federation()
    once = [np.ones(len(target)) for target in targets]
    threefold = [np.full(len(target), 3.0) if client == 1 else np.ones(len(target))
                 for client, target in enumerate(targets)]
    by_weight, _ = best_in_hindsight(there, here, targets, once, np.array([1.0, 3.0, 1.0, 1.0]))
    by_rows, _ = best_in_hindsight(there, here, targets, threefold, np.ones(4))
    np.testing.assert_allclose(joined(by_weight), joined(by_rows))


def test_a_cycle_is_counted_row_by_row():
    random = np.random.default_rng(0)
    for size, met in random.integers(1, 40, size=(30, 2)):
        np.testing.assert_array_equal(times_met(np.array([met]), np.array([size]))[0],
                                      np.bincount(np.arange(met) % size, minlength=size))


# Runs.


def stream(population=3, rows=5, width=2, noise=0.5, seed=0):
    random = np.random.default_rng(seed)
    return {f"client{number}": (inputs := random.normal(size=(rows + number, width)),
                                inputs @ random.normal(size=width) + noise * random.normal(size=rows + number))
            for number in range(population)}


def met_rows(clients, meetings, batch):
    """The examples of each client in the order of a cycle, as many as it has met."""
    for (inputs, targets), met in zip(clients.values(), meetings, strict=True):
        rows = np.arange(met * batch) % len(inputs)
        features = np.concatenate([inputs[rows], np.ones((len(rows), 1))], axis=1)
        yield features, targets[rows]


@pytest.mark.parametrize("batch", [1, 2])
def test_a_run_reports_its_regret_at_every_evaluation(batch):
    clients = stream()
    data = ct.from_clients(clients, test=0)
    result = ct.run(ct.residual(data), data, ct.fedres_online_sgd(step_size=0.02), rounds=9, evaluate_every=4,
                    clock=ct.online(uplink=1, batch=batch), precision="float64")
    assert "online.regret" not in result.history[0], "nothing has been met yet"
    for row in result.history[1:]:
        steps = row["round"]
        features, targets = zip(*met_rows(clients, [steps] * 3, batch), strict=True)
        design, wanted, _ = stacked(features, features, targets, [1 / batch] * 3)
        least = ((design @ np.linalg.lstsq(design, wanted)[0] - wanted) ** 2).sum()
        charged = row["online.personal.loss.mean"] * 3 * steps
        assert row["online.regret"] == pytest.approx((charged - least) / (3 * steps), rel=1e-9)


def test_rare_clients_weigh_more_and_silent_ones_nothing():
    """With weights T / N_i the regret is the mean over clients of their average excess; one never speaks."""
    clients = stream(population=4)
    active = np.array([[1, 1, 0, 0], [1, 0, 0, 0], [1, 1, 1, 0], [1, 0, 0, 0]], bool)
    data = ct.from_clients(clients, test=0)
    result = ct.run(ct.residual(data), data, ct.fedres_online_sgd(step_size=0.02), rounds=8, precision="float64",
                    clock=ct.online(active=active, weights="inverse"))
    meetings = 2 * active.sum(axis=0)
    features, targets = zip(*met_rows(clients, meetings, 1), strict=True)
    weights = [8 / max(met, 1) for met in meetings]
    design, wanted, _ = stacked(features, features, targets, weights)
    least = ((design @ np.linalg.lstsq(design, wanted)[0] - wanted) ** 2).sum() / 8
    charged = result.clients["online.personal.loss"].sum()
    assert result.final["online.regret"] == pytest.approx((charged - least) / 4, rel=1e-9)
    assert "online.regret_bound" not in result.final, "the theorem has equal weights"


def test_a_run_that_starts_at_the_best_pair_and_stays_there_has_no_regret():
    truth = np.array([1.0, -2.0])
    clients = {name: (inputs, inputs @ truth) for name, (inputs, _) in stream().items()}
    data = ct.from_clients(clients, test=0)
    bare = ct.linear(bias=False)
    problem = ct.residual(data, shared_model=bare, private_model=bare)
    half = {"layer0": {"weight": truth[:, None] / 2}}
    result = ct.run(problem, data, ct.fedres_online_sgd(step_size=0.1), rounds=10, precision="float64",
                    clock=ct.online(downlink=2), initial=(half, half))
    assert abs(result.final["online.regret"]) < 1e-25


def test_regret_counts_signs_where_the_loss_does():
    random = np.random.default_rng(0)
    inputs = random.normal(size=(20, 2))
    classes = (inputs[:, 0] > 0).astype(int)
    data = ct.from_clients({"ann": (inputs, classes), "bob": (inputs, 1 - classes)}, classes=2, test=0)
    problem = ct.residual(data, loss="squared", labels="sign")
    result = ct.run(problem, data, ct.fedres_online_sgd(step_size=0.02), rounds=20, precision="float64",
                    clock=ct.online())
    features = [np.concatenate([inputs, np.ones((20, 1))], axis=1)] * 2
    signs = [2.0 * classes - 1, 1 - 2.0 * classes]
    _, cost = best_in_hindsight(features, features, signs, [np.ones(20)] * 2, np.ones(2))
    charged = 20 * result.clients["online.personal.loss"]
    assert result.final["online.regret"] == pytest.approx(average_regret(charged, cost, np.ones(2), 20), rel=1e-9)


@pytest.mark.parametrize(("about", "clock"), [
    ({"clip": 1.0}, {}), ({"loss": "logistic"}, {}), ({"private_model": ct.mlp([3])}, {}), ({}, {"order": "sample"}),
    ({}, {"order": "shuffle"})])
def test_regret_is_not_reported_where_the_best_pair_is_not_known(about, clock):
    clients = {name: (inputs, np.sign(targets)) for name, (inputs, targets) in stream().items()}
    data = ct.from_clients(clients, test=0)
    problem = ct.residual(data, **about)
    algorithm, ticking = (recipe.build(*given) for recipe, given in
                          ((ct.fedres_online_sgd(), (problem, 3)), (ct.online(**clock), (3,))))
    start = problem.init(jax.random.key(0))
    sentence = hindsight.hindsight_regret(problem, algorithm, ticking, data, start, rounds=4)
    assert isinstance(sentence, str) and sentence.startswith("no regret: ") and sentence.endswith(".")


def test_a_costly_comparison_is_made_once_at_the_end_or_never(monkeypatch):
    data = ct.from_clients(stream(), test=0)
    problem, clock = ct.residual(data), ct.online()
    monkeypatch.setattr(hindsight, "CHEAP", 0)
    history = ct.run(problem, data, ct.online_independent(), rounds=4, clock=clock).history
    assert ["online.regret" in row for row in history] == [False] * 4 + [True]
    monkeypatch.setattr(hindsight, "COSTLY", 0)
    assert "online.regret" not in ct.run(problem, data, ct.online_independent(), rounds=4, clock=clock).final


# Bounds.


def test_what_a_stream_measures_by_hand():
    """Features 1 and 2 for one model, targets 1 and 2: at 0 errors are -1 and -2, at the best pair (1) they vanish."""
    rows = [np.array([[1.0], [2.0]])]
    nothing = [np.zeros((2, 0))]
    start, best = (BestPair(np.array([value]), (np.zeros(0),)) for value in (0.0, 1.0))
    found = measured(start, best, rows, nothing, [np.array([1.0, 2.0])], [np.array([3, 3])])
    assert (found.shared_distance, found.diameter, found.smoothness, found.steepest) == (1, 1, 8, 8)
    np.testing.assert_allclose(found.gradient_variances, [9])  # of -2 and -8
    np.testing.assert_allclose(found.loss_variances, [2.25])  # of 1 and 4
    assert found.dimensions == 1


SOME = Measured(shared_distance=2.0, private_distances=np.array([1.0, 1.0]), diameter=1.5, steepest=2.0,
                smoothness=0.5, gradient_variances=np.array([0.5, 0.25]), loss_variances=np.array([0.04, 0.01]),
                dimensions=8)


def test_theorem_1_and_2_by_hand():
    constant = 18 * 0.5 * 1.5**2 + 2
    assert fedres_theorem1_bound(SOME, 2, 100) == pytest.approx(
        np.sqrt(8 * 0.04 / 200) + constant * 0.03**0.75 + (3 * constant + 8) / 100)
    assert fedres_theorem2_step_size(SOME, [0, 2], 100) == pytest.approx(
        min(np.sqrt(4 / (100 * 2 * 0.5)), (4 / (0.5 * 8 * 4 * 9 * 100)) ** (1 / 3)))
    late = np.array([1, 3])
    assert fedres_theorem2_bound(SOME, [0, 2], 100, 0.1, 0.2) == pytest.approx((
        2 / 0.2 + 2 / 0.4 + 100 * 0.3 * 0.75 + 0.25 * 100 * (1 + late**2).sum() * (0.1**2 * 4 + 0.2**2) * 4
        + 1.5 * 2 * 4) / 200)


def test_theorem_2s_step_size_is_about_as_good_as_any():
    """It balances terms rather than minimise their sum: within a small factor of the best step on a fine grid."""
    for steps, delay in ((100, 0), (10_000, 0), (10_000, 10), (10**6, 3)):
        best = min(fedres_theorem2_bound(SOME, delay, steps, step) for step in np.geomspace(1e-6, 1, 400))
        assert best <= fedres_theorem2_bound(SOME, delay, steps) * (1 + 1e-6) <= 3 * best


def test_delay_costs_a_lower_order_only():
    """The bound times the root of T goes to the same number whatever the delay."""
    ratios = [fedres_theorem2_bound(SOME, 20, steps) / fedres_theorem2_bound(SOME, 0, steps)
              for steps in (10**3, 10**9, 10**15)]
    assert ratios[0] > 3 > 2 > ratios[1] > 1.02 > ratios[2] >= 1


@pytest.mark.parametrize("delay", [(0, 0), (2, 1)])
def test_regret_stays_below_theorem_2_on_a_realizable_stream(delay):
    """Independent examples of models that exist, with the theorem's own step size."""
    population, steps, width = 4, 400, 3
    bare = ct.linear(bias=False)
    for seed in range(2):
        random = np.random.default_rng(seed)
        common = 0.3 * random.normal(size=width)
        rows = [random.uniform(-1, 1, size=(steps, width)) / np.sqrt(width) for _ in range(population)]
        targets = [inputs @ (common + 0.3 * random.normal(size=width)) for inputs in rows]
        counts = [np.ones(steps)] * population
        best, _ = best_in_hindsight(rows, rows, targets, counts, np.ones(population))
        start = BestPair(0 * best.shared, tuple(0 * own for own in best.private))
        about = measured(start, best, rows, rows, targets, counts)
        data = ct.from_clients({str(client): pair for client, pair in
                                enumerate(zip(rows, targets, strict=True))}, test=0)
        problem = ct.residual(data, shared_model=bare, private_model=bare)
        step_size = fedres_theorem2_step_size(about, sum(delay), steps)
        final = ct.run(problem, data, ct.fedres_online_sgd(step_size=step_size), rounds=steps, evaluate_every=steps,
                       precision="float64", clock=ct.online(uplink=delay[0], downlink=delay[1])).final
        assert final["online.regret_bound"] == pytest.approx(fedres_theorem2_bound(about, sum(delay), steps), rel=1e-6)
        assert 0 < final["online.regret"] < final["online.regret_bound"]
        assert final["online.regret_bound"] < 20 * final["online.regret"], "and the bound is not out of sight"
