"""A datacenter whose examples are of several kinds: each has a name, and one of the central losses looks at it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax

from cantons.data.ragged import Ragged
from cantons.protocol import Array, Batch, Key


@partial(jax.tree_util.register_dataclass, data_fields=["rows"], meta_fields=[])
@dataclass(frozen=True)
class Centres:
    """`protocol.CentralExamples` whose batches are {name: batch}."""

    rows: dict[str, Ragged]

    @property
    def longest(self) -> int:
        """The smallest of the kinds: a batch that this allows can be drawn of each."""
        return min(rows.longest for rows in self.rows.values())

    def client(self, index: Array | int) -> Kinds:
        return Kinds({name: rows.client(index) for name, rows in self.rows.items()})


class Kinds:
    """A handle on examples of several kinds: what the datacenter draws its batches from."""

    def __init__(self, handles: Mapping[str, Any]):
        self._handles = handles

    def sample(self, key: Key, size: int) -> dict[str, Batch]:
        """`size` examples of each kind."""
        return {name: handle.sample(jax.random.fold_in(key, number), size)
                for number, (name, handle) in enumerate(self._handles.items())}

    def full(self, key: Key | None = None) -> dict[str, Batch]:
        return {name: handle.full(None if key is None else jax.random.fold_in(key, number))
                for number, (name, handle) in enumerate(self._handles.items())}


def kinds_of(central: Ragged | Centres | None) -> dict[str, Ragged]:
    """The datacenter's examples by their names, or as "central" if they have none."""
    if central is None:
        return {}
    return dict(central.rows) if isinstance(central, Centres) else {"central": central}


def map_kinds(change: Callable[[Ragged], Ragged], central: Ragged | Centres | None) -> Ragged | Centres | None:
    """Change the rows of every kind."""
    if isinstance(central, Centres):
        return Centres({name: change(rows) for name, rows in central.rows.items()})
    return central and change(central)
