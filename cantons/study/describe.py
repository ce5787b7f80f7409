"""What a part is and does, read from its own code; for an algorithm, also what leaves the client."""

from __future__ import annotations

import inspect
import sys
from typing import Any, NamedTuple

from cantons.data import digits
from cantons.engine import Local
from cantons.errors import unknown
from cantons.metrics import leaves
from cantons.models import mlp
from cantons.problem import classification
from cantons.study.parts import PARTS, part


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


def describe_part(name: str) -> Description:
    """Find `name` among all the parts and describe it."""
    kinds = [kind for kind, known in PARTS.items() if name in known]
    if ":" in name:
        kinds = ["algorithm"]
    if not kinds:
        raise unknown("part", name, {known for names in PARTS.values() for known in names})
    function = part(kinds[0], name)
    module = sys.modules[getattr(function, "__wrapped__", function).__module__]
    options = [Option(option.name, _type(option), _default(option))
               for option in inspect.signature(function).parameters.values() if option.name not in ("data", "self")]
    down, up = what_travels(function()) if kinds[0] == "algorithm" else ([], [])
    return Description(kinds[0], name, inspect.getdoc(function) or "", inspect.getdoc(module) or "", options, down, up)


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


def _type(option: inspect.Parameter) -> str:
    annotation = option.annotation
    return annotation if isinstance(annotation, str) else getattr(annotation, "__name__", str(annotation))
