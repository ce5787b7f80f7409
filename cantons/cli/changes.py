"""`--set key=value` and its like, with the values read as TOML would read them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from cantons.errors import InputError, shown
from cantons.study.values import parsed_value, pieces


def parsed(changes: Iterable[str]) -> dict[str, Any]:
    """A word that is not TOML is taken as a string.

    >>> parsed(["algorithm.step_size=0.05", "problem.model=mlp", "problem.hidden=[8, 8]"])
    {'algorithm.step_size': 0.05, 'problem.model': 'mlp', 'problem.hidden': [8, 8]}
    """
    found: dict[str, Any] = {}
    for change in changes:
        key, equals, value = change.partition("=")
        if not equals or not key:
            raise InputError(f"--set got {shown(change)}; write key=value, as in algorithm.step_size=0.05.")
        found[key.strip()] = parsed_value(value)
    return found


def parsed_grid(grids: Iterable[str], option: str = "--grid") -> dict[str, list[Any]]:
    """`--grid key=a,b,c`: every value is read alone; commas inside brackets do not part.

    >>> parsed_grid(["algorithm.step_size=0.1,1.0", "problem.model.hidden=[8,8],[16]"])
    {'algorithm.step_size': [0.1, 1.0], 'problem.model.hidden': [[8, 8], [16]]}
    """
    found: dict[str, list[Any]] = {}
    for grid in grids:
        key, equals, values = grid.partition("=")
        if not equals or not key or not values:
            raise InputError(f"{option} got {shown(grid)}; write key=a,b,c, as in algorithm.step_size=0.03,0.1,0.3.")
        if key in found:
            raise InputError(f"{option} got {key} twice; give all its values at once.")
        chosen = found[key.strip()] = [parsed_value(value) for value in pieces(values)]
        twice = [value for place, value in enumerate(chosen) if value in chosen[:place]]
        if twice:
            raise InputError(f"{option} got {key}={shown(twice[0])} twice; give every value once.")
    return found
