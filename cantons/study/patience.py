"""Early stopping: a run ends when its validation score has not improved for so many evaluations.

It follows from the evaluations alone, so a run that is resumed stops where it would have stopped.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from cantons.metrics import headline_of
from cantons.protocol import Problem


class Patience:
    """How many evaluations without a better validation score a run is given."""

    def __init__(self, evaluations: int, problem: Problem):
        self.evaluations, self.problem = evaluations, problem

    def number(self, record: Mapping[str, Any]) -> str:
        """The number it looks at: as in sweeps, the accuracy where there is one, or a reward, and else the loss."""
        metric = headline_of([metric for metric in self.problem.maximise if _column(metric) in record])
        return _column(metric)

    def best(self, history: Sequence[Mapping[str, Any]]) -> int:
        """The place of the first evaluation that none is better than; one that is not a number is never better."""
        name = self.number(history[0])
        sign = 1 if name == _column("loss") else -1
        scores = [math.nan if row.get(name) is None else sign * row[name] for row in history]
        return min(range(len(scores)), key=lambda place: (math.isnan(scores[place]), scores[place], place))

    def is_over(self, history: Sequence[Mapping[str, Any]]) -> bool:
        return bool(history) and len(history) - 1 - self.best(history) >= self.evaluations

    def told(self, history: Sequence[Mapping[str, Any]]) -> str:
        """Why it ends, in a sentence."""
        best, name = history[self.best(history)], self.number(history[0])
        return (f"stopped after round {history[-1]['round']}: {name} has not improved for {self.evaluations} "
                f"evaluations; it was best after round {best['round']}.")


def _column(metric: str) -> str:
    return f"validation.personal.{metric}.mean"
