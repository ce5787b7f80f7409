"""Put every input feature on the same footing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Literal

import jax
import numpy as np
from numpy.typing import ArrayLike

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
    scalers = jax.tree.map(fit, federation.train.inputs)

    def rows(ragged: Ragged) -> Ragged:
        return replace(ragged, inputs=jax.tree.map(lambda scale, leaf: scale(leaf), scalers, ragged.inputs))

    return map_rows(federation, rows)


Scaler = Callable[[np.ndarray], np.ndarray]


def _unit(inputs: np.ndarray) -> Scaler:
    pixels = inputs.dtype == np.uint8
    return _affine(inputs.dtype, 0, 255 if pixels else np.abs(inputs.astype(np.float64)).max(axis=0))


def _standard(inputs: np.ndarray) -> Scaler:
    return _affine(inputs.dtype, inputs.mean(axis=0, dtype=np.float64), inputs.std(axis=0, dtype=np.float64))


def _affine(dtype: np.dtype, shift: ArrayLike, size: ArrayLike) -> Scaler:
    result = dtype if dtype.kind == "f" else np.float32
    nonzero = np.where(np.equal(size, 0), 1, size)
    return lambda inputs: ((inputs - shift) / nonzero).astype(result)
