"""What a part is and does, read from its own code; for an algorithm, also what leaves the client."""

from __future__ import annotations

import inspect
import re
import sys
from collections import abc
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

import numpy as np

from cantons.data import Federation, digits, synthetic_bandit
from cantons.engine import shapes_that_travel
from cantons.errors import InputError, unknown
from cantons.metrics import leaves
from cantons.options import meanings, options_of
from cantons.protocol import Recipe
from cantons.ranges import Range, alternatives, note
from cantons.study.blame import blame_user
from cantons.study.example import example_problems, first_fitting, random_sequences
from cantons.study.registry import REGISTRY, make, part
from cantons.study.stage_tables import STAGE


class Option(NamedTuple):
    name: str
    type: str
    default: str
    meaning: str = ""  # empty where the docstring has no line for it


class Description(NamedTuple):
    kind: str
    name: str
    text: str  # what it does, without the lines on options
    source: str  # its file's words: the paper and the equation
    options: list[Option]
    down: list[tuple[str, tuple[int, ...], str]]  # (leaf, shape, type) of the message; algorithms only
    up: list[tuple[str, tuple[int, ...], str]]
    example: str = ""  # for which these are the shapes

    @property
    def required(self) -> list[str]:
        """The options without a default."""
        return [option.name for option in self.options if option.default == "required"]


def describe_part(name: str) -> list[Description]:
    """Describe every part called `name`; a model and a problem may share one."""
    if ":" in name:
        function = part("part", name)
        if not callable(function):
            raise InputError(f"{name} is a {type(function).__name__}, not a function: there is nothing to describe.")
        return [_described(getattr(function, "kind", "part"), name, function)]
    kinds = [kind for kind, known in REGISTRY.items() if name in known]
    if not kinds:
        raise unknown("part", name, {known for names in REGISTRY.values() for known in names})
    return [_described(kind, name, part(kind, name)) for kind in kinds]


def _described(kind: str, name: str, function: Callable[..., Any]) -> Description:
    module = sys.modules.get(getattr(inspect.unwrap(function), "__module__", None) or "")
    means, options = option_meanings(function), describe_options(function)
    with blame_user(name):
        down, up, example = what_travels(function()) if kind == "algorithm" else ([], [], "")
    words = without_options(inspect.getdoc(function) or "", means), inspect.getdoc(module) or ""
    return Description(kind, name, *words, options, down, up, example)


def describe_options(function: Callable[..., Any]) -> list[Option]:
    """What can be chosen about a part: the type and the default of each option, and what it means."""
    means = option_meanings(function)
    return [Option(option.name, _type(option.annotation), _default(option), means.get(option.name, ""))
            for option in options_of(function).parameters if option.name not in ("data", "self")]


def option_meanings(function: Callable[..., Any]) -> dict[str, str]:
    """What a part's docstring, or that of a group of its options, says about each option."""
    groups = options_of(inspect.unwrap(function)).groups.values()
    names = [option.name for option in options_of(function).parameters]
    return meanings(inspect.getdoc(function), *(group.__doc__ for group in groups), names=names)


def shared_options(function: Callable[..., Any]) -> set[str]:
    """The options that a part has from groups, and in common with other parts."""
    groups = options_of(inspect.unwrap(function)).groups.values()
    return {option for group in groups for option in get_type_hints(group)}


def without_options(docstring: str, names: Iterable[str]) -> str:
    """A docstring without its lines `name: meaning`.

    >>> without_options("Train.\\n\\nepochs: passes over the data,\\n    shuffled.\\n\\nOften.", ["epochs"])
    'Train.\\n\\nOften.'
    """
    line = rf"^(?:{'|'.join(map(re.escape, names))}): .*\n(?: .*\n)*"
    kept = re.sub(line, "", docstring + "\n", flags=re.MULTILINE) if names else docstring
    return re.sub(r"\n{3,}", "\n\n", kept).strip()


def federation_of(name: str, options: Mapping[str, Any]) -> Federation:
    """The data called `name`, made with `options`; or the data of a study file, with some keys changed by them."""
    from cantons.study.read import check_part, read_study

    if not name.endswith(".toml"):
        return make("data", check_part(name, "data", {"name": name}, options))
    study = read_study(Path(name), {_key_of_study(key): value for key, value in options.items()})
    try:
        return study.federation()
    except InputError as error:
        raise InputError(f"{name}: {error}") from error


def _key_of_study(key: str) -> str:
    """A key as `run --set` has it, such as data.path; one without its table is an option of the data."""
    from cantons.study.part_tables import TABLES

    return key if key.partition(".")[0] in (*TABLES, STAGE) and "." in key else f"data.{key}"


def what_travels(recipe: Recipe) -> tuple[list, list, str]:
    """Every leaf that goes down and up, and for which example."""
    images, contexts = digits(clients=5), synthetic_bandit(clients=5, contexts=5, test_contexts=0)
    sequences = random_sequences(clients=5, examples=20, test=0)
    (example, data, problem), algorithm = first_fitting(recipe, example_problems(images, images, contexts, sequences))
    message, upload = shapes_that_travel(problem, algorithm, data.train, data.central)
    return leaves(message), leaves(upload), example


def _default(option: inspect.Parameter) -> str:
    """A default in the words of a study file."""
    if option.default is option.empty:
        return "required"
    if isinstance(option.default, Recipe):
        return repr(option.default.name)
    return repr(option.default).lower() if isinstance(option.default, bool | None) else repr(option.default)


def _type(hint: Any) -> str:
    """A type in the words of a study file: what only Python can give is left out."""
    kinds = [_one_type(kind) for kind in alternatives(hint)
             if get_origin(kind) is not abc.Callable and kind is not np.ndarray]
    return " or ".join(dict.fromkeys(kinds))


def _one_type(kind: Any) -> str:
    if get_origin(kind) is Annotated:
        span, name = note(kind, Range), _one_type(get_args(kind)[0])
        return name if span is None else f"{name}, {str(span).removeprefix('a number ')}"
    if get_origin(kind) is Literal:
        return ", ".join(map(repr, get_args(kind)))
    if get_origin(kind) in (list, abc.Sequence):
        return f"list of {_type(get_args(kind)[0])}"
    if kind is Recipe:
        return "algorithm"
    return "none" if kind is type(None) else getattr(kind, "__name__", str(kind))
