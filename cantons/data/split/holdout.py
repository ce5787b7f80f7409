"""Rows to choose by: some of each client's training rows, kept apart from training and from the test."""

from __future__ import annotations

from dataclasses import replace

import jax
import numpy as np

from cantons.data.federation import Federation
from cantons.data.ragged import Ragged, from_sizes
from cantons.data.seeds import generator
from cantons.errors import InputError


def with_validation(data: Federation, part: float, *, seed: int = 0) -> Federation:
    """Hold back the fraction `part` of every client's training rows; a client always keeps one to train on."""
    if not 0 < part < 1:
        raise InputError(f"validation is {part}; give a fraction between 0 and 1.")
    if data.arrivals is not None:
        raise InputError("a stream has no rows to set aside for validation; choose by what it is scored on the way.")
    sizes = np.asarray(data.train.sizes)
    held = np.concatenate([_held(name, int(size), part, seed)
                           for name, size in zip(data.clients.names, sizes, strict=True)])

    def rows(chosen: np.ndarray) -> Ragged:
        inputs, targets = jax.tree.map(lambda leaf: leaf[chosen], (data.train.inputs, data.train.targets))
        return from_sizes(inputs, targets, np.add.reduceat(chosen.astype(np.int32), np.asarray(data.train.starts)))

    return replace(data, clients=replace(data.clients, train=rows(~held)), validation=rows(held))


def _held(name: str, size: int, part: float, seed: int) -> np.ndarray:
    """Which of one client's rows are held back; it depends on nobody else."""
    return generator(seed, "validation", name).permutation(size) < min(round(part * size), size - 1)
