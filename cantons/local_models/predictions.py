"""Examples that come with the outputs of their clients' own models: all that the server ever sees of those models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cantons.protocol import Array, Batch, Data, Federated, Key, PyTree


class Predicted(NamedTuple):
    """Inputs, and what their client's own model predicts for them."""

    inputs: PyTree
    outputs: Any


class _Population(NamedTuple):
    train: Any
    test: Any
    names: Sequence[str]
    groups: Any = None


class _Federated(NamedTuple):
    clients: Any
    new: Any
    validation: Any
    sets: Mapping[str, Any] = {}


def with_silent_models(data: Federated, shape: Sequence[int]) -> Federated:
    """The same data with inputs that are `Predicted`, where every model predicts zeros of this `shape`."""

    def add(examples: Any) -> Any:
        inputs = examples.inputs
        zeros = np.zeros((len(jax.tree.leaves(inputs)[0]), *shape), jnp.zeros(0).dtype)
        return replace(examples, inputs=Predicted(inputs, zeros))

    def population(found: Any) -> Any:
        return found and _Population(add(found.train), add(found.test), found.names, found.groups)

    return _Federated(population(data.clients), population(data.new), data.validation and add(data.validation))


def with_outputs(examples: Any, outputs: Any) -> Any:
    """Examples that are `Predicted`, with other outputs: one for each row."""
    return replace(examples, inputs=examples.inputs._replace(outputs=outputs))


@partial(jax.tree_util.register_dataclass, data_fields=["examples", "outputs"], meta_fields=[])
@dataclass(frozen=True)
class StepExamples:
    """The clients' examples, whose outputs are known for those of this step alone: [clients, batch, ...]."""

    examples: Any
    outputs: Array

    def client(self, index: Array | int) -> _OneClient:
        return _OneClient(self.examples.client(index), jnp.asarray(self.outputs)[index])


class _OneClient:
    """What an online step asks of `protocol.Data`."""

    def __init__(self, examples: Data, outputs: Array):
        self._examples, self._outputs, self.size = examples, outputs, examples.size

    def at(self, key: Key, meeting: Array, size: int, order: str) -> _OneClient:
        return _OneClient(self._examples.at(key, meeting, size, order), self._outputs)

    def hidden(self) -> _OneClient:
        return _OneClient(self._examples.hidden(), self._outputs)

    def now(self) -> Batch:
        batch = self._examples.now()
        return batch._replace(inputs=batch.inputs._replace(outputs=self._outputs))
