"""The reference of the API, from signatures and docstrings: every public name stands on one page."""

from __future__ import annotations

import contextlib
import functools
import inspect
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import pages

import cantons
from cantons.algorithm import ALGORITHMS
from cantons.errors import InputError
from cantons.options import meanings, options_of
from cantons.study.describe import describe_options, option_meanings, without_options

LONGEST = 60  # letters of a default that is shown


class Chapter(NamedTuple):
    title: str
    about: str
    homes: tuple[str, ...]  # modules whose public names it has, unless another one names a longer module
    more: tuple[str, ...] = ()  # names that are not in `cantons` itself, as module:name


CHAPTERS = {
    "run": Chapter("Run, compare, report", "What trains, what comes of it, and how it is compared.", ("cantons",)),
    "data": Chapter("Data", "What makes a `Federation`.", ("cantons.data",)),
    "problems": Chapter("Problems and models", "What is learned.", ("cantons.problem", "cantons.models")),
    "algorithms": Chapter("Algorithms", "How it is learned; each has [a page of its own](../algorithms/index.md).",
                          ("cantons.algorithm",)),
    "rules": Chapter("Rules and attacks", "How uploads become one, and what liars send.",
                     ("cantons.aggregate", "cantons.attack")),
    "clocks": Chapter("Clocks and engines", "Who takes part when, and where it is computed.",
                      ("cantons.clock", "cantons.engine")),
    "protocol": Chapter("For authors of parts", "The vocabulary between algorithms and engines, and what new "
                        "algorithms are made of: see [how one is written](../contract.md).",
                        ("cantons.protocol", "cantons.local_models"),
                        ("cantons.recipe:algorithm", "cantons.recipe:clock", "cantons.recipe:rule",
                         "cantons.recipe:attack", "cantons.recipe:problem", "cantons.recipe:model",
                         "cantons.protocol:Data", "cantons.protocol:Average", "cantons.protocol:Needs",
                         "cantons.protocol:Diagnostics", "cantons.protocol:PersonalModel",
                         "cantons.protocol:Receipt",
                         "cantons.algorithm.parts.training:Work", "cantons.algorithm.parts.training:trainer",
                         "cantons.algorithm.parts.fitting:fitter", "cantons.algorithm.parts.training:Trained",
                         "cantons.algorithm.parts.training:LocalWork",
                         "cantons.algorithm.parts.training:LocalOptimizer")),
}


def reference_pages() -> dict[str, str]:
    """{where it goes: its Markdown}"""
    first = ("# API reference\n\nSignatures and docstrings of everything that `import cantons as ct` offers, read from "
             "the code when these pages are made. [Concepts](../concepts.md) explains the words.\n\n")
    rows = [(f"[{chapter.title}]({name}.md)", ", ".join(f"[`{short}`]({name}.md#{short})" for short in map(
        _short, names_of(name)))) for name, chapter in CHAPTERS.items()]
    return {"reference/index.md": first + pages.table([("page", "what is on it"), *rows]),
            **{f"reference/{name}.md": _page(name, chapter) for name, chapter in CHAPTERS.items()}}


def names_of(chapter: str) -> dict[str, Any]:
    """{how it is written: what it is}, for everything on one page."""
    public = {f"ct.{name}": getattr(cantons, name) for name in cantons.__all__
              if _chapter_of(cantons._HOME[name]) == chapter}
    more = (entry.split(":") for entry in CHAPTERS[chapter].more)
    return public | {f"{module}.{name}": getattr(__import__(module, fromlist=[name]), name) for module, name in more}


def _chapter_of(home: str) -> str:
    """The one that names the module, or else the nearest folder above it."""
    def length(name: str) -> int:
        return max((len(module) for module in CHAPTERS[name].homes if f"{home}.".startswith(f"{module}.")), default=0)

    return max(CHAPTERS, key=length)


def _page(name: str, chapter: Chapter) -> str:
    entries = (_entry(written, value) for written, value in names_of(name).items())
    return "\n\n".join([f"# {chapter.title}", f"{chapter.about} In examples, `ct` is `cantons`.", *entries])


def _short(written: str) -> str:
    return written.rpartition(".")[2]


