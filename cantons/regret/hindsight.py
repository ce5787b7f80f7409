"""The regret of an online run so far, where the best fixed pair of models in hindsight is known exactly."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from threadpoolctl import threadpool_limits

from cantons.data import Federation
from cantons.protocol import Algorithm, Clock, Problem, Progress, PyTree, Residual
from cantons.regret.average import average_regret, best_in_hindsight
from cantons.regret.best_pair import BestPair
from cantons.regret.cycle import times_met
from cantons.regret.fedres_bounds import fedres_theorem2_bound, measured
from cantons.regret.why_not import ABSTAINED, Measure, other_order
from cantons.solve.least_squares import features, vector

NONE = "no regret: "
CHEAP, COSTLY = 1e9, 1e11  # multiplications: a third of a second, which every evaluation may take; half a minute


def hindsight_regret(problem: Problem, algorithm: Algorithm, clock: Clock, data: Federation,
                     start: tuple[PyTree, PyTree], rounds: int) -> Measure | str:
    """What an evaluation of an online run says about regret, if the loss is squared and both models are linear.

    "online.regret" is the average regret of Agarwal, Langford and Wei's equation (1), against the best pair for the
    examples met so far, in no ball whatever `radius` the algorithm has. "online.regret_bound" is what their Theorem 2
    promises FedRes.SGD with that theorem's own step size, whatever the algorithm here: see `fedres_bounds.py`. Examples
    must come in the order of storage, and their losses must be charged as they are. A least squares problem that would
    take long is solved after the last step only, or not at all.
    """
    joint, online = problem.residual, clock.online
    if online is None or joint is None or algorithm.score is not None:
        return ""
    if not joint.quadratic:
        return f"{NONE}the best pair of models is known for the squared loss, unclipped, and two linear models only."
    if online.order != "cycle":
        return f"{NONE}{other_order(online)}."
    table = _Table(joint, data.clients.train, jax.device_get(start), rounds * online.batch)  # a run uses up its state
    if table.cost > COSTLY:
        return f"{NONE}to find the best pair of models takes {table.cost:.0e} multiplications, more than {COSTLY:.0e}."
    weights = np.asarray(clock.arrays.weights, float)
    delays = np.asarray(clock.arrays.up[1]) + np.asarray(clock.arrays.down[1])

    def regret(progress: Progress) -> dict[str, float] | str:
        steps = progress.round
        if progress.rejected.any():
            return f"{NONE}{ABSTAINED}."
        if not steps or (table.cost > CHEAP and steps < rounds):
            return {}
        met = np.asarray(progress.met, np.int64)
        counts = [times[:kept] / online.batch for times, kept in
                  zip(times_met(met * online.batch, table.sizes), table.kept, strict=True)]
        rows = table.rows
        with threadpool_limits(1, "blas"):  # many small matrices: on a busy machine threads wait for each other
            best, cost = best_in_hindsight(*rows, counts, weights)
        found = {"online.regret": average_regret(progress.charged["loss"], cost, weights, steps)}
        if (weights == 1).all() and not online.label_delay:
            about = measured(table.start, best, *rows, counts, online.batch)
            found["online.regret_bound"] = fedres_theorem2_bound(about, delays, steps)
        return found

    return regret


class _Table:
    """Every row that can be met in `most` examples of each client, as features of the two models."""

    def __init__(self, joint: Residual, train: Any, start: tuple[PyTree, PyTree], most: int):
        self.joint, self.train, self.parts = joint, train, start
        self.start = BestPair(np.asarray(vector(start[0]), float), (np.asarray(vector(start[1]), float),)
                              * train.population)
        self.sizes = np.asarray(train.sizes)
        self.kept = np.minimum(self.sizes, most)

    @property
    def cost(self) -> float:
        """Multiplications of the least squares, roughly."""
        wide, own = self.start.shared.size, self.start.private[0].size
        each = self.kept.astype(float)
        return float((each * np.minimum(each, own) * (wide + own)).sum() + each.sum() * min(each.sum(), wide) * wide)

    @cached_property
    def rows(self) -> tuple[list[np.ndarray], list[np.ndarray], list[np.ndarray]]:
        """Global features, local features and targets of each client."""
        picked = np.concatenate([start + np.arange(kept) for start, kept in
                                 zip(np.asarray(self.train.starts), self.kept, strict=True)])
        inputs, targets = (jax.tree.map(lambda leaf: np.asarray(leaf)[picked], part)
                           for part in (self.train.inputs, self.train.targets))
        found = jax.device_get(jax.jit(self._prepared)(inputs, targets))
        ends = np.cumsum(self.kept)[:-1]
        there, here, told = (np.split(np.asarray(part, float), ends) for part in found)
        return there, here, told

    def _prepared(self, inputs: PyTree, targets: PyTree) -> tuple[Any, Any, Any]:
        def loss(output, target):
            return self.joint.loss(output[None], jax.tree.map(lambda leaf: leaf[None], target), jnp.ones(1))

        told = jax.vmap(jax.grad(loss), in_axes=(None, 0))(jnp.zeros(()), targets) / -2  # of (output - target)^2 at 0
        return (features(self.joint.shared, self.parts[0], self.joint.features(inputs)),
                features(self.joint.private, self.parts[1], inputs), told)
