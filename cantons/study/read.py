"""Read a study file: TOML checked against the signatures of the parts it names."""

from __future__ import annotations

import inspect
import tomllib
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args

import pydantic

from cantons.data import Federation
from cantons.engine import Local
from cantons.errors import InputError, unknown
from cantons.options import options_of
from cantons.problem import MODELS
from cantons.protocol import Problem, Recipe
from cantons.study.folder import Folder
from cantons.study.registry import make, make_algorithm, make_engine, make_problem, make_recipe, part
from cantons.study.resolve import resolve
from cantons.study.result import Result
from cantons.study.run import run

TABLES = ("data", "problem", "algorithm", "clock", "aggregate", "engine")
REQUIRED = ("data", "problem", "algorithm")
USUAL = {"clock": "rounds", "engine": "local"}  # the part that is meant where none is named


class Settings(pydantic.BaseModel):
    """The keys of a study that stand outside its tables."""

    model_config = pydantic.ConfigDict(extra="forbid", strict=True)

    name: str | None = None
    rounds: int = pydantic.Field(ge=1)
    seed: int = pydantic.Field(default=0, ge=0, lt=2**63)
    cohort: int | None = pydantic.Field(default=None, ge=1)
    evaluate_every: int | None = pydantic.Field(default=None, ge=1)
    validation: float | None = pydantic.Field(default=None, gt=0, lt=1)
    precision: Literal["float32", "float64"] = "float32"
    checkpoint_every: int | None = pydantic.Field(default=None, ge=1)
    keep: int = pydantic.Field(default=3, ge=1)


class Study:
    """A checked study: settings, and one table for each part."""

    def __init__(self, source: str, settings: Settings, tables: Mapping[str, Mapping[str, Any]]):
        self.source, self.settings, self.tables = source, settings, tables

    def run(self, **options: Any) -> Result:
        """Build the parts and run them; `options` are those of `cantons.run` that are not part of a study."""
        try:
            return self._run(**options)
        except InputError as error:
            raise InputError(f"{self.source}: {error}") from error

    def check_folder(self, folder: Path, accept_changes: bool = False) -> None:
        """Refuse a run folder that holds a run of something else."""
        there = Folder(folder)
        if there.study_file.exists():
            problem, data, recipe, chosen = self.parts()
            ready = resolve(problem, data, recipe, **{"engine": Local(), **chosen})
            there.compare(ready.study, accept_changes)

    def _run(self, **options: Any) -> Result:
        problem, data, recipe, chosen = self.parts()
        return run(problem, data, recipe, **chosen, **options)

    def parts(self) -> tuple[Problem, Federation, Recipe, dict[str, Any]]:
        """The problem, the data, the algorithm, and the other arguments of `cantons.run`."""
        data = self._built("data", partial(make, "data"))
        problem = self._built("problem", lambda table: _fitting(make_problem(table, data), data))
        recipe = self._built("algorithm", make_algorithm)
        chosen = self.settings.model_dump()
        chosen["name"] = chosen["name"] or Path(self.source).stem
        for kind in ("clock", "aggregate"):
            if kind in self.tables:
                chosen[kind] = self._built(kind, partial(make_recipe, kind))
        if "engine" in self.tables:
            chosen["engine"] = self._built("engine", make_engine)
        return problem, data, recipe, chosen

    def _built(self, kind: str, build: Callable[[Mapping[str, Any]], Any]) -> Any:
        try:
            return build(self.tables[kind])
        except InputError as error:
            raise InputError(f"[{kind}] {error}") from error


def read_study(path: Path, changes: Mapping[str, Any] | None = None) -> Study:
    """Read and check `path`; `changes` are dotted keys with new values, as `--set` gives them."""
    try:
        with path.open("rb") as file:
            raw = tomllib.load(file)
    except OSError as error:
        raise InputError(f"cannot read the study {path}: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not TOML: it is not UTF-8 text.") from error
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{path} is not TOML: {error}.") from error
    for key, value in (changes or {}).items():
        _set(raw, key, value, str(path))
    return check_study(raw, str(path), path.parent)


def check_study(raw: Mapping[str, Any], source: str, folder: Path | None = None) -> Study:
    """Check every key against what it names; files are looked for beside the study first."""
    tables = {key: raw[key] for key in TABLES if key in raw}
    for key in REQUIRED:
        if key not in tables:
            raise InputError(f"{source} has no [{key}] table; a study needs [data], [problem] and [algorithm].")
    rest = {key: value for key, value in raw.items() if key not in TABLES}
    for key in rest:
        if key not in Settings.model_fields:
            raise InputError(f"{source}: {unknown('key', key, [*Settings.model_fields, *TABLES])}")
    try:
        settings = Settings.model_validate(rest)
    except pydantic.ValidationError as error:
        raise _explained(source, "", error) from error
    checked = {kind: _checked(source, kind, kind, table, folder) for kind, table in tables.items()}
    return Study(source, settings, checked)


