"""What a problem asks of its data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from cantons.errors import InputError


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


def check_targets(data: Shaped) -> None:
    """Refuse targets that are several arrays, where a problem predicts one."""
    targets = getattr(getattr(data, "train", None), "targets", None)
    if isinstance(targets, Mapping):
        raise InputError(f"the targets are several arrays ({', '.join(targets)}), and this problem predicts one; use "
                         "the problem they are made for, such as bandit.")
