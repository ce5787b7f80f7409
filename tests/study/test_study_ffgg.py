"""The closed forms that the figures of the FFGG paper are drawn from, beside runs of the library."""

import sys
from pathlib import Path

import numpy as np
import pytest

import cantons as ct
from cantons.attack import inner_product
from cantons.clock.events import events_of
from cantons.engine.init import seed_keys

sys.path.insert(0, str(Path(__file__).parents[2] / "studies" / "ffgg"))
from closed_forms import Quadratics
from paths import follow, follow_events, follow_scipy, gradient_norms, in_parts, in_whole, tuned_exactly

ROWS, SHARED, PRIVATE, TAU = 30, 5, 3, 4


@pytest.fixture(scope="module", params=["shared", "own"])
def made(request):
    data = ct.synthetic_least_squares(4, rows=ROWS, shared=SHARED, private=PRIVATE, targets=request.param)
    return data, Quadratics(data, SHARED, ROWS)


def ends(problem, data, *recipes, looks=(3,), cohort=None):
    return follow(problem, data, recipes, looks, SHARED, cohort=cohort)[0]


def test_ffgg_follows_its_closed_forms(made):
    data, known = made
    L, L_w = known.constants.sharp, known.constants.of_private
    problem = in_parts(data, SHARED)
    exact = tuned = np.zeros(SHARED)
    G, h = known.tuned_operator(1 / L_w, TAU)
    for _ in range(3):
        exact = exact - known.operators(exact).mean(0) / L
        w = known.tuned(tuned, np.zeros((4, PRIVATE)), 1 / L_w, TAU)
        np.testing.assert_allclose(known.gradients(tuned, w).mean(0), G @ tuned - h, atol=1e-10)
        tuned = tuned - (G @ tuned - h) / L
    gd = {"name": "gd", "steps": TAU, "step_size": ROWS / L_w}
    for tuner, expected in (("exact", exact), (gd, tuned)):
        np.testing.assert_allclose(ends(problem, data, ct.ffgg(step_size=ROWS / L, tuner=tuner))[-1], expected,
                                   atol=1e-10)


def test_a_tolerance_of_conjugate_gradients_leaves_a_floor_where_that_of_scipy_does(made):
    data, known = made
    L, problem, rounds = known.constants.sharp, in_parts(data, SHARED), 2000
    start, left = known.norms(np.zeros(SHARED)), {}
    for rtol in (0.0, 0.01):
        tuner = {"name": "cg", "steps": PRIVATE, "tolerance": rtol}
        found = ends(problem, data, ct.ffgg(step_size=ROWS / L, tuner=tuner), looks=(3, rounds))
        left[rtol] = known.norms(found[1]) / start
        if rtol:
            scipy = follow_scipy(known, 1 / L, rounds, 1, rtol)
            np.testing.assert_allclose(found[0], scipy[3], atol=1e-10)
            assert left[rtol] == pytest.approx(known.norms(scipy[-1]) / start, rel=0.5)
    assert left[0.0] < 1e-8 < 1e-5 < left[0.01]


def test_clients_that_have_tuned_exactly_send_what_those_that_tune_do(made):
    """Also to a rule, in buckets, and where some lie."""
    data, known = made
    tuned, found = tuned_exactly(known, ROWS), []
    for clients, problem, tuner in ((data, in_parts(data, SHARED), "exact"), (tuned, in_whole(tuned), "gd")):
        recipe = ct.ffgg(step_size=ROWS / known.constants.sharp, tuner=tuner)
        liars = ct.byzantine(attack=inner_product(), clients=clients.clients.names[-1:])
        found.append(follow(problem, clients, [recipe], (5,), SHARED, aggregate=ct.median(bucket=2), byzantine=liars))
    np.testing.assert_allclose(*found, atol=1e-10)
    assert np.abs(found[0]).max() > 0.01


def test_asynchronous_ffgg_follows_its_closed_form(made):
    data, known = made
    clock = ct.asynchronous(durations={"name": "log_normal", "spread": 1.0}, buffer=2)
    events = events_of(clock.build(4), seed_keys(0)[1], 4, 12)
    G, h = known.tuned_operators(1 / known.constants.of_private, TAU)
    step_size = ROWS / known.constants.sharp / 4
    expected = follow_events(G / ROWS, h / ROWS, events, [step_size, 2 * step_size])
    recipe = ct.ffgg(step_size=step_size, tuner={"name": "gd", "steps": TAU,
                                                 "step_size": ROWS / known.constants.of_private})
    path = follow(in_parts(data, SHARED), data, [recipe], (0, 5, 12), SHARED, clock=clock)[0]
    np.testing.assert_allclose(path, expected[[0, 5, 12], 0], atol=1e-12)
    assert events.delays.max() > 0 and np.abs(expected[12, 1] - path[-1]).max() > 1e-3


@pytest.mark.parametrize("tuner", ["exact", "gd"])
def test_local_ffgg_follows_its_closed_form(made, tuner):
    data, known = made
    gamma, gamma_w = 1 / known.constants.of_shared, 1 / known.constants.of_private
    table, tau = ("exact", None) if tuner == "exact" else ({"name": "gd", "steps": TAU, "step_size": ROWS * gamma_w},
                                                           TAU)
    G, h = known.local_operator(gamma, gamma_w, 3, tau)
    theta = np.zeros(SHARED)
    for _ in range(3):
        theta = theta - (G @ theta - h)
    recipe = ct.local_ffgg(step_size=ROWS * gamma, private_step_size=ROWS * gamma_w, steps=3, tuner=table)
    np.testing.assert_allclose(ends(in_parts(data, SHARED), data, recipe)[-1], theta, atol=1e-10)


