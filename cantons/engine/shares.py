"""How clients are dealt out to shards, and what shards have found is put together again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np

from cantons.protocol import Examples, PyTree


class Deal(NamedTuple):
    """Who is in which shard; shards differ by one in how many they have."""

    ids: list[np.ndarray]  # of each shard, ascending
    shard: np.ndarray  # int[count + 1]: of each; the last is nobody's
    place: np.ndarray  # int[count + 1]: in its shard

    @property
    def room(self) -> int:
        """How many the largest shard has, at least one."""
        return max(1, *(len(own) for own in self.ids))

    def members(self, ids: np.ndarray) -> list[np.ndarray]:
        """For each shard, where in `ids` its own are; whoever is past the last is nobody's."""
        return [np.flatnonzero(self.shard[ids] == number) for number in range(len(self.ids))]

    def examples(self, number: int, examples: Examples) -> Examples:
        """What a shard has of these; of all shards in the same shapes."""
        rows = max(int(np.asarray(examples.sizes)[own].sum()) for own in self.ids)
        return examples.some(self.ids[number], self.room, rows)

    def rows(self, number: int, rows: PyTree) -> PyTree:
        """The rows of a shard, and anybody's in the places that are left."""
        own = np.append(self.ids[number], np.zeros(self.room - len(self.ids[number]), int))
        return jax.tree.map(lambda leaf: leaf[own], rows)


def deal(sizes: Sequence[int], shards: int) -> Deal:
    """Deal out the largest first, there and back, so that every shard gets its share of the examples.

    >>> [own.tolist() for own in deal([5, 1, 2, 9, 4], 2).ids]
    [[1, 2, 3], [0, 4]]
    """
    order = np.argsort(-np.asarray(sizes), kind="stable")
    turn = np.arange(len(order)) % (2 * shards)
    numbers = np.where(turn < shards, turn, 2 * shards - 1 - turn)
    ids = [np.sort(order[numbers == number]) for number in range(shards)]
    shard, place = np.full(len(order) + 1, -1), np.zeros(len(order) + 1, np.int32)
    for number, own in enumerate(ids):
        shard[own], place[own] = number, np.arange(len(own))
    return Deal(ids, shard, place)


def scatter(found: Sequence[PyTree], where: Sequence[np.ndarray], count: int) -> PyTree:
    """One array of `count` rows from the first rows that each shard has found; what nobody has found is zero."""

    def put(*leaves: np.ndarray) -> np.ndarray:
        whole = np.zeros((count, *leaves[0].shape[1:]), leaves[0].dtype)
        for leaf, own in zip(leaves, where, strict=True):
            whole[own] = leaf[:len(own)]
        return whole

    return jax.tree.map(put, *found)
