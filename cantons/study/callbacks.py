"""The one small interface for trackers, progress bars and everything else that watches a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cantons.errors import InputError, shown


class Callback:
    """Override what you need; every method does nothing by default."""

    def started(self, study: Mapping[str, Any]) -> None:
        """Before the first round, with the study as it will be run."""

    def entered(self, phase: str) -> None:
        """What is done now: "reading", "compiling", "training", "evaluating", "fitting new clients"."""

    def advanced(self, round: int, rounds: int) -> None:
        """After each block of rounds."""

    def evaluated(self, record: Mapping[str, Any]) -> None:
        """After each evaluation, with its flat row."""

    def noticed(self, sentence: str) -> None:
        """Something the user should know: a client left out, a damaged checkpoint, a pause."""

    def advised(self, sentence: str) -> None:
        """Something to know before the first round; by default it is noticed."""
        self.noticed(sentence)

    def stopped(self, round: int) -> None:
        """After Ctrl-C, when the state is saved; `finished` will not come."""

    def finished(self, summary: Mapping[str, Any]) -> None:
        """After the last round."""


Callbacks = Sequence[Callback | Callable[[Mapping[str, Any]], object]]  # functions are told each evaluation


class Evaluated(Callback):
    """A plain function as a callback: it is given the flat row of each evaluation."""

    def __init__(self, function: Callable[[Mapping[str, Any]], object]):
        self.function = function

    def evaluated(self, record: Mapping[str, Any]) -> None:
        self.function(record)


class Several(Callback):
    """Callbacks as one: whatever it is told, it tells them all."""

    def __init__(self, callbacks: Callbacks):
        self.callbacks = [_as_callback(callback) for callback in callbacks]

    def started(self, study: Mapping[str, Any]) -> None:
        self._tell("started", study)

    def entered(self, phase: str) -> None:
        self._tell("entered", phase)

    def advanced(self, round: int, rounds: int) -> None:
        self._tell("advanced", round, rounds)

    def evaluated(self, record: Mapping[str, Any]) -> None:
        self._tell("evaluated", record)

    def noticed(self, sentence: str) -> None:
        self._tell("noticed", sentence)

    def advised(self, sentence: str) -> None:
        self._tell("advised", sentence)

    def stopped(self, round: int) -> None:
        self._tell("stopped", round)

    def finished(self, summary: Mapping[str, Any]) -> None:
        self._tell("finished", summary)

    def _tell(self, what: str, *about: Any) -> None:
        for callback in self.callbacks:
            getattr(callback, what)(*about)


class Labelled(Several):
    """The same callbacks for one of several methods: a notice begins with its label. Advice is told once for all."""

    def __init__(self, callback: Callback, label: str):
        super().__init__([callback])
        self.label = label

    def noticed(self, sentence: str) -> None:
        super().noticed(f"{self.label}: {sentence}")


def _as_callback(given: Any) -> Callback:
    if isinstance(given, Callback):
        return given
    if isinstance(given, type) or not callable(given):
        raise InputError(f"a callback is {shown(given)}; give a function of an evaluation's row, or a Callback.")
    return Evaluated(given)
