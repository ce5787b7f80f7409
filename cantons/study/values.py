"""Values, algorithms and methods as one types them: `mu=0.1`, with the values read as TOML would read them."""

from __future__ import annotations

import tomllib
from typing import Any

from cantons.errors import InputError, shown


def parsed_value(text: str) -> Any:
    """A word that is not TOML is taken as a string.

    >>> parsed_value("0.05"), parsed_value("mlp"), parsed_value("[8, 8]")
    (0.05, 'mlp', [8, 8])
    """
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except RecursionError as error:
        raise InputError(f"{shown(text)} has lists or tables that are nested too deeply.") from error
    except ValueError:  # not TOML, or a number of more digits than Python reads
        return text


def parsed_algorithm(text: str) -> tuple[str, dict[str, Any]]:
    """`name,option=value,...`: the name, and the options.

    >>> parsed_algorithm("fedprox,mu=0.1,step_size={name='constant', value=0.5}")
    ('fedprox', {'mu': 0.1, 'step_size': {'name': 'constant', 'value': 0.5}})
    """
    name, *options = (piece.strip() for piece in pieces(text))
    found: dict[str, Any] = {}
    for option in options:
        key, equals, value = option.partition("=")
        if not equals or not key:
            raise InputError(f"algorithm got {shown(text)}; write a name, or a name with options, as in "
                             "fedprox,mu=0.1.")
        found[key.strip()] = parsed_value(value)
    return name, found


def parsed_method(text: str) -> dict[str, Any]:
    """`algorithm; key=value; ...`: the algorithm as above, and dotted keys; the algorithm may be left out.

    >>> parsed_method("fedrep,head_epochs=5; problem.split=output; name=FedRep")
    {'algorithm': {'name': 'fedrep', 'head_epochs': 5}, 'problem.split': 'output', 'name': 'FedRep'}
    """
    first, *changes = (piece.strip() for piece in pieces(text, ";"))
    found: dict[str, Any] = {}
    if "=" in pieces(first)[0]:
        changes.insert(0, first)
    else:
        name, options = parsed_algorithm(first)
        found["algorithm"] = {"name": name, **options}
    for change in changes:
        key, equals, value = change.partition("=")
        if not equals or not key.strip():
            raise InputError(f"method got {shown(text)}; write an algorithm and what else is its own, as in \"fedrep; "
                             "problem.split=output; algorithm.head_epochs=5\".")
        if key.strip() in found:
            raise InputError(f"method got {key.strip()} twice in {shown(text)}; give it once.")
        found[key.strip()] = parsed_value(value.strip())
    return found


def pieces(text: str, separator: str = ",") -> list[str]:
    """The text between commas, or other signs; those inside brackets do not part.

    >>> pieces("[8,8],[16],{a=1,b=[2,3]}")
    ['[8,8]', '[16]', '{a=1,b=[2,3]}']
    """
    found, depth = [""], 0
    for letter in text:
        depth += (letter in "[{") - (letter in "]}")
        if letter == separator and depth == 0:
            found.append("")
        else:
            found[-1] += letter
    return found
