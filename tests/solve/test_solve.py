"""Solvers: least squares in closed form, and descent for any loss; both in a ball."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize

from cantons.solve.conjugate_gradients import conjugate_gradients
from cantons.solve.fista import minimise_for_steps
from cantons.solve.least_squares import Normal, equations, no_equations, solver

pytestmark = pytest.mark.usefixtures("float64")


# Least squares in a ball


def normal_of(random, rows, width):
    x = random.normal(size=(rows, width))
    y = x @ random.normal(size=width) + random.normal(size=rows)
    return x, y, equations(jnp.asarray(x), jnp.asarray(y))


@pytest.mark.parametrize("rows", [2, 5, 30])
@pytest.mark.parametrize("radius", [0.05, 0.5, 1.0, 10.0])
def test_in_a_ball_nothing_is_better(rows, radius):
    random = np.random.default_rng(rows)
    x, y, normal = normal_of(random, rows, 5)
    start = random.normal(size=5)
    found = np.asarray(solver(radius)(normal, jnp.asarray(start)))
    assert np.linalg.norm(found) <= radius * (1 + 1e-12)
    best = scipy.optimize.minimize(
        lambda v: ((x @ v - y) ** 2).sum(), np.zeros(5), jac=lambda v: 2 * x.T @ (x @ v - y), method="SLSQP", tol=1e-14,
        constraints={"type": "ineq", "fun": lambda v: radius**2 - v @ v, "jac": lambda v: -2 * v})
    assert ((x @ found - y) ** 2).sum() <= best.fun + 1e-9
    if rows >= 5:
        np.testing.assert_allclose(found, best.x, atol=1e-5)


def test_a_ball_that_is_large_enough_changes_nothing():
    normal = normal_of(np.random.default_rng(0), 30, 5)[2]
    start = jnp.zeros(5)
    np.testing.assert_array_equal(solver(10.0)(normal, start), solver()(normal, start))


def test_of_equally_good_points_in_a_ball_it_takes_the_nearest():
    """One example says v[0] = 1: in a ball of radius 1.25 the other coordinate has room for 0.75."""
    normal = equations(jnp.array([[2.0, 0.0]]), jnp.array([2.0]))
    for start, nearest in (([5.0, 3.0], [1.0, 0.75]), ([-1.0, -9.0], [1.0, -0.75]), ([0.0, 0.5], [1.0, 0.5])):
        np.testing.assert_allclose(solver(1.25)(normal, jnp.array(start)), nearest, atol=1e-14)
    np.testing.assert_allclose(solver(1.25, "minimum_norm")(normal, jnp.array([5.0, 3.0])), [1.0, 0.0], atol=1e-14)
    np.testing.assert_allclose(solver(0.5)(normal, jnp.array([5.0, 3.0])), [0.5, 0.0], atol=1e-14)


def test_without_parameters_or_examples_there_is_nothing_to_solve():
    assert solver(1.0)(no_equations({}), {}) == {}
    start = {"bias": jnp.array([3.0]), "weight": jnp.array([[4.0]])}
    for ties in ("nearest", "minimum_norm"):
        assert solver(1.0, ties)(no_equations(start), start) == start


def test_directions_that_only_rounding_errors_know_of_are_ties():
    """The third feature is the sum of the first two; ten thousand products later the sums still know."""
    random = np.random.default_rng(0)
    x = random.normal(size=(10_000, 2)).astype(np.float32)
    x = np.concatenate([x, x.sum(axis=1, keepdims=True)], axis=1)

    def add(total, row):
        return jax.tree.map(jnp.add, total, equations(row[None], row[None, 0])), None

    begin = Normal(jnp.zeros((3, 3), jnp.float32), jnp.zeros(3, jnp.float32), jnp.zeros((), jnp.float32))
    normal = jax.lax.scan(lambda total, row: (jax.tree.map(lambda leaf: leaf.astype(jnp.float32), add(total, row)[0]),
                                              None), begin, jnp.asarray(x))[0]
    found = solver()(normal, jnp.array([0.0, 0.0, 9.0], jnp.float32))
    assert found.dtype == jnp.float32
    np.testing.assert_allclose(found, [-7 / 3, -10 / 3, 10 / 3], atol=1e-4)  # of [1 - c, -c, c] the nearest


def test_how_small_a_curvature_is_still_believed_depends_on_how_much_was_added_up():
    eps = float(jnp.finfo(float).eps)
    for examples, believed in ((4, True), (10_000, False)):  # the limit is 2 + the root of the examples
        normal = Normal(jnp.diag(jnp.array([1.0, 20 * eps])), jnp.array([1.0, 100 * eps]), jnp.array(float(examples)))
        np.testing.assert_allclose(solver()(normal, jnp.zeros(2)), [1.0, 5.0 if believed else 0.0], rtol=1e-9)


# Any loss


def test_the_solver_finds_the_minimum_in_a_ball():
    random = np.random.default_rng(3)
    for radius in (None, 0.5):
        x, y, normal = normal_of(random, 30, 5)
        found = minimise_for_steps(lambda v, x=x, y=y: ((x @ v - y) ** 2).mean(), jnp.zeros(5), 200, radius)
        np.testing.assert_allclose(found, solver(radius)(normal, jnp.zeros(5)), atol=1e-8)


def test_the_solver_goes_to_the_nearest_of_many_minima():
    x, y, normal = normal_of(np.random.default_rng(4), 3, 5)
    start = jnp.arange(5.0)
    found = minimise_for_steps(lambda v: ((x @ v - y) ** 2).mean(), start, 300)
    np.testing.assert_allclose(found, solver()(normal, start), atol=1e-8)


def test_the_solver_never_ends_above_its_start():
    def wavy(point):
        return jnp.sin(5 * point).sum() + 0.1 * (point**2).sum()

    starts = jnp.asarray(np.random.default_rng(0).normal(size=(20, 3)))
    for steps in (1, 2, 10):
        ends = jax.jit(jax.vmap(lambda start, steps=steps: minimise_for_steps(wavy, start, steps, radius=4.0)))(starts)
        assert (jax.vmap(wavy)(ends) <= jax.vmap(wavy)(starts)).all()


# Conjugate gradients


def test_conjugate_gradients_end_at_the_shortest_solution_however_many_steps_they_may_take():
    random = np.random.default_rng(1)
    for rank in (1, 4, 8):
        rows = np.linalg.qr(random.normal(size=(20, rank)))[0] * np.linspace(1, 3, rank) @ np.linalg.qr(
            random.normal(size=(8, rank)))[0].T
        curvature, gradient = rows.T @ rows, rows.T @ random.normal(size=20)
        for steps in (rank, 8, 60):
            found = conjugate_gradients(lambda along, curvature=curvature: curvature @ along, jnp.asarray(gradient),
                                        max(steps, rank))
            np.testing.assert_allclose(found, -np.linalg.pinv(curvature) @ gradient, atol=1e-12)
        nothing = conjugate_gradients(lambda along, curvature=curvature: curvature @ along, jnp.zeros(8), 5)
        np.testing.assert_array_equal(nothing, 0.0)


def test_conjugate_gradients_stop_at_a_tolerance_and_where_a_matrix_curves_downwards():
    curvature, gradient = np.diag([1.0, 5.0, 25.0]), jnp.array([1.0, 2.0, 3.0])
    found = [conjugate_gradients(lambda along: curvature @ along, gradient, *how) for how in ((2, 0), (9, 0.6), (9, 0))]
    left = [np.linalg.norm(curvature @ move + gradient) / np.linalg.norm(gradient) for move in found]
    assert 1e-3 < left[0] < 0.6 and left[0] < left[1] <= 0.6 and left[2] < 1e-12
    for tolerance, least, most in ((0.6, 1, 2), (0, 3, 9), (None, 50, 50)):  # without one, a loop of known length
        counted = []

        def curve(along, counted=counted):
            jax.debug.callback(lambda: counted.append(1))
            return curvature @ along

        jax.block_until_ready(conjugate_gradients(curve, gradient, 50, tolerance))
        jax.effects_barrier()
        assert least <= len(counted) <= most
    for diagonal in ([-1.0, -1.0, -1.0], [0.0, 0.0, 0.0]):
        found = conjugate_gradients(lambda along, diagonal=diagonal: jnp.array(diagonal) * along, gradient, 7)
        np.testing.assert_array_equal(found, -gradient)
    # Of an indefinite matrix in the plane, what is conjugate to a direction that curves upwards curves downwards.
    found = conjugate_gradients(lambda along: jnp.array([1.0, -0.1]) * along, jnp.ones(2), 7)
    np.testing.assert_allclose(found, -2 / 0.9, atol=1e-14)
