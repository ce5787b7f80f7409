"""How much the gradients of clients and datacenter differ: equation 7 of "Mixed Federated Learning".

Augenstein et al., 2022: G~^2 is the least constant with which Definition 4.2 holds here for B = 1, and B~^2 the least
one for G = 0. The larger they are, the more parallel training loses against gradient transfer. Clients count alike.
"""

from __future__ import annotations

import jax

from cantons.algorithm.parts.centre import central_batch
from cantons.algorithm.parts.trees import add, norm
from cantons.protocol import Array, Probe, Problem, PyTree


def dissimilarity_probe(problem: Problem, batch_size: int | None, central_batch_size: int | None) -> Probe:
    """One gradient of each client of a cohort and one of the centre, all at the server's model."""
    assert problem.central is not None
    central_loss, weights = problem.central.loss, problem.central.weights

    def client_gradient(key, server, client, data):
        # The batch of the client's first step, where it draws batches.
        batch = data.full() if batch_size is None else data.sample(jax.random.fold_in(key, 0), batch_size)
        return jax.grad(problem.loss)(server.shared, client.private, batch)

    def finish(server, of_clients, central):
        batch = central_batch(central, 0, central_batch_size)
        return dissimilarity(of_clients, jax.grad(central_loss)(server.shared, server.private, batch), weights)

    return Probe(client_gradient, finish)


def dissimilarity(of_clients: PyTree, of_centre: PyTree, weights: tuple[float, float]) -> dict[str, Array]:
    """G~^2 and B~^2 of two gradients that have their weights inside; in the formula the weights add up to 1."""
    share = [weight / sum(weights) for weight in weights]
    apart = sum(norm(gradient) ** 2 / part if part else float("nan") for gradient, part in zip(
        (of_clients, of_centre), share, strict=True))
    together = norm(add(of_clients, of_centre)) ** 2
    return {"dissimilarity_G2": apart - together, "dissimilarity_B2": apart / together}
