"""Put every input feature on the same footing."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import jax
import numpy as np
from numpy.typing import ArrayLike

from cantons.data.encoding import Scaling
from cantons.data.federation import Federation, map_rows
from cantons.data.ragged import Ragged
from cantons.errors import one_of

Scale = Literal["none", "unit", "standard"]


def scale_inputs(federation: Federation, how: Scale) -> Federation:
    """"unit" divides each feature by its largest absolute value, "standard" gives it mean 0 and variance 1.

    Both are fitted to the clients' training inputs alone: never to a test row, a new client or a target.
    Bytes are pixels: "unit" divides them by 255 and fits nothing. Constant features are not stretched.
    """
    one_of("scale", how, ("none", "unit", "standard"))
    if how == "none":
        return federation
    fit = _unit if how == "unit" else _standard
    scalings = jax.tree.map(fit, federation.train.inputs)

    def rows(ragged: Ragged) -> Ragged:
        return replace(ragged, inputs=jax.tree.map(lambda scaling, leaf: scaling.apply(leaf), scalings, ragged.inputs,
                                                   is_leaf=lambda node: isinstance(node, Scaling)))

    encoding = federation.encoding
    if encoding is not None and isinstance(scalings, Scaling) and encoding.scaling is None:
        encoding = replace(encoding, scaling=scalings)
    else:
        encoding = None  # of several arrays, or scaled before: nothing that a file could keep
    return replace(map_rows(federation, rows), encoding=encoding)


def _unit(inputs: np.ndarray) -> Scaling:
    pixels = inputs.dtype == np.uint8
    return _scaling("unit", 0, 255 if pixels else np.abs(inputs.astype(np.float64)).max(axis=0))


def _standard(inputs: np.ndarray) -> Scaling:
    return _scaling("standard", inputs.mean(axis=0, dtype=np.float64), inputs.std(axis=0, dtype=np.float64))


def _scaling(how: Scale, shift: ArrayLike, size: ArrayLike) -> Scaling:
    return Scaling(how, np.asarray(shift, np.float64), np.where(np.equal(size, 0), 1.0, size))