def test_local_ffgg_with_two_steps_stalls_where_targets_are_drawn_per_client(made):
    """One step after exact tuning finds theta* with any targets; two do where each client is solved there."""
    data, known = made
    gamma, gamma_w = 1 / known.constants.of_shared, 1 / known.constants.of_private
    start = known.norms(np.zeros(SHARED))
    left = {}
    for steps in (1, 2):
        recipe = ct.local_ffgg(step_size=ROWS * gamma, private_step_size=ROWS * gamma_w, steps=steps, tuner="exact")
        end = ends(in_parts(data, SHARED), data, recipe, looks=(3000,))[-1]
        np.testing.assert_allclose(end, np.linalg.solve(*known.local_operator(gamma, gamma_w, steps)), atol=1e-8)
        left[steps] = known.norms(end) / start
    assert left[1] < 1e-8
    assert left[2] < 1e-8 if data.spec["targets"] == "shared" else left[2] > 1e-3


def test_a_second_step_of_local_ffgg_weighs_each_client_by_a_factor_of_its_own(made):
    """So theta* stays where it is if all F_m are 0 there, and moves if only their mean is."""
    _, known = made
    gamma, gamma_w = 1 / known.constants.of_shared, 1 / known.constants.of_private
    whole, cross, _ = known.blocks
    factor = 2 * np.eye(SHARED) - gamma * (whole - gamma_w * cross @ cross.transpose(0, 2, 1))
    G, h = known.local_operator(gamma, gamma_w, 2)
    np.testing.assert_allclose(G, gamma * (factor @ known.S).mean(0), atol=1e-10)
    np.testing.assert_allclose(h, gamma * np.einsum("mij,mj->i", factor, known.s) / len(factor), atol=1e-10)


@pytest.mark.parametrize("private", [0, PRIVATE, SHARED + PRIVATE - 1])
def test_gradient_norms_tell_the_split_at_the_start_and_at_the_solution(private):
    """Section 4.3: at the solution |F_m| is 0 once what differs between clients is private, and not before."""
    data = ct.synthetic_least_squares(4, rows=ROWS, shared=SHARED, private=PRIVATE)
    known = Quadratics(data, SHARED + PRIVATE - private, ROWS)
    start, end = gradient_norms(data, known, ROWS, rounds=1000)
    assert start == pytest.approx(np.linalg.norm(known.s, axis=1).mean(), rel=1e-8)
    expected = np.linalg.norm(known.operators(known.solution), axis=1).mean()
    assert end == pytest.approx(expected, rel=1e-6, abs=1e-8)
    assert expected < 1e-10 if private >= PRIVATE else expected > 0.1


def test_where_nothing_is_shared_the_gradient_is_0_and_ffgg_refuses_to_run():
    data = ct.synthetic_least_squares(4, rows=ROWS, shared=SHARED, private=PRIVATE)
    known = Quadratics(data, 0, ROWS)
    assert (np.linalg.norm(known.s, axis=1) == 0).all() and known.s.shape == (4, 0)
    with pytest.raises(ct.InputError, match="ffgg needs a shared part"):
        ct.run(in_parts(data, 0), data, ct.ffgg(), rounds=1, progress=None)


def test_local_gradient_descent_follows_its_closed_form_and_ends_in_its_limit(made):
    data, known = made
    step = 1 / known.constants.joint
    point = np.zeros(SHARED + PRIVATE)
    for _ in range(3):
        point = known.descended(point, step, TAU).mean(0)
    recipe = ct.fedavg(step_size=ROWS * step, steps=TAU, batch_size=None)
    found = ends(in_whole(data), data, recipe, looks=(3, 5000))
    np.testing.assert_allclose(found[0], point[:SHARED], atol=1e-10)
    limit = known.averaged(step, TAU)
    np.testing.assert_allclose(known.descended(limit, step, TAU).mean(0), limit, atol=1e-10)
    np.testing.assert_allclose(found[1], limit[:SHARED], atol=1e-6)


def test_one_theta_solves_every_client_where_all_targets_are_made_from_it(made):
    data, known = made
    largest = np.abs(known.operators(known.solution)).max()
    assert largest < 1e-10 if data.spec["targets"] == "shared" else largest > 1e-3
    assert known.norms(known.solution) < 1e-10
    np.testing.assert_allclose(known.gradients(known.solution, known.best_private(known.solution)),
                               known.operators(known.solution), atol=1e-10)


@pytest.mark.parametrize("cohort", [1, 3])
def test_theorem_1_holds_on_every_path_where_assumption_2_does(made, cohort):
    """With targets of their own, small cohorts do not even come nearer in every round."""
    data, known = made
    L, rounds = known.constants.sharp, 60
    path = ends(in_parts(data, SHARED), data, ct.ffgg(step_size=ROWS / L, tuner="exact"), looks=range(rounds + 1),
                cohort=cohort)
    away = np.linalg.norm(path - known.solution, axis=1)
    least = np.minimum.accumulate(known.norms(path[:-1])) ** 2
    holds = (least <= L**2 * away[0] ** 2 / np.arange(1, rounds + 1)).all()
    nearer = (np.diff(away) <= 1e-12).all()
    assert (holds and nearer) if data.spec["targets"] == "shared" else not nearer


def test_what_l_is_read_as_bounds_what_it_is():
    """Example 1's bound is above the largest eigenvalue, and the Frobenius norm above the spectral one."""
    data = ct.synthetic_least_squares(4, rows=ROWS, shared=SHARED, private=PRIVATE, heterogeneity=3.0, compact=False)
    found = Quadratics(data, SHARED, ROWS).readings()
    assert found["sharp"] <= found["Example 1, spectral"] <= found["Example 1, Frobenius"]
    assert found["the authors' code"] == pytest.approx(found["Example 1, Frobenius"] / 2)
