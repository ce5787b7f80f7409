"""What a local model remembers, as JSON has it: so that a run with local models can be resumed.

A model that can be saved has `get_state() -> dict` of arrays, and `set_state(dict)`. One that has neither still runs; a
run with it cannot go on from the middle. Nothing is pickled: a checkpoint is data, and reading it runs no code.
"""

from __future__ import annotations

import base64
import warnings
from collections.abc import Callable
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
    return {name: _encoded(name, np.asarray(array)) for name, array in model.get_state().items()}


def set_state(model: Any, saved: dict[str, Any]) -> None:
    model.set_state({name: _decoded(words) for name, words in saved.items()})


def try_saving(make: Callable[[], Any], columns: int, labels: np.ndarray | None = None) -> str:
    """Save a model in the middle of a few examples, and go on with another; what went wrong, as words like the above.

    For models made of parts that we do not know. `make` makes one from the beginning, each time the same; `labels` are
    the classes it may meet, None if it learns numbers.
    """
    random = np.random.default_rng(0)
    steps = [(random.normal(size=(6, columns)), random.normal(size=6) if labels is None else random.choice(labels, 6))
             for _ in range(6)]
    whole, stopped, resumed = make(), make(), make()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for number, (x, y) in enumerate(steps):
                nothing = np.zeros_like(whole.predict(x))
                whole.update(x, y, nothing)
                if number == 3:
                    set_state(resumed, get_state(stopped))
                (stopped if number < 3 else resumed).update(x, y, nothing)
            same = all(np.array_equal(whole.predict(x), resumed.predict(x)) for x, _ in steps)
    except Exception as error:  # whatever a stranger's model raises: it runs, and is not saved
        return str(error).splitlines()[0] if str(error) else f"raises {type(error).__name__} when it is saved"
    return "" if same else "does not learn on from what it saves as if it had never stopped"


def _encoded(name: str, array: np.ndarray) -> dict[str, Any]:
    array = np.asarray(array, order="C")
    if array.dtype.hasobject:
        raise TypeError(f"keeps {name}, which is no array of numbers or words")
    return {"dtype": array.dtype.str, "shape": list(array.shape),
            "bytes": base64.b64encode(array.tobytes()).decode("ascii")}


def _decoded(words: dict[str, Any]) -> np.ndarray:
    flat = np.frombuffer(base64.b64decode(words["bytes"]), np.dtype(words["dtype"]))
    return flat.reshape(words["shape"]).copy()
