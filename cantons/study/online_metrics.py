"""What is measured while a stream is played: every example before it is learned from, and the regret so far."""

from __future__ import annotations

import numpy as np

from cantons.data import Federation
from cantons.protocol import Algorithm, Clock, Problem, Progress, PyTree
from cantons.regret import Regret, regret_of
from cantons.study.record import Columns, Row, online_row


class OnlineMetrics:
    """progress -> the numbers of a stream so far, and those of each client; none if there is no stream."""

    def __init__(self, problem: Problem, regret: Regret | None, liars: np.ndarray | None = None):
        self.problem, self.regret, self.liars = problem, regret, liars

    @property
    def why_not(self) -> str:
        """Why a regret is not measured, in a sentence for the user; it may be found out late."""
        return "" if self.regret is None else self.regret.why_not

    def __call__(self, progress: Progress) -> tuple[Row, Columns]:
        if self.regret is None:
            return {}, {}
        row, columns = online_row(self.problem, progress, self.liars)
        return row | self.regret.measure(progress), columns


def online_metrics(problem: Problem, algorithm: Algorithm, clock: Clock, data: Federation,
                   start: tuple[PyTree, PyTree], rounds: int, liars: np.ndarray | None = None) -> OnlineMetrics:
    """What to measure in a run that begins at `start`, over those who do not lie."""
    if clock.online and liars is not None:
        return OnlineMetrics(problem, Regret(["no regret is measured, because some clients lie."]), liars)
    return OnlineMetrics(problem, regret_of(problem, algorithm, clock, data, start, rounds) if clock.online else None)
