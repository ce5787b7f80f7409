"""The text of parts that are not ours: an edited part is another part, though its name and its options are the same."""

from __future__ import annotations

import functools
import hashlib
import inspect
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any, TypeGuard

OURS = Path(__file__).parents[1]
STANDARD = Path(sysconfig.get_path("stdlib"))
INSTALLED = ("site-packages", "dist-packages")
PLAIN = (str, bytes, int, float, complex, type(None))
ENOUGH = 10_000  # values that are looked at: no part is so large


def foreign_sources(parts: Any, tables: Iterable[Mapping[str, Any] | None] = ()) -> dict[str, str]:
    """{module: checksum of its file} for every function and class that is not ours among `parts` and what they use.

    A library that is installed has a version, and does not count unless the study's `tables` name it. The file that is
    being run as a program holds more than parts: of that one, each function has a checksum of its own.
    """
    found = {}
    for name in names_in(*tables):
        module, separator, _ = name.partition(":")
        file = getattr(sys.modules.get(module), "__file__", None)
        if separator and file is not None and not Path(file).is_relative_to(OURS):
            found[module] = _checksum(Path(file))
    for value in _reachable(parts):
        module, file = _home(value)
        if module == "__main__" and _foreign(file):
            found |= {f"__main__.{value.__qualname__}": digest for digest in _digests(value)}
        elif module not in found and _foreign(file) and file.is_file():
            found[module] = _checksum(file)
    return dict(sorted(found.items()))


def names_in(*tables: Mapping[str, Any] | None) -> tuple[str, ...]:
    """Every name that stands in the tables of a study, at any depth."""
    found: list[str] = []
    for table in tables:
        for key, value in (table or {}).items():
            if isinstance(value, Mapping):
                found += names_in(value)
            elif isinstance(value, str) and (key == "name" or key.endswith("model")):
                found.append(value)
    return tuple(found)


def _reachable(parts: Any) -> Iterator[Any]:
    """The functions and classes that a part is made of: held by it, closed over, or named in the text of one."""
    seen: dict[int, Any] = {}
    queue = [parts]
    while queue and len(seen) < ENOUGH:
        value = queue.pop()
        if id(value) in seen or isinstance(value, PLAIN):
            continue
        seen[id(value)] = value  # kept, so that no other value gets its id
        if isinstance(value, FunctionType | type):
            yield value
        queue += _inside(value)


def _inside(value: Any) -> list[Any]:
    if isinstance(value, FunctionType):
        closed = [cell.cell_contents for cell in value.__closure__ or () if _filled(cell)]
        used = _used(value.__code__, value.__globals__) if _foreign(Path(value.__code__.co_filename)) else []
        return [*closed, *used, getattr(value, "__wrapped__", None)]
    if isinstance(value, type):
        return list(vars(value).values()) if _foreign(_home(value)[1]) else []
    if isinstance(value, MethodType):
        return [value.__func__, value.__self__]
    if isinstance(value, functools.partial):
        return [value.func, value.args, value.keywords]
    if isinstance(value, staticmethod | classmethod):
        return [value.__func__]
    if isinstance(value, Mapping):
        return list(value.values())
    if isinstance(value, list | tuple):
        return [type(value), *value]
    if isinstance(value, ModuleType | CodeType):
        return []
    inside = [getattr(value, field.name, None) for field in fields(value)] if is_dataclass(value) else []
    return [type(value), *inside, inspect.getattr_static(value, "__wrapped__", None)]


def _used(code: CodeType, names: Mapping[str, Any]) -> list[Any]:
    """What the text of a function names outside itself, and that of the functions in it."""
    found = [names[name] for name in code.co_names if isinstance(names.get(name), FunctionType | type)]
    modules = [names[name] for name in code.co_names if isinstance(names.get(name), ModuleType)]
    found += [getattr(module, name) for module in modules for name in code.co_names
              if isinstance(vars(module).get(name), FunctionType | type)]
    return found + [used for inner in code.co_consts if isinstance(inner, CodeType) for used in _used(inner, names)]


def _filled(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018  (empty cells have none)
    except ValueError:
        return False
    return True


def _home(value: Any) -> tuple[str, Path | None]:
    """The module a function or class was written in, and its file: not that of the decorators around it."""
    if isinstance(value, FunctionType):
        return value.__globals__.get("__name__", "__main__"), Path(value.__code__.co_filename)
    file = getattr(sys.modules.get(value.__module__), "__file__", None)
    return value.__module__, None if file is None else Path(file)


def _foreign(file: Path | None) -> TypeGuard[Path]:
    """Neither ours, nor Python's, nor installed."""
    return file is not None and not file.is_relative_to(OURS) and not file.is_relative_to(STANDARD) and not any(
        folder in file.parts for folder in INSTALLED)


def _digests(value: Any) -> list[str]:
    """Of the text of one function or class; none if it was typed at a prompt."""
    try:
        return [hashlib.sha256(inspect.getsource(value).encode()).hexdigest()]
    except (OSError, TypeError):
        return []


def _checksum(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()
