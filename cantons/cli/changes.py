"""`--set key=value`, with the value read as TOML would read it."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from typing import Any

from cantons.errors import InputError


def parsed(changes: Iterable[str]) -> dict[str, Any]:
    """A word that is not TOML is taken as a string.

    >>> parsed(["algorithm.step_size=0.05", "problem.model=mlp", "problem.hidden=[8, 8]"])
    {'algorithm.step_size': 0.05, 'problem.model': 'mlp', 'problem.hidden': [8, 8]}
    """
    found: dict[str, Any] = {}
    for change in changes:
        key, equals, value = change.partition("=")
        if not equals or not key:
            raise InputError(f"--set got {change!r}; write key=value, as in algorithm.step_size=0.05.")
        try:
            found[key.strip()] = tomllib.loads(f"value = {value}")["value"]
        except tomllib.TOMLDecodeError:
            found[key.strip()] = value
    return found
