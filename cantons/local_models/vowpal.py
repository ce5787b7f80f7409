"""Vowpal Wabbit as a local model. Needs `pip install 'cantons[vw]'`; it is imported when one is made."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np

from cantons.local_models.linear import flat
from cantons.optional import optional_import


class VowpalWabbit:
    """A workspace that gets the residual y - shared_prediction as its label, for the squared loss.

    `arguments` are those of its command line, such as "--adaptive --learning_rate 0.5"; "--adaptive" alone raises the
    learning rate to 10. It never predicts outside the range of the labels it has met.
    """

    def __init__(self, arguments: str = ""):
        package: Any = optional_import("vowpalwabbit", "vw", user="this local model")
        self.workspace = package.Workspace(f"{arguments} --quiet")
        # Else it is closed when Python has already gone half away, and complains.
        weakref.finalize(self, self.workspace.finish)

    def predict(self, x: np.ndarray) -> np.ndarray:
        return np.array([self.workspace.predict(f"| {text}") for text in _texts(x)])

    def update(self, x: np.ndarray, y: np.ndarray, shared_prediction: np.ndarray) -> None:
        for text, label in zip(_texts(x), y - shared_prediction, strict=True):
            self.workspace.learn(f"{label:.9g} | {text}")


def _texts(x: np.ndarray) -> list[str]:
    """The features of each example in Vowpal Wabbit's own format.

    >>> _texts(np.array([[0.5, 0.0, 2.0]]))
    ['0:0.5 2:2']
    """
    return [" ".join(f"{place}:{row[place]:.9g}" for place in np.flatnonzero(row)) for row in flat(x)]
