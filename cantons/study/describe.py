"""What a part is and does, read from its own code; for an algorithm, also what leaves the client."""

from __future__ import annotations

import inspect
import sys
from collections import abc
from collections.abc import Mapping
from pathlib import Path
from types import UnionType
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

import numpy as np

from cantons.data import Federation, digits
from cantons.engine import Local
from cantons.errors import check_options, unknown
from cantons.metrics import leaves
from cantons.models import mlp
from cantons.problem import classification
from cantons.study.parts import PARTS, make, part


class Option(NamedTuple):
    name: str
    type: str
    default: str


class Description(NamedTuple):
    kind: str
    name: str
    text: str  # what it does
    source: str  # its file's words: the paper and the equation
    options: list[Option]
    down: list[tuple[str, tuple[int, ...], str]]  # (leaf, shape, type) of the message; algorithms only
    up: list[tuple[str, tuple[int, ...], str]]

    @property
    def required(self) -> list[str]:
        """The options without a default."""
        return [option.name for option in self.options if option.default == "required"]


def describe_part(name: str) -> Description:
    """Find `name` among all the parts and describe it."""
    kinds = [kind for kind, known in PARTS.items() if name in known]
    if ":" in name:
        kinds = ["algorithm"]
    if not kinds:
        raise unknown("part", name, {known for names in PARTS.values() for known in names})
    function = part(kinds[0], name)
    module = sys.modules[getattr(function, "__wrapped__", function).__module__]
    hints = get_type_hints(getattr(function, "__wrapped__", function))
    options = [Option(option.name, _type(hints.get(option.name, Any)), _default(option))
               for option in inspect.signature(function).parameters.values() if option.name not in ("data", "self")]
    down, up = what_travels(function()) if kinds[0] == "algorithm" else ([], [])
    return Description(kinds[0], name, inspect.getdoc(function) or "", inspect.getdoc(module) or "", options, down, up)


def federation_of(name: str, options: Mapping[str, Any]) -> Federation:
    """The data called `name`, made with `options`; or the data of a study file, its [data] changed by them."""
    if name.endswith(".toml"):
        from cantons.study.read import read_study

        study = read_study(Path(name), {f"data.{key}": value for key, value in options.items()})
        return make("data", study.tables["data"])
    check_options(part("data", name), options, name)
    return make("data", {"name": name, **options})


def what_travels(recipe: Any) -> tuple[list, list]:
    """Every leaf that goes down and up, for a small network whose last layer is private: `layer1` stays home."""
    from cantons.clock import rounds

    data = digits(clients=5)
    problem = classification(data, mlp(hidden=(16,)), split="output")
    session = Local(devices=1).start(problem, recipe.build(problem, data.population),
                                     rounds().build(data.population), data, None, seed=0)
    message, upload = session.message_and_upload(session.begin())
    return leaves(message), leaves(upload)


def _default(option: inspect.Parameter) -> str:
    return "required" if option.default is option.empty else repr(option.default)


def _type(hint: Any) -> str:
    """A type in the words of a study file: what only Python can give is left out."""
    if get_origin(hint) is Literal:
        return ", ".join(map(repr, get_args(hint)))
    if isinstance(hint, UnionType) or get_origin(hint) is Union:
        kinds = [kind for kind in get_args(hint) if get_origin(kind) is not abc.Callable and kind is not np.ndarray]
        return " or ".join("none" if kind is type(None) else _type(kind) for kind in kinds)
    return getattr(hint, "__name__", str(hint))
