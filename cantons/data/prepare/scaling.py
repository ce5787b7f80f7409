"""Put every input feature on the same footing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import chain
from typing import Literal

import jax
import numpy as np
from numpy.typing import ArrayLike

from cantons.data.encoding import Scaling
from cantons.data.federation import Federation, Population, map_rows
from cantons.data.ragged import Ragged
from cantons.errors import InputError, one_of

Scale = Literal["none", "unit", "standard"]
ScaleOver = Literal["all", "client"]
Fit = Callable[[np.ndarray], Scaling]


def scale_inputs(federation: Federation, how: Scale, over: ScaleOver = "all") -> Federation:
    """"unit" divides each feature by its largest absolute value, "standard" gives it mean 0 and variance 1.

    Both are fitted to the clients' training inputs alone: never to a test row, a new client or a target. Over each
    "client" they are fitted to its own training inputs, also to a new client's; what is nobody's has the scale of all.
    Bytes are pixels: "unit" divides them by 255 and fits nothing. Constant features are not stretched, and marks, as
    text has them, stay 0 and 1.
    """
    one_of("scale", how, ("none", "unit", "standard"))
    one_of("scale_over", over, ("all", "client"))
    if how == "none":
        if over == "client":
            raise InputError("scale_over = \"client\" needs a scale; give scale = \"standard\" or \"unit\".")
        return federation
    fit = _without_marks(federation, _unit if how == "unit" else _standard)
    scalings = jax.tree.map(fit, federation.train.inputs)

    def rows(ragged: Ragged) -> Ragged:
        return replace(ragged, inputs=jax.tree.map(lambda scaling, leaf: scaling.apply(leaf), scalings, ragged.inputs,
                                                   is_leaf=lambda node: isinstance(node, Scaling)))

    scaled, encoding = map_rows(federation, rows), federation.encoding
    if over == "client":
        if not isinstance(scalings, Scaling):
            raise InputError("scale_over = \"client\" is for inputs that are one array, and these are several.")
        own = _fit_clients(fit, federation.clients)
        theirs = {} if federation.new is None else _fit_clients(fit, federation.new)
        scalings = scalings._replace(clients={name: each[1:3] for name, each in (own | theirs).items()})
        scaled = replace(
            scaled, clients=_scale_clients(federation.clients, own),
            new=federation.new and _scale_clients(federation.new, theirs),
            validation=federation.validation and _scale_rows(federation.validation, list(own.values())))
    if encoding is not None and isinstance(scalings, Scaling) and encoding.scaling is None:
        encoding = replace(encoding, scaling=scalings)
    else:
        encoding = None  # of several arrays, or scaled before: nothing that a file could keep
    return replace(scaled, encoding=encoding)


def _fit_clients(fit: Fit, clients: Population) -> dict[str, Scaling]:
    """The scale of each client's own training inputs."""
    inputs = np.split(clients.train.inputs, np.cumsum(clients.train.sizes)[:-1])
    return {name: fit(own) for name, own in zip(clients.names, inputs, strict=True)}


def _scale_clients(clients: Population, scalings: dict[str, Scaling]) -> Population:
    each = list(scalings.values())
    return replace(clients, train=_scale_rows(clients.train, each), test=_scale_rows(clients.test, each))


def _scale_rows(ragged: Ragged, scalings: list[Scaling]) -> Ragged:
    """Every client's rows on its own scale."""
    parts = np.split(ragged.inputs, np.cumsum(ragged.sizes)[:-1])
    return replace(ragged, inputs=np.concatenate(
        [scaling.apply(own) for scaling, own in zip(scalings, parts, strict=True)]))


def _without_marks(federation: Federation, fit: Fit) -> Fit:
    """The same fit, which leaves marks as they are where an encoding says which features are marks."""
    columns = (federation.encoding and federation.encoding.columns) or ()
    if all(column.plain for column in columns):
        return fit
    numbers = np.array(list(chain.from_iterable(column.quantities for column in columns)))

    def fit_numbers(inputs: np.ndarray) -> Scaling:
        scaling = fit(inputs)
        return scaling._replace(shift=np.where(numbers, scaling.shift, 0.0), size=np.where(numbers, scaling.size, 1.0))

    return fit_numbers


def _unit(inputs: np.ndarray) -> Scaling:
    pixels = inputs.dtype == np.uint8
    return _scaling("unit", 0, 255 if pixels else np.abs(inputs.astype(np.float64)).max(axis=0))


def _standard(inputs: np.ndarray) -> Scaling:
    return _scaling("standard", inputs.mean(axis=0, dtype=np.float64), inputs.std(axis=0, dtype=np.float64))


def _scaling(how: Scale, shift: ArrayLike, size: ArrayLike) -> Scaling:
    return Scaling(how, np.asarray(shift, np.float64), np.where(np.equal(size, 0), 1.0, size))
