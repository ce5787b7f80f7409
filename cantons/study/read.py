"""Read a study file: TOML checked against the signatures of the parts it names."""

from __future__ import annotations

import functools
import os
import tomllib
from collections.abc import Mapping
from glob import glob
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pydantic
import pydantic_core

from cantons.data import CENTRAL
from cantons.data.read.files import is_pattern, map_paths
from cantons.errors import InputError, shown, unknown
from cantons.problem import EQUAL
from cantons.ranges import NonNegative, OutOfRange, check
from cantons.study.dotted_keys import set_keys
from cantons.study.part_tables import (
    SEVERAL,
    TABLES,
    TAKES_FIRST,
    USUAL,
    inner_parts,
    is_several,
    option_fields,
)
from cantons.study.registry import part
from cantons.study.stage_tables import METHOD, STAGE, merged_stages
from cantons.study.written import Settings, WrittenStudy

REQUIRED = ("data", "problem", "algorithm")
LARGEST = 2**24  # bytes of a study: no text that somebody wrote is longer
DEEPEST = 32  # tables and lists inside each other
# Settings that may be "none".
OPEN = ("cohort", "evaluate_every", "evaluate_clients", "validation", "patience", "checkpoint_every")


def read_study(path: str | Path, changes: Mapping[str, Any] | None = None) -> WrittenStudy:
    """Read and check the study file `path`; `changes` are dotted keys with new values, as `--set` gives them."""
    return check_changed(read_raw(path), changes or {}, str(path), Path(path).parent)


def read_raw(path: str | Path) -> dict[str, Any]:
    """A study file as it is written."""
    path = Path(path)
    try:
        with path.open("rb") as file:
            text = file.read(LARGEST + 1)
        if len(text) > LARGEST:
            raise InputError(f"{path} is no study: it is larger than {LARGEST >> 20} MiB.")
        return tomllib.loads(text.decode())
    except OSError as error:
        raise InputError(f"cannot read the study {path}: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not TOML: it is not UTF-8 text.") from error
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{path} is not TOML: {error}.") from error
    except RecursionError as error:
        raise InputError(f"{path} is no study: its lists or tables are nested too deeply.") from error
    except InputError:
        raise
    except ValueError as error:  # a number of more digits than Python reads
        raise InputError(f"{path} is no study: {error}.") from error


def check_changed(raw: dict[str, Any], changes: Mapping[str, Any], source: str, folder: Path | None) -> WrittenStudy:
    """Change keys of a study as it was written, and check all of it."""
    set_keys(raw, changes, source, folder)
    return check_study(raw, source, folder)


def check_study(raw: Mapping[str, Any], source: str, folder: Path | None = None) -> WrittenStudy:
    """Check every key against what it names; files are looked for beside the study first."""
    _check_plain(raw, source)
    if METHOD in raw:
        raise InputError(f"{source} has several methods ([[{METHOD}]]); compare runs them (in Python: ct.compare).")
    if STAGE in raw:
        stages = {name: check_study(merged, f"{source}: stage {name}", folder)
                  for name, merged in merged_stages(raw, source).items()}
        *_, last = stages.values()
        return WrittenStudy(source, last.settings, last.tables, stages, raw, folder)
    tables = {key: raw[key] for key in TABLES if key in raw}
    for key in REQUIRED:
        if key not in tables:
            raise InputError(f"{source} has no [{key}] table; a study needs [data], [problem] and [algorithm].")
    rest = {key: value for key, value in raw.items() if key not in TABLES}
    for key in rest:
        if key not in Settings.model_fields:
            raise InputError(f"{source}: {unknown('key', key, [*Settings.model_fields, *TABLES, STAGE, METHOD])}")
    rest = {key: value for key, value in rest.items() if value != "none" or key not in OPEN}
    try:
        settings = Settings.model_validate(rest)
    except pydantic.ValidationError as error:
        raise _explained(source, "", error) from error
    hints = get_type_hints(Settings, include_extras=True)
    for key, value in rest.items():
        _check_range(source, "", key, hints[key], value)
    checked = {kind: _checked(source, kind, kind, table, folder) for kind, table in tables.items()}
    return WrittenStudy(source, settings, checked, None, raw, folder)


