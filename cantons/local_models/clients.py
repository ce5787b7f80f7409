"""The clients' side: each client's own model predicts and learns, in plain Python, one after another."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import jax.numpy as jnp
import numpy as np

from cantons.errors import InputError
from cantons.local_models.local_model import LocalModel, kind
from cantons.local_models.saving import get_state, set_state


class Clients:
    """The clients' models, in the clients' order.

    A client whose model predicts NaN, infinity or an array of another shape is left out from then on: its model is
    neither asked nor taught again. `left_out` says who and why, and `notice` is told once.
    """

    def __init__(self, models: Sequence[LocalModel], names: Sequence[str], output_shape: tuple[int, ...],
                 notice: Callable[[str], None]):
        self.models, self.names, self.output_shape, self.notice = models, names, output_shape, notice
        self.left_out: dict[int, str] = {}

    @property
    def kinds(self) -> list[str]:
        return [kind(model) for model in self.models]

    def is_left_out(self) -> np.ndarray:
        """For each client."""
        return np.isin(np.arange(len(self.names)), list(self.left_out))

    def predict(self, index: int, sets: Mapping[str, np.ndarray], when: str) -> dict[str, np.ndarray]:
        """What a client's model predicts for the rows of each set; nothing if it is, or is now, left out."""
        if index in self.left_out:
            return {}
        found = {}
        for name, x in sets.items():
            with self._naming(index):
                answer = self.models[index].predict(x)
            found[name], complaint = check_outputs(answer, (len(x), *self.output_shape))
            if complaint:
                self.left_out[index] = complaint
                self.notice(f"{when}: the model of client {self.names[index]!r} {complaint}; it is left out from now "
                            "on: the shared model alone predicts for this client, which sends nothing more.")
                return {}
        return found

    def update(self, index: int, x: np.ndarray, y: np.ndarray, shared_prediction: np.ndarray) -> None:
        """Let a client's model learn, unless it is left out."""
        if index not in self.left_out:
            with self._naming(index):
                self.models[index].update(x, y, shared_prediction)

    def get_state(self, models_too: bool) -> dict[str, Any]:
        """Who is left out, and what the models remember where that is asked for, as JSON has it."""
        states = []
        for index, model in enumerate(self.models if models_too else ()):
            with self._naming(index):
                states.append(get_state(model))
        return {"left_out": {str(index): reason for index, reason in self.left_out.items()}, "kinds": self.kinds,
                "models": states}

    def set_state(self, saved: Mapping[str, Any]) -> None:
        for name, now, before in zip(self.names, self.kinds, saved["kinds"], strict=True):
            if now != before:
                raise InputError(f"client {name!r} has brought a {before} to this run, and now brings a {now}; give "
                                 "every client the model it began with, or choose another folder.")
        self.left_out.clear()
        self.left_out.update({int(index): reason for index, reason in saved["left_out"].items()})
        for index, (model, state) in enumerate(zip(self.models, saved["models"], strict=True)):
            with self._naming(index):
                set_state(model, state)

    @contextmanager
    def _naming(self, index: int) -> Iterator[None]:
        """An error in a client's model says whose it is."""
        try:
            yield
        except BaseException as error:
            error.add_note(f"in the local model of client {self.names[index]!r}")
            raise


def check_outputs(answer: Any, shape: tuple[int, ...]) -> tuple[np.ndarray, str]:
    """A model's answer as an array in JAX's precision, and what is wrong with it, if anything.

    >>> check_outputs([1, 2, 3], (2,))[1]
    'returned an array of shape (3,) for (2,)'
    """
    if answer is None:
        return np.zeros(0), "returned nothing"
    try:
        with np.errstate(over="ignore"):  # what is too large for single precision is infinite, and told so below
            values = np.asarray(answer, float).astype(jnp.zeros(0).dtype)
    except (TypeError, ValueError):
        return np.zeros(0), f"returned a {type(answer).__name__} that is no array of numbers"
    if values.shape != shape:
        return values, f"returned an array of shape {values.shape} for {shape}"
    return values, "" if np.isfinite(values).all() else "predicted NaN or infinity"
