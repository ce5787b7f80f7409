"""Federated Residual Learning online, with late messages: a server and its clients fit each other's residuals.

Agarwal, Langford and Wei, "Federated Residual Learning", 2020 (v1), section 3.2: Algorithms 3 and 4, and the two rules
of section 3.2.1 they improve on. In the paper w^g is `shared`, w_i `private`, eta `step_size`, eta_i
`private_step_size`, D `radius`, and z_{i,t} is an `Upload`: global features, the local model's outputs, targets.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp

from cantons.aggregate import mean_of, rows, total
from cantons.algorithm.parts.descent import OnlineSteps, PrivateSteps, descent
from cantons.algorithm.parts.trees import scale
from cantons.errors import InputError
from cantons.options import Flat
from cantons.protocol import Algorithm, Needs, Problem, PyTree, Residual
from cantons.recipe import algorithm


class Residuals(NamedTuple):
    """What the server does with the residuals that arrive.

    alignment: when the two halves of a gradient are used. "full" (Algorithms 3 and 4) lets a client wait until the
        server has used its half and has told so; "paired" lets it step at once; under "none" the server moreover takes
        its half at the model it has when the upload arrives.
    combine: the server's gradient is the "sum" of those that arrive, as printed, or the "mean" over all clients, where
        a gradient that has not arrived counts as 0, or the mean over those that have "arrived".
    """

    alignment: Literal["none", "paired", "full"] = "full"
    combine: Literal["sum", "mean", "arrived"] = "sum"


class Server(NamedTuple):
    shared: PyTree
    optimizer_state: PyTree  # of its descent


class Client(NamedTuple):
    private: PyTree
    optimizer_state: PyTree


class Upload(NamedTuple):
    """All that the server learns of a client."""

    features: PyTree  # the global features of the examples of a step
    outputs: jax.Array  # what the private model said
    targets: PyTree


@algorithm
def fedres_online_sgd(problem: Problem, population: int, *, steps: Flat[OnlineSteps], private_steps: Flat[PrivateSteps],
                      residuals: Flat[Residuals]) -> Algorithm:
    """Each client learns from its own feedback, the server from residuals, both under delay.

    Both halves of a gradient are taken at the pair of models that predicted. Of the three alignments the paper
    recommends "full"; in our measurements "none" suffers least from delay, and all three are one without it.

    radius: the largest norm of the shared part; none leaves it free.
    """
    joint = joint_prediction(problem)
    alignment, combine = residuals
    step, own_step = descent(steps), descent(private_steps.of(steps))

    def init_server(key, shared, private):
        return Server(shared, step.init(shared))

    def init_client(key, shared, private):
        return Client(private, own_step.init(private))

    def broadcast(key, server, central):
        return server.shared

    def private_gradient(key, shared, client, data):
        return jax.grad(problem.loss, argnums=1)(shared, client.private, data.now())

    def receive(shared, receipt, client):
        moved = Client(*own_step.move(client.private, client.optimizer_state, receipt.note))
        return jax.tree.map(lambda new, old: jnp.where(receipt.heard, new, old), moved, client)

    def client_update(key, shared, client, data):
        batch = data.now()
        upload = Upload(joint.features(batch.inputs), joint.private(client.private, batch.inputs), batch.targets)
        if alignment != "full":
            gradient = private_gradient(key, shared, client, data)
            client = Client(*own_step.move(client.private, client.optimizer_state, gradient))
        return upload, client

    def shared_gradient(upload, shared):
        return jax.grad(lambda candidate: joint.loss(
            joint.shared(candidate, upload.features) + upload.outputs, upload.targets,
            jnp.ones(upload.outputs.shape[0])))(shared)

    def gradient_now(shared, uploads, counts):
        """The gradient of all examples that arrived in this step, at the server's current model."""
        gradients = jax.vmap(shared_gradient, in_axes=(0, None))(uploads, shared)
        gradient = jax.tree.map(lambda leaf: jnp.tensordot(counts.astype(leaf.dtype), leaf, 1), gradients)
        return scale(1 / jnp.maximum(counts.sum(), 1), gradient) if combine == "arrived" else gradient

    def server_update(key, server, arrived, central):
        gradient = gradient_now(server.shared, *arrived) if alignment == "none" else arrived
        if combine == "mean":
            gradient = scale(1 / population, gradient)
        return Server(*step.move(server.shared, server.optimizer_state, gradient))

    def model(key, shared, client, data):
        return shared, client.private

    gradients = mean_of(shared_gradient) if combine == "arrived" else total(shared_gradient)
    built = Algorithm(init_server, init_client, broadcast, client_update, rows if alignment == "none" else gradients,
                      server_update, model, needs=Needs(shared=False, stream=True))
    return built._replace(receive=receive, note=private_gradient) if alignment == "full" else built


def joint_prediction(problem: Problem) -> Residual:
    if problem.residual is None:
        raise InputError("this algorithm needs a joint prediction, a shared plus a private model; make the problem "
                         "with residual(data, ...), or in a study file [problem] name = \"residual\".")
    return problem.residual
