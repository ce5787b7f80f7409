"""What is measured while a stream is played: every example before it is learned from, and the regret so far."""

from __future__ import annotations

import numpy as np

from cantons.data import Federation
from cantons.metrics import statistics
from cantons.protocol import Algorithm, Clock, Problem, Progress, PyTree, State
from cantons.regret import Regret, regret_of
from cantons.study.record import Columns, Row


class OnlineMetrics:
    """state -> the numbers of a stream so far, and those of each client; none if there is no stream."""

    def __init__(self, problem: Problem, regret: Regret | None):
        self.problem, self.regret = problem, regret

    @property
    def why_not(self) -> str:
        """Why a regret is not measured, in a sentence for the user; it may be found out late."""
        return "" if self.regret is None else self.regret.why_not

    def __call__(self, state: State) -> tuple[Row, Columns]:
        if self.regret is None:
            return {}, {}
        progress = progress_of(state)
        row, columns = online_row(self.problem, progress)
        return row | self.regret.measure(progress), columns


def online_metrics(problem: Problem, algorithm: Algorithm, clock: Clock, data: Federation,
                   start: tuple[PyTree, PyTree], rounds: int) -> OnlineMetrics:
    """What to measure in a run that begins at `start`."""
    return OnlineMetrics(problem, regret_of(problem, algorithm, clock, data, start, rounds) if clock.online else None)


def progress_of(state: State) -> Progress:
    """How far an online run is, read from its state."""
    downloads, uploads, rejected = (np.asarray(part) for part in (state.downloads, state.uploads, state.rejected))
    return Progress(int(state.round), int(state.skipped), downloads, uploads, rejected, np.asarray(state.transit.met),
                    {name: np.asarray(total) for name, total in state.transit.scores.items()})


def online_row(problem: Problem, progress: Progress) -> tuple[Row, Columns]:
    """What each client was charged so far, on average, for the examples of a stream before it learned from them."""
    assert progress.met is not None
    row: Row = {}
    columns: Columns = {}
    met = progress.met - progress.rejected  # who abstained was not charged
    for metric, totals in progress.charged.items():
        values = totals / np.maximum(met, 1)
        found = statistics(np.where(met > 0, values, np.nan), met, metric in problem.maximise)
        row |= {f"online.personal.{metric}.{statistic}": value for statistic, value in found.items()}
        columns[f"online.personal.{metric}"] = values
    return row, columns
