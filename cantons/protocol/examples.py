"""Examples: a client's, everybody's, and the datacenter's; as an algorithm sees them, and as an engine does."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np

from cantons.protocol.types import Array, Key, PyTree


class Batch(NamedTuple):
    """Some examples of one client; `mask` is 1.0 for a real row and 0.0 for padding."""

    inputs: PyTree
    targets: PyTree
    mask: Array
    group: Array | tuple[()] = ()  # the number of the client's group, where clients are of several
    key: Key | tuple[()] = ()  # what dropout draws from: in batches to train with, where the problem draws

    def again(self, number: Array | int) -> Batch:
        """The same examples for another step: with another key, if there is one."""
        return self if isinstance(self.key, tuple) else self._replace(key=jax.random.fold_in(self.key, number))


class Data(Protocol):
    """A client's examples (or the datacenter's) as an algorithm sees them: a handle, not an array."""

    @property
    def size(self) -> Array | int:
        """How many examples there are."""

    @property
    def group(self) -> Array | tuple[()]:
        """The number of the client's group, where clients are of several; otherwise nothing."""

    @property
    def liar(self) -> Array | tuple[()]:
        """Does the client lie? For attacks alone, in runs that have liars; otherwise nothing."""

    def sample(self, key: Key, size: int) -> Batch:
        """`size` examples drawn uniformly with replacement."""

    def epoch(self, key: Key, size: int, body: Callable[[PyTree, Batch], PyTree], carry: PyTree) -> PyTree:
        """Fold `body` over one shuffled pass in batches of `size`; the last one may be partly masked."""

    def fold(self, size: int, body: Callable[[PyTree, Batch], PyTree], carry: PyTree) -> PyTree:
        """The same pass in storage order, without a key."""

    def full(self, key: Key | None = None) -> Batch:
        """Every example at once, padded with masked rows to the longest client; a key is for training with them."""

    def now(self) -> Batch:
        """Online: the examples of this step, which are all there are. Offline data has no clock and refuses."""

    def hidden(self) -> Data:
        """The same handle with every row masked: for a model that must predict before labels are revealed."""

    def at(self, key: Key, meeting: Array, size: int, order: str) -> Data:
        """One moment of a stream: the `size` examples a client meets for the `meeting`-th time, from 0."""


class Examples(Protocol):
    """The examples of many clients; `client(id)` is a handle on those of one, also where the id is traced."""

    @property
    def population(self) -> int: ...

    @property
    def sizes(self) -> Any:
        """How many examples each client has."""

    @property
    def longest(self) -> int:
        """The largest size: known before compiling."""

    @property
    def uniform(self) -> bool:
        """Do all clients have as many?"""

    def client(self, index: Array | int) -> Data: ...

    def pooled(self) -> Data:
        """A handle on the examples of all clients together."""

    def some(self, places: np.ndarray, clients: int, rows: int) -> Examples:
        """The examples of the clients in these places, filled up to so many clients and rows, which are nobody's."""

    def divided(self, size: int) -> Examples:
        """The same examples in the same order, dealt out anew: `size` to each owner, and the rest to the last."""


class CentralData(Protocol):
    """A handle on the datacenter's examples: of one kind, and batches are `Batch`, or of several, and {name: Batch}."""

    def sample(self, key: Key, size: int) -> Any: ...

    def full(self, key: Key | None = None) -> Any: ...


class CentralExamples(Protocol):
    """What the datacenter has: `Examples` of one owner, or several kinds of them."""

    @property
    def longest(self) -> int: ...

    def client(self, index: Array | int) -> CentralData: ...


class Datacenter(NamedTuple):
    """What the server may use besides its state: examples of its own, and the key of a round to draw them with."""

    examples: CentralData | None  # None: it has none
    key: Key
    pooled: Data | None = None  # those of all clients, for references that ask for them (`Needs.pooled`)

    def batch(self, step: Array | int, size: int) -> Any:
        """The batch of a central step: it follows from the seed, the round and the step, whoever draws it."""
        return None if self.examples is None else self.examples.sample(jax.random.fold_in(self.key, step), size)


class Groups(NamedTuple):
    """Which of several populations each client is of."""

    names: tuple[str, ...]
    numbers: np.ndarray  # int32[clients]: the place of its group among the names


class Population(Protocol):
    """Some clients: the examples each trains on, and those it is judged by."""

    @property
    def train(self) -> Examples: ...

    @property
    def test(self) -> Examples: ...

    @property
    def names(self) -> Sequence[str]: ...

    @property
    def groups(self) -> Groups | None:
        """None: all clients are of one kind."""


class Federated(Protocol):
    """The data of a study, as engines see it."""

    @property
    def clients(self) -> Population: ...

    @property
    def new(self) -> Population | None:
        """Clients that take no part in training, and are scored as newcomers."""

    @property
    def validation(self) -> Examples | None:
        """Rows of the clients that are held back to choose by."""

    @property
    def sets(self) -> Mapping[str, Examples]:
        """More test sets, for the shared model: of nobody in particular."""
