"""What a run gives back: the history, the clients, and the model to predict with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import jax
import numpy as np

from cantons.data import with_keys
from cantons.data.checks import as_array, check_sizes, is_real
from cantons.display import Displayed, Table, score
from cantons.engine import Arrays, is_shared_model, message_held, personal_models, seed_keys
from cantons.errors import InputError, listed, unknown
from cantons.metrics import leaves
from cantons.optional import optional_import
from cantons.protocol import Algorithm, Key, Problem, PyTree, Snapshot, State

# What a printed result shows, of what there is.
SCORES = (("test", "accuracy"), ("test", "loss"), ("new_test", "accuracy"), ("new_test", "loss"),
          ("validation", "accuracy"), ("online", "accuracy"), ("online", "loss"), ("train", "loss"))

HEADLINES = [[f"{place}.{model}.{metric}.mean" for model in ("personal", "shared")]  # what it plots: the first there is
             for place in ("test", "online") for metric in ("accuracy", "loss")]


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


@dataclass(frozen=True, repr=False)
class Trained(Displayed):
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
                instead = (f"this may be a single row: give inputs[None], of shape {(1, *shape)}"
                           if rows.shape == shape else "give one such row per example")
                raise InputError(f"inputs have shape {rows.shape}, and the model was trained on rows of shape {shape}; "
                                 f"{instead}.") from error

    @property
    def input_shape(self) -> tuple[int, ...] | None:
        """The shape of one example's inputs, where it is known."""
        shape = (self.problem.spec or {}).get("input_shape")
        if shape is None and self.data is not None and hasattr(self.data.train.inputs, "shape"):
            shape = self.data.input_shape
        return None if shape is None else tuple(shape)

    def _display(self) -> tuple[str, Table]:
        shape = self.input_shape
        rows = [["inputs", "unknown" if shape is None else words_of(shape)],
                ["shared part", _parameters(self.state.server.shared)],
                ["private part", _parameters(self.snapshot.start_private)],
                ["clients", "unknown: the data is not there" if self.data is None else listed(self.data.clients.names)],
                ["use", "predict(inputs) as a stranger; predict(inputs, client=NAME) as one of the clients"]]
        return f"model of {self.population} clients, trained for {int(self.state.round)} rounds", rows

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


@dataclass(frozen=True, repr=False)
class Result(Displayed):
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
        return optional_import("pandas", "pandas", "frame()").DataFrame(self.history)

    def plot(self, number: str | None = None, axes: Any = None) -> Any:
        """Numbers of the evaluations against rounds, on matplotlib axes.

        `number` is such as "train.personal.loss.mean"; without it, it is the accuracy, or else the loss, of the
        personalised models and of the shared one on test rows, or on a stream of the models that met it.
        """
        chosen = [number] if number is not None else next(
            ([name for name in names if name in self.arrays] for names in HEADLINES if names[0] in self.arrays
             and np.isfinite(self.arrays[names[0]]).any()), [])
        for name in chosen:
            if name not in self.arrays:
                raise unknown("number of the evaluations", name, self.arrays)
        pyplot = optional_import("matplotlib.pyplot", "", "plot()")
        axes = pyplot.subplots(layout="constrained")[1] if axes is None else axes
        for name in chosen:
            axes.plot(self.arrays["round"], self.arrays[name], label=name)
        axes.set(xlabel="round")
        axes.legend()
        return axes

    def predict(self, inputs: Any, client: int | str | None = None) -> np.ndarray:
        return self.model.predict(inputs, client)

    def _display(self) -> tuple[str, Table]:
        if not self.history:
            return "result without evaluations", []
        final, rows = self.final, scores_table(self.final)
        cost = [f"{score(final['bytes_per_client'] / 1024)} KiB sent and received per client"]
        seconds = self.summary.get("median_seconds_per_round")
        rows += [["cost", ", ".join([*cost, *([f"{score(1000 * seconds)} ms per round"] if seconds else [])])]]
        rows += [] if self.folder is None else [["folder", str(self.folder)]]
        rows += [["more", "final, history, clients, frame(), plot(), model, predict(inputs, client=...)"]]
        tested = f"; test set: {self.summary['test_set']}" if any(row[0].startswith("test ") for row in rows) else ""
        return f"{self.summary['study']}: {final['round']} rounds{tested}", rows


def scores_table(record: Mapping[str, Any]) -> list[list[str]]:
    """The scores of one evaluation: a row for each set of examples and metric, a column for each kind of model."""
    rows = [["", "personal", "worst 10%", "shared"]]
    for place, metric in SCORES:
        keys = [f"{place}.{model}" for model in (
            f"personal.{metric}.mean", f"personal.{metric}.worst10", f"shared.{metric}.mean")]
        if _is_number(record.get(keys[0])):
            rows.append([f"{place.replace('new_test', 'new clients')} {metric}", *(
                score(record[key]) if _is_number(record.get(key)) else "–" for key in keys)])
    for key, value in record.items():  # of the shared model on test sets that are nobody's
        name, between, metric = key.partition(".shared.")
        if between and "." not in name + metric and _is_number(value):
            rows.append([f"{name} {metric}", "–", "–", score(value)])
    return rows


def words_of(shape: Sequence[int]) -> str:
    return " x ".join(map(str, shape)) or "1"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and bool(np.isfinite(value))


def _parameters(part: PyTree) -> str:
    """How many numbers there are, and in which arrays."""
    arrays = leaves(part)
    if not arrays:
        return "none"
    total = sum(int(np.prod(shape)) for _, shape, _ in arrays)
    return f"{total:,} numbers: {listed([f'{path} {words_of(shape)}'.strip() for path, shape, _ in arrays], most=4)}"
