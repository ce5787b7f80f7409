"""What a run gives back: the history, the clients, and the model to predict with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import jax
import numpy as np

from cantons.data import with_keys
from cantons.data.checks import as_array, check_sizes, is_real
from cantons.engine import Arrays, is_shared_model, message_held, personal_models, seed_keys
from cantons.errors import InputError, unknown
from cantons.protocol import Algorithm, Key, Problem, PyTree, Snapshot, State


def as_inputs(inputs: Any, precision: str) -> Any:
    """Arrays of numbers to predict on, none of which is changed by putting it into the run's precision."""
    def check(leaf: Any) -> Any:
        array = leaf if hasattr(leaf, "dtype") else as_array("inputs", leaf)
        if not is_real(array.dtype):
            raise InputError(f"inputs are of type {array.dtype}; give numbers.")
        if array.ndim == 0:
            raise InputError(f"inputs are the single value {array}; give an array with one row per example.")
        return array

    rows = check(inputs) if isinstance(inputs, list) else jax.tree.map(check, inputs)
    if precision == "float32":
        check_sizes("inputs", rows, lambda row: f"row {row} (from 0)")
    return rows


@dataclass(frozen=True)
class Trained:
    """A trained federation: predict as a new client would, or as one of the clients."""

    problem: Problem
    algorithm: Algorithm
    snapshot: Snapshot
    data: Any
    seed: int = 0
    precision: str = "float32"

    @property
    def state(self) -> State:
        return self.snapshot.state

    @property
    def population(self) -> int:
        return self.state.ledger.shape[0]

    def parts(self, client: int | str | None = None) -> tuple[PyTree, PyTree]:
        """(shared, private): the server's model for nobody in particular, or a client's personalised one."""
        with jax.enable_x64(self.precision == "float64"):
            if client is None:
                return self.state.server.shared, self.snapshot.start_private
            index = self._index(client)
            row = jax.tree.map(lambda leaf: leaf[index], self.state.clients)
            return self._personal(self._evaluation_key, self.state.server, row, self._data.clients.train,
                                  self._data.central, index, message_held(self.state, index))

    def of_clients(self, pick: Callable[[PyTree, PyTree], PyTree]) -> PyTree:
        """One row for each client: what `pick(shared, private)` takes of its personalised model."""
        self._require_data()
        with jax.enable_x64(self.precision == "float64"):
            return personal_models(self.algorithm, self._data.clients.train, self._data.central, self.state,
                                   self._evaluation_key, pick)

    def is_one_model(self) -> bool:
        """Do all clients predict with the server's model as it is?"""
        if self.data is None or jax.tree.leaves(self.snapshot.start_private):
            return False
        client = jax.tree.map(lambda leaf: leaf[0], self.state.clients)
        train, central = self._data.clients.train, self._data.central
        with jax.enable_x64(self.precision == "float64"):
            return is_shared_model(self.algorithm, self.state.server, self.snapshot.start_private, client, train,
                                   Arrays(train, central, (), self._evaluation_key))

    def predict(self, inputs: Any, client: int | str | None = None) -> np.ndarray:
        """The problem's outputs for `inputs`, by the shared model or by the model of one client."""
        with jax.enable_x64(self.precision == "float64"):
            rows = as_inputs(inputs, self.precision)
            self.problem.check_inputs(rows)
            parts = self.parts(client)
            try:
                return jax.device_get(self._outputs(*parts, rows))
            except (TypeError, ValueError) as error:  # a model that takes what it was not trained on may do so
                shape = self.input_shape
                if shape is None or not hasattr(rows, "shape") or rows.shape[1:] == shape:
                    raise
                raise InputError(f"inputs have shape {rows.shape}, and the model was trained on rows of shape {shape}; "
                                 "give one such row per example.") from error

    @property
    def input_shape(self) -> tuple[int, ...] | None:
        """The shape of one example's inputs, where it is known."""
        shape = (self.problem.spec or {}).get("input_shape")
        if shape is None and self.data is not None and hasattr(self.data.train.inputs, "shape"):
            shape = self.data.input_shape
        return None if shape is None else tuple(shape)

    @property
    def _data(self) -> Any:
        """The examples as runs see them: with keys to train with, where the problem draws anything."""
        return with_keys(self.data, self.problem.draws)

    @property
    def _evaluation_key(self) -> Key:
        """That of an evaluation at this round: what predicts here is what was scored there."""
        return jax.random.fold_in(seed_keys(self.seed)[2], self.state.round)

    @cached_property
    def _outputs(self) -> Callable[..., PyTree]:
        return jax.jit(self.problem.predict)

    @cached_property
    def _personal(self) -> Callable[..., tuple[PyTree, PyTree]]:
        """The model of one client; compiled once, whoever it is."""
        def personal(key, server, client, train, central, index, message):
            data = train.client(index)
            if message is None:
                message = self.algorithm.broadcast(key, server, Arrays(train, central, (), key).datacenter(
                    self.algorithm, key))
            return self.algorithm.model(jax.random.fold_in(key, index), message, client, data)

        return jax.jit(personal)

    def _require_data(self) -> None:
        if self.data is None:
            raise InputError("a client's model needs its training examples, and the data of this run is not there; "
                             "give it: load(folder, data=...).")

    def _index(self, client: int | str) -> int:
        self._require_data()
        if not isinstance(client, str | int | np.integer) or isinstance(client, bool):
            raise InputError(f"client is {client!r}; give the name of a client, or its number.")
        names = self.data.clients.names
        if client in names:
            return names.index(client)
        if isinstance(client, str):
            if not (client.isascii() and client.isdecimal() and len(client) < 20):
                raise unknown("client", client, names)
            client = int(client)  # a number in words, as a command line has it
        if not 0 <= client < len(names):
            raise InputError(f"client {client} does not exist; there are {len(names)}, numbered from 0.")
        return client


@dataclass(frozen=True)
class Result:
    """A finished run. `history` has one flat row per evaluation, such as {"round": 10,
    "test.personal.accuracy.mean": 0.97, ...}; `clients` has one column per score of the last one."""

    history: list[dict[str, Any]]
    clients: dict[str, Any]
    summary: dict[str, Any]
    model: Trained
    folder: Path | None = None
    before: Mapping[str, Result] = field(default_factory=dict)  # the stages that this one began with, by name

    @property
    def final(self) -> dict[str, Any]:
        """The last evaluation."""
        return self.history[-1]

    @cached_property
    def arrays(self) -> dict[str, np.ndarray]:
        """Each number of the history as an array over evaluations."""
        names = [name for name, value in self.final.items() if isinstance(value, int | float)]
        return {name: np.array([np.nan if row.get(name) is None else row[name] for row in self.history], float)
                for name in names}

    def frame(self) -> Any:
        """The history as a pandas data frame."""
        import pandas

        return pandas.DataFrame(self.history)

    def predict(self, inputs: Any, client: int | str | None = None) -> np.ndarray:
        return self.model.predict(inputs, client)
