"""Vowpal Wabbit as a local model. Needs `pip install 'cantons[vw]'`; it is imported when one is made."""

from __future__ import annotations

import tempfile
import weakref
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from cantons.files import writing
from cantons.local_models.linear import flat
from cantons.local_models.saving import try_saving
from cantons.optional import optional_import


class VowpalWabbit:
    """A workspace that gets the residual y - shared_prediction as its label, for the squared loss.

    `arguments` are those of its command line, such as "--adaptive --learning_rate 0.5"; "--adaptive" alone raises the
    learning rate to 10. It never predicts outside the range of the labels it has met. It is saved by its own means,
    which keep everything for its gradient steps, and not for some reductions, such as --nn or --bootstrap.
    """

    def __init__(self, arguments: str = ""):
        self._package: Any = optional_import("vowpalwabbit", "vw", user="this local model")
        self.arguments = arguments
        self._open("")

    def _open(self, more: str) -> None:
        self.workspace = self._package.Workspace(f"{self.arguments} {more} --quiet")
        # Else it is closed when Python has already gone half away, and complains.
        self._close = weakref.finalize(self, self.workspace.finish)

    def predict(self, x: np.ndarray) -> np.ndarray:
        return np.array([self.workspace.predict(f"| {text}") for text in _texts(x)])

    def update(self, x: np.ndarray, y: np.ndarray, shared_prediction: np.ndarray) -> None:
        for text, label in zip(_texts(x), y - shared_prediction, strict=True):
            self.workspace.learn(f"{label:.9g} | {text}")

    def get_state(self) -> dict[str, np.ndarray]:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "model"
            self.workspace.save(str(file))
            return {"model": np.frombuffer(file.read_bytes(), np.uint8)}

    def set_state(self, state: dict[str, np.ndarray]) -> None:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "model"
            with writing(file) as model:
                model.write(state["model"].tobytes())
            self._close()
            # Without its counters, steps that shrink with time would begin anew.
            self._open(f"--preserve_performance_counters --initial_regressor {file}")

    def why_not_saved(self) -> str:
        return self._trial

    def __getstate__(self) -> dict[str, Any]:
        """To be pickled; the workspace is no Python object."""
        if self.why_not_saved():
            raise TypeError(f"Vowpal Wabbit {self.why_not_saved()}")
        return {"arguments": self.arguments, "state": self.get_state()}

    def __setstate__(self, pickled: dict[str, Any]) -> None:
        self.__init__(pickled["arguments"])  # type: ignore[misc]
        self.set_state(pickled["state"])

    @cached_property
    def _trial(self) -> str:
        found = try_saving(lambda: VowpalWabbit(self.arguments), columns=3)
        return f"with {self.arguments} {found}" if found else ""


def _texts(x: np.ndarray) -> list[str]:
    """The features of each example in Vowpal Wabbit's own format.

    >>> _texts(np.array([[0.5, 0.0, 2.0]]))
    ['0:0.5 2:2']
    """
    return [" ".join(f"{place}:{row[place]:.9g}" for place in np.flatnonzero(row)) for row in flat(x)]
