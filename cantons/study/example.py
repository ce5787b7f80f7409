"""Example problems to show or to check an algorithm on: the first that it can work with is taken."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import jax

from cantons.data import Federation, pooled
from cantons.errors import InputError
from cantons.models import mlp
from cantons.problem import bandit, classification, residual, with_central_loss
from cantons.protocol import Algorithm, Problem, Recipe
from cantons.study.resolve import check_start


class Example(NamedTuple):
    """A problem, and its data."""

    words: str  # what it is
    data: Federation
    problem: Problem


def example_problems(labels: Federation, rows: Federation, contexts: Federation) -> list[Example]:
    """A network for `labels`, two linear models for `rows` and a bandit, each with a shared and a private part; and the
    network again, beside a datacenter."""
    network = classification(labels, mlp(hidden=(16,)), split="output")
    halves: dict[str, Any] = {"shared_features": "first_half", "private_features": "second_half"}
    return [
        Example(f"a network {labels.input_shape[0]}-16-{labels.classes} whose last layer (layer1) is private", labels,
                network),
        Example(f"two linear models, of the first and the second half of {rows.input_shape[0]} inputs, the second "
                "private", rows, residual(rows, **halves)),
        Example("five actions with ten features each, the last five for the private model", contexts,
                bandit(contexts, **halves)),
        Example(f"a network {labels.input_shape[0]}-16-{labels.classes} whose last layer (layer1) is private, and a "
                "datacenter with the same loss", replace(labels, central=pooled(labels.train)),
                with_central_loss(network)),
    ]


def first_fitting(recipe: Recipe, examples: list[Example]) -> tuple[Example, Algorithm]:
    """The first example that the algorithm can be built for and begin with; the first refusal if there is none."""
    refusal = None
    for example in examples:
        try:
            algorithm = recipe.build(example.problem, example.data.population)
            if getattr(algorithm, "theory", None) is not None:
                check_start(recipe.name, algorithm, jax.jit(example.problem.init)(jax.random.key(0)))
            return example, algorithm
        except InputError as error:
            refusal = refusal or error
    assert refusal is not None
    raise refusal
