"""The one small interface for trackers, progress bars and everything else that watches a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


class Callback:
    """Override what you need; every method does nothing by default."""

    def started(self, study: Mapping[str, Any]) -> None:
        """Before the first round, with the study as it will be run."""

    def advanced(self, round: int, rounds: int) -> None:
        """After each block of rounds."""

    def evaluated(self, record: Mapping[str, Any]) -> None:
        """After each evaluation, with its flat row."""

    def noticed(self, sentence: str) -> None:
        """Something the user should know: a client left out, a damaged checkpoint, a pause."""

    def stopped(self, round: int) -> None:
        """After Ctrl-C, when the state is saved; `finished` will not come."""

    def finished(self, summary: Mapping[str, Any]) -> None:
        """After the last round."""


class Several(Callback):
    """Callbacks as one: whatever it is told, it tells them all."""

    def __init__(self, callbacks: Sequence[Callback]):
        self.callbacks = callbacks

    def started(self, study: Mapping[str, Any]) -> None:
        self._tell("started", study)

    def advanced(self, round: int, rounds: int) -> None:
        self._tell("advanced", round, rounds)

    def evaluated(self, record: Mapping[str, Any]) -> None:
        self._tell("evaluated", record)

    def noticed(self, sentence: str) -> None:
        self._tell("noticed", sentence)

    def stopped(self, round: int) -> None:
        self._tell("stopped", round)

    def finished(self, summary: Mapping[str, Any]) -> None:
        self._tell("finished", summary)

    def _tell(self, what: str, *about: Any) -> None:
        for callback in self.callbacks:
            getattr(callback, what)(*about)
