"""The best points for a stream of targets: everything is known by adding up."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from cantons.data import Federation
from cantons.protocol import Algorithm, PyTree
from cantons.regret.best_point import Best, Costs, absolute_cost, half_squared_costs, linear_costs
from cantons.regret.cycle import met_rows

AT_A_TIME = 1 << 22  # numbers of a stream looked at together


class TargetStream:
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
