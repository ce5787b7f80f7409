"""Values as strict JSON has them, and nested tables as flat ones."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np


def plain(value: Any) -> Any:
    """As strict JSON has it: no arrays, no tuples, no NaN, no zero with a sign; what has no JSON form is named."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, np.ndarray | jax.Array):
        return plain(np.asarray(value).tolist())
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, float):
        return value + 0.0 if math.isfinite(value) else None
    if value is None or isinstance(value, str | int | bool):
        return value
    return f"{getattr(value, '__module__', '?')}:{getattr(value, '__qualname__', type(value).__name__)}"


def flat(tree: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """Nested tables as one, with dotted keys.

    >>> flat({"seed": 0, "clock": {"cohort": 10}})
    {'seed': 0, 'clock.cohort': 10}
    """
    rows: dict[str, Any] = {}
    for key, value in tree.items():
        rows |= flat(value, f"{before}{key}.") if isinstance(value, Mapping) else {before + key: value}
    return rows
