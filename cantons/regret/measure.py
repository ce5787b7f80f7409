"""The regret of an online run so far: the one door to this folder."""

from __future__ import annotations

from collections.abc import Sequence

from cantons.data import Federation
from cantons.protocol import Algorithm, Clock, Problem, Progress, PyTree
from cantons.regret.collective import collective_regret
from cantons.regret.hindsight import hindsight_regret
from cantons.regret.why_not import Measure


class Regret:
    """The regret of one run, measured as it goes on.

    `why_not` is "" as long as all is measured that was asked for; else it says in a sentence what is not, and why. Some
    of that is known from the beginning, some only later: look at it after every measurement.
    """

    def __init__(self, parts: Sequence[Measure | str]):
        self._parts = [part for part in parts if not isinstance(part, str)]
        self._sentences = [part for part in parts if isinstance(part, str) and part]

    @property
    def why_not(self) -> str:
        return " ".join(self._sentences)

    def measure(self, progress: Progress) -> dict[str, float]:
        """Every kind of regret that is known, by name."""
        found: dict[str, float] = {}
        for part in self._parts:
            numbers = part(progress)
            if not isinstance(numbers, str):
                found |= numbers
            elif numbers and numbers not in self._sentences:
                self._sentences.append(numbers)
        return found


def regret_of(problem: Problem, algorithm: Algorithm, clock: Clock, data: Federation, start: tuple[PyTree, PyTree],
              rounds: int) -> Regret:
    """The regret of a run that begins at `start`: against the best pair of models, and the collective one."""
    return Regret([build(problem, algorithm, clock, data, start, rounds)
                   for build in (hindsight_regret, collective_regret)])
