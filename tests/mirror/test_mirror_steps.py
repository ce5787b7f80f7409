"""Every step is the minimiser it claims to be: by its optimality condition, by a general solver, by hand."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize

from cantons.errors import InputError
from cantons.mirror import (
    MAPS,
    affine,
    all_space,
    ball,
    box,
    bregman_projection,
    capped_simplex,
    entropy,
    euclidean,
    log_barrier,
    mirror_descent_step,
    mirror_step,
    p_norm,
    quadratic,
    simplex,
    strong_convexity,
)

pytestmark = pytest.mark.usefixtures("float64")

CENTRE = np.array([1.0, -1.0, 0.5, 0.0])
LOW, HIGH = np.array([0.1, 0.0, 0.5, 0.2]), np.array([1.0, 2.0, 0.7, 3.0])
PLANES = affine([[1.0, 2.0, 0.0, -1.0], [0.0, 1.0, 1.0, 1.0], [1.0, 3.0, 1.0, 0.0]], [1.0, 2.0, 3.0])  # rank 2
ROOT = np.random.default_rng(7).normal(size=(4, 4))
MATRIX = ROOT @ ROOT.T + 0.1 * np.eye(4)
POSITIVE = ("entropy", "log_barrier")

MIRRORS = {"euclidean": euclidean(2.0), "entropy": entropy(), "log_barrier": log_barrier(), "p_norm": p_norm(1.5),
           "quadratic": quadratic(MATRIX), "diagonal": quadratic([0.5, 1.0, 4.0, 2.0])}
REGIONS = {"all_space": all_space(), "box": box(LOW, HIGH), "l1": ball(1.5, "l1", CENTRE),
           "l2": ball(1.5, "l2", CENTRE), "linf": ball(1.5, "linf", CENTRE), "own_ball": ball(1.5, 1.5),
           "simplex": simplex(2.0), "capped": capped_simplex(0.8, 2.0), "affine": PLANES}
EXACT = {
    "euclidean": "all_space box l1 l2 linf simplex capped affine",
    "entropy": "all_space box linf simplex capped",
    "log_barrier": "all_space box linf simplex capped",
    "p_norm": "all_space own_ball",
    "quadratic": "all_space l2 affine",
    "diagonal": "all_space box l2 linf simplex capped affine",
}
PAIRS = [(mirror, region) for mirror, regions in EXACT.items() for region in regions.split()]
every_pair = pytest.mark.parametrize("mirror, region", PAIRS, ids=[" on ".join(pair) for pair in PAIRS])
CASES = 60


def members(mirror, region, number, seed):
    """Points of a set, on its border and inside, where the map has a gradient."""
    feasible, random = REGIONS[region], np.random.default_rng(seed)
    points = 2 * random.normal(size=(number, 4))
    if region == "all_space":
        return np.exp(points) if mirror in POSITIVE else points
    if region == "linf" and mirror in POSITIVE:
        return random.uniform(0.01, 0.5, (number, 4))
    if region == "own_ball":
        inside = 1.5 * points / np.maximum((np.abs(points) ** 1.5).sum(axis=1, keepdims=True) ** (1 / 1.5), 1.5)
    else:
        inside = np.asarray(jax.jit(jax.vmap(feasible.project))(points))
    return inside + random.uniform(0.02, 1, (number, 1)) * (np.asarray(feasible.start(points[0])) - inside)


@functools.cache
def many_steps(mirror, region):
    """The step for many points at once, compiled once for all tests."""
    return jax.jit(jax.vmap(mirror_descent_step(MIRRORS[mirror], REGIONS[region])))


@functools.cache
def cases(mirror, region):
    """Starts, gradients and step sizes from timid to rash, and where the steps lead."""
    random = np.random.default_rng(11)
    gradients = 2 * random.normal(size=(CASES, 4))
    if (mirror, region) == ("log_barrier", "all_space"):
        gradients = np.abs(gradients)  # a loss that falls for ever has no minimiser
    start, etas = members(mirror, region, CASES, seed=12), 10 ** random.uniform(-2, 1, CASES)
    return start, gradients, etas, np.asarray(many_steps(mirror, region)(start, gradients, etas))


@every_pair
def test_a_step_satisfies_the_optimality_condition_against_every_other_point(mirror, region):
    """Equation (23): <g + (grad psi(y) - grad psi(x)) / eta, u - y> >= 0 for u in the set; psi is convex: enough."""
    start, gradients, etas, after = cases(mirror, region)
    assert jax.jit(jax.vmap(lambda point: REGIONS[region].contains(point, 1e-12)))(after).all()
    to_dual = jax.jit(jax.vmap(MIRRORS[mirror].to_dual))
    before, pushes = np.asarray(to_dual(start)), etas[:, None] * gradients
    gradients = pushes + np.asarray(to_dual(after)) - before
    scale = 1 + np.abs(before).max(axis=1) + np.abs(pushes).max(axis=1)
    if region == "all_space":
        np.testing.assert_allclose(gradients / scale[:, None], 0.0, atol=1e-12)
        return
    others = members(mirror, region, 200, seed=13)
    rises = np.einsum("ij,kij->ki", gradients, others[:, None] - after[None]) / scale
    assert rises.min() >= -1e-10


SIGNS = np.array(list(itertools.product([-1.0, 1.0], repeat=4)))
CONSTRAINTS = {  # as the solver wants them: smooth functions that are to be >= 0, or = 0
    "l1": [("ineq", lambda x: 1.5 - SIGNS @ (x - CENTRE))],
    "l2": [("ineq", lambda x: 1.5**2 - np.sum((x - CENTRE) ** 2))],
    "own_ball": [("ineq", lambda x: 1.5**1.5 - np.sum(np.abs(x) ** 1.5))],
    "simplex": [("eq", lambda x: np.sum(x) - 2.0)],
    "capped": [("eq", lambda x: np.sum(x) - 2.0)],
    "affine": [("eq", lambda x: PLANES.options["matrix"][:2] @ x - PLANES.options["values"][:2])],
}
BOUNDS = {"box": (LOW, HIGH), "linf": (CENTRE - 1.5, CENTRE + 1.5), "simplex": (0, np.inf), "capped": (0, 0.8)}


@every_pair
def test_a_general_solver_finds_no_better_point_and_the_same_one(mirror, region):
    start, gradients, etas, after = cases(mirror, region)

    def objective(x, point, gradient, eta):
        return gradient @ x + MIRRORS[mirror].divergence(x, point) / eta

    both = jax.jit(jax.value_and_grad(objective))
    low, high = np.broadcast_to(np.reshape(BOUNDS.get(region, (-np.inf, np.inf)), (2, -1)), (2, 4))
    low = np.maximum(low, 1e-9) if mirror in POSITIVE else low
    tried = [index for index in range(CASES) if 0.05 < etas[index] < 2][:3]
    for index in tried:
        case = start[index], gradients[index], etas[index]
        found = minimize(lambda x, case=case: [np.asarray(part) for part in both(x, *case)], start[index], jac=True,
                         bounds=list(zip(low, high, strict=True)), method="SLSQP",
                         constraints=[{"type": kind, "fun": fun} for kind, fun in CONSTRAINTS.get(region, [])],
                         options={"ftol": 1e-14, "maxiter": 500})
        assert both(after[index], *case)[0] <= found.fun + 1e-7
        np.testing.assert_allclose(after[index], found.x, atol=2e-4)


@every_pair
def test_one_step_moves_no_further_than_the_dual_norm_of_its_gradient(mirror, region):
    """Equation (26), for a potential whose constant need not be 1."""
    start, gradients, etas, after = cases(mirror, region)
    constant, norm = strong_convexity(MIRRORS[mirror], REGIONS[region])
    sizes = jax.jit(jax.vmap(lambda move, gradient: (norm.size(move), norm.dual_size(gradient))))
    moved, pushed = sizes(after - start, gradients)
    assert (constant * moved <= etas * pushed * (1 + 1e-9)).all()


@every_pair
def test_nothing_moves_without_a_gradient_and_a_projection_projects_once(mirror, region):
    _, _, etas, after = cases(mirror, region)
    again = many_steps(mirror, region)(after, np.zeros_like(after), etas)
    np.testing.assert_allclose(again, after, rtol=1e-9, atol=1e-11)


def split(vector):
    return {"weight": vector[1:].reshape(3, 1), "bias": vector[0]}


@every_pair
def test_a_tree_steps_like_its_entries_in_one_vector(mirror, region):
    feasible = {"box": box(split(LOW), split(HIGH)), "l1": ball(1.5, "l1", split(CENTRE)),
                "l2": ball(1.5, "l2", split(CENTRE)), "linf": ball(1.5, "linf", split(CENTRE))}.get(
                    region, REGIONS[region])
    start, gradients, etas, after = cases(mirror, region)
    step = jax.jit(mirror_descent_step(MIRRORS[mirror], feasible))
    for index in range(3):
        tree = step(split(start[index]), split(gradients[index]), etas[index])
        for key, leaf in split(after[index]).items():
            np.testing.assert_allclose(tree[key], leaf, rtol=1e-12, atol=1e-14)


@every_pair
def test_gradients_through_a_step_are_those_of_small_differences(mirror, region):
    case, step = cases(mirror, region)[:3], many_steps(mirror, region)
    # Along the segment to another point of the set, a start stays in it.
    ways = (members(mirror, region, CASES, seed=14) - case[0], np.random.default_rng(15).normal(size=(CASES, 4)),
            0.3 * case[2])
    _, gradients = jax.jvp(step, case, ways)
    there, back = (step(*(part + shift * way for part, way in zip(case, ways, strict=True))) for shift in (1e-6, -1e-6))
    close = np.isclose(gradients, (there - back) / 2e-6, rtol=1e-4, atol=1e-5).all(axis=1)
    assert close.mean() >= 0.95  # all but those within a millionth of a kink


def test_entropy_on_a_simplex_is_multiplicative_weights():
    start, gradients, etas, after = cases("entropy", "simplex")
    weights = start * np.exp(-etas[:, None] * gradients)
    np.testing.assert_allclose(after, 2 * weights / weights.sum(axis=1, keepdims=True), rtol=1e-12)


def test_steps_of_entropy_along_linear_losses_are_a_softmax_of_their_sum():
    gradients, point = np.random.default_rng(16).normal(size=(30, 5)), simplex().start(jnp.zeros(5))
    step = mirror_descent_step(entropy(), simplex())
    for gradient in gradients:
        point = step(point, gradient, 0.3)
    np.testing.assert_allclose(point, jax.nn.softmax(-0.3 * gradients.sum(axis=0)), rtol=1e-12)


@pytest.mark.parametrize("feasible", [all_space(), ball(1.5)], ids=["all_space", "ball"])
def test_the_p_norm_with_p_2_is_euclidean(feasible):
    start, gradients, etas, _ = cases("euclidean", "all_space")
    ours, theirs = (jax.vmap(mirror_descent_step(mirror, feasible))(start, gradients, etas)
                    for mirror in (p_norm(2), euclidean()))
    np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-14)


def scaled(mirror, factor):
    """The same map with its potential multiplied, as a user would write one."""
    return mirror._replace(
        kind="mine", potential=lambda point: factor * mirror.potential(point),
        to_dual=lambda point: jax.tree.map(lambda leaf: factor * leaf, mirror.to_dual(point)),
        to_primal=lambda dual: mirror.to_primal(jax.tree.map(lambda leaf: leaf / factor, dual)))


@pytest.mark.parametrize("mirror, region", [
    ("euclidean", "capped"), ("entropy", "simplex"), ("entropy", "capped"), ("log_barrier", "box"),
    ("p_norm", "all_space"), ("diagonal", "simplex")])
def test_a_potential_times_c_with_step_sizes_times_c_steps_the_same(mirror, region):
    """Also for a map of the user's own: where it is a sum over entries, most sets have an exact step for it."""
    start, gradients, etas, after = cases(mirror, region)
    step = mirror_descent_step(scaled(MIRRORS[mirror], 3.0), REGIONS[region])
    np.testing.assert_allclose(jax.jit(jax.vmap(step))(start, gradients, 3 * etas), after, rtol=1e-9, atol=1e-11)


