"""What the FFGG paper proves, on least squares with one shared solution and no noise, on one device and on two."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import cantons as ct
from cantons.algorithm.parts.tuning import tuner_of

pytestmark = pytest.mark.usefixtures("float64")
SOLUTION, START = np.array([1.0, -2.0, 0.5]), np.array([-1.0, 0.7, 2.0])
KEY = jax.random.key(0)


@pytest.fixture(scope="module")
def rows():
    """(A, B, y) of every client: y = A theta* + B w_m, with w_m of its own."""
    random = np.random.default_rng(3)
    made = [(random.normal(size=(size, 3)), random.normal(size=(size, 2))) for size in (3, 9, 5, 12, 4)]
    return [(A, B, A @ SOLUTION + B @ random.normal(size=2)) for A, B in made]


def federated(rows, scale=1.0, turn=None):
    """The problem and the data; inputs and targets times `scale`, private inputs times the matrix `turn`."""
    turn = np.eye(2) if turn is None else turn
    data = ct.from_clients({f"c{number}": (scale * np.c_[A, B @ turn], scale * y)
                            for number, (A, B, y) in enumerate(rows)}, test=0)
    model = ct.linear(bias=False)
    return ct.residual(data, shared_features=[0, 1, 2], private_features=[3, 4], shared_model=model,
                       private_model=model), data


@pytest.fixture(scope="module")
def given(rows):
    return federated(rows)


@pytest.fixture(scope="module", params=[1, 2], ids=["one device", "two devices"])
def engine(request):
    return ct.Local(devices=request.param)


def initial(turn=None):
    w = np.array([0.3, -0.4]) if turn is None else np.linalg.solve(turn, [0.3, -0.4])
    return {"layer0": {"weight": START[:, None]}}, {"layer0": {"weight": w[:, None]}}


@pytest.fixture(scope="module")
def path(played, engine):
    """`path(problem, data, recipe, rounds)`: the shared part before every round, and who took part in it."""

    def follow(problem, data, recipe, rounds, clock=None, **more):
        states = [played(problem, data, recipe, done, clock=clock, engine=engine, initial=initial(**more))
                  for done in range(rounds + 1)]
        uploads = np.array([state.uploads for state in states])
        return (np.array([np.asarray(state.server.shared["layer0"]["weight"])[:, 0] for state in states]),
                np.diff(uploads, axis=0) > 0)

    return follow


def forces(rows, theta):
    """F_m = 2/n A'(I - B B^+)(A theta - y), one row for each client."""
    return np.array([2 / len(y) * A.T @ (np.eye(len(y)) - B @ np.linalg.pinv(B)) @ (A @ theta - y) for A, B, y in rows])


def test_theorem_1_holds_on_every_path(path, given, rows):
    """The proof's recursion, for every round of a random cohort: the distance to the solution never grows."""
    problem, data = given
    steps = ct.ffgg_step_sizes(problem, data)
    assert np.abs(forces(rows, SOLUTION)).max() < 1e-12
    thetas, cohorts = path(problem, data, ct.ffgg(step_size=steps.step_size, tuner="exact"), 12, ct.rounds(cohort=2))
    distances = ((thetas - SOLUTION) ** 2).sum(axis=1)
    assert (cohorts.sum(axis=1) == 2).all() and len(np.unique(cohorts, axis=0)) > 3
    for theta, cohort, before, after in zip(thetas[:-1], cohorts, distances[:-1], distances[1:], strict=True):
        fall = steps.step_size / steps.smoothness * (forces(rows, theta)[cohort] ** 2).sum(axis=1).mean()
        assert after <= before - fall + 1e-12
    assert distances[-1] < 0.5 * distances[0]


def test_at_the_shared_solution_a_run_reports_that_every_client_has_a_gradient_of_zero(given, rows, engine):
    """F_m(theta*) = 0 for all m, whatever private parts the clients need, so the solution stays where it is."""
    start = {"layer0": {"weight": SOLUTION[:, None]}}, initial()[1]
    result = ct.run(*given, ct.ffgg(step_size=0.1, tuner="exact"), rounds=2, evaluate_every=2, precision="float64",
                    engine=engine, initial=start)
    assert len(result.clients["clients.gradient_norm"]) == len(rows)
    np.testing.assert_allclose(result.clients["clients.gradient_norm"], 0, atol=1e-12)
    np.testing.assert_allclose(result.model.state.server.shared["layer0"]["weight"][:, 0], SOLUTION, atol=1e-12)
    assert np.linalg.norm(forces(rows, START), axis=1).min() > 0.1  # elsewhere they have not


@pytest.mark.parametrize("tuner", ["exact", "gd"])
def test_theorems_1_and_6_bound_the_smallest_force(path, given, rows, tuner):
    problem, data = given
    steps, rounds = ct.ffgg_step_sizes(problem, data, rounds=6), 6
    table = {"name": "gd", "steps": int(steps.tuning_steps), "step_size": steps.private_step_size}
    thetas, _ = path(problem, data, ct.ffgg(step_size=steps.step_size, tuner=table if tuner == "gd" else tuner), rounds)
    smallest = min((forces(rows, theta).mean(axis=0) ** 2).sum() for theta in thetas[:-1])
    bound = steps.smoothness * ((START - SOLUTION) ** 2).sum() / (steps.step_size * rounds)
    assert smallest <= (4 if tuner == "gd" else 1) * bound


