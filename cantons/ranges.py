"""What an option may be, declared as its type, and the one check of values against such types.

    def fedprox(problem, population, *, mu: NonNegative = 0.1, epochs: Count = 1): ...

A number has a `Range`, a name is `OneOf` several, a table with known keys has `Keys`, and a table that names one of
several builders, such as a schedule, is `Named`. Whoever makes parts from functions (recipes, data, models, problems,
study files) calls `check`.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np

from cantons.errors import InputError, bind, check_options, shown, unknown, with_article

INT32 = 2**31 - 1  # whole numbers in compiled programs have 32 bits
TINY, HUGE = 1e-37, 1e38  # what a float32 holds with all its digits
Builder = TypeVar("Builder", bound=Callable[..., Any])


class Range(NamedTuple):
    """The numbers from `least` to `most`; numbers that a float32 cannot tell from 0 are in none."""

    least: float = -HUGE
    most: float = HUGE
    above: bool = False  # `least` itself is left out
    below: bool = False  # `most` itself is left out

    def holds(self, value: Any) -> bool:
        """NaN is in no range; whole numbers of any length are compared exactly."""
        return ((self.least < value if self.above else self.least <= value)
                and (value < self.most if self.below else value <= self.most) and not 0 < abs(value) < TINY)

    def __str__(self) -> str:
        """
        >>> print(Range(1, INT32), Range(0, above=True), Range(0, 1, True, True), Range(0, 1, below=True), sep="; ")
        1 or more; a number above 0; a number between 0 and 1; a number from 0 to below 1
        """
        if self.most in (INT32, HUGE, math.inf):
            if self.least == -HUGE:
                return "a finite number"
            return f"a number above {self.least:g}" if self.above else f"{self.least:g} or more"
        if self.above and self.below:
            return f"a number between {self.least:g} and {self.most:g}"
        if self.above:
            return f"a number above {self.least:g} and at most {self.most:g}"
        most = f"{self.most:g}" if self.most < INT32 else str(self.most)
        return f"a number from {self.least:g} to {'below ' if self.below else ''}{most}"

    def allowed(self, value: Any) -> str:
        """What to give in place of `value`, with the limit that it breaks."""
        if value > self.most and self.most in (INT32, HUGE):
            return f"{self}, up to {self.most:g}" if self.most == HUGE else f"{self}, up to {self.most}"
        return f"{self}, and {TINY:g} at least unless it is 0" if 0 < abs(value) < TINY else str(self)


class Entries(NamedTuple):
    """One number or many: a list, an array, or a tree of them."""

    finite: bool = True

    def __str__(self) -> str:
        return f"a {'finite ' if self.finite else ''}number, or a list of such numbers"

    def holds(self, value: Any) -> bool:
        if isinstance(value, Mapping):
            return all(map(self.holds, value.values()))
        if not isinstance(value, list | tuple | int | float | np.ndarray | str | date):
            return True  # an array of somebody else's, perhaps still to come
        try:
            array = np.asarray(value)
        except (TypeError, ValueError, OverflowError):  # rows of unequal length, tracers
            plain = isinstance(value, list) and all(isinstance(each, list | int | float) for each in value)
            return isinstance(value, list | tuple) and not plain and all(map(self.holds, value))
        if array.dtype.kind == "f" and np.isnan(array).any():
            return False
        return array.dtype.kind in "biu" or (array.dtype.kind == "f" and not (self.finite and np.isinf(array).any()))


class OneOf(NamedTuple):
    """A name among these; what it stands for takes no options."""

    kind: str
    names: tuple[str, ...]


class Keys:
    """The values of a table by their keys; whoever reads the table says which keys there are."""

    def __init__(self, **hints: Any):
        self.hints = hints


class Named:
    """One of several builders: its name, or a table with its name and options.

    Where real numbers `may_vary`, builders take them as arrays too, which are not known while a program is compiled.
    """

    def __init__(self, kind: str, known: Mapping[str, Callable[..., Any]], may_vary: bool = False):
        self.kind, self.known, self.may_vary = kind, known, may_vary


Finite = Annotated[float, Range()]
Positive = Annotated[float, Range(0, above=True)]
NonNegative = Annotated[float, Range(0)]
Fraction = Annotated[float, Range(0, 1, above=True, below=True)]  # strictly between 0 and 1
Part = Annotated[float, Range(0, 1)]  # of a whole, which may be nothing or all of it
Decay = Annotated[float, Range(0, 1, below=True)]
Count = Annotated[int, Range(1, INT32)]
Classes = Annotated[int, Range(2, INT32)]
Whole = Annotated[int, Range(0, INT32)]
Held = Annotated[float, Range(0, 1, below=True)]  # the fraction of rows that is held out
New = Annotated[float, Range(0, INT32)]  # clients that are held out: a fraction, or from 1 on their number
Numbers = Annotated[Any, Entries()]
Bounds = Annotated[Any, Entries(finite=False)]
Seed = Annotated[int, Range(0, 2**32 - 1)]  # JAX forgets what is beyond 32 bits
DataSeed = Annotated[int, Range(0, 2**63 - 1)]  # NumPy does not


class OutOfRange(InputError):
    """A value that its option cannot have."""

    def __init__(self, name: str, value: Any, allowed: str):
        super().__init__(f"{name} is {shown(value)}; give {allowed}.")
        self.name, self.value, self.allowed = name, value, allowed


def check(name: str, hint: Any, value: Any) -> None:
    """Refuse a value that is not what `hint` declares; types that declare no range are not judged."""
    if hasattr(value, "aval"):  # a number that is still to come, inside a program being compiled
        return
    value = value.item() if isinstance(value, np.ndarray) and value.ndim == 0 else value
    choices = list(alternatives(hint))
    if not any(map(_declares, choices)):
        return
    fitting = [choice for choice in choices if _takes(choice, value)]
    if not fitting:
        raise OutOfRange(name, value, ", or ".join(dict.fromkeys(filter(None, map(_words, choices)))))
    refused = None
    for choice in fitting:
        try:
            return _check_one(name, choice, value)
        except InputError as error:
            refused = refused or error
    assert refused is not None
    raise refused


def checked(build: Builder) -> Builder:
    """Decorate a builder whose arguments are to be as its types declare."""
    signature, hints = inspect.signature(build), _hints(build)

    @functools.wraps(build)
    def build_checked(*args: Any, **chosen: Any) -> Any:
        given = bind(signature, build.__name__, args, chosen)
        for name, value in given.arguments.items():
            check(name, hints.get(name, Any), value)
            given.arguments[name] = as_declared(hints.get(name, Any), value)
        return build(*given.args, **given.kwargs)

    return build_checked  # type: ignore[return-value]


def check_fields(made: Any) -> None:
    """Check every field of a dataclass; for its `__post_init__`."""
    for name, hint in _hints(type(made)).items():
        check(name, hint, getattr(made, name))


def as_declared(hint: Any, value: Any) -> Any:
    """A whole number that is too long for a program's integers, given where a real one belongs, as a real one."""
    long = isinstance(value, int) and abs(value) > INT32
    return float(value) if long and takes_reals(hint) and not takes_integers(hint) else value