def test_the_bregman_projection_of_a_point_onto_a_simplex_is_known_by_hand():
    """Entropy: divide by the sum. Euclid: subtract from all. Barrier, two entries: the root of a quadratic."""
    point = jnp.array([3.0, 1.0])
    expected = {entropy: [0.75, 0.25], euclidean: [1.0, 0.0]}
    for build, value in expected.items():
        np.testing.assert_allclose(bregman_projection(build(), simplex())(build().to_dual(point)), value, rtol=1e-12)
    x, y = bregman_projection(log_barrier(), simplex())(log_barrier().to_dual(point))
    np.testing.assert_allclose([x + y, 1 / x - 1 / 3], [1.0, 1 / y - 1], rtol=1e-12)
    capped = bregman_projection(entropy(), capped_simplex(0.5))(jnp.log(jnp.array([8.0, 2.0, 1.0])))
    np.testing.assert_allclose(capped, [0.5, 1 / 3, 1 / 6], rtol=1e-12)


def test_a_huge_gradient_does_no_harm_in_single_precision():
    gradients = np.array([[1e6, -2e6, 3e5, 0.0], [0.0, 1e-3, -1e4, -1e4]], np.float32)
    hard = {"euclidean": ("l1", "simplex", "capped"), "entropy": ("simplex", "capped"), "log_barrier": ("simplex",),
            "p_norm": ("own_ball",), "quadratic": ("l2",)}
    for mirror, region in [pair for pair in PAIRS if pair[1] in hard.get(pair[0], ())]:
        starts = members(mirror, region, 2, seed=17).astype(np.float32)
        after = many_steps(mirror, region)(starts, gradients, np.ones(2, np.float32))
        assert after.dtype == jnp.float32, (mirror, region)
        assert jax.jit(jax.vmap(REGIONS[region].contains))(after).all(), (mirror, region)


