"""What is compared: studies as they are, or one study in which each method has an algorithm and options of its own."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from cantons.errors import InputError, shown, with_article
from cantons.files import folder_name, without_separators
from cantons.protocol import Recipe
from cantons.study.callbacks import Callback
from cantons.study.dotted_keys import keys_below, short_keys
from cantons.study.given import as_study, chosen_options
from cantons.study.read import check_changed, read_raw
from cantons.study.registry import part
from cantons.study.stage_tables import METHOD, STAGE
from cantons.study.study import AnyStudy
from cantons.study.values import parsed_algorithm, parsed_method

Changes = Mapping[str, Any]


class Method(NamedTuple):
    """A study under a name; its runs go to <folder>-<seed>."""

    name: str
    folder: str
    study: AnyStudy

    def with_seed(self, seed: int, resplit: bool = False) -> AnyStudy:
        """The study with this seed; with `resplit` its data are split by it, too."""
        return self.study.changed({"seed": seed, **({"data.seed": seed} if resplit else {})})


class Base(NamedTuple):
    """The study that methods have in common."""

    source: str
    change: Callable[[Changes], AnyStudy]  # dotted keys -> the study with these
    has_algorithm: bool = True  # or its stages have; a file may leave it to its methods
    tables: Sequence[Any] = ()  # its [[method]] tables, if it has any
    folder: Path | None = None  # where it stands, if it is a file


def of_studies(studies: Sequence[Any], changes: Changes, watcher: Callback,
               tuned: Collection[str] = ()) -> list[Method]:
    """One method for each study, or path of a study file; several for a file with [[method]] tables.

    Keys that are to be `tuned` are no part of their names.
    """
    _refuse_seed(changes)
    methods = []
    for given in studies:
        base = _base(given)
        if base.tables:
            methods += [_method(base, _of_table(table, base.source, number), changes, watcher, tuned)
                        for number, table in enumerate(base.tables, 1)]
        else:
            study = as_study(given, changes)
            methods.append(Method(study.name, folder_name(study.name), study))
    return methods


def of_one_study(given: Any, algorithms: Sequence[Any], methods: Sequence[Any], changes: Changes,
                 watcher: Callback, tuned: Collection[str] = ()) -> list[Method]:
    """One study with each of the algorithms (recipes, tables, or words as in `name,option=value,...`) and then with
    each of the methods (tables, or words as in `algorithm; key=value; ...`).

    What the study itself says about its algorithm holds for the others too, as far as they have such options; a recipe
    has all of its own.
    """
    _refuse_seed(changes)
    base = _base(given)
    if base.tables:
        raise InputError(f"{base.source} has methods of its own ([[{METHOD}]]); leave algorithm and method out, or "
                         "remove them there.")
    tables = [*({"algorithm": each if isinstance(each, Recipe) else _named(each)} for each in algorithms),
              *(_of_words(each) for each in methods)]
    return [_method(base, table, changes, watcher, tuned) for table in tables]


def _base(given: Any) -> Base:
    if not isinstance(given, str | Path):
        study = as_study(given)
        return Base(study.source, study.changed)
    raw, source, folder = read_raw(given), str(given), Path(given).parent
    tables = raw.pop(METHOD, None)
    if tables is not None and not (isinstance(tables, list) and tables):
        raise InputError(f"{source}: {METHOD} is {shown(tables)}; write a table [[{METHOD}]], in two brackets, for "
                         "each method.")
    return Base(source, lambda changes: check_changed(copy.deepcopy(raw), changes, source, folder),
                "algorithm" in raw or STAGE in raw, tables or (), folder)


def _method(base: Base, table: Changes, changes: Changes, watcher: Callback, tuned: Collection[str]) -> Method:
    """The study with what one method says in place of it: its algorithm first, because keys may be its options."""
    own = dict(table)
    _refuse_seed(own)
    name, algorithm = own.pop("name", None), own.pop("algorithm", None)
    if isinstance(algorithm, Mapping) and "name" not in algorithm:
        own = {**{f"algorithm.{key}": value for key, value in algorithm.items()}, **own}
        algorithm = None
    first, called, options = _with_algorithm(base, algorithm, changes, watcher)
    apart = {**{f"algorithm.{key}": value for key, value in options.items()}, **own}
    if name is not None and not isinstance(name, str):
        raise InputError(f"{base.source}: a method has the name {shown(name)}; give it one as a string.")
    if "clock" in own and "cohort" not in own:
        own["cohort"] = None  # two ways to say who takes part: a method's replaces the study's
    later = {**first, **own}
    below = keys_below(later, changes)
    study = base.change({**{key: value for key, value in changes.items() if key not in below}, **later})
    short = short_keys(apart)
    words = [f"{short[key]}={_short(value)}" for key, value in apart.items() if key not in tuned]
    label = name or ", ".join([called, *words])
    merged = isinstance(first.get("algorithm"), Mapping)  # its table has what the changes say about the algorithm
    for key in keys_below([key for key in later if key != "algorithm" or not merged], below):
        watcher.noticed(f"{label} has its own {key.rpartition('.')[0]}: {key} is not for it.")
    return Method(label, folder_name(without_separators(label.replace(", ", ","))), study.changed({"name": label}))


def _with_algorithm(base: Base, algorithm: Any, changes: Changes, watcher: Callback) -> tuple[Changes, str, Changes]:
    """What puts this algorithm into the study, its name, and the options that are given for it."""
    whole = base.has_algorithm or any(key.partition(".")[0] == "algorithm" for key in changes)
    if algorithm is None and not whole:
        raise InputError(f"{base.source} has no [algorithm], and neither has one of its methods; give it one.")
    table = {}
    if whole:
        study = base.change(changes)
        table = study.algorithm()
        if algorithm is not None and study.stages:
            raise InputError(f"{study.source} has stages, each with an algorithm of its own; leave the algorithm out, "
                             "and compare study files.")
    if algorithm is None:
        return {}, table["name"], {}
    own = {key: value for key, value in table.items() if key != "name"}
    if isinstance(algorithm, Recipe):
        name, options = algorithm.name, chosen_options(algorithm, own)
        first: dict[str, Any] = {"algorithm": algorithm}
    else:
        options = dict(_named(algorithm))
        name = options.pop("name")
        function = part("algorithm", name, base.folder)
        known = inspect.signature(function).parameters if callable(function) else own
        strange = [key for key in own if key not in known]
        if strange:
            watcher.advised(f"{name} has no {' and no '.join(strange)}: what {base.source} says about that is not "
                            "for it.")
        first = {"algorithm": {"name": name, **{key: value for key, value in own.items() if key in known}},
                 **{f"algorithm.{key}": value for key, value in options.items()}}
    return first, name, options


def _short(value: Any) -> Any:
    """A value in a method's name; of a part, what it is called."""
    return value.get("name", value) if isinstance(value, Mapping) else getattr(value, "name", value)


