"""What is measured while a stream is played: every example before it is learned from, and the regret so far."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

from cantons.data import Federation
from cantons.protocol import Algorithm, Clock, Problem, Progress, PyTree
from cantons.study.collective import collective
from cantons.study.hindsight import hindsight
from cantons.study.record import Columns, Row, online_row


def online_metrics(problem: Problem, algorithm: Algorithm, clock: Clock, data: Federation,
                   start: tuple[PyTree, PyTree], rounds: int) -> Callable[[Progress], tuple[Row, Columns]]:
    """For a run that begins at `start`: progress -> its numbers, and those of each client; none without a stream."""
    if not clock.online:
        return lambda progress: ({}, {})
    regrets = [measure(problem, algorithm, clock, data, start, rounds) for measure in (hindsight, collective)]

    def measured(progress: Progress) -> tuple[Row, Columns]:
        row, columns = online_row(problem, progress)
        state = SimpleNamespace(round=progress.round, rejected=progress.rejected,
                                in_flight=SimpleNamespace(met=progress.met, scores=progress.charged))
        for regret in regrets:
            row |= regret(state)
        return row, columns

    return measured
