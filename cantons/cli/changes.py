"""`--set key=value` and its like, with the values read as TOML would read them."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from typing import Any

from cantons.errors import InputError, shown


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
            raise InputError(f"--grid got {shown(grid)}; write key=a,b,c, as in algorithm.step_size=0.03,0.1,0.3.")
        if key in found:
            raise InputError(f"--grid got {key} twice; give all its values at once.")
        chosen = found[key.strip()] = [_value(value) for value in pieces(values)]
        twice = [value for place, value in enumerate(chosen) if value in chosen[:place]]
        if twice:
            raise InputError(f"--grid got {key}={shown(twice[0])} twice; give every value once.")
    return found


def parsed_algorithm(text: str) -> tuple[str, dict[str, Any]]:
    """`--algorithm name,option=value,...`: the name, and the options.

    >>> parsed_algorithm("fedprox,mu=0.1,step_size={name='constant', value=0.5}")
    ('fedprox', {'mu': 0.1, 'step_size': {'name': 'constant', 'value': 0.5}})
    """
    name, *options = (piece.strip() for piece in pieces(text))
    found: dict[str, Any] = {}
    for option in options:
        key, equals, value = option.partition("=")
        if not equals or not key:
            raise InputError(f"--algorithm got {shown(text)}; write a name, or a name with options, as in "
                             "fedprox,mu=0.1.")
        found[key.strip()] = _value(value)
    return name, found


def pieces(text: str) -> list[str]:
    """The text between commas; those inside brackets do not part.

    >>> pieces("[8,8],[16],{a=1,b=[2,3]}")
    ['[8,8]', '[16]', '{a=1,b=[2,3]}']
    """
    found, depth = [""], 0
    for letter in text:
        depth += (letter in "[{") - (letter in "]}")
        if letter == "," and depth == 0:
            found.append("")
        else:
            found[-1] += letter
    return found


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except RecursionError as error:
        raise InputError(f"{shown(text)} has lists or tables that are nested too deeply.") from error
    except ValueError:  # not TOML, or a number of more digits than Python reads
        return text
