"""The longest steps with which mixed federated learning is proved to converge, and a notice to runs with longer ones.

Augenstein et al., "Mixed Federated Learning: Joint Decentralized and Centralized Learning", 2022, Tables 4 and 5, for
convex losses. Their beta bounds every curvature anywhere. The largest one at the start is at most that, so a step which
is above the limit by this estimate is above it by beta, too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from cantons.algorithm.parts.schedule import StepSize, usual_step
from cantons.protocol import Array, CentralExamples, Examples, Parts, Problem, PyTree

CLIENTS = 64  # how many are asked at most
ITERATIONS = 30  # of the power method; each estimate is a lower bound


class Bound(NamedTuple):
    """What the proof for one algorithm assumes."""

    factor: float  # Table 4: the effective step is at most 1 / (factor * beta)
    rate: str  # Table 5: this option
    least: Callable[[float], float]  # is at least so much, for cohorts of this size


PARALLEL = Bound(6 * (1 + 1), "merge_step_size", lambda cohort: 1.0)  # 6 (1 + B^2), and B is 1 or more
ONE_WAY = Bound(8, "server_step_size", math.sqrt)
TWO_WAY = Bound(81, "merge_step_size", lambda cohort: 1.0)  # min(1 / (81 beta), 1 / (15 mu)): mu is at most beta


class Stepping(NamedTuple):
    """Some plain gradient steps of a round, the server's and the merging rates included."""

    step_size: StepSize
    rate: float  # what the sum of the steps is multiplied by
    count: Callable[[int], int]  # for the largest number of examples of a client -> how many steps there are

    def effective(self, examples: int) -> float:
        return float(usual_step(self.step_size)) * self.rate * self.count(examples)


def step_advice(bound: Bound, rates: Mapping[str, float], steppings: Sequence[Stepping],
                plain: bool) -> Callable[[Parts, tuple[PyTree, PyTree]], list[str]]:
    """Tell that steps are above Table 4's limit, where losses are convex and all optimisers `plain` gradient steps."""

    def advise(parts: Parts, start: tuple[PyTree, PyTree]) -> list[str]:
        if not plain or parts.problem.convex is None:
            return []
        train = parts.data.clients.train
        smoothness = estimate_smoothness(parts.problem, start, train, parts.central)
        effective = max(each.effective(train.longest) for each in steppings)
        if not effective * bound.factor * smoothness > 1:
            return []
        least = bound.least(parts.clock.cohort)
        also = "" if rates[bound.rate] >= least else f", and Table 5 asks for {bound.rate} = {least:.3g} or more"
        return ["steps are longer than those with which the paper proves convergence: a round's effective step is "
                f"{effective:.3g}, and Table 4 allows {1 / (bound.factor * smoothness):.3g} for a smoothness of "
                f"{smoothness:.3g}, estimated at the start{also}; the run goes on."]

    return advise


def estimate_smoothness(problem: Problem, start: tuple[PyTree, PyTree], train: Examples,
                        central: CentralExamples | None) -> float:
    """The largest curvature that the centre's loss or one of the clients' has at `start`, in the shared part.

    It is a lower bound of the smoothness beta (Definition D.1), for any problem; least squares have beta itself. Where
    there are more than 64 clients, so many of them are asked.
    """
    found = [curvatures(problem.loss, train, asked(train), *start).max()]
    if problem.central is not None and (central is not None or not problem.central.needs_data):
        found.append(curvatures(problem.central.loss, central, np.zeros(1, np.int32), *start).max())
    return float(max(found))


def asked(train: Examples) -> np.ndarray:
    """The clients that are asked: all, or so many that are spread evenly."""
    return np.unique(np.linspace(0, train.population - 1, min(train.population, CLIENTS)).astype(np.int32))


@partial(jax.jit, static_argnums=0)
def curvatures(loss: Callable[..., Array], examples: Any, ids: Array, shared: PyTree, private: PyTree) -> Array:
    """Of some owners' losses: the largest curvature at a point, by the power method."""
    point, restore = ravel_pytree(shared)

    def curvature(owner: Array) -> Array:
        batch = None if examples is None else examples.client(owner).full()
        gradient = jax.grad(lambda vector: loss(restore(vector), private, batch))
        return largest_eigenvalue(lambda along: jax.jvp(gradient, (point,), (along,))[1], point)

    return jax.lax.map(curvature, ids)


def largest_eigenvalue(turn: Callable[[Array], Array], point: Array) -> Array:
    """Of a symmetric matrix as a function of vectors like `point`: a lower bound, by the power method."""
    def step(_: int, along: Array) -> Array:
        turned = turn(along)
        return turned / jnp.maximum(jnp.linalg.norm(turned), jnp.finfo(turned.dtype).tiny)

    first = jax.random.normal(jax.random.key(0), point.shape, point.dtype)
    along = jax.lax.fori_loop(0, ITERATIONS, step, first / jnp.linalg.norm(first))
    return jnp.abs(along @ turn(along))
