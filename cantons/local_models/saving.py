"""What a local model remembers, as JSON has it: so that a run with local models can be resumed.

A model that can be saved has `get_state() -> dict` of arrays, and `set_state(dict)`. One that has neither still runs; a
run with it cannot go on from the middle.
"""

from __future__ import annotations

import base64
from typing import Any

import numpy as np


def why_not_saved(model: Any) -> str:
    """Why a model cannot be saved, as words that go on from its kind; empty if it can.

    A model whose options decide says so itself, by a method of this name.
    """
    if not (hasattr(model, "get_state") and hasattr(model, "set_state")):
        return "has no get_state and set_state"
    return model.why_not_saved() if hasattr(model, "why_not_saved") else ""


def get_state(model: Any) -> dict[str, Any]:
    """The model's arrays, in words.

    >>> class Counter:
    ...     def get_state(self): return {"seen": np.arange(2)}
    >>> get_state(Counter())["seen"]["dtype"]
    '<i8'
    """
    return {name: _encoded(np.asarray(array)) for name, array in model.get_state().items()}


def set_state(model: Any, saved: dict[str, Any]) -> None:
    model.set_state({name: _decoded(words) for name, words in saved.items()})


def _encoded(array: np.ndarray) -> dict[str, Any]:
    array = np.asarray(array, order="C")
    if array.dtype.hasobject:
        raise TypeError("a local model's state must be arrays of numbers or words, not of Python objects")
    return {"dtype": array.dtype.str, "shape": list(array.shape),
            "bytes": base64.b64encode(array.tobytes()).decode("ascii")}


def _decoded(words: dict[str, Any]) -> np.ndarray:
    flat = np.frombuffer(base64.b64decode(words["bytes"]), np.dtype(words["dtype"]))
    return flat.reshape(words["shape"]).copy()
