"""Best points in hindsight: by hand, by scipy, and step by step; and what the theorems make of their constants."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize

from cantons.mirror import ball, box, simplex
from cantons.regret.best_point import absolute_cost, half_squared_costs, linear_costs
from cantons.regret.cycle import met_rows
from cantons.regret.fedomd_bounds import (
    fedomd_theorem1_bound,
    fedomd_theorem1_step_size,
    fedomd_theorem2_bound,
    fedomd_theorem3_bound,
)
from cantons.solve.fista import TOLERANCE, build_minimiser

RANDOM = np.random.default_rng(0)


def rows_of(function):
    return lambda rows: np.asarray(jax.vmap(function)(jnp.asarray(rows)))


def by_scipy(loss, entries, constraints=(), bounds=None, start=None):
    start = np.zeros(entries) if start is None else start
    found = scipy.optimize.minimize(loss, start, method="SLSQP", bounds=bounds, constraints=constraints,
                                    options={"maxiter": 500, "ftol": 1e-14})
    assert found.success or found.status == 8  # or rounding ends its last search
    return found.fun


def test_two_steps_of_two_clients_by_hand():
    """Targets -1, 3 and then 5, 5 in [0, 2]: the means are 1 and 5, and 3 over both."""
    means, squares = np.array([[1.0], [5.0]]), np.array([5.0, 25.0])
    costs = half_squared_costs(means, squares, np.ones(2), lambda points: points.clip(0, 2))
    np.testing.assert_allclose(costs.fixed, [(4 + 4) / 4, (9 + 1) / 4 + (9 + 9) / 4])  # at 1, then at 2
    np.testing.assert_allclose(costs.moving, [2, 2 + (9 + 9) / 4])


def test_streams_are_met_round_and_round():
    rows = met_rows(np.array([0, 4]), np.array([4, 3]), np.tile(np.arange(5)[:, None], 2), batch=2)
    assert rows[:, 0].ravel().tolist() == [0, 1, 2, 3] * 2 + [0, 1]
    assert rows[:, 1].ravel().tolist() == [4, 5, 6] * 3 + [4]


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize(("within", "constraints", "bounds"), [
    (box(-0.2, 0.3), (), [(-0.2, 0.3)] * 3),
    (ball(0.4), ({"type": "ineq", "fun": lambda x: 0.16 - x @ x},), None),
    (simplex(), ({"type": "eq", "fun": lambda x: x.sum() - 1},), [(0, 1)] * 3),
], ids=["box", "ball", "simplex"])
def test_exact_costs_are_those_of_scipy_after_every_step(within, constraints, bounds):
    targets = RANDOM.normal(0.3, 1, (7, 4, 3))  # steps, draws, entries
    means, squares = targets.mean(axis=1), (targets**2).sum(axis=-1).mean(axis=1)
    start = np.asarray(within.start(jnp.zeros(3)))
    halves = half_squared_costs(means, squares, np.ones(7), rows_of(within.project))
    lines = linear_costs(means, np.ones(7), rows_of(within.corner))
    for steps in range(1, 8):
        met = targets[:steps]
        for loss, costs in ((lambda x, met=met: ((x - met) ** 2).sum(axis=(0, 2)).mean() / 2, halves),
                            (lambda x, met=met: (met @ x).sum(axis=0).mean(), lines)):
            assert costs.fixed[steps - 1] == pytest.approx(by_scipy(loss, 3, constraints, bounds, start), abs=2e-6)
        last = targets[steps - 1]
        gained = np.diff(halves.moving, prepend=0)[steps - 1]
        assert gained == pytest.approx(by_scipy(lambda x, last=last: ((x - last) ** 2).sum(axis=1).mean() / 2, 3,
                                                constraints, bounds, start), abs=2e-6)


@pytest.mark.parametrize("high", [0.2, 5.0])
def test_medians_are_best_for_absolute_losses(high):
    targets = RANDOM.normal(0.5, 1, (31, 1))
    found = absolute_cost(targets, lambda points: points.clip(-1, high))
    best = scipy.optimize.minimize_scalar(lambda x: np.abs(x - targets).mean(), bounds=(-1, high), method="bounded",
                                          options={"xatol": 1e-12})
    assert found == pytest.approx(best.fun, abs=1e-6) and found <= best.fun


def test_a_median_outside_a_set_of_several_entries_is_not_known():
    targets = RANDOM.normal(0.5, 1, (31, 2))
    assert absolute_cost(targets, lambda points: points.clip(-1, 0.1)) is None
    assert absolute_cost(targets, lambda points: points) is not None


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("radius", [0.3, 30.0])
def test_the_solver_finds_what_scipy_finds(radius):
    """Logistic regression, whose best point is outside the small ball and inside the large one."""
    inputs, signs = RANDOM.normal(size=(60, 4)), RANDOM.choice([-1.0, 1.0], 60)

    def loss(point, given):
        rows, labels = given
        return jnp.logaddexp(0, -labels * (rows @ point["w"] + point["b"])).mean()

    start = {"w": jnp.zeros(4), "b": jnp.zeros(())}
    found = build_minimiser(loss, ball(radius).project)(start, (jnp.asarray(inputs), jnp.asarray(signs)))
    best = by_scipy(lambda x: np.logaddexp(0, -signs * (inputs @ x[:4] + x[4])).mean(), 5,
                    ({"type": "ineq", "fun": lambda x: radius**2 - x @ x},))
    assert float(found.error) <= TOLERANCE
    assert float(found.value) == pytest.approx(best, abs=1e-9)


@pytest.mark.parametrize("lipschitz", [0.1, 7.0])
def test_the_step_size_of_theorem_1_is_best_and_leads_to_equation_8(lipschitz):
    about = {"divergence": 2.5, "lipschitz": lipschitz, "gap": 6, "steps": 900}
    best = fedomd_theorem1_step_size(**about)
    bound = fedomd_theorem1_bound(step_size=best, **about)
    assert bound <= 5 * lipschitz * np.sqrt(2.5 * 6 * 900)  # (8)
    for other in (0.9 * best, 1.1 * best):
        assert fedomd_theorem1_bound(step_size=other, **about) > bound
    printed = np.sqrt(2.5) / np.sqrt(5 * 6 * 900 * lipschitz)  # L under the root
    assert fedomd_theorem1_bound(step_size=printed, **about) > 1.2 * bound


def test_the_other_bounds_by_hand():
    assert fedomd_theorem2_bound(lipschitz=3.0, sigma=2.0, gap=5, steps=1) == pytest.approx(17 * 9 * 5 / 2)
    about = {"divergence": 4.0, "lipschitz": 3.0, "most": 0.5, "clients": 10, "gap": 4, "steps": 100, "failure": 0.1}
    assert fedomd_theorem3_bound(**about) == pytest.approx(
        5 * 3 * 2 * np.sqrt(4 / 100) + np.sqrt(0.02 * np.log(200)))
