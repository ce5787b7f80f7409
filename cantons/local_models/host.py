"""Where local models are: in this process, one after another. On actors they are in `ray_host`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

import jax.numpy as jnp
import numpy as np

from cantons.local_models.local_model import LocalModel, kind
from cantons.local_models.saving import get_state, set_state


class Answer(NamedTuple):
    """What a model has predicted for each set of rows, or what is wrong with one of its predictions."""

    outputs: dict[str, np.ndarray]
    complaint: str = ""


class Lesson(NamedTuple):
    """What a model learns from."""

    x: np.ndarray
    y: np.ndarray
    shared_prediction: np.ndarray


class Host(Protocol):
    """Whoever holds the models. It is asked for many clients at once, by their numbers.

    Each model sees the same calls in the same order, wherever it is.
    """

    kinds: list[str]  # of all clients' models

    def open(self) -> None:
        """Make ready, if it is not."""

    def predict(self, asked: Mapping[int, Mapping[str, np.ndarray]], shape: tuple[int, ...]) -> dict[int, Answer]:
        """What these clients' models predict for the rows of their sets; `shape` is that of one prediction."""

    def update(self, lessons: Mapping[int, Lesson]) -> None:
        """Let these clients' models learn."""

    def get_states(self) -> dict[int, dict[str, Any]]:
        """What all models remember, as JSON has it."""

    def set_states(self, states: Mapping[int, dict[str, Any]]) -> None:
        """Let these models be as they were saved."""

    def get_models(self) -> list[LocalModel]:
        """All models, as they are now, in this process."""

    def about(self) -> dict[str, Any]:
        """What a run's summary says of it."""

    def close(self) -> None:
        """End whatever was started for the models."""


class ProcessHost:
    """Some clients' models in this process, by the clients' numbers."""

    def __init__(self, models: Mapping[int, LocalModel], names: Sequence[str]):
        self.models, self.names = dict(models), names
        self.kinds = [kind(model) for model in self.models.values()]

    def open(self) -> None:
        pass

    def predict(self, asked: Mapping[int, Mapping[str, np.ndarray]], shape: tuple[int, ...]) -> dict[int, Answer]:
        return {index: self._predict_one(index, sets, shape) for index, sets in asked.items()}

    def update(self, lessons: Mapping[int, Lesson]) -> None:
        for index, lesson in lessons.items():
            with naming(self.names[index]):
                self.models[index].update(*lesson)

    def get_states(self) -> dict[int, dict[str, Any]]:
        found = {}
        for index, model in self.models.items():
            with naming(self.names[index]):
                found[index] = get_state(model)
        return found

    def set_states(self, states: Mapping[int, dict[str, Any]]) -> None:
        for index, state in states.items():
            with naming(self.names[index]):
                set_state(self.models[index], state)

    def get_models(self) -> list[LocalModel]:
        return list(self.models.values())

    def about(self) -> dict[str, Any]:
        return {"clients_at_once": 1}

    def close(self) -> None:
        pass

    def _predict_one(self, index: int, sets: Mapping[str, np.ndarray], shape: tuple[int, ...]) -> Answer:
        """A model that has given a bad answer is not asked about the other sets."""
        found = {}
        for name, x in sets.items():
            with naming(self.names[index]):
                answer = self.models[index].predict(x)
            found[name], complaint = check_outputs(answer, (len(x), *shape))
            if complaint:
                return Answer({}, complaint)
        return Answer(found)


@contextmanager
def naming(client: str) -> Iterator[None]:
    """An error in a client's model says whose it is."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"in the local model of client {client!r}")
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
