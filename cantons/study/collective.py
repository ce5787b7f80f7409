"""The collective regret of an online run so far, and what is promised about it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from cantons.data import Federation
from cantons.metrics import times_met
from cantons.metrics.collective import (
    TOLERANCE,
    Costs,
    absolute_cost,
    half_squared_costs,
    linear_costs,
    met_rows,
    minimiser,
)
from cantons.protocol import Algorithm, Batch, Clock, Online, Problem, PyTree, State

AT_A_TIME = 1 << 22  # numbers of a stream looked at together
CHEAP = 1e7  # numbers in the rows that every evaluation may search a best point for; with more, only the last one
AXES = 32  # entries whose ends are looked at for steep gradients


class Best(NamedTuple):
    """About the first steps of a stream."""

    fixed: float  # what the best fixed point would have cost
    steepest: float | None  # the largest gradient that was found, in the dual norm; None: no bound asks for it
    moving: float | None = None  # what the best point of each step would have cost, where that is known


def collective(problem: Problem, algorithm: Algorithm, clock: Clock, data: Federation, start: tuple[PyTree, PyTree],
               rounds: int) -> Callable[[State], dict[str, float]]:
    """What an evaluation of an online run says about collective regret: nothing, unless everyone scores everyone.

    "online.collective_regret" is R_t, equation (2) of Mitra, Hassani and Pappas, "Online Federated Learning", 2021: a
    total over the steps so far, not an average. The best point is exact for the problem `target` and found by a solver
    for other convex losses. "online.collective_bound" is what the algorithm promises, "online.dynamic_regret" lets the
    best point move. All is computed in double precision; what the run has added up is as precise as the run.
    """
    online, theory = clock.online, algorithm.theory
    sizes = np.asarray(data.clients.train.sizes)
    if (online is None or not online.everyone or online.order != "cycle" or not clock.full or algorithm.score
            or jax.tree.leaves(start[1]) or not jax.tree.leaves(start[0]) or not sizes.all()):
        return lambda state: {}
    gap = _gap(clock, online, rounds)
    with jax.enable_x64(True):
        begin = jax.tree.map(lambda leaf: np.asarray(leaf, float), jax.device_get(start[0]))
        best = _comparator(problem, algorithm, data, (begin, start[1]), online.batch, rounds, gap is not None)
    if best is None:
        return lambda state: {}

    def regret(state: State) -> dict[str, float]:
        steps = int(state.round)
        if not steps or np.asarray(state.rejected).any():
            return {}  # who abstained was not charged
        with jax.enable_x64(True):
            about = best(steps)
            if about is None:
                return {}
            charged = float(np.asarray(state.in_flight.scores["global_loss"], float).mean())
            found = {"online.collective_regret": charged - about.fixed}
            if about.moving is not None:
                found["online.dynamic_regret"] = charged - about.moving
            if about.steepest is not None and theory is not None and gap is not None:
                bound = theory.regret_bound(begin, about.steepest, _curvature(problem), gap, steps)
                if bound is not None:
                    found["online.collective_bound"] = bound
        return found

    return regret


def _gap(clock: Clock, online: Online, rounds: int) -> int | None:
    """tau; None where the theorems do not reach: few are counted, messages are late, or nobody knows when all meet."""
    late = online.longest_up or online.longest_down or online.label_delay
    if online.gap is None or online.counted is not None or late:
        return None
    meets = getattr(clock.arrays, "meets", None)
    return online.gap if meets is None else int(np.diff(np.flatnonzero(meets), append=rounds).max())


def _comparator(problem: Problem, algorithm: Algorithm, data: Federation, start: tuple[PyTree, PyTree], batch: int,
                rounds: int, bounded: bool) -> Callable[[int], Best | None] | None:
    """What is best in hindsight after so many steps, if anyone can tell."""
    about = dict(problem.spec or {})
    corner = algorithm.theory.corner if algorithm.theory is not None and bounded else None
    if about.get("name") == "target":
        stream = _Targets(algorithm, data, start[0], batch, rounds)
        return stream.of(about["loss"], corner is not None)
    linear = (about.get("model") or {}).get("name") == "linear" and about["name"] in ("classification", "regression")
    if not linear or algorithm.theory is None or algorithm.theory.within is None:
        return None
    return _Searched(problem, algorithm, data, start, batch, rounds, corner).best


def _curvature(problem: Problem) -> float:
    """The least second derivative of any loss, in any direction."""
    about = dict(problem.spec or {})
    return 1.0 if about.get("loss") == "half_squared" else float(about.get("l2", 0.0))


class _Targets:
    """A stream of targets for one point, in steps: everything is known by adding up."""

    def __init__(self, algorithm: Algorithm, data: Federation, start: PyTree, batch: int, rounds: int):
        self.algorithm, self.train, self.batch, self.rounds = algorithm, data.clients.train, batch, rounds
        self.vector, self.back = ravel_pytree(jax.tree.map(jnp.asarray, start))

    def of(self, loss: str, bounded: bool) -> Callable[[int], Best | None] | None:
        theory = self.algorithm.theory
        within = None if theory is None else theory.within
        furthest = None if theory is None or theory.corner is None else self._each(theory.corner)
        if loss == "linear":
            return furthest and self._listed(linear_costs(self.means, furthest), self._steepest(loss, bounded))
        if within is None:
            return None
        nearest = self._each(within)
        if loss == "half_squared":
            squares = np.concatenate([(part**2).sum(axis=-1).mean(axis=(1, 2)) for part in self.parts()])
            return self._listed(half_squared_costs(self.means, squares, nearest), self._steepest(loss, bounded))
        steepest = self._steepest(loss, bounded)

        def median(steps: int) -> Best | None:
            met = np.concatenate([part.reshape(-1, part.shape[-1]) for part in self.parts(steps)])
            least = absolute_cost(met, nearest)
            return None if least is None else Best(steps * least, None if steepest is None else steepest[0])

        return median

    def parts(self, steps: int | None = None) -> Iterator[np.ndarray]:
        """The targets met in consecutive steps: [steps, clients, batch, entries]."""
        rows, train = np.asarray(self.train.inputs), self.train
        rows = rows.reshape(len(rows), -1)
        some = max(1, AT_A_TIME // max(1, train.population * self.batch * rows.shape[1]))
        steps = self.rounds if steps is None else steps
        for first in range(0, steps, some):
            yield rows[met_rows(np.asarray(train.starts), np.asarray(train.sizes),
                                np.arange(first, min(first + some, steps)), self.batch)].astype(float)

    @cached_property
    def means(self) -> np.ndarray:
        return np.concatenate([part.mean(axis=(1, 2)) for part in self.parts()])

    def _each(self, function: Callable[[PyTree], PyTree]) -> Callable[[np.ndarray], np.ndarray]:
        """A function of points, for rows of vectors."""
        one = jax.vmap(lambda vector: ravel_pytree(function(self.back(vector)))[0])
        return lambda rows: np.asarray(one(jnp.asarray(rows)))

    def _steepest(self, loss: str, bounded: bool) -> np.ndarray | None:
        """The largest gradient in the set, of all losses so far. A client's loss is the mean over its batch."""
        theory = self.algorithm.theory
        if theory is None or theory.corner is None or not bounded:
            return None
        size = jax.vmap(lambda vector: theory.dual_norm(self.back(vector)))
        if loss == "absolute":
            return np.full(self.rounds, float(size(jnp.ones_like(self.vector)[None])[0]))
        furthest = self._each(theory.corner)
        axes = np.eye(self.vector.size)
        middle = (np.diag(furthest(axes)) + np.diag(furthest(-axes))) / 2
        found = []
        for part in self.parts():
            slopes = part.mean(axis=2).reshape(-1, part.shape[-1])
            if loss == "half_squared":  # a norm is largest at a corner: in these sets, at the one across
                slopes = furthest(middle - slopes) - slopes
            found.append(np.asarray(size(jnp.asarray(slopes))).reshape(len(part), -1).max(axis=1))
        return np.maximum.accumulate(np.concatenate(found))

    def _listed(self, costs: Costs, steepest: np.ndarray | None) -> Callable[[int], Best | None]:
        return lambda steps: Best(float(costs.fixed[steps - 1]), None if steepest is None else float(
            steepest[steps - 1]), float(costs.moving[steps - 1]))


