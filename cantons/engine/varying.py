"""In which numbers of their algorithm runs may differ and still be one program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, get_type_hints

import numpy as np

from cantons.errors import InputError
from cantons.protocol import Parts, Recipe
from cantons.ranges import takes_reals, varying_builder


def varying_options(runs: Sequence[Parts]) -> dict[str, np.ndarray]:
    """The real numbers given to an algorithm in which the runs differ; None of them is known while compiling."""
    first = runs[0].recipe
    reals = [real_options(run.recipe) for run in runs]
    rest = [with_reals(run.recipe.table(), dict.fromkeys(own)) for run, own in zip(runs, reals, strict=True)]
    for run, own, others in zip(runs, reals, rest, strict=True):
        if run.recipe.name != first.name or own.keys() != reals[0].keys() or any(
                others[name] is not value and others[name] != value for name, value in rest[0].items()):
            raise InputError("runs that are one program have the same algorithm and differ in its real numbers alone.")
    values = {name: np.array([own[name] for own in reals]) for name in reals[0]}
    return {name: numbers for name, numbers in values.items() if len(set(numbers.tolist())) > 1}


def real_options(recipe: Recipe) -> dict[str, float]:
    """The options that may vary inside one program: those given as a plain real number and declared as one.

    Those of a table, or of a recipe among the options, have both names, as in "tuner.step_size".
    """
    if recipe.again is None:
        return {}
    found = {}
    declared: Mapping[str, Any] = recipe.again.__signature__.parameters  # type: ignore[attr-defined]
    for name, value in recipe.options.items():
        if isinstance(value, float) and takes_reals(declared[name].annotation):
            found[name] = value
        elif isinstance(value, Recipe):
            found |= {f"{name}.{key}": number for key, number in real_options(value).items()}
        elif isinstance(value, dict) and (build := varying_builder(declared[name].annotation, value)) is not None:
            inner = get_type_hints(build, include_extras=True)
            found |= {f"{name}.{key}": number for key, number in value.items()
                      if isinstance(number, float) and takes_reals(inner[key])}
    return found


def with_reals(options: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """The same options with other values, under names as `real_options` has them."""
    changed = dict(options)
    for path, value in values.items():
        name, _, key = path.partition(".")
        inner = changed[name]
        if isinstance(inner, Recipe):
            assert inner.again is not None
            changed[name] = inner.again(**with_reals(inner.options, {key: value}))
        else:
            changed[name] = with_reals(inner, {key: value}) if key else value
    return changed
