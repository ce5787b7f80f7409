"""Options of a part: groups that many builders share are one value inside and flat outside, and each has a meaning.

    class LocalWork(NamedTuple):
        \"\"\"What a client does in a round.

        epochs: passes over its examples.
        batch_size: examples in a batch.
        \"\"\"

        epochs: int = 1
        batch_size: int | None = 32

    @algorithm
    def fedprox(problem, population, *, mu: float = 0.1, local: Flat[LocalWork] = LocalWork()): ...

Whoever chooses options, in Python, in a study file or on a command line, sees `mu`, `epochs` and `batch_size`. A
default given by the builder replaces the group's own. A docstring tells what an option means in a line `name: meaning`;
a meaning may go on in lines that are indented further.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

from cantons.errors import InputError
from cantons.ranges import as_declared, check

T = TypeVar("T")
_FLAT = object()
Flat = Annotated[T, _FLAT]  # the fields of this NamedTuple are options of their own


class Options(NamedTuple):
    """The options of a builder as they are chosen."""

    parameters: tuple[inspect.Parameter, ...]  # flat, with types in place of their names
    groups: Mapping[str, type]  # a parameter of the builder -> the NamedTuple it is

    def gathered(self, chosen: Mapping[str, Any]) -> dict[str, Any]:
        """Flat options as the builder's own arguments."""
        rest = dict(chosen)
        values = {name: kind(**{field: rest.pop(field) for field in kind._fields})  # type: ignore[attr-defined]
                  for name, kind in self.groups.items()}
        return rest | values

    def checked(self, chosen: Mapping[str, Any]) -> dict[str, Any]:
        """The values of options, each held against its declared type."""
        hints = {option.name: option.annotation for option in self.parameters}
        for name, value in chosen.items():
            check(name, hints.get(name, Any), value)
        return {name: as_declared(hints.get(name, Any), value) for name, value in chosen.items()}


def options_of(build: Callable[..., Any], given: int = 0) -> Options:
    """What can be chosen about `build`, whose first `given` parameters are no options.

    >>> class Work(NamedTuple):
    ...     epochs: int = 1
    >>> def build(problem, *, mu: float = 0.1, work: Annotated[Work, _FLAT] = Work(epochs=5)): ...
    >>> [f"{option.name}={option.default}" for option in options_of(build, given=1).parameters]
    ['mu=0.1', 'epochs=5']
    """
    try:
        hints = get_type_hints(build.__init__ if inspect.isclass(build) else build, include_extras=True)
        known_parameters = list(inspect.signature(build).parameters.values())
    except (TypeError, ValueError, NameError, AttributeError, SyntaxError) as error:
        name = getattr(build, "__name__", type(build).__name__)
        raise InputError(f"cannot tell which options {name} has: {error}; give a Python function.") from error
    parameters: list[inspect.Parameter] = []
    groups: dict[str, type] = {}
    for parameter in known_parameters[given:]:
        known = not isinstance(parameter.annotation, str) and parameter.annotation is not parameter.empty
        hint = parameter.annotation if known else hints.get(parameter.name, Any)
        if get_origin(hint) is Annotated and _FLAT in get_args(hint):
            group = groups[parameter.name] = get_args(hint)[0]
            value = group() if parameter.default is parameter.empty else parameter.default
            parameters += [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=getattr(value, name),
                                             annotation=kind)
                           for name, kind in get_type_hints(group, include_extras=True).items()]
        else:
            parameters.append(parameter.replace(annotation=hint))
    parameters.sort(key=lambda option: option.kind)  # one with any keywords stays last
    return Options(tuple(parameters), groups)


def meanings(*docstrings: str | None, names: Iterable[str]) -> dict[str, str]:
    """What the docstrings say about each of the options `names`, in one line each.

    >>> meanings('''Train.
    ...
    ...     epochs: passes over the data,
    ...         shuffled each time.
    ... ''', names=["epochs"])
    {'epochs': 'passes over the data, shuffled each time.'}
    """
    known = set(names)
    found: dict[str, str] = {}
    for docstring in docstrings:
        name, indent = "", 0
        for line in inspect.cleandoc(docstring or "").splitlines():
            match = re.match(r"( *)(\w+): +(.+)", line)
            if match and match[2] in known:
                name, indent = match[2], len(match[1])
                found.setdefault(name, match[3])
                if found[name] != match[3]:  # said already, by a builder that knows better than its group
                    name = ""
            elif name and line.startswith(" " * (indent + 1)):
                found[name] += " " + line.strip()
            else:
                name = ""
    return found
