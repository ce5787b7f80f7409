"""What a problem asks of its data."""

from __future__ import annotations

from typing import NamedTuple, Protocol


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