def test_data_of_another_scale_with_steps_to_match_go_the_same_path(path, given, rows):
    for tuner in ("exact", {"name": "gd", "steps": 3, "step_size": 0.1}):
        stretched = tuner if tuner == "exact" else {**tuner, "step_size": 0.1 / 9}
        thetas, _ = path(*given, ct.ffgg(step_size=0.2, tuner=tuner), 3)
        others, _ = path(*federated(rows, scale=3.0), ct.ffgg(step_size=0.2 / 9, tuner=stretched), 3)
        np.testing.assert_allclose(others, thetas, atol=1e-11)


def test_other_coordinates_of_the_private_part_change_nothing_where_it_is_the_best(path, given, rows):
    turn = np.array([[2.0, 1.0], [-0.5, 0.3]])
    kept = path(*given, ct.ffgg(step_size=0.2, tuner="exact"), 3)[0]
    for tuner in ("exact", {"name": "cg", "steps": 2}, {"name": "newton", "steps": 1}):
        turned, _ = path(*federated(rows, turn=turn), ct.ffgg(step_size=0.2, tuner=tuner), 3, turn=turn)
        np.testing.assert_allclose(turned, kept, atol=1e-10)
    few = {"name": "gd", "steps": 3}
    assert np.abs(path(*federated(rows, turn=turn), ct.ffgg(step_size=0.2, tuner=few), 3, turn=turn)[0]
                  - path(*given, ct.ffgg(step_size=0.2, tuner=few), 3)[0]).max() > 1e-3


def test_where_everything_is_private_nothing_is_left_for_the_shared_part(engine, rows):
    """Proposition 1: with the private part as rich as the shared one F_m = 0 everywhere, and it never moves."""
    random = np.random.default_rng(0)
    data = ct.from_clients({f"c{number}": (A, random.normal(size=len(A))) for number, (A, _, _) in enumerate(rows)},
                           test=0)
    model = ct.linear(bias=False)
    problem = ct.residual(data, shared_features=[0, 1, 2], private_features=[0, 1, 2], shared_model=model,
                          private_model=model)
    result = ct.run(problem, data, ct.ffgg(step_size=0.2, tuner="exact"), rounds=3, precision="float64", engine=engine,
                    evaluate_every=3, initial=(initial()[0], {"layer0": {"weight": np.ones((3, 1))}}))
    np.testing.assert_allclose(result.clients["clients.gradient_norm"], 0, atol=1e-12)
    np.testing.assert_allclose(result.model.state.server.shared["layer0"]["weight"], initial()[0]["layer0"]["weight"],
                               atol=1e-12)


# Of tuning alone


def test_the_loss_of_the_best_private_part_has_the_gradient_that_is_sent(given):
    """The envelope theorem: d/dtheta f_m(theta, w*(theta)) = F_m(theta), without a derivative of w*."""
    problem, data = given
    tune, _ = tuner_of(problem, "exact")
    shared, private = jax.tree.map(jnp.asarray, initial())

    def best(theta, index=1):
        own = tune(KEY, {"layer0": {"weight": theta}}, private, data.train.client(index)).private
        return problem.loss({"layer0": {"weight": theta}}, own, data.train.client(index).full()), own

    theta = shared["layer0"]["weight"]
    sent = jax.grad(problem.loss)(shared, best(theta)[1], data.train.client(1).full())["layer0"]["weight"]
    moves = 1e-5 * jnp.eye(3)[..., None]
    slopes = jax.jit(jax.vmap(lambda move: (best(theta + move)[0] - best(theta - move)[0]) / 2e-5))(moves)
    np.testing.assert_allclose(slopes, sent[:, 0], atol=1e-8)


def test_gradient_descent_tunes_as_its_closed_form_says(given, rows):
    """w_tau = w* + (I - gamma 2/n B'B)^tau (w_0 - w*)."""
    problem, data = given
    tune, _ = tuner_of(problem, {"name": "gd", "steps": 7, "step_size": 0.15})
    shared, private = jax.tree.map(jnp.asarray, initial())
    for index in (0, 3):
        A, B, y = rows[index]
        best = np.linalg.lstsq(B, y - A @ START, rcond=None)[0]
        shrink = np.linalg.matrix_power(np.eye(2) - 0.15 * 2 / len(y) * B.T @ B, 7)
        found = tune(KEY, shared, private, data.train.client(index)).private["layer0"]["weight"][:, 0]
        np.testing.assert_allclose(found, best + shrink @ (np.array([0.3, -0.4]) - best), atol=1e-12)


def test_a_server_rate_multiplies_the_step(path, given):
    tuner = {"name": "gd", "steps": 2, "step_size": 0.1}
    once = path(*given, ct.ffgg(step_size=0.12, tuner=tuner), 2)[0]
    np.testing.assert_allclose(path(*given, ct.ffgg(step_size=0.06, server_step_size=2.0, tuner=tuner), 2)[0], once,
                               atol=1e-12)
    alternating = ct.fedalt(private_steps=2, private_step_size=0.1, step_size=0.06, server_step_size=2.0,
                            batch_size=None, state="none")
    np.testing.assert_allclose(path(*given, alternating, 2)[0], once, atol=1e-12)
