"""Sets: who is inside, the nearest point, the middle, and how far apart their points are."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cantons.errors import InputError
from cantons.mirror import (
    SETS,
    affine,
    all_space,
    ball,
    box,
    capped_simplex,
    check_start,
    entropy,
    euclidean,
    largest_divergence,
    log_barrier,
    p_norm,
    quadratic,
    simplex,
)

pytestmark = pytest.mark.usefixtures("float64")

CENTRE = np.array([1.0, -1.0, 0.5, 0.0])
REGIONS = {
    "all_space": all_space(),
    "box": box(-1.0, np.array([0.5, 1.0, 2.0, 3.0])),
    "box without a top": box(0.0, np.inf),
    "ball l1": ball(1.5, "l1"),
    "ball l2": ball(1.5, "l2", CENTRE),
    "ball linf": ball(1.5, "linf", CENTRE),
    "ball lp": ball(1.5, 1.5, CENTRE),
    "simplex": simplex(2.0),
    "capped_simplex": capped_simplex(0.8, 2.0),
    "affine": affine([[1.0, 2.0, 0.0, -1.0], [0.0, 1.0, 1.0, 1.0]], [1.0, 2.0]),
}
every_set = pytest.mark.parametrize("feasible", REGIONS.values(), ids=REGIONS)
LIKE = np.zeros(4)


@functools.cache
def each(function):
    """A function of a set for many points at once, compiled once for all tests."""
    return jax.jit(jax.vmap(function))


def strictly_inside(feasible, points):
    return each(feasible.violation)(points).max() <= 1e-12


def members(feasible, seed=0):
    """300 points of a set, most of them on its border."""
    points = 3 * np.random.default_rng(seed).normal(size=(300, 4))
    if feasible.project:
        return np.asarray(each(feasible.project)(points))
    directions = points - CENTRE
    lengths = (np.abs(directions) ** 1.5).sum(axis=1, keepdims=True) ** (1 / 1.5)
    return CENTRE + 1.5 * directions / np.maximum(lengths, 1.5)


def test_every_set_on_offer_is_tried_here():
    assert {name.split()[0] for name in REGIONS} == set(SETS)


@every_set
def test_members_and_the_start_are_inside_and_most_of_space_is_not(feasible):
    assert strictly_inside(feasible, members(feasible))
    points = 10 * np.random.default_rng(1).normal(size=(300, 4))
    points[0], points[1] = feasible.start(LIKE), np.nan
    inside = np.asarray(each(feasible.violation)(points) <= 1e-5)
    assert inside[0] and not inside[1]
    assert inside[2:].all() if feasible.kind == "all_space" else inside[2:].mean() < 0.2
    assert feasible.contains(points[0]) and not feasible.contains(points[1])


@pytest.mark.parametrize("feasible", [value for value in REGIONS.values() if value.project],
                         ids=[name for name, value in REGIONS.items() if value.project])
def test_the_projection_is_the_nearest_point(feasible):
    """<z - P(z), x - P(z)> <= 0 for every x of the set, which characterises it; and what is inside stays."""
    targets = 3 * np.random.default_rng(2).normal(size=(300, 4))
    nearest, others = np.asarray(each(feasible.project)(targets)), members(feasible, seed=3)
    turned = np.einsum("ij,kij->ki", targets - nearest, others[:, None] - nearest[None])
    assert turned.max() <= 1e-10
    np.testing.assert_allclose(each(feasible.project)(others), others, atol=1e-12)


@pytest.mark.parametrize("feasible", [value for value in REGIONS.values() if value.corner],
                         ids=[name for name, value in REGIONS.items() if value.corner])
def test_corners_are_furthest_in_their_direction_and_no_pair_is_further_apart_than_the_diameter(feasible):
    if feasible is REGIONS["box without a top"]:
        assert feasible.diameter(LIKE) == jnp.inf
        return
    signs = np.array(list(itertools.product([-1.0, 1.0], repeat=4))) * [1, 1.1, 1.2, 1.3]
    directions = np.concatenate([np.eye(4), -np.eye(4), signs, np.random.default_rng(4).normal(size=(276, 4))])
    others, corners = members(feasible, seed=5), np.asarray(each(feasible.corner)(directions))
    assert strictly_inside(feasible, corners)
    assert (np.sum(directions * corners, axis=1) >= (directions @ others.T).max(axis=1) - 1e-12).all()
    ends = np.concatenate([corners, others])
    apart = np.linalg.norm(ends[:, None] - ends[None], axis=-1).max()
    np.testing.assert_allclose(feasible.diameter(LIKE), apart, rtol=1e-9)


def test_diameters_of_unbounded_sets_are_infinite_and_of_one_point_zero():
    assert all_space().diameter(LIKE) == affine([[1.0, 1.0]], [0.0]).diameter(jnp.zeros(2)) == jnp.inf
    assert affine(np.eye(2), [3.0, 4.0]).diameter(jnp.zeros(2)) == simplex().diameter(jnp.zeros(1)) == 0


@pytest.mark.parametrize("mirror, feasible, start", [
    (euclidean(3.0), ball(1.5, "l2", CENTRE), CENTRE + 0.4),
    (euclidean(3.0), ball(1.5, "l1"), np.array([0.1, -0.4, 0.2, 0.0])),
    (euclidean(), box(-1.0, 2.0), np.array([0.1, -0.4, 1.2, 0.0])),
    (euclidean(), capped_simplex(0.8, 2.0), np.array([0.7, 0.3, 0.6, 0.4])),
    (entropy(), box(0.1, 2.0), np.array([0.1, 0.4, 1.2, 1.0])),
    (entropy(), simplex(2.0), np.array([0.7, 0.3, 0.6, 0.4])),
    (entropy(), capped_simplex(0.8, 2.0), np.array([0.7, 0.3, 0.6, 0.4])),
    (log_barrier(), box(0.1, 2.0), np.array([0.1, 0.4, 1.2, 1.0])),
    (p_norm(1.5), ball(1.5, 1.5), np.array([0.1, -0.4, 0.2, 0.0])),
    (quadratic([1.0, 4.0, 2.0, 0.5]), box(-1.0, 2.0), np.array([0.1, -0.4, 1.2, 0.0])),
], ids=lambda value: getattr(value, "name", ""))
def test_the_largest_divergence_is_reached_and_not_exceeded(mirror, feasible, start):
    farthest = jax.jit(lambda start: largest_divergence(mirror, feasible, start))(start)
    directions = np.random.default_rng(6).normal(size=(4000, 4))
    found = each(lambda direction: mirror.divergence(feasible.corner(direction), start))(directions).max()
    assert 0.97 * farthest <= found <= farthest * (1 + 1e-12)


def test_the_largest_divergence_is_what_theorem_1_needs():
    """log n from the middle of a simplex, where the paper's D is infinite; infinite where nothing bounds the set."""
    np.testing.assert_allclose(largest_divergence(entropy(), simplex(), jnp.full(7, 1 / 7)), np.log(7))
    np.testing.assert_allclose(largest_divergence(euclidean(), box(-3.0, 3.0), jnp.array(1.0)), 8.0)
    assert largest_divergence(euclidean(), all_space(), LIKE) == jnp.inf
    assert largest_divergence(euclidean(), box(0.0, jnp.inf), LIKE) == jnp.inf
    assert largest_divergence(log_barrier(), simplex(), jnp.full(4, 0.25)) == jnp.inf
    above = largest_divergence(quadratic([1.0, 2.0]), ball(1.0), jnp.zeros(2))
    np.testing.assert_allclose(above, quadratic([1.0, 2.0]).divergence(jnp.array([0.0, 1.0]), jnp.zeros(2)))


