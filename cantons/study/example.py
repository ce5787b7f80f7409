"""Example problems to show or to check an algorithm on: the first that it can work with is taken."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from cantons.data import Federation, from_clients, pooled
from cantons.errors import InputError
from cantons.models import mlp
from cantons.problem import bandit, classification, dual_encoder, residual, with_central_loss
from cantons.protocol import Algorithm, Problem, Recipe
from cantons.study.resolve import check_start


class Example(NamedTuple):
    """A problem, and its data."""

    words: str  # what it is
    data: Federation
    problem: Problem


def example_problems(labels: Federation, rows: Federation, contexts: Federation,
                     sequences: Federation) -> list[Example]:
    """A network for `labels`, two linear models for `rows` and a bandit, each with a shared and a private part; the
    network again, beside a datacenter; and a dual encoder for `sequences`, whose table has a loss there."""
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
        Example(f"vectors of {sequences.classes} things, which a datacenter spreads out", sequences, with_central_loss(
            dual_encoder(sequences, width=4), "spreadout")),
    ]


def random_sequences(clients: int, examples: int, test: int, things: int = 40) -> Federation:
    """Clients with some things each, in random order: which comes next?"""
    random, own = np.random.default_rng(4), things // 4

    def client() -> tuple[np.ndarray, np.ndarray]:
        met = random.choice(things, own, replace=False)[random.integers(0, own, (examples + test, 4))]
        return met[:, :3].astype(np.int32), met[:, 3].astype(np.int32)

    return from_clients({f"client{number}": client() for number in range(clients)}, classes=things,
                        test=test / (examples + test))


def first_fitting(recipe: Recipe, examples: list[Example]) -> tuple[Example, Algorithm]:
    """The first example that the algorithm can be built for and begin with; the first refusal if there is none."""
    refusal = None
    for example in examples:
        try:
            algorithm = recipe.build(example.problem, example.data.population)
            if getattr(algorithm, "theory", None) is not None:
                check_start(recipe.name, algorithm, example.problem, 0)
            return example, algorithm
        except InputError as error:
            refusal = refusal or error
    assert refusal is not None
    raise refusal
