"""A client's examples as others see them: the same handle, with every batch changed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from cantons.protocol import Array, Batch, Data, Key, PyTree


@dataclass(frozen=True)
class MapBatches:
    """`protocol.Data` whose batches are `change(batch)`."""

    data: Data
    change: Callable[[Batch], Batch]

    @property
    def size(self) -> Array | int:
        return self.data.size

    @property
    def group(self) -> Array | tuple[()]:
        return self.data.group

    @property
    def liar(self) -> Array | tuple[()]:
        return self.data.liar

    def sample(self, key: Key, size: int) -> Batch:
        return self.change(self.data.sample(key, size))

    def epoch(self, key: Key, size: int, body: Callable[[PyTree, Batch], PyTree], carry: PyTree) -> PyTree:
        return self.data.epoch(key, size, lambda carry, batch: body(carry, self.change(batch)), carry)

    def fold(self, size: int, body: Callable[[PyTree, Batch], PyTree], carry: PyTree) -> PyTree:
        return self.data.fold(size, lambda carry, batch: body(carry, self.change(batch)), carry)

    def full(self, key: Key | None = None) -> Batch:
        return self.change(self.data.full(key))

    def now(self) -> Batch:
        return self.change(self.data.now())

    def hidden(self) -> Data:
        return MapBatches(self.data.hidden(), self.change)

    def at(self, key: Key, meeting: Array, size: int, order: str) -> Data:
        return MapBatches(self.data.at(key, meeting, size, order), self.change)