def test_a_tree_is_measured_as_one_vector():
    tree = {"weight": jnp.array([[3.0, 0.0]]), "bias": jnp.array(-4.0)}
    assert not ball(4.9).contains(tree) and ball(5.1).contains(tree)
    assert not ball(6.9, "l1").contains(tree) and ball(7.1, "l1").contains(tree)
    assert box(-4.0, {"weight": 3.0 * jnp.ones((1, 2)), "bias": 0.0}).contains(tree)
    np.testing.assert_allclose(simplex(6.0).start(tree)["weight"], [[2.0, 2.0]])


@pytest.mark.parametrize("build, part", [
    (lambda: box(1.0, np.array([2.0, 0.5])), "has no points; give low <= high"),
    (lambda: box(np.zeros(3), 1.0).project(jnp.ones(4)), r"the shape \(3,\) where the point has \(4,\)"),
    (lambda: box({"weight": 0.0}, 1.0).project(jnp.ones(4)), "built unlike the point; give one number"),
    (lambda: ball(0.0), "radius is 0.0"),
    (lambda: ball(1.0, "l3"), "norm is 'l3'; give one of 'l1', 'l2', 'linf'"),
    (lambda: ball(1.0, 0.5), "norm is 0.5; give 1 or more"),
    (lambda: simplex(-1.0), "total is -1.0"),
    (lambda: capped_simplex(0.2).start(LIKE), "4 entries of at most 0.2 cannot add up to 1.0; raise cap to 0.25"),
    (lambda: affine(np.eye(2), [1.0]), "one row of A and one entry of b"),
    (lambda: affine([[1.0, 1.0], [1.0, 1.0]], [0.0, 1.0]), "contradict each other"),
    (lambda: affine([[1.0, 1.0]], [0.0]).project(LIKE), "A has 2 columns and the point 4 entries"),
])
def test_sets_that_cannot_be_are_refused(build, part):
    with pytest.raises(InputError, match=part):
        build()


@pytest.mark.parametrize("feasible, point, mirror, part", [
    (simplex(), [0.5, 0.6], None, "outside a simplex, by 0.1 of its size"),
    (simplex(), [1.5, -0.5], None, "outside a simplex, by 0.5 of its size"),
    (box(-3.0, 3.0), [0.0, 3.3], None, "outside a box, by 0.1 of its size"),
    (ball(2.0, 1.5), [2.0, 2.0], p_norm(1.5), "such as its start"),
    (all_space(), [1.0, np.nan], None, "outside the whole space"),
    (all_space(), [0.0, 1.0], entropy(), "entropy has no finite gradient"),
    (simplex(), [0.0, 1.0], log_barrier(), "log_barrier has no finite gradient"),
], ids=lambda value: getattr(value, "name", str(value)))
def test_a_start_outside_is_refused_with_a_way_out(feasible, point, mirror, part):
    with pytest.raises(InputError, match=part):
        check_start(feasible, jnp.array(point), mirror)


@every_set
def test_the_middle_of_a_set_is_a_good_start(feasible):
    check_start(feasible, feasible.start(LIKE))
    jax.jit(lambda point: check_start(feasible, point))(jnp.full(4, jnp.nan))  # nothing to judge while compiling
