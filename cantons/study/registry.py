"""The parts a study can name: ours by a word, the user's own as `module:function`."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from cantons import aggregate, algorithm, attack, clock, data, engine, models, problem
from cantons.errors import InputError, shown, unknown, with_article
from cantons.options import options_of
from cantons.protocol import CentralLoss, Engine, Problem, Recipe
from cantons.ranges import alternatives
from cantons.study.blame import blame_user
from cantons.study.source import names_in

REGISTRY: dict[str, Mapping[str, Callable[..., Any]]] = {
    "data": data.DATA,
    "central": data.CENTRAL,
    "groups": data.GROUPINGS,
    "model": models.ARCHITECTURES,
    "problem": {make.__name__: make for make in (
        problem.bandit, problem.classification, problem.dual_encoder, problem.linear, problem.logged_bandit,
        problem.logistic, problem.regression, problem.residual, problem.target)},
    "central_loss": problem.CENTRAL_LOSSES,
    "algorithm": algorithm.ALGORITHMS,
    "clock": clock.CLOCKS,
    "aggregate": aggregate.RULES,
    "attack": attack.ATTACKS,
    "byzantine": {"byzantine": attack.byzantine},
    "engine": engine.ENGINES,
}

ENGINE = ("name", "options", "refuses", "start", "together")  # what an engine has, be it marked or not
TERMS = ("central_loss", "weights", "group_losses", "group_weights")  # in [problem], and no options of its part
OURS = ("model", "problem", "central_loss", "algorithm", "clock", "attack", "engine")
DECORATORS = {"data": "cantons.data.recorded", "aggregate": "cantons.recipe.rule",
              **{kind: f"cantons.recipe.{kind}" for kind in OURS}}


def part(kind: str, name: str, beside: Path | None = None) -> Callable[..., Any]:
    """The function behind a name; a module of the user's may be in the folder `beside` too.

    >>> part("algorithm", "fedavg").__name__
    'fedavg'
    """
    if ":" in name:
        return _imported(kind, name, beside)
    if name not in REGISTRY[kind]:
        raise unknown(kind, name, REGISTRY[kind])
    return REGISTRY[kind][name]


def make(kind: str, table: Mapping[str, Any], *before: Any) -> Any:
    """Build the part a table describes; its `name` finds the function, the rest are options."""
    options = {key: value for key, value in table.items() if key != "name"}
    return part(kind, table["name"])(*before, **options)


def make_problem(table: Mapping[str, Any], federation: Any) -> Problem:
    """A problem's models are parts of their own: a name, or a table with a name and options."""
    options, terms = dict(table), terms_in(table)
    for key in terms:
        del options[key]
    for key in problem.MODELS:
        if key in options:
            model = options[key]
            options[key] = make("model", {"name": model} if isinstance(model, str) else model)
            if not callable(options[key]):
                raise InputError(f"{key} gave a {type(options[key]).__name__}; give a function "
                                 "(input_shape, outputs) -> Model.")
    built = make("problem", options, federation)
    if not isinstance(built, Problem):
        raise InputError(f"{table['name']} returned a {type(built).__name__}; return a Problem.")
    if built.spec is None:
        built = built._replace(spec={key: value for key, value in table.items() if key not in terms})
    groups = federation.clients.groups
    return with_terms(built, terms, () if groups is None else groups.names)


def terms_in(table: Mapping[str, Any]) -> dict[str, Any]:
    """What the table of a problem says of the losses that make up its objective."""
    return {key: table[key] for key in TERMS if key in table}


def with_terms(built: Problem, terms: Mapping[str, Any], groups: Sequence[str]) -> Problem:
    """The problem with the losses of its groups and of the datacenter, where a table tells of them."""
    of_groups = {key: terms[key] for key in ("group_losses", "group_weights") if key in terms}
    of_centre = {key: terms[key] for key in ("central_loss", "weights") if key in terms}
    return with_central(with_groups(built, groups, **of_groups) if of_groups else built, **of_centre)


def with_groups(built: Problem, names: Sequence[str], group_losses: Mapping[str, Mapping[str, Any]] | None = None,
                group_weights: Mapping[str, float] | None = None) -> Problem:
    """The problem in which the groups of the data, in their order, have losses and weights of their own."""
    tables = group_losses or {}
    made = {name: _made_loss(table, built) for name, table in tables.items()}
    return problem.grouped(built, names, made, group_weights, tables)


def with_central(built: Problem, central_loss: Mapping[str, Any] | None = None,
                 weights: Any = None) -> Problem:
    """The problem with the central loss that a table describes, ours or the user's; without one, as it is."""
    if central_loss is None:
        if weights is not None:
            raise InputError("weights are those of the clients' and the datacenter's loss; give a central_loss too, "
                             "such as \"same\".")
        return built
    if "name" not in central_loss:  # several, by name
        return problem.mixed_with(built, {name: _made_loss(table, built) for name, table in central_loss.items()},
                                  weights, central_loss)
    return problem.mixed(built, _made_loss(central_loss, built), problem.EQUAL if weights is None else weights,
                         central_loss)


