"""What is proved about FedOMD: its regret, the step size that suits it, and the risk of its average prediction.

Mitra, Hassani and Pappas, "Online Federated Learning", 2021, Theorems 1 to 3, with the constants as printed. `gap` is
tau, the most steps between two synchronisations, and `lipschitz` L, the largest dual norm of a gradient, in the norm in
which the mirror map is 1-strongly convex. `divergence` is D^2: the largest B(u, start) over the set, which is all that
the proof of Theorem 1 uses. The paper's supremum over both points is infinite for entropy.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax

from cantons.algorithm.parts.schedule import Schedule
from cantons.errors import InputError
from cantons.mirror import (
    ConvexSet,
    MirrorMap,
    check_start,
    largest_divergence,
    relative_strong_convexity,
    strong_convexity,
)
from cantons.protocol import PyTree, State, Theory


def theorem1_step_size(divergence: float, lipschitz: float, gap: int, steps: int) -> float:
    """D / (L sqrt(5 tau T)): the constant step with which equation (7) is least, and below (8).

    Theorem 1 prints L under the root, where the two terms of (7) would differ by a factor L; Theorem 3 has it outside.

    >>> theorem1_step_size(divergence=20.0, lipschitz=2.0, gap=4, steps=25)
    0.1
    """
    return math.sqrt(divergence / (5 * gap * steps)) / lipschitz


def theorem1_bound(divergence: float, lipschitz: float, step_size: float, gap: int, steps: int) -> float:
    """Equation (7), for convex losses and a constant step: D^2 / eta + 5 eta L^2 tau T.

    >>> theorem1_bound(divergence=20.0, lipschitz=2.0, step_size=0.1, gap=4, steps=25)
    400.0
    """
    return divergence / step_size + 5 * step_size * lipschitz**2 * gap * steps


def theorem2_bound(lipschitz: float, sigma: float, gap: int, steps: int) -> float:
    """Equation (10), for losses sigma-strongly convex relative to the map and steps 2 / (sigma t).

    17 L^2 tau / sigma * (1 + log T).

    >>> theorem2_bound(lipschitz=2.0, sigma=2.0, gap=1, steps=1)
    34.0
    """
    return 17 * lipschitz**2 * gap / sigma * (1 + math.log(steps))


def theorem3_bound(divergence: float, lipschitz: float, most: float, clients: int, gap: int, steps: int,
                   failure: float = 0.05) -> float:
    """Equation (13): the excess risk of `online_to_batch`, which holds with probability 1 - `failure`.

    For independent examples, losses between 0 and `most`, and the step size of `theorem1_step_size`.
    """
    return (5 * lipschitz * math.sqrt(divergence * gap / steps)
            + 2 * most * math.sqrt(2 / steps * math.log(2 * clients / failure)))


def online_to_batch(state: State) -> PyTree:
    """The average of all predictions of all clients, equation (14): one model for examples that are yet to come."""
    return jax.tree.map(lambda leaf: leaf.sum(axis=0) / state.clients.steps.sum(), state.clients.total)


def theory_of(mirror: MirrorMap, within: ConvexSet, step_size: float | dict | Schedule, as_proved: bool) -> Theory:
    """The set, and what the theorems say about a run in it with this map and step size.

    There is no bound where an assumption does not hold: Assumption 2 (`mirror.averages`), a bounded set, a map that is
    strongly convex there, steps that are constant or fall like 2 / (sigma t) for losses with at least that sigma.
    `as_proved` says whether the algorithm is otherwise the paper's own.
    """

    def bound(start: PyTree, lipschitz: float, curvature: float, gap: int, steps: int) -> float | None:
        convexity = float(strong_convexity(mirror, within).constant)
        divergence = float(largest_divergence(mirror, within, start))
        if not (as_proved and mirror.averages and convexity > 0 and math.isfinite(divergence)):
            return None
        steepest = lipschitz / math.sqrt(convexity)  # as if the map were 1-strongly convex
        constant, inverse = (_option(step_size, *names) for names in (("constant", "value"), ("inverse", "start")))
        if constant is not None:
            return theorem1_bound(divergence, steepest, constant, gap, steps)
        if inverse is not None and _sigma(mirror, curvature) >= 2 / inverse * (1 - 1e-9):
            return theorem2_bound(steepest, 2 / inverse, gap, steps)
        return None

    return Theory(
        within.project, lambda shared: check_start(within, shared, mirror), within.corner,
        lambda gradient: strong_convexity(mirror, within).norm.dual_size(gradient), bound)


def _sigma(mirror: MirrorMap, curvature: float) -> float:
    """Of Definition 1; 0 where nothing is known."""
    if not curvature > 0:
        return 0.0
    try:
        return float(relative_strong_convexity(mirror, curvature))
    except InputError:
        return 0.0


def _option(step_size: float | dict | Callable[..., Any], name: str, option: str) -> float | None:
    """The one number behind a schedule of this name; a plain number is a constant step."""
    if isinstance(step_size, dict):
        return float(step_size[option]) if step_size.get("name") == name else None
    return None if callable(step_size) or name != "constant" else float(step_size)
