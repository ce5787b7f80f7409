"""What a problem asks of its data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

import numpy as np

from cantons.errors import InputError
from cantons.protocol import PyTree


class Shaped(Protocol):
    """All that a problem asks of its data; a federation has both."""

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The shape of one input."""

    @property
    def classes(self) -> int | None:
        """How many classes the labels have; None when targets are real numbers."""


class Shapes(NamedTuple):
    """Stands for data that is not at hand: `classification(Shapes((28, 28), 10), cnn())`."""

    input_shape: tuple[int, ...]
    classes: int | None = None
    unlabelled: bool = False  # some targets, of several to an example, are -1 for none


def check_targets(data: Shaped) -> None:
    """Refuse targets that are several arrays, where a problem predicts one."""
    targets = getattr(getattr(data, "train", None), "targets", None)
    if isinstance(targets, Mapping):
        raise InputError(f"the targets are several arrays ({', '.join(targets)}), and this problem predicts one; use "
                         "the problem they are made for, such as bandit or logged_bandit.")


def check_tokens(inputs: PyTree, vocabulary: int) -> None:
    """Refuse tokens that a model does not have: they would give NaN, or count from the end of its table."""
    tokens = np.asarray(inputs)
    unknown = (tokens < 0) | (tokens >= vocabulary)
    if unknown.any():
        row, *place = np.argwhere(unknown)[0]
        raise InputError(f"inputs hold the token {tokens[(row, *place)]} in row {row} (from 0), and the model has a "
                         f"vocabulary of {vocabulary}; give whole numbers from 0 to {vocabulary - 1}.")
