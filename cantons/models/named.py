"""Architectures by name, for study files and saved problems."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cantons.errors import check_options, unknown
from cantons.models.base import Named
from cantons.models.conv import cnn
from cantons.models.dense import linear, mlp
from cantons.models.recurrent import gru
from cantons.models.text import embedding

ARCHITECTURES: dict[str, Callable[..., Named]] = {"linear": linear, "mlp": mlp, "cnn": cnn,
                                                 "embedding": embedding, "gru": gru}


def architecture(name: str, **options: Any) -> Named:
    """The architecture called `name`.

    >>> architecture("mlp", hidden=[50]).options
    {'hidden': [50]}
    """
    if name not in ARCHITECTURES:
        raise unknown("model", name, ARCHITECTURES)
    check_options(ARCHITECTURES[name], options, name)
    return ARCHITECTURES[name](**options)
