"""A trained federation, to predict with: as a stranger would, or as one of the clients."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import numpy as np

from cantons.data import with_keys
from cantons.data.encoding import Encoding
from cantons.display import Displayed, Table
from cantons.engine import Arrays, is_shared_model, message_held, personal_models, seed_keys
from cantons.errors import InputError, amount, listed
from cantons.protocol import Algorithm, Datacenter, Key, Problem, PyTree, Snapshot, State
from cantons.study.client_model import ClientModel, parameters, words_of
from cantons.study.client_names import index_of
from cantons.study.exported import read_exported
from cantons.study.kept import Kept


class NeedsExamples(InputError):
    """A client's model has to be fitted first."""

    def __init__(self) -> None:
        super().__init__("this client's model is fitted to its training examples when it is asked for, and the data of "
                         "this run is not there; give it: load(folder, data=...), or export the run where its data is, "
                         "with cantons export --run FOLDER, which keeps all models in the folder.")


@dataclass(frozen=True, repr=False)
class Trained(Displayed):
    """A trained federation: predict as a new client would, or as one of the clients."""

    problem: Problem
    algorithm: Algorithm
    snapshot: Snapshot
    data: Any
    seed: int = 0
    precision: str = "float32"
    kept: Kept | None = None  # from the run folder, for who has no data

    @property
    def state(self) -> State:
        return self.snapshot.state

    @property
    def population(self) -> int:
        return self.state.ledger.shape[0]

    @property
    def encoding(self) -> Encoding | None:
        """From raw rows to inputs; None: it is not known."""
        return self.kept.encoding if self.kept is not None else getattr(self.data, "encoding", None)

    @property
    def names(self) -> tuple[str, ...]:
        """Of the clients."""
        if self.data is not None:
            return self.data.clients.names
        if self.kept is None or self.kept.names is None:
            raise InputError("the names of this run's clients are with its data, which is not there; give it: "
                             "load(folder, data=...).")
        return self.kept.names

    @property
    def new_names(self) -> tuple[str, ...]:
        """Of the clients that were held out of training."""
        if self.data is not None:
            return () if self.data.new is None else self.data.new.names
        return () if self.kept is None else self.kept.new_names

    @property
    def held_out(self) -> dict[str, Any]:
        """What was not trained on, in words."""
        return dict(self.kept.held_out) if self.kept is not None else {"test": self.data.test_set}

    def client(self, client: int | str | None = None) -> ClientModel:
        """The model of one client, or the common one: scikit-learn's metrics take it.

        A client is given by its name; where no client's name is a number, its place counted from 0 does as well.
        """
        parts, name = self.parts(client), None if client is None else self.names[self._index(client)]
        return ClientModel(name, self.problem, parts, self.encoding and self.encoding.of(name), self._apply(client),
                           self.precision, self.input_shape,
                           (lambda: None) if self.data is None else weakref.ref(self.data))

    def predict(self, rows: Any, client: int | str | None = None, *, encoded: bool = False) -> np.ndarray:
        """The label of each row, or the number where the model predicts numbers, by the common model or a client's.

        Rows are raw, as in the file that the data came from: an array, a data frame, {column: values} or a list of
        {column: value}. What the run scaled is scaled. `encoded=True` says that they are as in `data.test.inputs`.
        """
        return self.client(client).predict(rows, encoded=encoded)

    def predict_proba(self, rows: Any, client: int | str | None = None, *, encoded: bool = False) -> np.ndarray:
        """The probability of each class, in the order of `classes_`; rows as for `predict`."""
        return self.client(client).predict_proba(rows, encoded=encoded)

    def outputs(self, rows: Any, client: int | str | None = None, *, encoded: bool = False) -> np.ndarray:
        """What the model computes, such as logits; rows as for `predict`."""
        return self.client(client).outputs(rows, encoded=encoded)

    @property
    def classes_(self) -> np.ndarray:
        """The labels, in the order of the probabilities."""
        return self.client().classes_

    def __sklearn_tags__(self) -> Any:
        return self.client().__sklearn_tags__()

    def parts(self, client: int | str | None = None) -> tuple[PyTree, PyTree]:
        """(shared, private): the server's model for nobody in particular, or a client's personalised one."""
        with jax.enable_x64(self.precision == "float64"):
            if client is None:
                return self.state.server.shared, self.snapshot.start_private
            index = self._index(client)
            row, held = jax.tree.map(lambda leaf: leaf[index], self.state.clients), message_held(self.state, index)
            if self.data is None:
                return self._without_data(index, row, held)
            return self._personal(self._evaluation_key, self.state.server, row, self._data.clients.train,
                                  self._data.central, index, held)

    def _without_data(self, index: int, row: PyTree, message: PyTree | None) -> tuple[PyTree, PyTree]:
        """A client's personalised model, if nothing has to be fitted for it, or an export has it."""
        key, nothing = self._evaluation_key, Absent()
        central = Datacenter(None if self.problem.central is None else nothing, key, nothing)
        try:
            with jax.disable_jit():  # so that of two branches only the one that is taken asks for examples
                if message is None:
                    message = self.algorithm.broadcast(key, self.state.server, central)
                return self.algorithm.personal_model(jax.random.fold_in(key, index), message, row, nothing).parts
        except NeedsExamples:
            folder = None if self.kept is None else self.kept.folder
            found = folder and read_exported(folder, int(self.state.round), self.names, index, self.parts())
            if not found:
                raise
            return found

    def of_clients(self, pick: Callable[[PyTree, PyTree], PyTree]) -> PyTree:
        """One row for each client: what `pick(shared, private)` takes of its personalised model."""
        if self.data is None:
            raise NeedsExamples
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

    @property
    def input_shape(self) -> tuple[int, ...] | None:
        """The shape of one example's inputs, where it is known."""
        shape = (self.problem.spec or {}).get("input_shape")
        if shape is None and self.encoding is not None:
            shape = self.encoding.shape
        if shape is None and self.data is not None and hasattr(self.data.train.inputs, "shape"):
            shape = self.data.input_shape
        return None if shape is None else tuple(shape)

    def _display(self) -> tuple[str, Table]:
        shape = self.input_shape
        known = self.data is not None or (self.kept is not None and self.kept.names is not None)
        rows = [["inputs", "unknown" if shape is None else words_of(shape)],
                ["shared part", parameters(self.state.server.shared)],
                ["private part", parameters(self.snapshot.start_private)],
                ["clients", listed(self.names) if known else "unknown: the data is not there"],
                ["use", "predict(rows) as a stranger; predict(rows, client=NAME) as one of the clients"]]
        return f"model of {amount(self.population, 'client')}, trained for {amount(self.state.round, 'round')}", rows

    def _apply(self, client: int | str | None) -> Callable[..., PyTree]:
        """(shared, private, inputs) -> outputs, for one of the clients or for nobody in particular."""
        return self._outputs

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
            return self.algorithm.personal_model(jax.random.fold_in(key, index), message, client, data).parts

        return jax.jit(personal)

    def _index(self, client: int | str) -> int:
        return index_of(client, self.names, self.new_names)


class Absent:
    """Stands for examples that are not there: whoever looks at them is refused."""

    def __getattr__(self, name: str) -> Any:
        raise NeedsExamples
