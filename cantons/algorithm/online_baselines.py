"""The two ends that online methods are measured against: every client alone, and one model for all.

"Independent" and "Central" of Agarwal, Langford and Wei, "Federated Residual Learning", 2020 (v1), section 6.2.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from cantons.aggregate import total
from cantons.algorithm.fedres_online import Residuals, fedres_online_sgd, joint_prediction
from cantons.algorithm.parts.descent import OnlineSteps, descent
from cantons.options import Flat
from cantons.protocol import Algorithm, Needs, Problem, PyTree
from cantons.recipe import algorithm


class Server(NamedTuple):
    shared: PyTree


class Alone(NamedTuple):
    """A client that keeps the whole model."""

    parts: tuple[PyTree, PyTree]
    optimizer_state: PyTree


@algorithm
def online_independent(problem: Problem, population: int, *, steps: Flat[OnlineSteps]) -> Algorithm:
    """Every client learns both parts by itself, at once, whatever the links: nothing travels.

    radius: the largest norm of the whole model, both parts; none leaves it free.
    """
    step = descent(steps)

    def init_client(key, shared, private):
        return Alone((shared, private), step.init((shared, private)))

    def client_update(key, message, client, data):
        gradient = jax.grad(lambda parts: problem.loss(*parts, data.now()))(client.parts)
        return (), Alone(*step.move(client.parts, client.optimizer_state, gradient))

    return Algorithm(
        init_server=lambda key, shared, private: Server(shared),
        init_client=init_client,
        broadcast=lambda key, server, central: (),
        client_update=client_update,
        aggregate=total(lambda upload, message: ()),
        server_update=lambda key, server, nothing, central: server,
        model=lambda key, message, client, data: client.parts,
        needs=Needs(shared=False, stream=True),
    )


PAIRED = Residuals(alignment="paired")


@algorithm
def online_central(problem: Problem, population: int, *, steps: Flat[OnlineSteps],
                   residuals: Flat[Residuals] = PAIRED) -> Algorithm:
    """One model of the global features learns from everybody: what FedRes is without its private models.

    alignment: under "paired" (or "full") a gradient is taken at the model that predicted, under "none" at the one the
        server has when the example arrives.
    """
    joint = joint_prediction(problem)

    def no_private(private, inputs):
        return jnp.zeros_like(joint.private(private, inputs))

    def loss(shared, private, batch):
        return joint.loss(joint.shared(shared, joint.features(batch.inputs)), batch.targets, batch.mask)

    without = problem._replace(loss=loss, residual=joint._replace(private=no_private))
    return fedres_online_sgd(**steps._asdict(), **residuals._asdict()).build(without, population)
