"""The symbols a language model knows: those the clients train with, and one for all others."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cantons.data.federation import Federation, map_rows
from cantons.data.ragged import Ragged
from cantons.errors import at_least

UNKNOWN = "<unknown>"


def fit_vocabulary(federation: Federation, most: int = 10_000) -> Federation:
    """Number the symbols anew, the most frequent first; symbol 0 stands for all that are not among `most`.

    Only the clients' training rows are counted: never a test row or a new client. Inputs and targets are numbers
    in `federation.vocabulary`, and the targets become labels, one class per symbol.
    """
    assert federation.vocabulary is not None
    at_least("vocabulary", most, 2)
    inputs, targets = (np.bincount(part.ravel(), minlength=len(federation.vocabulary))
                       for part in (federation.train.inputs, federation.train.targets))
    counts = inputs + targets
    by_frequency = np.argsort(-counts, kind="stable")
    known = by_frequency[: min(np.count_nonzero(counts), most - 1)]
    numbers = np.zeros(len(federation.vocabulary), np.int32)
    numbers[known] = np.arange(1, len(known) + 1)

    def renumber(rows: Ragged) -> Ragged:
        return replace(rows, inputs=numbers[rows.inputs], targets=numbers[rows.targets])

    symbols = (UNKNOWN, *(federation.vocabulary[number] for number in known))
    return replace(map_rows(federation, renumber), vocabulary=symbols, classes=len(symbols))


def number_characters(points: np.ndarray) -> tuple[np.ndarray, tuple[str, ...]]:
    """Unicode code points as numbers of the characters that occur, and those characters.

    >>> number_characters(np.array([[104, 105], [104, 33]]))
    (array([[1, 2], [1, 0]], dtype=int32), ('!', 'h', 'i'))
    """
    occurs = np.bincount(points.ravel(), minlength=1) > 0
    numbers = (np.cumsum(occurs) - 1).astype(np.int32)
    return numbers[points], tuple(map(chr, np.flatnonzero(occurs)))