def _of_words(method: Any) -> Changes:
    if isinstance(method, str):
        return parsed_method(method)
    if isinstance(method, Mapping):
        return _flattened(method)
    raise InputError(f"method is {with_article(type(method).__name__)}; give words, such as \"fedrep; "
                     "problem.split=output\", or a table with keys of the study.")


def _of_table(table: Any, source: str, number: int) -> Changes:
    if not isinstance(table, Mapping):
        raise InputError(f"{source}: method {number} is {shown(table)}; give a table.")
    return _flattened(table)


def _flattened(table: Changes) -> dict[str, Any]:
    """A table without a name changes keys of the study's; one with a name takes its place."""
    found: dict[str, Any] = {}
    for key, value in table.items():
        if key != "algorithm" and isinstance(value, Mapping) and "name" not in value and key != "cohort":
            found |= {f"{key}.{inner}": each for inner, each in value.items()}
        else:
            found[key] = value
    return found


def _named(algorithm: Any) -> Changes:
    if isinstance(algorithm, str):
        name, options = parsed_algorithm(algorithm)
        return {"name": name, **options}
    if isinstance(algorithm, Mapping) and isinstance(algorithm.get("name"), str):
        return algorithm
    raise InputError(f"algorithm is {with_article(type(algorithm).__name__)}; give names, such as "
                     "\"fedprox,mu=0.1\", tables, or what such a function makes: ct.fedprox(mu=0.1).")


def _refuse_seed(changes: Changes) -> None:
    if "seed" in changes:
        raise InputError("a comparison runs the seeds 0, 1, ...; say how many with --seeds (in Python: seeds=3), and "
                         "leave seed alone.")
