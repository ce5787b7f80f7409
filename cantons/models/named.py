"""Architectures by name, for study files and saved problems."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cantons.errors import check_options, unknown
from cantons.models.base import Named
from cantons.models.conv import cnn
from cantons.models.dense import linear, mlp
from cantons.models.recurrent import gru
from cantons.models.resnet import resnet18
from cantons.models.text import embedding
from cantons.models.transformer import transformer

ARCHITECTURES: dict[str, Callable[..., Named]] = {
    "linear": linear, "mlp": mlp, "cnn": cnn, "resnet18": resnet18, "embedding": embedding, "gru": gru,
    "transformer": transformer}


def architecture(name: str, **options: Any) -> Named:
    """The architecture called `name`.

    >>> architecture("mlp", hidden=[50]).options
    {'hidden': [50]}
    """
    if name not in ARCHITECTURES:
        raise unknown("model", name, ARCHITECTURES)
    check_options(ARCHITECTURES[name], options, name)
    return ARCHITECTURES[name](**options)
