"""The datacenter's batches are divided over the devices, each of which computes with its share of the rows."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from cantons.engine.devices import AXIS
from cantons.protocol import Batch, CentralData, Key

# What a device must get for a batch to be divided: devices wait for each other once in a step, which takes 90
# microseconds on two cores. A step with 512 x 784 numbers and 200 hidden units took half as long when it was divided,
# one with 512 x 100 and 64 units as long, with 128 x 100 and 64 twice as long, with 32 x 784 and 200 1.3 times as long.
LEAST_ROWS = 64
LEAST_NUMBERS = 1 << 15


def divide_batches(data: CentralData | None, mesh: Mesh) -> CentralData | None:
    """The same examples, whose batches lie on all devices of the mesh."""
    return data if data is None or mesh.size == 1 else Divided(data, mesh)


class Divided:
    """`protocol.CentralData`: a batch is one array to whoever computes with it, and the compiler divides that."""

    def __init__(self, data: CentralData, mesh: Mesh):
        self._data, self._mesh = data, mesh

    def sample(self, key: Key, size: int) -> Any:
        return self._divide(self._data.sample(key, size))

    def full(self, key: Key | None = None) -> Any:
        return self._divide(self._data.full(key))

    def _divide(self, batches: Any) -> Any:
        return jax.tree.map(self._divide_one, batches, is_leaf=lambda node: isinstance(node, Batch))

    def _divide_one(self, batch: Batch) -> Batch:
        # Integers may stand for anything, such as vectors of a table: without other inputs, rows alone decide.
        numbers = [leaf.size for leaf in jax.tree.leaves(batch.inputs) if jnp.issubdtype(leaf.dtype, jnp.inexact)]
        devices = self._mesh.devices.reshape(share_count(
            batch.mask.shape[0], sum(numbers) if numbers else None, self._mesh.size), -1)
        if len(devices) == 1:
            return batch
        mesh, divide = Mesh(devices, (AXIS, "copies")), jax.lax.with_sharding_constraint
        rows, whole = NamedSharding(mesh, PartitionSpec(AXIS)), NamedSharding(mesh, PartitionSpec())
        # The mask stays whole: its sum is known on each device, and need not be waited for before a mean is taken.
        return batch._replace(inputs=divide(batch.inputs, rows), targets=divide(batch.targets, rows),
                              mask=divide(batch.mask, whole))


def share_count(rows: int, numbers: int | None, devices: int) -> int:
    """Into how many equal shares a batch is divided, each of them on as many devices; 1 leaves it whole.

    >>> share_count(500, 500_000, 2), share_count(500, 500_000, 16), share_count(500, 500_000, 3)
    (2, 4, 1)
    >>> share_count(100, 500_000, 2), share_count(500, 5_000, 2), share_count(500, None, 2)
    (1, 1, 2)
    """
    return max([shares for shares in range(2, devices + 1)
                if devices % shares == 0 and rows % shares == 0 and rows >= shares * LEAST_ROWS
                and (numbers is None or numbers >= shares * LEAST_NUMBERS)], default=1)
