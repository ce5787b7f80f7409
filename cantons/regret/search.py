"""The best point for smooth convex losses of any kind, which has to be searched for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from cantons.data import Federation
from cantons.protocol import Batch, Problem, Progress, PyTree, Theory
from cantons.regret.best_point import Best
from cantons.regret.cycle import times_met
from cantons.solve.fista import TOLERANCE, build_minimiser

CHEAP = 1e7  # numbers in the rows that every evaluation may search a best point for; with more, only the last one
AXES = 32  # entries whose ends are looked at for steep gradients


class Search:
    """A best point of smooth convex losses: searched for from the last one that was found."""

    def __init__(self, problem: Problem, theory: Theory, data: Federation, start: tuple[PyTree, PyTree],
                 batch: int, rounds: int, bounded: bool):
        assert theory.within is not None
        train = data.clients.train
        self.problem, self.theory, self.rounds, self.batch = problem, theory, rounds, batch
        self.sizes = np.asarray(train.sizes)
        self.kept = np.minimum(self.sizes, rounds * batch)
        picked = np.concatenate([first + np.arange(kept) for first, kept in
                                 zip(np.asarray(train.starts), self.kept, strict=True)])
        self.rows = jax.tree.map(lambda leaf: _double(np.asarray(leaf)[picked]), (train.inputs, train.targets))
        self.start = self.found = jax.tree.map(jnp.asarray, start[0])
        self.nothing = start[1]  # the private part, which has no arrays
        self.minimise = build_minimiser(self._mean_loss, theory.within)
        self.steep = jax.jit(self._steep)
        self.ends = self._ends(theory.corner) if bounded and theory.corner is not None else None

    def best(self, progress: Progress) -> Best | str:
        assert progress.met is not None
        entries = sum(np.size(leaf) for leaf in jax.tree.leaves(self.rows))
        if entries > CHEAP and progress.round < self.rounds:
            return ""
        met, meetings = np.asarray(progress.met, np.int64), int(progress.met.sum())
        counts = [times[:kept] for times, kept in
                  zip(times_met(met * self.batch, self.sizes), self.kept, strict=True)]
        shares = np.concatenate(counts) / (meetings * self.batch)
        given = jnp.asarray(shares), self.rows
        found = self.minimise(self.found, given)
        # A start close to the best makes the tolerance stricter than rounding allows: a longer way decides then.
        if not float(found.error) <= TOLERANCE:
            found = self.minimise(self.start, given)
        if not float(found.error) <= 100 * TOLERANCE:
            return f"the search for the best point came no nearer than {float(found.error):.0e} of the first gradient"
        self.found = found.point
        steepest = None
        if self.ends is not None:
            points = [self.start, found.point, *self.ends]
            steepest = max(float(self.steep(point, given)) for point in points)
        return Best(meetings / len(self.sizes) * float(found.value), steepest)

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
        sizes = jax.vmap(lambda *row: self.theory.dual_norm(jax.grad(self._loss)(point, *row)))(*rows)
        return jnp.where(shares > 0, sizes, 0).max()


def _double(rows: np.ndarray) -> jax.Array:
    return jnp.asarray(rows, float if rows.dtype.kind == "f" else None)
