"""The symbols a language model knows: those the clients train with, and one for all others."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cantons.data.federation import Federation, Population, gather, map_rows, rows_of
from cantons.data.ragged import Ragged
from cantons.errors import amount, at_least

UNKNOWN = "<unknown>"


def fit_vocabulary(federation: Federation, most: int = 10_000) -> Federation:
    """Number the symbols anew, the most frequent first; symbol 0 stands for all that are not among `most`.

    Only the clients' training rows are counted: never a test row or a new client. Inputs and targets are numbers
    in `federation.vocabulary`, and the targets become labels, one class per symbol. A target of -1 stays what it is,
    and an input of -1 becomes 0.
    """
    assert federation.vocabulary is not None
    at_least("vocabulary", most, 2)
    inputs, targets = (np.bincount(part[part >= 0], minlength=len(federation.vocabulary))
                       for part in (federation.train.inputs, federation.train.targets))
    counts = inputs + targets
    by_frequency = np.argsort(-counts, kind="stable")
    known = by_frequency[: min(np.count_nonzero(counts), most - 1)]
    numbers = np.zeros(len(federation.vocabulary), np.int32)
    numbers[known] = np.arange(1, len(known) + 1)

    def renumber(rows: Ragged) -> Ragged:
        inputs, targets = (np.where(part < 0, empty, numbers[part]) for part, empty in (
            (rows.inputs, np.int32(0)), (rows.targets, np.int32(-1))))
        return replace(rows, inputs=inputs, targets=targets)

    symbols = (UNKNOWN, *(federation.vocabulary[number] for number in known))
    encoding = federation.encoding and replace(federation.encoding, classes=symbols)
    return replace(map_rows(federation, renumber), vocabulary=symbols, classes=len(symbols), encoding=encoding)


def without_unknown(federation: Federation) -> Federation:
    """Targets that are unknown, symbol 0, become -1, which nobody trains on or is scored by.

    Examples in which no target is left are left out, and so are clients without any to train on.
    """
    gone = [0, 0]

    def known(rows: Ragged) -> Ragged:
        targets = np.where(rows.targets == 0, np.int32(-1), rows.targets)
        told = np.asarray((targets >= 0).any(axis=1))
        owners = np.repeat(np.arange(rows.population), rows.sizes)
        gone[0] += int((~told).sum())
        return gather(rows.inputs, targets, told, np.bincount(owners[told], minlength=rows.population))

    def population(clients: Population) -> Population:
        train, test = known(clients.train), known(clients.test)
        left = np.asarray(train.sizes) > 0
        gone[1] += int((~left).sum())
        names = tuple(name for name, wanted in zip(clients.names, left, strict=True) if wanted)
        return Population(rows_of(train, left), rows_of(test, left), names)

    clients, new = population(federation.clients), federation.new and population(federation.new)
    note = (f"left out: {amount(gone[0], 'example')} without a known target, and {amount(gone[1], 'client')} with no "
            "others")
    return replace(federation, clients=clients, new=new, notes=(*federation.notes, note) if gone[0] else
                   federation.notes)


def number_characters(points: np.ndarray) -> tuple[np.ndarray, tuple[str, ...]]:
    """Unicode code points as numbers of the characters that occur, and those characters.

    >>> number_characters(np.array([[104, 105], [104, 33]]))
    (array([[1, 2], [1, 0]], dtype=int32), ('!', 'h', 'i'))
    """
    occurs = np.bincount(points.ravel(), minlength=1) > 0
    numbers = (np.cumsum(occurs) - 1).astype(np.int32)
    return numbers[points], tuple(map(chr, np.flatnonzero(occurs)))
