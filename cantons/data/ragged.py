"""Examples of many clients packed end to end: no padding, however unequal the clients are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from cantons.errors import InputError
from cantons.protocol import Array, Batch, Key, PyTree
from cantons.shuffle import permutation

OWN = 2**31 - 2  # folded into a key: far from the numbers that drawing rows folds into it


@partial(jax.tree_util.register_dataclass, data_fields=["inputs", "targets", "starts", "sizes", "groups", "liars"],
         meta_fields=["longest", "uniform", "keys"])
@dataclass(frozen=True)
class Ragged:
    """Client i owns rows `starts[i] : starts[i] + sizes[i]` of every leaf of `inputs` and `targets`."""

    inputs: PyTree
    targets: PyTree
    starts: Array | np.ndarray
    sizes: Array | np.ndarray
    longest: int = field(default=0)  # the largest size: known before compiling
    uniform: bool = field(default=False)  # all sizes equal: loops get a fixed length
    groups: Array | np.ndarray | None = None  # the number of each client's group, where there are several
    keys: bool = field(default=False)  # batches to train with have a key: the problem draws, as dropout does
    liars: Array | np.ndarray | None = None  # does each client lie? In runs that have liars

    @property
    def population(self) -> int:
        return self.starts.shape[0]

    def client(self, index: Array | int) -> Examples:
        """A handle on one client's rows; `index` may be traced."""
        # A uniform federation's size is a plain number, so its loops are unrolled or scanned, never searched.
        size = self.longest if self.uniform else jnp.asarray(self.sizes)[index]
        group = () if self.groups is None else jnp.asarray(self.groups)[index]
        liar = () if self.liars is None else jnp.asarray(self.liars)[index]
        return Examples(self.inputs, self.targets, jnp.asarray(self.starts)[index], size, self.longest, group,
                        self.keys, liar)

    def pooled(self) -> Examples:
        """A handle on all rows together."""
        rows = len(jax.tree.leaves(self.inputs)[0])
        return Examples(self.inputs, self.targets, jnp.int32(0), rows, rows, keys=self.keys)

    def some(self, places: np.ndarray, clients: int, rows: int) -> Ragged:
        """The rows of some clients. All such parts of one federation may have the same shapes: one program runs them.

        >>> part = pack([np.ones(3), np.ones(1), np.ones(2)], [np.arange(3), np.arange(1), np.arange(2)]).some(
        ...     np.array([0, 2]), clients=3, rows=6)
        >>> part.sizes.tolist(), part.targets.tolist(), part.longest
        ([3, 2, 0], [0, 1, 2, 0, 1, 0], 3)
        """
        starts, sizes = np.asarray(self.starts)[places], np.asarray(self.sizes)[places]
        own = np.repeat(starts - (np.cumsum(sizes) - sizes), sizes) + np.arange(sizes.sum())

        def fill(leaf: Array | np.ndarray, count: int) -> np.ndarray:
            return np.concatenate([leaf, np.zeros((count - len(leaf), *leaf.shape[1:]), leaf.dtype)])

        inputs, targets = jax.tree.map(lambda leaf: fill(np.asarray(leaf)[own], rows), (self.inputs, self.targets))
        part = from_sizes(inputs, targets, fill(sizes, clients))
        groups, liars = (None if each is None else fill(np.asarray(each)[places], clients)
                         for each in (self.groups, self.liars))
        # What programs know before they are compiled is said of all clients, so that everybody's numbers stay the same.
        return replace(part, longest=self.longest, uniform=self.uniform, groups=groups, keys=self.keys, liars=liars)

    def divided(self, size: int) -> Ragged:
        """The same rows in the same order, `size` to each owner."""
        rows = len(jax.tree.leaves(self.inputs)[0])
        sizes = np.minimum(size, rows - size * np.arange(-(-rows // size)))
        return replace(from_sizes(self.inputs, self.targets, sizes), keys=self.keys)


def pack(inputs: Sequence[PyTree], targets: Sequence[PyTree]) -> Ragged:
    """Pack one (inputs, targets) pair per client; leaves are NumPy arrays with one row per example.

    >>> packed = pack([np.zeros((3, 2)), np.ones((1, 2))], [np.arange(3), np.arange(1)])
    >>> packed.sizes.tolist(), packed.inputs.shape
    ([3, 1], (4, 2))
    """
    sizes = np.array([len(jax.tree.leaves(one)[0]) for one in inputs], np.int32)
    joined = [jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts) for parts in (inputs, targets)]
    return from_sizes(joined[0], joined[1], sizes)


def from_sizes(inputs: PyTree, targets: PyTree, sizes: np.ndarray) -> Ragged:
    """Wrap rows that already lie in client order."""
    sizes = np.asarray(sizes, np.int32)
    starts = (np.cumsum(sizes) - sizes).astype(np.int32)
    longest = int(sizes.max(initial=0))
    return Ragged(inputs, targets, starts, sizes, longest, bool((sizes == longest).all()))


class Examples:
    """One client's rows, as `protocol.Data`."""

    def __init__(self, inputs: PyTree, targets: PyTree, start: Array, size: Array | int, longest: int,
                 group: Array | tuple[()] = (), keys: bool = False, liar: Array | tuple[()] = ()):
        self._rows = (inputs, targets)
        self._keys = keys
        self._start = start
        self.size = size
        self.longest = longest
        self.group = group
        self.liar = liar

    def sample(self, key: Key, size: int) -> Batch:
        rows = jax.random.randint(key, (size,), 0, self.size, jnp.int32)  # the same rows in either precision
        return self._keyed(self._take(rows, jnp.full(size, self.size > 0, float)), key)

    def epoch(self, key: Key, size: int, body: Callable[[PyTree, Batch], PyTree], carry: PyTree) -> PyTree:
        # JAX 0.10 cannot compile the shuffle of a single row into what reads it
        order = permutation(key, self.size) if self.longest > 1 else lambda places: places
        return self._pass(size, order, body, carry, key)

    def fold(self, size: int, body: Callable[[PyTree, Batch], PyTree], carry: PyTree) -> PyTree:
        return self._pass(size, lambda places: places, body, carry)

    def full(self, key: Key | None = None) -> Batch:
        places = jnp.arange(max(self.longest, 1))
        return self._keyed(self._take(jnp.where(places < self.size, places, 0), self._mask(places)), key)

    def now(self) -> Batch:
        raise InputError("this data has no clock: only a stream knows the examples of now; use the online clock.")

    def hidden(self) -> Examples:
        """No rows, of the same shapes."""
        return Examples(*self._rows, self._start, 0, self.longest, self.group, self._keys, self.liar)

    def at(self, key: Key, meeting: Array, size: int, order: str) -> Moment:
        """One moment of a stream: the client meets `size` rows for the `meeting`-th time, from 0.

        In order "cycle" it goes through its rows as they are stored, again and again; "shuffle" goes through them in
        another order each time, which `key` decides; "sample" draws them with replacement.
        """
        count = jnp.maximum(self.size, 1)
        places = meeting * size + jnp.arange(size, dtype=jnp.int32)
        if order == "sample":
            rows = jax.random.randint(jax.random.fold_in(key, meeting), (size,), 0, count, jnp.int32)
        elif order == "shuffle":
            rows = jax.vmap(lambda place: permutation(jax.random.fold_in(key, place // count), count)(place % count))(
                places)
        else:
            rows = places % count
        there = (size if self.size > 0 else 0) if isinstance(self.size, int) else jnp.where(self.size > 0, size, 0)
        batch = self._keyed(self._take(rows, jnp.full(size, self.size > 0, float)), key).again(meeting)
        return Moment(batch, there, self._keys, self.liar)

    def batches(self, size: int) -> Array | int:
        """How many batches of `size` one pass takes."""
        return (self.size + size - 1) // size

    def _pass(self, size: int, order: Callable[[Array], Array], body: Callable, carry: PyTree,
              key: Key | None = None) -> PyTree:
        size = min(size, max(self.longest, 1))
        batches = self.batches(size)

        def places_of(number: Array) -> Array:
            return number * size + jnp.arange(size, dtype=jnp.int32)

        def rows_of(places: Array) -> Array:
            return order(jnp.minimum(places, self.size - 1))

        def step(carry: PyTree, places: Array, rows: Array) -> PyTree:
            batch = self._keyed(self._take(rows, self._mask(places, size)), key)
            return body(carry, batch.again(places[0]))

        if isinstance(batches, int):  # a known length: order all rows in one go
            places = jnp.arange(batches * size, dtype=jnp.int32)
            pairs = places.reshape(batches, size), rows_of(places).reshape(batches, size)
            return jax.lax.scan(lambda carry, pair: (step(carry, *pair), None), carry, pairs)[0]
        return jax.lax.fori_loop(0, batches, lambda number, carry: step(
            carry, places_of(number), rows_of(places_of(number))), carry)

    def _keyed(self, batch: Batch, key: Key | None) -> Batch:
        """The batch with a key of its own, where batches have one; `key` itself has drawn its rows."""
        return batch._replace(key=jax.random.fold_in(key, OWN)) if self._keys and key is not None else batch

    def _mask(self, places: Array, size: int | None = None) -> Array:
        whole = isinstance(self.size, int) and self.size > 0 and self.size % (size or self.longest) == 0
        # Known at compile time to be all ones, so that the compiler drops the masking altogether.
        return jnp.ones(places.shape) if whole else (places < self.size).astype(float)

    def _take(self, rows: Array, mask: Array) -> Batch:
        def take(leaf: Array) -> Array:
            if not leaf.shape[0]:  # a federation without a single example, such as an absent test set
                return jnp.zeros((*rows.shape, *leaf.shape[1:]), leaf.dtype)
            where = jnp.minimum(self._start + rows, leaf.shape[0] - 1)  # an empty last client starts beyond the end
            return jnp.asarray(leaf).at[where].get(mode="promise_in_bounds", wrap_negative_indices=False)

        inputs, targets = jax.tree.map(take, self._rows)
        return Batch(inputs, targets, mask, self.group)


class Moment(Examples):
    """A client's examples of one step of a stream. Of those before and after nothing can be seen."""

    def __init__(self, batch: Batch, size: Array | int, keys: bool = False, liar: Array | tuple[()] = ()):
        super().__init__(batch.inputs, batch.targets, jnp.int32(0), size, batch.mask.shape[0], batch.group, keys, liar)
        self._batch = batch

    def now(self) -> Batch:
        return self._batch