def check_part(source: str, kind: str, table: Mapping[str, Any],
               changes: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The table of one part alone, with changes of its dotted keys, checked as in a study."""
    changed = {kind: table}
    set_keys(changed, {f"{kind}.{key}": value for key, value in (changes or {}).items()}, source)
    return _checked(source, kind, kind, changed[kind], None)


def _checked(source: str, where: str, kind: str, table: Any, folder: Path | None) -> dict[str, Any]:
    """One table against the signature of the function it names."""
    table = {"name": table} if isinstance(table, str) else table
    if not isinstance(table, Mapping):
        raise InputError(f"{source}: {where} is {shown(table)}; give a name, or a table with a name and options.")
    if kind in SEVERAL and is_several(table):
        return {name: _checked(source, f"{where}.{name}", kind, each, folder) for name, each in table.items()}
    if kind in USUAL:
        table = {"name": USUAL[kind], **table}
    if "name" not in table:
        raise InputError(f"{source}: [{where}] has no name; say which {kind} it is.")
    if not isinstance(table["name"], str):
        raise InputError(f"{source}: {where}.name = {shown(table['name'])}; give a name, as a string.")
    if kind == "central" and table["name"] not in CENTRAL:
        kind = "data"  # of its own
    try:
        function = part(kind, table["name"], folder)
    except InputError as error:
        raise InputError(f"{source}: {where}.name: {error}") from error
    if not callable(function):
        raise InputError(f"{source}: {where}.name: {table['name']!r} is not a function.")
    options = {key: value for key, value in table.items() if key != "name"}
    try:
        allowed = option_fields(function, skip_first=kind in TAKES_FIRST)
    except InputError as error:
        raise InputError(f"{source}: {where}.name: {table['name']!r}: {error}") from error
    if kind == "problem":
        allowed |= {"central_loss": (str | dict, "same"), "weights": (
            list[NonNegative] | dict[str, NonNegative], list(EQUAL)),
                    "group_losses": (dict[str, Any], {}), "group_weights": (dict[str, NonNegative], {})}
    if kind == "problem" and isinstance(options.get("group_losses"), Mapping):
        options["group_losses"] = {name: _checked(source, f"{where}.group_losses.{name}", "central_loss", loss, folder)
                                   for name, loss in options["group_losses"].items()}
    for key, inner in inner_parts(kind, allowed).items():
        if key in options:
            options[key] = _checked(source, f"{where}.{key}", inner, options[key], folder)
            allowed[key] = (Any, ...)
    for key in options:
        if key not in allowed:
            raise InputError(f"{source}: {unknown(f'option in [{where}]', key, allowed)}")
    # TOML has no word for nothing: "none" stands for it where an option may be left open.
    options = {key: None if value == "none" and type(None) in get_args(allowed[key][0]) else value
               for key, value in options.items()}
    try:
        schema = pydantic.create_model(where, __config__=pydantic.ConfigDict(
            arbitrary_types_allowed=True, strict=True), **allowed)
    except (NameError, TypeError, pydantic.PydanticUserError, pydantic_core.SchemaError) as error:
        first = str(error).splitlines()[0]
        raise InputError(f"{source}: {where}.name: cannot tell what {table['name']!r} takes: {first}") from error
    try:
        schema.model_validate(options)
    except pydantic.ValidationError as error:
        raise _explained(source, where, error) from error
    for key, value in options.items():
        _check_range(source, where, key, allowed[key][0], value)
    if kind == "data" and folder is not None and "path" in options:
        options["path"] = map_paths(functools.partial(_beside, folder), options["path"])
    return {"name": table["name"], **options}


def _beside(folder: Path, path: str | Path) -> str:
    """A path as the study means it: what is beside the study comes first."""
    there = folder / path
    found = os.path.exists(there) or (is_pattern(there) and glob(str(there), recursive=True))
    return str(there if found else path)


def _check_range(source: str, where: str, key: str, hint: Any, value: Any) -> None:
    prefix = f"{where}." if where else ""
    try:
        check(key, hint, value)
    except OutOfRange as error:
        raise InputError(f"{source}: {prefix}{error.name} = {shown(error.value)}; give {error.allowed}.") from error
    except InputError as error:
        raise InputError(f"{source}: {prefix}{key}: {error}") from error


def _check_plain(raw: Mapping[str, Any], source: str) -> None:
    """Refuse what no study needs and many a library stumbles over, wherever it stands."""
    waiting: list[tuple[str, Any, int]] = [("", raw, 0)]
    while waiting:
        where, value, depth = waiting.pop()
        if depth > DEEPEST:
            raise InputError(f"{source}: {shown(where)} is nested in more than {DEEPEST} tables and lists.")
        if isinstance(value, str) and "\0" in value:
            raise InputError(f"{source}: {where} = {shown(value)}; give text without the character NUL.")
        if isinstance(value, Mapping):
            waiting += [(f"{where}.{key}" if where else key, inner, depth + 1) for key, inner in value.items()]
        elif isinstance(value, list):
            waiting += [(where, inner, depth + 1) for inner in value]


def _explained(source: str, where: str, error: pydantic.ValidationError) -> InputError:
    """File, key, value, and what is allowed, of the first thing wrong."""
    first = error.errors()[0]
    key = ".".join(str(step) for step in ([where] if where else []) + list(first["loc"][:1]))
    if first["type"] == "missing":
        return InputError(f"{source}: {key} is missing; it has no default.")
    # A TOML file cannot hold the functions and arrays that Python callers may give.
    wanted = [each["msg"].removeprefix("Input should be ") for each in error.errors()
              if each["loc"][:1] == first["loc"][:1] and each["type"] not in ("callable_type", "is_instance_of")]
    return InputError(f"{source}: {key} = {shown(first['input'])}; give {', or '.join(dict.fromkeys(wanted))}.")
