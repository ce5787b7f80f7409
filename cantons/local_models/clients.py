"""The clients' side: which of them still take part, and what their models say and learn, wherever these are."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from cantons.errors import InputError
from cantons.local_models.host import Host, Lesson


class Clients:
    """The clients, in their order; `host` holds their models.

    A client whose model predicts NaN, infinity or an array of another shape is left out from then on: its model is
    neither asked nor taught again. `left_out` says who and why, and `notice` is told once.
    """

    def __init__(self, host: Host, names: Sequence[str], output_shape: tuple[int, ...], notice: Callable[[str], None]):
        self.host, self.names, self.output_shape, self.notice = host, names, output_shape, notice
        self.left_out: dict[int, str] = {}

    def is_left_out(self) -> np.ndarray:
        """For each client."""
        return np.isin(np.arange(len(self.names)), list(self.left_out))

    def predict(self, asked: Mapping[int, Mapping[str, np.ndarray]], when: str) -> dict[int, dict[str, np.ndarray]]:
        """What clients' models predict for the rows of each set; nothing of whoever is, or is now, left out."""
        found = {}
        for index, answer in self.host.predict(self._taking_part(asked), self.output_shape).items():
            if answer.complaint:
                self.left_out[index] = answer.complaint
                self.notice(f"{when}: the model of client {self.names[index]!r} {answer.complaint}; it is left out "
                            "from now on: the shared model alone predicts for this client, which sends nothing more.")
            else:
                found[index] = answer.outputs
        return found

    def update(self, lessons: Mapping[int, Lesson]) -> None:
        """Let clients' models learn, but for those that are left out."""
        self.host.update(self._taking_part(lessons))

    def get_state(self, models_too: bool) -> dict[str, Any]:
        """Who is left out, and what the models remember where that is asked for, as JSON has it."""
        states = self.host.get_states() if models_too else {}
        return {"left_out": {str(index): reason for index, reason in self.left_out.items()}, "kinds": self.host.kinds,
                "models": [states[index] for index in sorted(states)]}

    def set_state(self, saved: Mapping[str, Any]) -> None:
        for name, now, before in zip(self.names, self.host.kinds, saved["kinds"], strict=True):
            if now != before:
                raise InputError(f"client {name!r} has brought a {before} to this run, and now brings a {now}; give "
                                 "every client the model it began with, or choose another folder.")
        self.left_out.clear()
        self.left_out.update({int(index): reason for index, reason in saved["left_out"].items()})
        self.host.set_states(dict(zip(range(len(self.names)), saved["models"], strict=True)))

    def _taking_part(self, given: Mapping[int, Any]) -> dict[int, Any]:
        return {index: value for index, value in given.items() if index not in self.left_out}
