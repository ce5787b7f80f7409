"""The collective regret of an online run so far, and what is promised about it."""

from __future__ import annotations

import jax
import numpy as np

from cantons.data import Federation
from cantons.protocol import Algorithm, Clock, Online, Problem, Progress, PyTree
from cantons.regret.best_point import Comparator
from cantons.regret.search import Search
from cantons.regret.target_stream import TargetStream
from cantons.regret.why_not import ABSTAINED, Measure, other_order

NONE = "no collective regret: "


def collective_regret(problem: Problem, algorithm: Algorithm, clock: Clock, data: Federation,
                      start: tuple[PyTree, PyTree], rounds: int) -> Measure | str:
    """What an evaluation of an online run says about collective regret, if everyone is scored by everyone's examples.

    "online.collective_regret" is R_t, equation (2) of Mitra, Hassani and Pappas, "Online Federated Learning", 2021, and
    with silent clients that of `best_point.py`: a total over the steps so far, not an average. The best point is exact
    for the problem `target` and found by a solver for other convex losses. "online.collective_bound" is what the
    algorithm promises, "online.dynamic_regret" lets the best point move. All is computed in double precision; what the
    run has added up is as precise as the run.
    """
    online, theory = clock.online, algorithm.theory
    if online is None or not online.cross_score:
        return ""
    gap = _gap(clock, online, rounds)
    with jax.enable_x64(True):
        begin = jax.tree.map(lambda leaf: np.asarray(leaf, float), jax.device_get(start[0]))
        best = _comparator(problem, algorithm, clock, data, (begin, start[1]), rounds, gap is not None)
    if isinstance(best, str):
        return f"{NONE}{best}."
    assert theory is not None and problem.convex is not None
    curvature = problem.convex.curvature

    def regret(progress: Progress) -> dict[str, float] | str:
        if progress.met is None or not progress.met.any():
            return {}
        if progress.rejected.any():
            return f"{NONE}{ABSTAINED}."
        with jax.enable_x64(True):
            about = best(progress)
            if isinstance(about, str):
                return about and f"{NONE}{about}."
            charged = float(np.asarray(progress.charged["global_loss"], float).mean())
            found = {"online.collective_regret": charged - about.fixed}
            if about.moving is not None:
                found["online.dynamic_regret"] = charged - about.moving
            if about.steepest is not None and gap is not None:
                bound = theory.regret_bound(begin, about.steepest, curvature, gap, progress.round)
                if bound is not None:
                    found["online.collective_bound"] = bound
        return found

    return regret


def _gap(clock: Clock, online: Online, rounds: int) -> int | None:
    """tau; None where no theorem reaches: some are silent or not counted, messages are late, meetings are unknown."""
    late = online.longest_up or online.longest_down or online.label_delay
    if online.max_gap is None or online.participants is not None or late or not clock.full:
        return None
    meets = getattr(clock.arrays, "meets", None)
    return online.max_gap if meets is None else int(np.diff(np.flatnonzero(meets), append=rounds).max())


def _comparator(problem: Problem, algorithm: Algorithm, clock: Clock, data: Federation, start: tuple[PyTree, PyTree],
                rounds: int, bounded: bool) -> Comparator | str:
    """What is best in hindsight after so many steps, or why nobody can tell."""
    online, theory = clock.online, algorithm.theory
    assert online is not None
    if online.order != "cycle":
        return other_order(online)
    if algorithm.score is not None:
        return "the algorithm says itself what it is charged, which is not the loss of its models"
    if jax.tree.leaves(start[1]):
        return "the problem has a private part, and the best fixed point is one for all clients"
    if not jax.tree.leaves(start[0]):
        return "the problem has no shared part"
    if problem.convex is None:
        return "nothing says that the losses are convex, so that their best point can be found"
    if theory is None:
        return "the algorithm does not say in which set its points lie"
    if problem.convex.form != "smooth":
        return TargetStream(theory, clock, data, start[0], rounds, bounded).comparator(problem.convex.form)
    if theory.within is None:
        return "it is not known how to find the nearest point of the algorithm's set"
    return Search(problem, theory, data, start, online.batch, rounds, bounded).best
