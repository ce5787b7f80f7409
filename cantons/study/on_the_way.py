"""What is measured while a stream is played: every example before it is learned from, and the regret so far."""

from __future__ import annotations

from collections.abc import Callable

from cantons.data import Federation
from cantons.protocol import Algorithm, Clock, Problem, PyTree, State
from cantons.study.collective import collective
from cantons.study.hindsight import hindsight
from cantons.study.record import Columns, Row, online_row


def on_the_way(problem: Problem, algorithm: Algorithm, clock: Clock, data: Federation, start: tuple[PyTree, PyTree],
               rounds: int) -> Callable[[State], tuple[Row, Columns]]:
    """For a run that begins at `start`: state -> its numbers, and those of each client; none if there is no stream."""
    if not clock.online:
        return lambda state: ({}, {})
    regrets = [measure(problem, algorithm, clock, data, start, rounds) for measure in (hindsight, collective)]

    def measured(state: State) -> tuple[Row, Columns]:
        row, columns = online_row(problem, data, state)
        for regret in regrets:
            row |= regret(state)
        return row, columns

    return measured
