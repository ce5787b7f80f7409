"""Federations that differ in their rows, made to agree in every shape, so that one compiled program runs them all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import jax
import numpy as np

from cantons.data.federation import Federation
from cantons.data.ragged import Ragged
from cantons.errors import InputError
from cantons.protocol import PyTree


def pad_to_same_shape(federations: Sequence[Federation]) -> list[Federation]:
    """Fill up with rows that belong to nobody. The number of clients and the shape of an input must be the same."""
    counts = {one.population for one in federations}
    if len(counts) > 1:
        raise InputError(f"federations with {min(counts)} and with {max(counts)} clients cannot be made alike.")
    if any(one.new is not None for one in federations):
        raise InputError("federations with new clients cannot be made alike; make them without.")

    def same(ragged: Sequence[Ragged]) -> list[Ragged]:
        rows = max(jax.tree.leaves(one.targets)[0].shape[0] for one in ragged)
        longest = max(one.longest for one in ragged)
        uniform = all(one.uniform and one.longest == longest for one in ragged)
        return [replace(one, inputs=_pad_rows(one.inputs, rows), targets=_pad_rows(one.targets, rows), longest=longest,
                        uniform=uniform) for one in ragged]

    trains, tests = same([one.train for one in federations]), same([one.test for one in federations])
    return [replace(one, clients=replace(one.clients, train=train, test=test))
            for one, train, test in zip(federations, trains, tests, strict=True)]


def _pad_rows(tree: PyTree, rows: int) -> PyTree:
    def fill(leaf: np.ndarray) -> np.ndarray:
        if leaf.shape[0] == rows:
            return leaf
        return np.concatenate([leaf, np.zeros((rows - leaf.shape[0], *leaf.shape[1:]), leaf.dtype)])

    return jax.tree.map(fill, tree)
