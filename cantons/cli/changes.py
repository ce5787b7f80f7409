"""`--set key=value`, with the value read as TOML would read it."""

from __future__ import annotations

import re
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
        found[key.strip()] = _value(value)
    return found


def parsed_grid(grids: Iterable[str]) -> dict[str, list[Any]]:
    """`--grid key=a,b,c`: every value is read alone; commas inside brackets do not part.

    >>> parsed_grid(["algorithm.step_size=0.1,1.0", "problem.model.hidden=[8,8],[16]"])
    {'algorithm.step_size': [0.1, 1.0], 'problem.model.hidden': [[8, 8], [16]]}
    """
    found: dict[str, list[Any]] = {}
    for grid in grids:
        key, equals, values = grid.partition("=")
        if not equals or not key or not values:
            raise InputError(f"--grid got {grid!r}; write key=a,b,c, as in algorithm.step_size=0.03,0.1,0.3.")
        if key in found:
            raise InputError(f"--grid got {key} twice; give all its values at once.")
        found[key.strip()] = [_value(value) for value in re.split(r",(?![^\[{]*[\]}])", values)]
    return found


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
