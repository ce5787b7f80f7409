"""What is measured while a stream is played: every example before it is learned from, and the regret so far."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from cantons.data import Federation
from cantons.metrics import statistics
from cantons.protocol import Algorithm, Clock, Problem, Progress, PyTree, State
from cantons.regret import regret_of
from cantons.study.record import Columns, Row


def online_metrics(problem: Problem, algorithm: Algorithm, clock: Clock, data: Federation,
                   start: tuple[PyTree, PyTree], rounds: int) -> Callable[[State], tuple[Row, Columns]]:
    """For a run that begins at `start`: state -> its numbers, and those of each client; none if there is no stream."""
    if not clock.online:
        return lambda state: ({}, {})
    regret = regret_of(problem, algorithm, clock, data, start, rounds)

    def measure(state: State) -> tuple[Row, Columns]:
        progress = progress_of(state)
        row, columns = online_row(problem, progress)
        return row | regret(progress), columns

    return measure


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
