"""Tune every method over the same values, by rows that tests do not see, before methods are compared."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from cantons.errors import InputError
from cantons.study.callbacks import Callback, Labelled
from cantons.study.default_steps import default_steps
from cantons.study.dotted_keys import keys_below
from cantons.study.methods import Method
from cantons.study.plain import plain
from cantons.study.study import AnyStudy
from cantons.study.sweep import at_edge, sweep

FOLDER = "tuning"  # the runs of a method go to <out>/tuning/<method>/<point>-<seed>


class Tuned(NamedTuple):
    """What one method got."""

    chosen: Mapping[str, Any]  # dotted key -> value
    points: int  # how many were tried, each with every seed
    seeds: int
    by: str = ""  # where the scores came from: "validation", or "online"
    at_edge: tuple[str, ...] = ()  # keys of which the smallest or the largest value won: others might be better still
    default_steps: Mapping[str, Any] = {}  # step sizes that nobody gave and that were not tuned: option -> default


def tune(methods: Sequence[Method], grid: Mapping[str, Sequence[Any]], seeds: int, out: Path, watcher: Callback,
         accept_changes: bool = False, overwrite: bool = False) -> tuple[list[Method], dict[str, Tuned]]:
    """The methods with the values that are best for each, and what was found, by the methods' names.

    A key that a method does not have is left out for it, and said; one that nobody has is refused.
    """
    own = _own_keys(methods, grid, watcher)
    tuned: dict[str, Tuned] = {}
    for method in methods:
        values = own[method.name]
        if not values:
            tuned[method.name] = Tuned({}, 1, 0, default_steps=_default_steps(method.study, {}))
            continue
        by, _, outcomes = sweep(method.study, values, seeds, out / FOLDER / method.folder, {},
                                Labelled(watcher, method.name), accept_changes, overwrite=overwrite)
        best = outcomes[0]
        if best.failure:
            raise InputError(f"{method.name}: no value that was tried gives a number: {best.failure}")
        tuned[method.name] = Tuned(best.point, len(outcomes), seeds, by, tuple(at_edge(outcomes)),
                                   _default_steps(method.study.changed(best.point), best.point))
    return [method._replace(study=method.study.changed(tuned[method.name].chosen)) for method in methods], tuned


def _default_steps(study: AnyStudy, tuned: Mapping[str, Any]) -> dict[str, Any]:
    """In Python a value that was chosen and is the default cannot be told from one that was left alone."""
    found = default_steps(study.algorithm_recipe(), study.algorithm())
    return plain({option: value for option, value in found.items() if f"algorithm.{option}" not in tuned})


def _own_keys(methods: Sequence[Method], grid: Mapping[str, Sequence[Any]],
              watcher: Callback) -> dict[str, dict[str, Sequence[Any]]]:
    """What can be tuned in each method; a key of which every value is refused is not its own."""
    found: dict[str, dict[str, Sequence[Any]]] = {method.name: {} for method in methods}
    for key, values in grid.items():
        refusals = {method.name: _refusal(method, key, grid) for method in methods}
        if all(refusals.values()):
            raise InputError(next(iter(refusals.values())))
        lacking = [method.name for method in methods if refusals[method.name] and not _has(method.study, key)]
        if lacking:
            watcher.noticed(f"{key} is not tuned for methods without it: {', '.join(lacking)}.")
        for name, refusal in refusals.items():
            if not refusal:
                found[name][key] = values
            elif name not in lacking:
                watcher.noticed(f"{name} is not tuned over {key}: {refusal}")
    return found


def _has(study: AnyStudy, key: str) -> bool:
    """Whether there is such an option; of a part's own options, whether there is such a part."""
    kind, option, *_ = [*key.split("."), ""]
    return kind != "algorithm" or option in study.algorithm_recipe().options


def _refusal(method: Method, key: str, grid: Mapping[str, Sequence[Any]]) -> str:
    """Why none of a key's values will do, whatever part the grid puts it in; empty if one will."""
    together = [key, *(other for other in grid if keys_below([other], [key]))]
    refusal = ""
    for values in itertools.product(*(grid[each] for each in together)):
        try:
            method.study.changed(dict(zip(together, values, strict=True)))
            return ""
        except InputError as error:
            refusal = refusal or str(error)
    return refusal
