"""Collective regret: what all clients' predictions cost everybody, beside the best fixed point for the same losses.

Mitra, Hassani and Pappas, "Online Federated Learning", 2021, equation (2):

    R_T = 1/m sum_t sum_i l_t(x_{i,t}) - min over u in X of sum_t l_t(u),    l_t = 1/m sum_i l_{i,t}.

Dynamic regret lets the comparator choose anew in each step: sum_t min over u of l_t(u) in the second place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cantons.protocol import Array, PyTree

Points = Callable[[np.ndarray], np.ndarray]  # rows of vectors -> as many points of the set

TOLERANCE = 1e-9  # of the gradient's length at the start
ITERATIONS = 20_000


class Costs(NamedTuple):
    """What the best would have paid in the first 1, 2, ... steps."""

    fixed: np.ndarray  # one point for all of these steps
    moving: np.ndarray  # a point for each step


def met_rows(starts: np.ndarray, sizes: np.ndarray, steps: np.ndarray, batch: int) -> np.ndarray:
    """The rows that each client meets in each of these steps, going round and round: [steps, clients, batch].

    >>> met_rows(np.array([0, 3]), np.array([3, 2]), np.arange(2), batch=2).tolist()
    [[[0, 1], [3, 4]], [[2, 0], [3, 4]]]
    """
    places = np.asarray(steps, np.int64)[:, None, None] * batch + np.arange(batch)
    return np.asarray(starts)[:, None] + places % np.asarray(sizes)[:, None]


def half_squared_costs(means: np.ndarray, squares: np.ndarray, nearest: Points) -> Costs:
    """For |x - a|^2 / 2, given each step's mean of a (a row) and of |a|^2: the point nearest to a mean is best.

    >>> about = half_squared_costs(np.array([[1.0], [3.0]]), np.array([1.0, 9.0]), lambda points: points)
    >>> about.fixed, about.moving
    (array([0., 1.]), array([0., 0.]))
    """

    def least(middle: np.ndarray, square: np.ndarray) -> np.ndarray:
        return ((nearest(middle) - middle) ** 2).sum(axis=1) / 2 + (square - (middle**2).sum(axis=1)) / 2

    counts = np.arange(1, len(means) + 1)
    so_far = np.cumsum(means, axis=0) / counts[:, None], np.cumsum(squares) / counts
    return Costs(counts * least(*so_far), np.cumsum(least(means, squares)))


def linear_costs(means: np.ndarray, furthest: Points) -> Costs:
    """For <x, a>, given each step's mean of a: the point furthest against a sum is best.

    >>> about = linear_costs(np.array([[1.0], [-3.0]]), np.sign)  # in [-1, 1]
    >>> about.fixed, about.moving
    (array([-1., -2.]), array([-1., -4.]))
    """

    def least(slopes: np.ndarray) -> np.ndarray:
        return (furthest(-slopes) * slopes).sum(axis=1)

    return Costs(least(np.cumsum(means, axis=0)), np.cumsum(least(means)))


def absolute_cost(targets: np.ndarray, nearest: Points) -> float | None:
    """For |x - a|_1: the mean over the rows, at the median. None if there are several entries and the set cuts it off.

    >>> absolute_cost(np.array([[0.0], [1.0], [5.0]]), lambda points: points.clip(2, 3))
    2.0
    """
    middle = np.median(targets, axis=0)[None]
    point = nearest(middle)
    if middle.size > 1 and not np.array_equal(point, middle):
        return None
    return float(np.abs(targets - point).sum(axis=1).mean())


class Minimum(NamedTuple):
    point: PyTree
    value: Array
    error: Array  # the length of the last gradient step, in units of the gradient at the start


def minimiser(objective: Callable[[PyTree, PyTree], Array], project: Callable[[PyTree], PyTree]
              ) -> Callable[[PyTree, PyTree], Minimum]:
    """Build `minimise(start, given)` for a smooth convex `objective(point, given)` on a set with a nearest point.

    FISTA (Beck and Teboulle, 2009) with backtracking, restarted where momentum points uphill. It ends when a projected
    gradient step, divided by its step size, is TOLERANCE of the gradient at the start, or after ITERATIONS.
    """

    @jax.jit
    def minimise(start: PyTree, given: PyTree) -> Minimum:
        both = jax.value_and_grad(objective)
        unit = _length(both(start, given)[1])
        unit = jnp.where(unit > 0, unit, 1.0)

        def step(state):
            point, ahead, momentum, steep, _, count = state
            value, slope = both(ahead, given)

            def reached(steep):
                there = project(jax.tree.map(lambda leaf, part: leaf - part / steep, ahead, slope))
                move = jax.tree.map(jnp.subtract, there, ahead)
                model = value + _inner(slope, move) + steep / 2 * _inner(move, move)
                rounding = 1e-14 * (1 + jnp.abs(value))
                return there, objective(there, given) <= model + rounding

            steep = jax.lax.while_loop(lambda steep: ~reached(steep)[1] & (steep < 1e30), lambda steep: 2 * steep,
                                       steep)
            there = reached(steep)[0]
            error = steep * _length(jax.tree.map(jnp.subtract, there, ahead)) / unit
            onward = jax.tree.map(jnp.subtract, there, point)
            uphill = _inner(jax.tree.map(jnp.subtract, ahead, there), onward) > 0
            momentum = jnp.where(uphill, 1.0, momentum)
            after = (1 + jnp.sqrt(1 + 4 * momentum**2)) / 2
            ahead = jax.tree.map(lambda leaf, part: leaf + (momentum - 1) / after * part, there, onward)
            return there, ahead, after, steep, error, count + 1

        first = start, start, jnp.ones(()), jnp.full((), 1e-3), jnp.full((), jnp.inf), 0
        point, *_, error, _ = jax.lax.while_loop(
            lambda state: (state[4] > TOLERANCE) & (state[5] < ITERATIONS), step, first)
        return Minimum(point, objective(point, given), error)

    return minimise


def _inner(left: PyTree, right: PyTree) -> Array:
    products = jax.tree.map(lambda one, other: (one * other).sum(), left, right)
    return sum(jax.tree.leaves(products), jnp.zeros(()))


def _length(tree: PyTree) -> Array:
    return jnp.sqrt(_inner(tree, tree))