class _Searched:
    """Convex losses of other kinds: a best point has to be searched for, from the last one that was found."""

    def __init__(self, problem: Problem, algorithm: Algorithm, data: Federation, start: tuple[PyTree, PyTree],
                 batch: int, rounds: int, corner: Callable[[PyTree], PyTree] | None):
        assert algorithm.theory is not None and algorithm.theory.within is not None
        train = data.clients.train
        self.problem, self.algorithm, self.rounds, self.batch = problem, algorithm, rounds, batch
        self.sizes = np.asarray(train.sizes)
        self.kept = np.minimum(self.sizes, rounds * batch)
        picked = np.concatenate([first + np.arange(kept) for first, kept in
                                 zip(np.asarray(train.starts), self.kept, strict=True)])
        self.rows = jax.tree.map(lambda leaf: _double(np.asarray(leaf)[picked]), (train.inputs, train.targets))
        self.start = self.found = jax.tree.map(jnp.asarray, start[0])
        self.nothing = start[1]  # the private part, which has no arrays
        self.minimise = minimiser(self._mean_loss, algorithm.theory.within)
        self.steep = jax.jit(self._steep)
        self.ends = None if corner is None else self._ends(corner)

    def best(self, steps: int) -> Best | None:
        entries = sum(np.size(leaf) for leaf in jax.tree.leaves(self.rows))
        if entries > CHEAP and steps < self.rounds:
            return None
        counts = [times[:kept] for times, kept in
                  zip(times_met(np.full(len(self.sizes), steps * self.batch), self.sizes), self.kept, strict=True)]
        shares = np.concatenate(counts) / (len(self.sizes) * self.batch * steps)
        given = jnp.asarray(shares), self.rows
        found = self.minimise(self.found, given)
        # A start close to the best makes the tolerance stricter than rounding allows: a longer way decides then.
        if not float(found.error) <= TOLERANCE:
            found = self.minimise(self.start, given)
        if not float(found.error) <= 100 * TOLERANCE:
            return None
        self.found = found.point
        steepest = None
        if self.ends is not None:
            points = [self.start, found.point, *self.ends]
            steepest = max(float(self.steep(point, given)) for point in points)
        return Best(steps * float(found.value), steepest)

    def _ends(self, corner: Callable[[PyTree], PyTree]) -> list[PyTree]:
        vector, back = ravel_pytree(self.start)
        axes = np.eye(vector.size)[:AXES]
        return [corner(back(jnp.asarray(axis))) for axis in np.concatenate([axes, -axes])]

    def _loss(self, point: PyTree, inputs: Any, targets: Any) -> jax.Array:
        rows, told = jax.tree.map(lambda leaf: leaf[None], (inputs, targets))
        return self.problem.loss(point, self.nothing, Batch(rows, told, jnp.ones(1)))

    def _mean_loss(self, point: PyTree, given: tuple) -> jax.Array:
        shares, rows = given
        return (shares * jax.vmap(self._loss, in_axes=(None, 0, 0))(point, *rows)).sum()

    def _steep(self, point: PyTree, given: tuple) -> jax.Array:
        shares, rows = given
        theory = self.algorithm.theory
        assert theory is not None
        sizes = jax.vmap(lambda *row: theory.dual_norm(jax.grad(self._loss)(point, *row)))(*rows)
        return jnp.where(shares > 0, sizes, 0).max()


def _double(rows: np.ndarray) -> jax.Array:
    return jnp.asarray(rows, float if rows.dtype.kind == "f" else None)
