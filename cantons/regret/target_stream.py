"""The best points for a stream of targets: everything is known by adding up."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from cantons.data import Federation
from cantons.protocol import Clock, Progress, PyTree, Theory
from cantons.regret.best_point import Best, Comparator, Costs, absolute_cost, half_squared_costs, linear_costs
from cantons.regret.cycle import met_rows, who_acts

AT_A_TIME = 1 << 22  # numbers of a stream looked at together


class TargetStream:
    """A stream of targets for one point, in the set that `theory` names."""

    def __init__(self, theory: Theory, clock: Clock, data: Federation, start: PyTree, rounds: int, bounded: bool):
        assert clock.online is not None
        self.theory, self.train, self.batch, self.rounds = theory, data.clients.train, clock.online.batch, rounds
        self.acts = who_acts(clock, data.population)
        self.bounded = bounded and theory.corner is not None  # does a bound ask for the steepest gradient?
        self.vector, self.back = ravel_pytree(jax.tree.map(jnp.asarray, start))

    def comparator(self, form: str) -> Comparator | str:
        """What is best after so many steps, for losses of this form; or why nobody can tell."""
        if form == "linear":
            if self.theory.corner is None:
                return "the losses are linear and the set has no end, so there is no best point"
            return self._listed(linear_costs(self.means, self.shares, self._each(self.theory.corner)),
                                self._steepest(form))
        if self.theory.within is None:
            return "it is not known how to find the nearest point of the algorithm's set"
        nearest = self._each(self.theory.within)
        if form == "half_squared":
            squares = self._mean(lambda targets: (targets**2).sum(axis=-1))
            return self._listed(half_squared_costs(self.means, squares, self.shares, nearest), self._steepest(form))
        steepest = self._steepest(form)

        def median(progress: Progress) -> Best | str:
            met = np.concatenate([targets[acts].reshape(-1, targets.shape[-1])
                                  for targets, acts in self.parts(progress.round)])
            least = absolute_cost(met, nearest)
            if least is None:
                return "the median lies outside of the set, where the best point is not known"
            total = int(self.actors[: progress.round].sum()) / self.train.population
            return Best(total * least, None if steepest is None else steepest[0])

        return self._as_planned(median)

    def parts(self, steps: int | None = None) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """The targets of consecutive steps, [steps, clients, batch, entries], and who acts: [steps, clients]."""
        rows, train = np.asarray(self.train.inputs), self.train
        rows = rows.reshape(len(rows), -1)
        some = max(1, AT_A_TIME // max(1, train.population * self.batch * rows.shape[1]))
        steps = self.rounds if steps is None else steps
        met = np.zeros(train.population, np.int64)
        for first in range(0, steps, some):
            acts = self.acts(first, min(first + some, steps))
            before = met + np.cumsum(acts, axis=0) - acts
            met = before[-1] + acts[-1]
            yield rows[met_rows(np.asarray(train.starts), np.asarray(train.sizes), before, self.batch)].astype(
                float), acts

    def _mean(self, function: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        """The mean over those who act in each step, and over their batches; 0 where nobody does."""
        found = []
        for targets, acts in self.parts():
            values = function(targets)
            kept = values * acts.reshape(*acts.shape, *[1] * (values.ndim - 2))
            counts = np.maximum(acts.sum(axis=1) * self.batch, 1)
            found.append(kept.sum(axis=(1, 2)) / counts.reshape(-1, *[1] * (values.ndim - 3)))
        return np.concatenate(found)

    @cached_property
    def means(self) -> np.ndarray:
        return self._mean(lambda targets: targets)

    @cached_property
    def actors(self) -> np.ndarray:
        """How many clients act in each step."""
        some = max(1, AT_A_TIME // self.train.population)
        return np.concatenate([self.acts(first, min(first + some, self.rounds)).sum(axis=1)
                               for first in range(0, self.rounds, some)])

    @property
    def shares(self) -> np.ndarray:
        """How much each step counts."""
        return self.actors / self.train.population

    def _each(self, function: Callable[[PyTree], PyTree]) -> Callable[[np.ndarray], np.ndarray]:
        """A function of points, for rows of vectors."""
        one = jax.vmap(lambda vector: ravel_pytree(function(self.back(vector)))[0])
        return lambda rows: np.asarray(one(jnp.asarray(rows)))

    def _steepest(self, form: str) -> np.ndarray | None:
        """The largest gradient in the set, of all losses so far. A client's loss is the mean over its batch."""
        if not self.bounded:
            return None
        assert self.theory.corner is not None
        size = jax.vmap(lambda vector: self.theory.dual_norm(self.back(vector)))
        if form == "absolute":
            return np.full(self.rounds, float(size(jnp.ones_like(self.vector)[None])[0]))
        furthest = self._each(self.theory.corner)
        axes = np.eye(self.vector.size)
        middle = (np.diag(furthest(axes)) + np.diag(furthest(-axes))) / 2
        found = []
        for targets, _ in self.parts():  # bounds are for streams in which everybody acts
            gradients = targets.mean(axis=2).reshape(-1, targets.shape[-1])
            if form == "half_squared":  # a norm is largest at a corner: in these sets, at the one across
                gradients = furthest(middle - gradients) - gradients
            found.append(np.asarray(size(jnp.asarray(gradients))).reshape(len(targets), -1).max(axis=1))
        return np.maximum.accumulate(np.concatenate(found))

    def _listed(self, costs: Costs, steepest: np.ndarray | None) -> Comparator:
        def listed(progress: Progress) -> Best:
            last = progress.round - 1
            return Best(float(costs.fixed[last]), None if steepest is None else float(steepest[last]),
                        float(costs.moving[last]))

        return self._as_planned(listed)

    def _as_planned(self, best: Comparator) -> Comparator:
        def checked(progress: Progress) -> Best | str:
            assert progress.met is not None
            if self.actors[: progress.round].sum() != progress.met.sum():
                return "clients met their examples in other steps than the clock plans"
            return best(progress)

        return checked
