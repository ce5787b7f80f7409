"""How much the gradients of clients and datacenter differ: equation 7 of "Mixed Federated Learning".

Augenstein et al., 2022: G~^2 is the least constant with which Definition 4.2 holds here for B = 1, and B~^2 the least
one for G = 0. The larger they are, the more parallel training loses against gradient transfer. Clients count alike.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import jax
import jax.numpy as jnp

from cantons.algorithm.parts.centre import central_batch
from cantons.algorithm.parts.groups import place
from cantons.algorithm.parts.trees import add, norm
from cantons.protocol import Array, CentralTerm, Probe, Problem, PyTree


def dissimilarity_probe(problem: Problem, batch_size: int | None, central_batch_size: int | None) -> Probe:
    """One gradient of each client of a cohort and one of the centre, all at the server's model."""
    groups = len(problem.groups)

    def client_gradient(key, server, client, data):
        # The batch of the client's first step, where it draws batches.
        batch = data.full() if batch_size is None else data.sample(jax.random.fold_in(key, 0), batch_size)
        gradient = jax.grad(problem.loss)(server.shared, client.private, batch)
        return place(data.group, groups, (gradient, jnp.ones(()))) if groups else gradient

    def finish(server, of_clients, central):
        terms = list(zip(*_of_groups(problem, of_clients), strict=True))
        if problem.central is not None:
            batch = central_batch(central, 0, central_batch_size)
            own = problem.central.terms or [CentralTerm("", problem.central.loss, problem.central.weights[1])]
            terms += [(jax.grad(term.loss)(server.shared, server.private, batch), term.weight) for term in own]
        gradients, weights = zip(*terms, strict=True)
        return dissimilarity(gradients, weights)

    return Probe(client_gradient, finish)


def _of_groups(problem: Problem, found: PyTree) -> tuple[list[PyTree], list[float]]:
    """The mean gradient of each group of the cohort, and its weight."""
    if not problem.groups:
        assert problem.central is not None
        return [found], [problem.central.weights[0]]
    sums, shares = found  # of the whole cohort, and what part of it each group is
    means = [jax.tree.map(lambda leaf, number=number: leaf[number] / shares[number], sums)
             for number in range(len(problem.groups))]
    return means, [group.weight for group in problem.groups]


def dissimilarity(gradients: Sequence[PyTree], weights: Sequence[float]) -> dict[str, Array]:
    """G~^2 and B~^2 of gradients that have their weights inside; in the formula the weights add up to 1."""
    shares = [weight / sum(weights) for weight in weights]
    apart = sum(norm(gradient) ** 2 / share if share else float("nan")
                for gradient, share in zip(gradients, shares, strict=True))
    together = norm(functools.reduce(add, gradients)) ** 2
    return {"dissimilarity_G2": apart - together, "dissimilarity_B2": apart / together}
