"""What a model is: two pure functions, and the names of layers that a split may speak of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from cantons.protocol import Array, Key, PyTree


class Model(NamedTuple):
    """A network. The two layers are globs over parameter paths, such as "layer0/*"; None: not known."""

    init: Callable[[Key], PyTree]  # key -> params, whose leaves are float arrays
    apply: Callable[[PyTree, PyTree], Array]  # (params, inputs [B, ...]) -> outputs [B, outputs]
    input_layer: str | None = None
    output_layer: str | None = None
    norm_layers: tuple[str, ...] = ()  # globs: the scales and shifts of layers that normalise, where there are any
    adapted: str = "*"  # a glob: which of the arrays with several axes get an adapter, where clients have those
    vocabulary: int | None = None  # inputs are tokens, whole numbers from 0 to below this; None: any numbers
    # (params, inputs, key) -> outputs while training, with the key that dropout draws from; None: as `apply`
    train: Callable[[PyTree, PyTree, Key], Array] | None = None
    dense: bool = False  # its parameters are those of a `Dense`, and so is what it does with them


Architecture = Callable[[tuple[int, ...], int], Model]  # (shape of one input, number of outputs) -> model


@dataclass(frozen=True)
class Named:
    """An architecture that can be written down: `architecture(name, **options)` makes it again."""

    name: str
    options: Mapping[str, Any]
    build: Architecture

    def __call__(self, input_shape: tuple[int, ...], outputs: int) -> Model:
        return self.build(input_shape, outputs)