def takes_reals(hint: Any) -> bool:
    return any(_bare(choice) is float for choice in alternatives(hint))


def varying_builder(hint: Any, table: Mapping[str, Any]) -> Callable[..., Any] | None:
    """The builder that a table names, if its real numbers may vary inside one program."""
    named = next((found for choice in alternatives(hint) if (found := note(choice, Named)) is not None
                  and found.may_vary), None)
    return None if named is None else named.known.get(table.get("name", ""))


def named_in(hint: Any) -> Named | None:
    """The builders that an option may name, if it is of this kind."""
    return next((found for choice in alternatives(hint) if (found := note(choice, Named)) is not None), None)


def whole(hint: Any, value: Any) -> Any:
    """A part that is one of several builders as a table with its name and all its options; other values as they are.

    >>> def gd(steps: int = 10, step_size: float = 0.1): ...
    >>> whole(Annotated[str, Named("tuner", {"gd": gd})], "gd")
    {'name': 'gd', 'steps': 10, 'step_size': 0.1}
    """
    named = named_in(hint)
    if named is not None and isinstance(value, list):
        return [whole(hint, each) for each in value]
    given = {"name": value} if isinstance(value, str) else value
    if named is None or not isinstance(given, Mapping) or given.get("name") not in named.known:
        return value
    build = named.known[given["name"]]
    hints = _hints(build)
    options = {name: given.get(name, option.default) for name, option in inspect.signature(build).parameters.items()
               if name in given or option.default is not option.empty}
    return {"name": given["name"], **{name: whole(hints.get(name, Any), each) for name, each in options.items()}}


def takes_integers(hint: Any) -> bool:
    return any(_bare(choice) is int for choice in alternatives(hint))


