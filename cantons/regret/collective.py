"""The collective regret of an online run so far, and what is promised about it."""

from __future__ import annotations

from collections.abc import Callable

import jax
import numpy as np

from cantons.data import Federation
from cantons.protocol import Algorithm, Clock, Online, Problem, Progress, PyTree
from cantons.regret.best_point import Best
from cantons.regret.search import Search
from cantons.regret.target_stream import TargetStream


def collective_regret(problem: Problem, algorithm: Algorithm, clock: Clock, data: Federation,
                      start: tuple[PyTree, PyTree], rounds: int) -> Callable[[Progress], dict[str, float]]:
    """What an evaluation of an online run says about collective regret: nothing, unless everyone scores everyone.

    "online.collective_regret" is R_t, equation (2) of Mitra, Hassani and Pappas, "Online Federated Learning", 2021: a
    total over the steps so far, not an average. The best point is exact for the problem `target` and found by a solver
    for other convex losses. "online.collective_bound" is what the algorithm promises, "online.dynamic_regret" lets the
    best point move. All is computed in double precision; what the run has added up is as precise as the run.
    """
    online, theory = clock.online, algorithm.theory
    curvature = 0.0 if problem.convex is None else problem.convex.curvature
    sizes = np.asarray(data.clients.train.sizes)
    if (online is None or not online.everyone or online.order != "cycle" or not clock.full or algorithm.score
            or jax.tree.leaves(start[1]) or not jax.tree.leaves(start[0]) or not sizes.all()):
        return lambda progress: {}
    gap = _gap(clock, online, rounds)
    with jax.enable_x64(True):
        begin = jax.tree.map(lambda leaf: np.asarray(leaf, float), jax.device_get(start[0]))
        best = _comparator(problem, algorithm, data, (begin, start[1]), online.batch, rounds, gap is not None)
    if best is None:
        return lambda progress: {}

    def regret(progress: Progress) -> dict[str, float]:
        steps = progress.round
        if not steps or progress.rejected.any():
            return {}  # who abstained was not charged
        with jax.enable_x64(True):
            about = best(steps)
            if about is None:
                return {}
            charged = float(np.asarray(progress.charged["global_loss"], float).mean())
            found = {"online.collective_regret": charged - about.fixed}
            if about.moving is not None:
                found["online.dynamic_regret"] = charged - about.moving
            if about.steepest is not None and theory is not None and gap is not None:
                bound = theory.regret_bound(begin, about.steepest, curvature, gap, steps)
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
    if problem.convex is None:
        return None
    corner = algorithm.theory.corner if algorithm.theory is not None and bounded else None
    if problem.convex.form != "smooth":
        stream = TargetStream(algorithm, data, start[0], batch, rounds)
        return stream.of(problem.convex.form, corner is not None)
    if algorithm.theory is None or algorithm.theory.within is None:
        return None
    return Search(problem, algorithm, data, start, batch, rounds, corner).best
