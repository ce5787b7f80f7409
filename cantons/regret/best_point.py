"""Collective regret: what all clients' predictions cost everybody, beside the best fixed point for the same losses.

Mitra, Hassani and Pappas, "Online Federated Learning", 2021, equation (2):

    R_T = 1/m sum_t sum_i l_t(x_{i,t}) - min over u in X of sum_t l_t(u),    l_t = 1/m sum_i l_{i,t}.

The paper lets all m clients act in every step. Where only those in A_t have examples at t, l_t is the mean over A_t,
and who is silent is neither charged nor compared:

    R_T = 1/m sum_t sum_{i in A_t} l_t(x_{i,t}) - min over u in X of sum_t |A_t|/m l_t(u).

So the best point pays what clients pay, for everyone who acts, and every example counts the same. Dynamic regret lets
it choose anew in each step: the minimum stands inside the sum over t.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from cantons.protocol import Progress

Points = Callable[[np.ndarray], np.ndarray]  # rows of vectors -> as many points of the set


class Costs(NamedTuple):
    """What the best would have paid in the first 1, 2, ... steps."""

    fixed: np.ndarray  # one point for all of these steps
    moving: np.ndarray  # a point for each step


class Best(NamedTuple):
    """About the first steps of a stream."""

    fixed: float  # what the best fixed point would have cost
    steepest: float | None  # the largest gradient that was found, in the dual norm; None: no bound asks for it
    moving: float | None = None  # what the best point of each step would have cost, where that is known


Comparator = Callable[[Progress], Best | str]  # or why there is none; "" where it is only too early to ask


def half_squared_costs(means: np.ndarray, squares: np.ndarray, shares: np.ndarray, nearest: Points) -> Costs:
    """For |x - a|^2 / 2, given each step's mean of a (a row) and of |a|^2: the point nearest to a mean is best.

    `shares` are |A_t|/m: how much each step counts.

    >>> about = half_squared_costs(np.array([[1.0], [3.0]]), np.array([1.0, 9.0]), np.ones(2), lambda points: points)
    >>> about.fixed, about.moving
    (array([0., 1.]), array([0., 0.]))
    """

    def least(middle: np.ndarray, square: np.ndarray) -> np.ndarray:
        return ((nearest(middle) - middle) ** 2).sum(axis=1) / 2 + (square - (middle**2).sum(axis=1)) / 2

    total = np.cumsum(shares)
    divisor = np.where(total > 0, total, 1)
    so_far = np.cumsum(shares[:, None] * means, axis=0) / divisor[:, None], np.cumsum(shares * squares) / divisor
    return Costs(total * least(*so_far), np.cumsum(shares * least(means, squares)))


def linear_costs(means: np.ndarray, shares: np.ndarray, furthest: Points) -> Costs:
    """For <x, a>, given each step's mean of a and how much it counts: the point furthest against a sum is best.

    >>> about = linear_costs(np.array([[1.0], [-3.0]]), np.ones(2), np.sign)  # in [-1, 1]
    >>> about.fixed, about.moving
    (array([-1., -2.]), array([-1., -4.]))
    """

    def least(gradients: np.ndarray) -> np.ndarray:
        return (furthest(-gradients) * gradients).sum(axis=1)

    return Costs(least(np.cumsum(shares[:, None] * means, axis=0)), np.cumsum(shares * least(means)))


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
