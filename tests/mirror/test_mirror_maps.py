"""Mirror maps: potentials that fit their gradients, the identities of divergences, and the paper's assumptions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cantons.errors import InputError
from cantons.mirror import (
    MAPS,
    all_space,
    ball,
    box,
    capped_simplex,
    entropy,
    euclidean,
    log_barrier,
    mirror_step,
    p_norm,
    quadratic,
    relative_strong_convexity,
    simplex,
    strong_convexity,
)

pytestmark = pytest.mark.usefixtures("float64")

MATRIX = np.array([[2.0, 0.5, 0.0], [0.5, 1.0, -0.3], [0.0, -0.3, 3.0]])
BUILD = {
    "euclidean": euclidean,
    "euclidean(2.5)": lambda: euclidean(2.5),
    "entropy": entropy,
    "log_barrier": log_barrier,
    "p_norm(1.1)": lambda: p_norm(1.1),
    "p_norm(1.5)": lambda: p_norm(1.5),
    "p_norm(2)": lambda: p_norm(2),
    "quadratic": lambda: quadratic(MATRIX),
    "diagonal": lambda: quadratic([0.5, 1.0, 4.0]),
}
every_map = pytest.mark.parametrize("mirror", [build() for build in BUILD.values()], ids=list(BUILD))


def drawn(mirror, *shape, seed=0):
    """Points on both sides of zero, where the map allows them, of very different sizes."""
    random = np.random.default_rng(seed)
    points = np.exp(random.normal(0, 1.5, shape))
    return jnp.asarray(points if mirror.kind in ("entropy", "log_barrier") else points * random.choice([-1, 1], shape))


def test_every_map_on_offer_is_tried_here():
    assert {name.split("(")[0].replace("diagonal", "quadratic") for name in BUILD} == set(MAPS)


@every_map
def test_to_dual_is_the_gradient_of_the_potential_and_to_primal_takes_it_back(mirror):
    points = drawn(mirror, 100, 3)
    duals = jax.jit(jax.vmap(mirror.to_dual))(points)
    np.testing.assert_allclose(duals, jax.jit(jax.vmap(jax.grad(mirror.potential)))(points), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(jax.jit(jax.vmap(mirror.to_primal))(duals), points, rtol=1e-9)


@every_map
def test_divergences_obey_the_three_point_identity(mirror):
    """<grad psi(x) - grad psi(y), x - z> = B(x, y) + B(z, x) - B(z, y), and B >= 0 with 0 at home."""

    def sides(x, y, z):
        parts = [mirror.divergence(*pair) for pair in ((x, y), (z, x), (z, y), (x, x))]
        return jnp.sum((mirror.to_dual(x) - mirror.to_dual(y)) * (x - z)), jnp.stack(parts)

    left, parts = jax.jit(jax.vmap(sides))(*drawn(mirror, 3, 100, 3))
    np.testing.assert_allclose(left, parts[:, 0] + parts[:, 1] - parts[:, 2], rtol=1e-9, atol=1e-9 * parts.max())
    assert parts.min() > -1e-12 and not parts[:, 3].any()


def test_divergences_are_the_ones_known_by_name():
    left, right = jnp.array([1.0, 2.0]), jnp.array([2.0, 0.5])
    known = {
        "euclidean": (euclidean(3.0), 1.5 * (1 + 2.25)),
        "Kullback and Leibler": (entropy(), np.log(1 / 2) + 2 * np.log(4) - 3 + 2.5),
        "Itakura and Saito": (log_barrier(), (0.5 - np.log(0.5) - 1) + (4 - np.log(4) - 1)),
        "Mahalanobis": (quadratic([1.0, 4.0]), (1 + 4 * 2.25) / 2),
    }
    for mirror, value in known.values():
        np.testing.assert_allclose(mirror.divergence(left, right), value, rtol=1e-12)


def test_an_entry_at_zero_is_infinitely_far_from_what_left_it_and_not_far_from_itself():
    kept, left = jnp.array([0.0, 1.0]), jnp.array([0.5, 0.5])
    assert entropy().divergence(kept, kept) == 0
    np.testing.assert_allclose(entropy().divergence(kept, left), np.log(2))
    assert entropy().divergence(left, kept) == jnp.inf


def inside(kind, random, number):
    """Pairs of points of a set."""
    if kind == "simplex":
        return 2 * random.dirichlet(np.full(3, 0.4), (2, number))
    return random.uniform(0.01, 3, (2, number, 3)) if kind == "box" else random.normal(0, 2, (2, number, 3))


@pytest.mark.parametrize("mirror, feasible", [
    *[(BUILD[name](), all_space()) for name in BUILD if name not in ("entropy", "log_barrier")],
    *[(mirror, feasible) for mirror in (entropy(), log_barrier()) for feasible in (simplex(2.0), box(0.0, 3.0))],
], ids=lambda value: value.name)
def test_maps_are_as_strongly_convex_as_they_say_and_no_more(mirror, feasible):
    """Section III: B(y, x) >= constant / 2 * ||y - x||^2, with a constant that could not be much larger."""
    constant, norm = strong_convexity(mirror, feasible)
    x, y = inside(feasible.kind, np.random.default_rng(1), 2000)
    y[1000:] = x[1000:] + 1e-3 * (y[1000:] - x[1000:])  # some pairs far apart, some close
    ratios = jax.jit(jax.vmap(lambda x, y: 2 * mirror.divergence(y, x) / norm.size(y - x) ** 2))(x, y)
    assert constant * (1 - 1e-6) <= ratios.min() <= 2 * constant


def test_on_unbounded_sets_entropy_and_barrier_are_not_strongly_convex():
    for mirror in (entropy(), log_barrier()):
        assert strong_convexity(mirror, all_space()).constant == 0
    assert strong_convexity(entropy(), capped_simplex(0.5, 4.0)).constant == 1 / 4
    assert strong_convexity(euclidean(3.0), ball(1.0)).constant == 3


@every_map
def test_dual_norms_are_dual(mirror):
    """|<g, x>| <= ||g||_* ||x||, with equality for g = the gradient of ||x||^2 / 2."""
    norm = strong_convexity(mirror, simplex()).norm
    x, g = np.random.default_rng(2).normal(size=(2, 50, 3))
    matching = jax.jit(jax.vmap(jax.grad(lambda x: norm.size(x) ** 2 / 2)))(x)
    products = jax.jit(jax.vmap(lambda g, x: norm.dual_size(g) * norm.size(x)))
    assert (np.abs(np.sum(g * x, axis=1)) <= products(g, x) * (1 + 1e-12)).all()
    np.testing.assert_allclose(np.sum(matching * x, axis=1), products(matching, x), rtol=1e-9)


@pytest.mark.parametrize("mirror, sigma", [
    (euclidean(), 2.0), (euclidean(2.0), 1.0), (quadratic([1.0, 4.0, 2.0]), 0.5),
], ids=["half a square", "a square", "quadratic"])
def test_sigma_of_definition_1_counts_the_half_inside_the_divergence(mirror, sigma):
    """The loss of equation (46), (x - a)^2 / 2: sigma / 2 * B <= ||y - x||^2 / 2, and not with a larger sigma."""
    assert relative_strong_convexity(mirror, 1.0) == sigma

    def loss(x):
        return jnp.sum((x - 0.7) ** 2) / 2

    def least_slack(sigma):
        return jax.jit(jax.vmap(lambda x, y: loss(y) - loss(x) - (y - x) @ jax.grad(loss)(x)
                                - sigma / 2 * mirror.divergence(y, x)))(*pairs).min()

    pairs = np.random.default_rng(3).normal(size=(2, 2000, 3))
    assert least_slack(sigma) >= -1e-12
    assert least_slack(1.05 * sigma) < 0


def test_the_step_of_theorem_2_does_not_depend_on_how_the_potential_is_scaled():
    """eta_t = 2 / (sigma t): x - g / t, whichever of the two readings of Definition 1."""
    for scale in (1.0, 2.0, 0.3):
        eta = 2 / (relative_strong_convexity(euclidean(scale), 1.0) * 5)
        after = mirror_step(euclidean(scale), box(-3.0, 3.0), jnp.array(1.0), jnp.array(4.0), eta)
        np.testing.assert_allclose(after, 1 - 4 / 5, rtol=1e-12)


def gap_of_assumption_2(mirror, u, points, weights):
    """sum_j w_j B(u, z_j) - B(u, sum_j w_j z_j), which the assumption wants to be nonnegative."""
    return weights @ jax.vmap(mirror.divergence, (None, 0))(u, points) - mirror.divergence(u, weights @ points)


@every_map
def test_assumption_2_holds_where_a_map_says_so(mirror):
    weights = np.random.default_rng(4).dirichlet(np.ones(4), 1000)
    gaps = jax.jit(jax.vmap(lambda *case: gap_of_assumption_2(mirror, *case)))(
        drawn(mirror, 1000, 3), drawn(mirror, 1000, 4, 3, seed=1), weights)
    assert (gaps.min() >= -1e-10) == mirror.averages


def test_assumption_2_fails_for_the_p_norm_by_this_counterexample():
    """Its potential is homogeneous: scaled down, the same three points break the assumption in any ball around 0."""
    u, points, halves = jnp.array([1.0, 0.0]), jnp.array([[0.0, 1.0], [-1.0, 1.0]]), jnp.array([0.5, 0.5])
    gap = gap_of_assumption_2(p_norm(1.5), u, points, halves)
    np.testing.assert_allclose(gap, -0.0418016130, rtol=1e-6)
    np.testing.assert_allclose(gap_of_assumption_2(p_norm(1.5), u / 100, points / 100, halves), gap / 1e4, rtol=1e-6)
    for mirror in (euclidean(), p_norm(2)):
        assert gap_of_assumption_2(mirror, u, points, halves) > 0


@pytest.mark.parametrize("build, part", [
    (lambda: p_norm(1.0), "p is 1.0; give a number above 1 and at most 2"),
    (lambda: p_norm(2.5), "p is 2.5; give a number above 1"),
    (lambda: euclidean(0.0), "scale is 0.0"),
    (lambda: quadratic([[1.0, 2.0], [0.0, 1.0]]), "is not symmetric"),
    (lambda: quadratic([[1.0, 2.0], [2.0, 1.0]]), "the eigenvalue -1; all must be above 0"),
    (lambda: quadratic([1.0, 2.0]).potential(jnp.ones(3)), "the matrix has 2 rows and the point 3 entries"),
    (lambda: relative_strong_convexity(entropy(), 1.0), "the curvature of entropy has no bound"),
])
def test_maps_that_cannot_be_are_refused(build, part):
    with pytest.raises(InputError, match=part):
        build()
