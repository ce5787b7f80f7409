"""What is held out: test rows of each client, rows for validation, and whole new clients.

All of it goes by the client: what is held out of its rows depends on the seed, its own name and its own rows. One row
always stays for training.
"""

from __future__ import annotations

from dataclasses import replace

import jax
import numpy as np

from cantons.data.federation import Federation, select_clients
from cantons.data.ragged import Ragged, from_sizes
from cantons.data.seeds import generator
from cantons.errors import InputError


def mark_own_rows(test: float, numbers: np.ndarray, names: tuple[str, ...], seed: int) -> np.ndarray:
    """Mark a random fraction of each client's rows; `numbers` says whose each row is."""
    if not 0 <= test < 1:
        raise InputError(f"test is {test}; give a fraction from 0 to below 1, or a boolean per row.")
    marked = np.zeros(len(numbers), bool)
    ends = np.cumsum(np.bincount(numbers))
    for name, rows in zip(names, np.split(np.argsort(numbers, kind="stable"), ends[:-1]), strict=True):
        count = min(round(test * len(rows)), len(rows) - 1)
        marked[generator(seed, "test", name).choice(rows, count, replace=False)] = True
    return marked


def mark_last_rows(test: float, numbers: np.ndarray, clients: int) -> np.ndarray:
    """Mark a fraction of each client's rows, the last ones; `numbers` says whose each row is, in order of time.

    >>> mark_last_rows(0.5, np.array([0, 1, 0, 1, 1, 1]), clients=2).astype(int)
    array([0, 0, 1, 0, 1, 1])
    """
    if not 0 <= test < 1:
        raise InputError(f"test is {test}; give a fraction from 0 to below 1.")
    packed, sizes = np.argsort(numbers, kind="stable"), np.bincount(numbers, minlength=clients)
    places = np.arange(len(packed)) - np.repeat(np.cumsum(sizes) - sizes, sizes)  # from 0, for each client
    marked = np.empty(len(packed), bool)
    marked[packed] = places >= np.repeat(np.maximum(sizes - np.rint(test * sizes), 1), sizes)
    return marked


def check_marks(test: np.ndarray, rows: int) -> np.ndarray:
    """Test rows that the user has marked: one boolean per row."""
    if test.dtype != bool or test.shape != (rows,):
        raise InputError(f"test is an array of {test.dtype} and shape {test.shape}; "
                         f"give a fraction, or one boolean for each of the {rows} rows.")
    return test


def hold_out_clients(whole: Federation, new: float, *, seed: int) -> Federation:
    """Set random clients aside: they never train, and show how the result serves a new client.

    `new` is a fraction of the clients or, from 1 on, their number.
    """
    count = max(1, round(new * whole.population)) if 0 < new < 1 else new
    if not 0 <= count < whole.population or count != int(count):
        raise InputError(f"new is {new} with {whole.population} clients; give a fraction below 1 or a whole "
                         "number of clients, and leave at least one to train.")
    if count == 0:
        return whole
    chosen = generator(seed, "new").permutation(whole.population) < count
    return replace(whole, clients=select_clients(whole.clients, ~chosen), new=select_clients(whole.clients, chosen))


def with_validation(data: Federation, part: float, *, seed: int = 0) -> Federation:
    """Hold back the fraction `part` of every client's training rows, to choose options by."""
    if not 0 < part < 1:
        raise InputError(f"validation is {part}; give a fraction between 0 and 1.")
    if data.arrivals is not None:
        raise InputError("a stream has no rows to set aside for validation; choose by what it is scored on the way.")
    sizes = np.asarray(data.train.sizes)
    marked = np.concatenate([_mark_validation(name, int(size), part, seed)
                             for name, size in zip(data.clients.names, sizes, strict=True)])

    def rows(chosen: np.ndarray) -> Ragged:
        inputs, targets = jax.tree.map(lambda leaf: leaf[chosen], (data.train.inputs, data.train.targets))
        return from_sizes(inputs, targets, np.add.reduceat(chosen.astype(np.int32), np.asarray(data.train.starts)))

    return replace(data, clients=replace(data.clients, train=rows(~marked)), validation=rows(marked))


def _mark_validation(name: str, size: int, part: float, seed: int) -> np.ndarray:
    return generator(seed, "validation", name).permutation(size) < min(round(part * size), size - 1)