def alternatives(hint: Any) -> Iterator[Any]:
    """The members of a union, or the type itself."""
    if isinstance(hint, UnionType) or get_origin(hint) is Union:
        for member in get_args(hint):
            yield from alternatives(member)
    else:
        yield hint


def note(hint: Any, kind: type) -> Any:
    """What `hint` is annotated with, of that kind; None without."""
    return next((each for each in get_args(hint)[1:] if isinstance(each, kind)), None) if (
        get_origin(hint) is Annotated) else None


def _bare(hint: Any) -> Any:
    return get_args(hint)[0] if get_origin(hint) is Annotated else hint


def _declares(choice: Any) -> bool:
    """Does this type say anything about values that can be held against them?"""
    if get_origin(choice) is Annotated:
        return any(isinstance(each, Range | Entries | OneOf | Keys | Named) for each in get_args(choice)[1:])
    if get_origin(choice) is Literal:
        return True
    inner = get_args(choice)[-1:] if _is_list(choice) or _is_table(choice) else ()
    return any(_declares(each) for one in inner for each in alternatives(one))


def _is_list(choice: Any) -> bool:
    return get_origin(choice) in (list, Sequence)


def _is_table(choice: Any) -> bool:
    """Of names that the user gives, with values that are all of one type."""
    return get_origin(choice) in (dict, Mapping)


def _takes(choice: Any, value: Any) -> bool:
    """Is `value` of this type? A type that cannot be asked takes everything."""
    kind = _bare(choice)
    if get_origin(kind) is Literal:
        return any(type(value) is type(each) and value == each for each in get_args(kind))
    if _is_list(kind):
        return isinstance(value, Sequence) and not isinstance(value, str)
    if kind in (int, float):
        return isinstance(value, Integral if kind is int else Real) and not isinstance(value, bool)
    kind = Mapping if kind is dict else get_origin(kind) or kind
    try:
        return callable(value) if kind is Callable else isinstance(value, kind)
    except TypeError:  # such as Any
        return True


def _words(choice: Any) -> str:
    """A type in the words of a sentence; what only Python can give is left out."""
    kind = _bare(choice)
    span, names, named = note(choice, Range), note(choice, OneOf), note(choice, Named)
    if span is not None:
        return f"a whole number, {span}" if kind is int else str(span)
    if names is not None:
        return f"{with_article(names.kind)}: one of {', '.join(map(repr, sorted(names.names)))}"
    if named is not None:
        return f"{with_article(named.kind)}: one of {', '.join(map(repr, sorted(named.known)))}"
    if get_origin(kind) is Literal:
        return f"one of {', '.join(map(repr, get_args(kind)))}"
    if _is_list(kind):
        (inner,) = get_args(kind)
        if named_in(inner) is not None:  # said of one, where one alone will do
            return "a list of these"
        return f"a list of {'whole ' if _bare(inner) is int else ''}numbers, each {note(inner, Range)}"
    return {NoneType: "none", str: "a string", bool: "true or false"}.get(kind, "")


def _check_one(name: str, choice: Any, value: Any) -> None:
    span, entries, names, keys, named = (note(choice, kind) for kind in (Range, Entries, OneOf, Keys, Named))
    if span is not None and not span.holds(value):
        raise OutOfRange(name, value, span.allowed(value))
    if entries is not None and not entries.holds(value):
        raise OutOfRange(name, value, str(entries))
    if names is not None and value not in names.names:
        raise unknown(names.kind, value, names.names)
    if keys is not None:
        for key, hint in keys.hints.items():
            if key in value:
                check(f"{name}.{key}", hint, value[key])
    if named is not None:
        _check_named(name, named, {"name": value} if isinstance(value, str) else value)
    if _is_table(choice):
        for key, each in value.items():
            check(f"{name}.{key}", get_args(choice)[1], each)
    if _is_list(choice):
        for index, element in enumerate(value):
            check(f"{name}[{index}]", get_args(choice)[0], element)


def _check_named(name: str, named: Named, table: Mapping[str, Any]) -> None:
    options = {key: value for key, value in table.items() if key != "name"}
    if "name" not in table:
        raise InputError(f"{name} has no name; say which {named.kind} it is: {', '.join(sorted(named.known))}.")
    which = table["name"]
    if not isinstance(which, str) or which not in named.known:
        raise unknown(named.kind, str(which), named.known)
    build = named.known[which]
    check_options(build, options, which)
    hints = _hints(build)
    for key, value in options.items():
        check(f"{name}.{key}", hints.get(key, Any), value)


def _hints(build: Callable[..., Any]) -> dict[str, Any]:
    return get_type_hints(build, include_extras=True)
