"""The one exception users read, and the small checks that raise it."""

from __future__ import annotations

import difflib
import inspect
import numbers
import textwrap
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import SupportsIndex

RENAMED = {"blended": "synthetic_mixture", "moving": "drifting_targets"}  # what parts were once called -> their names
LISTED = 700  # letters of a list of names in a sentence


class InputError(ValueError):
    """Something the user gave cannot be used; the message says what, why, and what to change, in one line.

    >>> print(InputError("cannot read a\\nb."))
    cannot read a\\nb.
    """

    def __str__(self) -> str:
        return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in super().__str__())


class Notice(UserWarning):
    """Something the user should know, and nothing to stop for; the command line shows it as one line."""


def unknown(kind: str, name: str, known: Iterable[str]) -> InputError:
    """An error for a name that is not in the list, with its new name if it has one, or else the nearest spelling.

    >>> print(unknown("algorithm", "fedavgg", ["fedavg", "l2gd"]))
    unknown algorithm 'fedavgg'. Did you mean 'fedavg'? Known: fedavg, l2gd.
    """
    names = sorted(known)
    renamed = RENAMED.get(name)
    near = [renamed] if renamed in names else difflib.get_close_matches(name[:80], names, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    listed = textwrap.shorten(", ".join(names), LISTED, placeholder=" and more")
    return InputError(f"unknown {kind} {shown(name)}.{hint} Known: {listed}.")


def unknown_option(name: str, option: str, known: Collection[str]) -> InputError:
    """
    >>> print(unknown_option("output", "rank", []))
    output has no options; leave 'rank' out.
    """
    return unknown(f"option of {name}", option, known) if known else InputError(
        f"{name} has no options; leave {shown(option)} out.")


def shown(value: object) -> str:
    """A value in a sentence: never longer than a line.

    >>> shown(-1.0), shown("big"), len(shown("x" * 10**6))
    ('-1.0', "'big'", 80)
    """
    try:
        text = str(value) if isinstance(value, numbers.Number) else repr(value)
    except (ValueError, RecursionError):  # a number of more digits than Python prints, or lists in lists in lists
        return f"a {type(value).__name__} that is too long to show"
    return text if len(text) <= 80 else text[:77] + "..."


def with_article(word: str) -> str:
    """
    >>> with_article("engine"), with_article("tuple")
    ('an engine', 'a tuple')
    """
    return f"{'an' if word[:1].lower() in 'aeiou' else 'a'} {word}"


def first_line(error: Exception) -> str:
    """What a stranger's code raised, in a sentence of ours.

    >>> first_line(ValueError("no such axis:\\n 5"))
    'ValueError: no such axis'
    """
    return f"{type(error).__name__}: {error}".strip().splitlines()[0].rstrip(".:")


def amount(number: SupportsIndex, thing: str) -> str:
    """So many things, in a sentence.

    >>> amount(1, "round"), amount(1200, "class")
    ('1 round', '1200 classes')
    """
    return f"{number} {thing}" + ("" if number == 1 else "es" if thing.endswith("s") else "s")


def listed(names: Sequence[str], most: int = 5) -> str:
    """Some names in a sentence, and how many more there are.

    >>> listed(["a", "b", "c"], most=2)
    'a, b and 1 more'
    """
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def check_options(function: Callable, options: Iterable[str], name: str) -> None:
    """Refuse options that `function` does not take, and the lack of one that it needs."""
    known = inspect.signature(function).parameters
    given = list(options)
    for option in given:
        if option not in known:
            raise unknown_option(name, option, known)
    for option, parameter in known.items():
        if parameter.default is parameter.empty and option not in given:
            raise InputError(f"{name} needs the option {option}, which has no default.")


def bind(signature: inspect.Signature, name: str, args: tuple, chosen: dict) -> inspect.BoundArguments:
    """The arguments of a call by name; an option that is not there is refused with the nearest spelling."""
    known = signature.parameters
    if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in known.values()):
        for option in (option for option in chosen if option not in known):
            raise unknown_option(name, option, known)
    return signature.bind(*args, **chosen)


def _known(value: object) -> bool:
    """A number that is still to come, inside a program being compiled, cannot be judged."""
    return not hasattr(value, "aval")


def positive(name: str, value: float) -> None:
    if _known(value) and not value > 0:
        raise InputError(f"{name} is {value}; give a number above 0.")


def at_least(name: str, value: float, least: float) -> None:
    if _known(value) and not value >= least:
        raise InputError(f"{name} is {value}; give {least} or more.")


def fraction(name: str, value: float) -> None:
    """Strictly between 0 and 1."""
    if _known(value) and not 0 < value < 1:
        raise InputError(f"{name} is {value}; give a number between 0 and 1.")


def one_of(name: str, value: str, allowed: Iterable[str]) -> None:
    choices = list(allowed)
    if value not in choices:
        raise InputError(f"{name} is {value!r}; give one of {', '.join(map(repr, choices))}.")