def check_part(source: str, kind: str, table: Mapping[str, Any]) -> dict[str, Any]:
    """The table of one part alone, checked as in a study."""
    return _checked(source, kind, kind, table, None)


def _checked(source: str, where: str, kind: str, table: Any, folder: Path | None) -> dict[str, Any]:
    """One table against the signature of the function it names."""
    table = {"name": table} if isinstance(table, str) else table
    if not isinstance(table, Mapping):
        raise InputError(f"{source}: {where} is {table!r}; give a name, or a table with a name and options.")
    if kind in USUAL:
        table = {"name": USUAL[kind], **table}
    if "name" not in table:
        raise InputError(f"{source}: [{where}] has no name; say which {kind} it is.")
    if not isinstance(table["name"], str):
        raise InputError(f"{source}: {where}.name = {table['name']!r}; give a name, as a string.")
    try:
        function = part(kind, table["name"])
    except InputError as error:
        raise InputError(f"{source}: {where}.name: {error}") from error
    if not callable(function):
        raise InputError(f"{source}: {where}.name: {table['name']!r} is not a function.")
    if kind == "problem" and not inspect.signature(function).parameters:
        raise InputError(f"{source}: {where}.name: {table['name']!r} takes no data; give it as the first argument.")
    options = {key: value for key, value in table.items() if key != "name"}
    allowed = _fields(function, skip_first=kind == "problem")
    for key in MODELS if kind == "problem" else ():
        if key in options and key in allowed:
            options[key] = _checked(source, f"{where}.{key}", "model", options[key], folder)
            allowed[key] = (Any, ...)
    for key in options:
        if key not in allowed:
            raise InputError(f"{source}: {unknown(f'option in [{where}]', key, allowed)}")
    # TOML has no word for nothing: "none" stands for it where an option may be left open.
    options = {key: None if value == "none" and type(None) in get_args(allowed[key][0]) else value
               for key, value in options.items()}
    schema = pydantic.create_model(where, __config__=pydantic.ConfigDict(
        arbitrary_types_allowed=True, strict=True), **allowed)
    try:
        schema.model_validate(options)
    except pydantic.ValidationError as error:
        raise _explained(source, where, error) from error
    if kind == "data" and folder is not None and "path" in options and (folder / options["path"]).exists():
        options["path"] = str(folder / options["path"])
    return {"name": table["name"], **options}


def _fields(function: Callable, skip_first: bool) -> dict[str, Any]:
    """A pydantic field for each option of a part."""
    return {option.name: (option.annotation, ... if option.default is option.empty else option.default)
            for option in options_of(function, given=int(skip_first)).parameters
            if option.kind is not option.VAR_KEYWORD}


def _explained(source: str, where: str, error: pydantic.ValidationError) -> InputError:
    """File, key, value, and what is allowed, of the first thing wrong."""
    first = error.errors()[0]
    key = ".".join(str(step) for step in ([where] if where else []) + list(first["loc"][:1]))
    if first["type"] == "missing":
        return InputError(f"{source}: {key} is missing; it has no default.")
    # A TOML file cannot hold the functions and arrays that Python callers may give.
    wanted = [each["msg"].removeprefix("Input should be ") for each in error.errors()
              if each["loc"][:1] == first["loc"][:1] and each["type"] not in ("callable_type", "is_instance_of")]
    return InputError(f"{source}: {key} = {first['input']!r}; give {', or '.join(dict.fromkeys(wanted))}.")


def _fitting(problem: Problem, data: Federation) -> Problem:
    """Labels that a reader has numbered 0, 1, ... are no quantities, though one could train on them."""
    if problem.numeric_targets and data.classes is not None:
        raise InputError(f"predicts numbers, and the targets of {data.name} are {data.classes} labels; if they are "
                         "numbers, say so (in [data]: regression = true), otherwise use logistic or classification.")
    return problem


def _set(raw: dict[str, Any], key: str, value: Any, source: str) -> None:
    *tables, last = key.split(".")
    for table in tables:
        inner = raw.setdefault(table, {})
        if isinstance(inner, str) and table in (*TABLES, *MODELS):  # a part given by its name alone
            inner = raw[table] = {"name": inner}
        if not isinstance(inner, dict):
            raise InputError(f"{source}: cannot set {key}, because {table} is {inner!r} and has no keys of its own.")
        raw = inner
    raw[last] = value