def _entry(written: str, value: Any) -> str:
    """Its signature, its docstring, and what is in it; algorithms have pages for the rest."""
    short = _short(written)
    parts = [f"## `{written}` {{ #{short} }}", f"```python\n{_signature(short, value)}\n```"]
    if short in ALGORITHMS and value is ALGORITHMS[short]:
        first = " ".join((inspect.getdoc(value) or "").partition("\n\n")[0].split())
        link = f"[Its page](../algorithms/{short}.md) says what its options mean."
        return "\n\n".join([*parts, f"{pages.prose(first)} {link}"])
    return "\n\n".join(parts + (_class(value) if inspect.isclass(value) else _function(value)))


def _function(value: Any) -> list[str]:
    means = option_meanings(value)
    text = pages.prose(without_options(inspect.getdoc(value) or "", means))
    return [text, pages.option_table(describe_options(value))] if means else [text]


def _class(value: type) -> list[str]:
    """What it holds and what it can do."""
    words = _own_docstring(value)
    told = meanings(words, names=inspect.get_annotations(value))
    parts = [pages.prose(without_options(words, told))]
    rows = [(f"`{name}`", pages.prose(comment)) for name, comment in (_comments(value) | told).items()]
    parts += [pages.table([("field", "meaning"), *rows])] if rows else []
    ours = [base for base in reversed(value.__mro__) if base.__module__.startswith("cantons.")]
    methods = {name: method for base in ours for name, method in vars(base).items()}
    return parts + [_method(name, method) for name, method in methods.items()
                    if not name.startswith("_") and _is_method(method) and inspect.getdoc(method)]


def _comments(value: type) -> dict[str, str]:
    """What the comments beside the fields of a class say, and those above one that has none beside it."""
    found, above = {}, ""
    for line in inspect.getsource(value).splitlines():
        field = re.fullmatch(r"    (\w+): [^#]+?(?:  # (.+))?", line)
        if field and (field[2] or above):
            found[field[1]] = field[2] or above
        above = f"{above} {line.strip()[2:]}".strip() if line.startswith("    # ") else ""
    return {name: comment for name, comment in found.items() if name in inspect.get_annotations(value)}


def _own_docstring(value: type) -> str:
    """Without the signature that Python puts there if nobody has written anything."""
    words = inspect.getdoc(value) or ""
    return "" if words.startswith(f"{value.__name__}(") else words


def _method(name: str, method: Any) -> str:
    value = isinstance(method, property | functools.cached_property)
    function = method.func if isinstance(method, functools.cached_property) else getattr(method, "__func__", method)
    head = name if value else _signature(name, function)
    return f"```python\n.{head}\n```\n\n{pages.prose(inspect.getdoc(method) or '')}"


def _is_method(value: Any) -> bool:
    kinds = property | functools.cached_property | classmethod | staticmethod
    return isinstance(value, kinds) or inspect.isfunction(value)


def _signature(name: str, value: Callable) -> str:
    """On one line if there is room, else a line for each argument. Types are shown as the code has them.

    Those of options that come from groups are in a table below.
    """
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):  # of an exception
        return name
    if not inspect.isclass(value):
        with contextlib.suppress(InputError):  # types that are only known to type checkers
            signature = signature.replace(parameters=options_of(value).parameters)
    written = {key: kind for key, kind in getattr(inspect.unwrap(value), "__annotations__", {}).items()
               if isinstance(kind, str)}
    arguments, star = [], False
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and not star:
            arguments.append("*")
        star = star or parameter.kind in (parameter.KEYWORD_ONLY, parameter.VAR_POSITIONAL)
        if parameter.name not in ("self", "cls"):
            kind = written.get(parameter.name, parameter.empty)
            default = parameter.default if len(_plain(repr(parameter.default))) <= LONGEST else ...
            shown = str(parameter.replace(annotation=kind, default=default)).replace(f"'{kind}'", str(kind))
            arguments.append(_plain(shown).replace("Ellipsis", "..."))
    gives = f" -> {_plain(written['return'])}" if "return" in written and not inspect.isclass(value) else ""
    line = f"{name}({', '.join(arguments)}){gives}"
    return line if len(line) <= 88 else f"{name}(\n" + "".join(f"    {each},\n" for each in arguments) + f"){gives}"


def _plain(words: str) -> str:
    """Without functions that have no name, places in memory, and the modules of types."""
    words = re.sub(r"<(?:function |class )?'?([\w.]*(?:<lambda>)?)'?(?: object)?(?: at 0x\w+)?>", r"\1", words)
    words = re.sub(r"[\w.]*<lambda>", "...", words).replace("= factory", "= ...")  # of a dataclass
    return re.sub(r"\b(?:[a-z_]\w*\.)+(?=[A-Z])", "", words)
