"""The regret of an online run so far: the one door to this folder."""

from __future__ import annotations

from collections.abc import Callable

from cantons.data import Federation
from cantons.protocol import Algorithm, Clock, Problem, Progress, PyTree
from cantons.regret.collective import collective_regret
from cantons.regret.hindsight import hindsight_regret


def regret_of(problem: Problem, algorithm: Algorithm, clock: Clock, data: Federation, start: tuple[PyTree, PyTree],
              rounds: int) -> Callable[[Progress], dict[str, float]]:
    """For a run that begins at `start`: how far it is -> its regret so far, by name; none where it is not known."""
    measures = [build(problem, algorithm, clock, data, start, rounds)
                for build in (hindsight_regret, collective_regret)]

    def measure(progress: Progress) -> dict[str, float]:
        return {name: value for part in measures for name, value in part(progress).items()}

    return measure
