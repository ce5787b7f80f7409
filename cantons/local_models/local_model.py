"""What a client may bring as its local model, and who brings which."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from cantons.errors import InputError, unknown


class LocalModel(Protocol):
    """Anything that predicts and learns. The server never sees it, only what it predicts.

    A client's prediction is the sum of the shared model's outputs and its own, so a local model should learn what the
    shared one leaves over: for the squared loss y - shared_prediction.

    A run can be resumed if its models can be saved: if they also have `get_state()`, which returns all they remember as
    a dict of arrays, and `set_state(state)`, which makes a model that was made alike the one that was saved.
    """

    def predict(self, x: np.ndarray) -> np.ndarray:
        """Outputs for the rows of `x`, the client's local features: [rows], or [rows, classes] under a softmax."""

    def update(self, x: np.ndarray, y: np.ndarray, shared_prediction: np.ndarray) -> None:
        """Learn from rows that were just predicted; `shared_prediction` is what the shared model said about them."""


Models = Mapping[str, Any] | Sequence[Any] | Callable[[str], LocalModel]


def one_for_each(models: Models, names: Sequence[str]) -> list[LocalModel]:
    """A model for every client, by name, in order, or from a factory that is told the name."""
    if isinstance(models, Mapping):
        for name in models:
            if name not in names:
                raise unknown("client", str(name), names)
        for name in names:
            if name not in models:
                raise InputError(f"client {name!r} brings no model; give one for each client, or a factory such as "
                                 "lambda name: Linear().")
        given = [models[name] for name in names]
    elif _is_factory(models):
        given = [models] * len(names)
    elif isinstance(models, Sequence):
        if len(models) != len(names):
            raise InputError(f"there are {len(models)} models for {len(names)} clients; give one for each.")
        given = list(models)
    else:
        raise InputError(f"models is a {type(models).__name__}; give a mapping from client names to models, a list in "
                         "the order of the clients, or a factory such as lambda name: Linear().")
    made = [model(name) if _is_factory(model) else model for model, name in zip(given, names, strict=True)]
    owners: dict[int, str] = {}
    for model, name in zip(made, names, strict=True):
        _check(model, name)
        if id(model) in owners:
            raise InputError(f"clients {owners[id(model)]!r} and {name!r} bring the same object, and would learn into "
                             "each other's model; make one for each.")
        owners[id(model)] = name
    return made


def kind(model: Any) -> str:
    """What to call a model in a table: the name of its class, or of what an adapter holds."""
    return type(getattr(model, "estimator", getattr(model, "module", model))).__name__


def _is_factory(given: Any) -> bool:
    """A model may be callable too, as a network is: a factory is a function or a class."""
    return inspect.isroutine(given) or isinstance(given, type | functools.partial)


def _check(model: Any, name: str) -> None:
    for method in ("predict", "update"):
        if not callable(getattr(model, method, None)):
            hint = "; wrap it in PartialFit or Refit" if hasattr(model, "fit") else (
                "; wrap it in Torch" if hasattr(model, "forward") else "")
            raise InputError(f"the model of client {name!r}, a {type(model).__name__}, has no {method}; a local model "
                             f"has predict(x) and update(x, y, shared_prediction){hint}.")