def test_the_numbers_of_a_map_and_a_set_may_be_swept_inside_a_compiled_program():
    point, gradient = np.array([0.3, 0.7]), np.array([1.0, -1.0])

    def steps(number):
        return {
            "scale": mirror_step(euclidean(number), all_space(), point, gradient, 1.0),
            "box": mirror_step(entropy(), box(0.0, number), point, gradient, 1.0),
            "l1": mirror_step(euclidean(), ball(number, "l1"), point, gradient, 1.0),
            "linf": mirror_step(euclidean(), ball(number, "linf"), point, gradient, 1.0),
            "own_ball": mirror_step(p_norm(1.5), ball(number, 1.5), point, gradient, 1.0),
            "simplex": mirror_step(entropy(), simplex(number), point, gradient, 1.0),
            "capped": mirror_step(log_barrier(), capped_simplex(number), point, gradient, 1.0),
        }

    numbers = np.array([0.6, 0.8])
    swept = jax.jit(jax.vmap(steps))(numbers)
    for index, number in enumerate(numbers):
        alone = jax.jit(lambda number=number: steps(float(number)))()
        for name, value in alone.items():
            np.testing.assert_allclose(swept[name][index], value, rtol=1e-12, err_msg=name)


def test_an_entry_that_rounds_to_zero_can_come_back_and_one_that_is_zero_stays():
    step = mirror_descent_step(entropy(), simplex())
    down = step(jnp.array([0.5, 0.5, 0.0]), jnp.array([1.0, 0.0, -1.0]), 1e4)
    assert 0 < down[0] < 1e-300 and down[2] == 0
    assert step(down, jnp.array([-1.0, 0.0, 0.0]), 1e4)[0] > 0.99
    for feasible in (all_space(), box(0.0, 1.0), capped_simplex(0.9)):
        after = mirror_step(entropy(), feasible, jnp.array([0.3, 0.3, 0.4]), jnp.array([1e4, 0.0, 0.0]), 1.0)
        assert 0 < after[0] < 1e-300
    gradients = jax.jit(jax.jacobian(step))(jnp.array([0.5, 0.5, 0.0]), jnp.array([1.0, 0.0, -1.0]), 1.0)
    assert np.isfinite(gradients).all()
    capped = mirror_step(entropy(), capped_simplex(0.6), jnp.array([0.5, 0.5, 0.0]), jnp.array([9.0, 0.0, -1.0]), 1.0)
    np.testing.assert_allclose(capped, [0.4, 0.6, 0.0], rtol=1e-12)