def _made_loss(table: Mapping[str, Any], built: Problem) -> CentralLoss:
    loss = make("central_loss", table, built)
    if not isinstance(loss, CentralLoss):
        raise InputError(f"{table['name']} returned a {type(loss).__name__}; return a CentralLoss.")
    return loss


def make_central(table: Mapping[str, Any], federation: data.Federation) -> data.Federation:
    """The federation with the datacenter that a table describes: data of its own, or rows taken from the clients."""
    if "name" not in table:  # several kinds, by name
        return data.with_centres(federation, {name: partial(make_central, each) for name, each in table.items()})
    if table["name"] in data.CENTRAL:
        return make("central", table, federation)
    return data.with_central(federation, make_data(table))


def make_data(table: Mapping[str, Any]) -> data.Federation:
    made = make("data", table)
    if not isinstance(made, data.Federation):
        raise InputError(f"{table['name']} returned a {type(made).__name__}, not a federation.")
    return made


def make_recipe(kind: str, table: Mapping[str, Any]) -> Recipe:
    """An algorithm, a clock or a rule with its options chosen; some of them may be such parts themselves."""
    inner = recipes_in(part(kind, table["name"]))
    return make(kind, {key: make_recipe(kind, {"name": value} if isinstance(value, str) else value)
                       if key in inner else value for key, value in table.items()})


def recipes_in(function: Callable[..., Any]) -> list[str]:
    """The options of a part that are parts of its kind: an algorithm in an algorithm."""
    return [option.name for option in options_of(function).parameters if Recipe in alternatives(option.annotation)]


def make_byzantine(table: Mapping[str, Any]) -> attack.Byzantine:
    """Who lies and how: the attack is a part of its own, a name or a table with a name and options."""
    how = table["attack"]
    return make("byzantine", {**table, "attack": make_recipe("attack", {"name": how} if isinstance(how, str) else how)})


def make_algorithm(table: Mapping[str, Any]) -> Recipe:
    return make_recipe("algorithm", table)


def make_engine(table: Mapping[str, Any]) -> Engine:
    made = make("engine", table)
    lacks = [member for member in ENGINE if not hasattr(made, member)]
    if lacks:
        raise InputError(f"{table['name']} is no engine: it lacks {', '.join(lacks)}; see docs/engine.md.")
    return made


def foreign_parts(*tables: Any) -> list[str]:
    """The names in the tables of a study, at any depth, for which a module outside cantons would be imported.

    >>> foreign_parts({"name": "fedavg"}, {"name": "residual", "model": {"name": "nets:small"}})
    ['nets:small']
    """
    return [name for name in names_in(*tables) if ":" in name and name.partition(":")[0].split(".")[0] != "cantons"]


def _imported(kind: str, name: str, beside: Path | None) -> Callable[..., Any]:
    """Import the module, and give back what it holds under that name if it is marked as a part of this kind."""
    module, _, function = name.partition(":")
    where = "write module:function, with the module in the current folder, beside the study or installed."
    if module.endswith(".py"):
        raise InputError(f"{shown(name)} is no name of {_one(kind)}; write {Path(module).stem}:{function}, without the "
                         "folder and .py, and have the module in the current folder, beside the study or installed.")
    if not all(word.isidentifier() for word in (*module.split("."), function)):
        raise InputError(f"{shown(name)} is no name of {_one(kind)}; {where}")
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
    if beside is not None and str(beside.resolve()) not in sys.path:
        sys.path.insert(sys.path.index(here) + 1, str(beside.resolve()))
    try:
        with blame_user(name, anywhere=False):
            found = getattr(importlib.import_module(module), function)
    except InputError:
        raise
    except Exception as error:  # whatever a name that is no name, or a module's own top level, may raise
        raise InputError(f"cannot find the {kind} {shown(name)}: {error}; {where}") from error
    return _marked(kind, name, found)


def _marked(kind: str, name: str, found: Any) -> Callable[..., Any]:
    """Refuse what nobody meant to be called by a study, such as os:system."""
    if not callable(found):
        raise InputError(f"{name!r} is not a function.")
    marks = [own for own, parts in REGISTRY.items() if any(found is ours for ours in parts.values())]
    marks += [found.kind] if getattr(found, "kind", None) in REGISTRY else []
    lacks = [member for member in ENGINE if not hasattr(found, member)]
    if inspect.isclass(found) and not lacks:
        marks.append("engine")
    if kind in marks or (kind == "part" and marks):
        return found
    if marks:
        raise InputError(f"{name} is for [{marks[0]}], not for [{kind}].")
    if kind == "engine" and inspect.isclass(found):
        raise InputError(f"{name} is no engine: it lacks {', '.join(lacks)}; see docs/engine.md.")
    raise InputError(f"{name} is not marked as {_one(kind)}, so it is not called; if it is one, decorate it with "
                     f"@{DECORATORS.get(kind, 'cantons.recipe.algorithm')}.")


def _one(kind: str) -> str:
    """In words: "an engine"; data has no article."""
    return kind if kind == "data" else with_article(kind)