def test_a_p_norm_steps_from_zero_where_its_gradients_are_infinite():
    step = mirror_descent_step(p_norm(1.2), ball(1.0, 1.2))
    gradients = jax.jit(jax.jacobian(step, argnums=(0, 1, 2)))(jnp.zeros(3), jnp.array([1.0, 0.0, -2.0]), 0.1)
    assert all(np.isfinite(gradient).all() for gradient in gradients)
    np.testing.assert_array_equal(step(jnp.zeros(3), jnp.zeros(3), 1.0), 0.0)


def test_where_a_loss_falls_for_ever_the_barrier_goes_to_the_end_of_its_box_or_to_infinity():
    point, gradient = jnp.array([1.0, 1.0]), jnp.array([-2.0, 1.0])
    np.testing.assert_allclose(mirror_step(log_barrier(), box(0.0, 7.0), point, gradient, 1.0), [7.0, 0.5])
    np.testing.assert_allclose(mirror_step(log_barrier(), all_space(), point, gradient, 1.0), [jnp.inf, 0.5])


@pytest.mark.parametrize("mirror, feasible, part", [
    (entropy(), ball(1.0), "entropy has no exact step on an l2 ball. It has one on: all_space, box, simplex, "
                           "capped_simplex; on an l2 ball take: euclidean, quadratic"),
    (entropy(), PLANES, "entropy has no exact step on an affine set"),
    (log_barrier(), ball(1.0, "l1"), "on an l1 ball take: euclidean"),
    (p_norm(1.5), ball(1.0, "l1"), r"p_norm\(1.5\) has no exact step on an l1 ball. It has one on: all_space, an l1.5"),
    (p_norm(1.5), ball(1.0, 1.5, CENTRE), "an l1.5 ball around 0"),
    (p_norm(1.5), ball(1.0, 1.7), r"on an l1.7 ball take: p_norm\(1.7\)"),
    (p_norm(1.5), simplex(), "on a simplex take: euclidean, entropy, log_barrier"),
    (quadratic(MATRIX), box(0.0, 1.0), "quadratic has no exact step on a box"),
    (quadratic(MATRIX), simplex(), "quadratic has no exact step on a simplex"),
    (quadratic(np.eye(3)), PLANES, "A has 4 columns and the matrix of quadratic 3 rows"),
    (euclidean(), ball(1.0, 3.0), "euclidean has no exact step on an l3 ball"),
    (entropy(), box(-1.0, 0.0), "the points of entropy are positive; raise high above 0"),
])
def test_a_pair_without_an_exact_step_is_refused_when_it_is_built(mirror, feasible, part):
    with pytest.raises(InputError, match=part):
        mirror_descent_step(mirror, feasible)


def test_every_other_pair_is_refused():
    for mirror, region in itertools.product(MIRRORS, REGIONS):
        if (mirror, region) not in PAIRS:
            with pytest.raises(InputError, match="has no exact step on"):
                mirror_descent_step(MIRRORS[mirror], REGIONS[region])
    assert {mirror.replace("diagonal", "quadratic") for mirror in MIRRORS} == set(MAPS)


def test_a_cap_too_low_for_the_number_of_entries_is_refused():
    with pytest.raises(InputError, match="4 entries of at most 0.2 cannot add up to 1.0"):
        mirror_step(entropy(), capped_simplex(0.2), jnp.full(4, 0.25), jnp.zeros(4), 1.0)
