"""What the server sees of clients that bring their models: features, those models' outputs, and targets."""

from __future__ import annotations

import jax.numpy as jnp

from cantons.errors import InputError
from cantons.local_models.predictions import Predicted
from cantons.protocol import Algorithm, Problem


def server_problem(problem: Problem) -> Problem:
    """The problem whose inputs are `Predicted`: each comes with what its client's own model predicts for it.

    Its private part is a single number, by which those outputs are multiplied: 1 for a client, and 0, the start, for
    nobody in particular, for whom the shared model predicts alone. Its private model is not a part of it any more, so
    it is not a problem of least squares, and no best local model in hindsight is known.
    """
    joint = problem.residual
    if joint is None or joint.private_features is None or joint.score is None:
        raise InputError("local models need a problem made by residual(data, ...): it says what the local models see "
                         "and what the loss is.")
    local_features, score_outputs = joint.private_features, joint.score

    def features(inputs: Predicted):
        return joint.features(inputs.inputs)

    def private_features(inputs: Predicted):
        return local_features(inputs.inputs)

    def private(counts, inputs: Predicted):
        return counts * inputs.outputs

    def predict(shared, counts, inputs):
        return joint.shared(shared, features(inputs)) + private(counts, inputs)

    def loss(shared, counts, batch):
        return joint.loss(predict(shared, counts, batch.inputs), batch.targets, batch.mask)

    def score(shared, counts, batch):
        return score_outputs(predict(shared, counts, batch.inputs), batch.targets)

    return problem._replace(
        init=lambda key: (problem.init(key)[0], jnp.zeros(())), loss=loss, predict=predict, score=score, dense=None,
        residual=joint._replace(features=features, private=private, quadratic=False, empty_batch=None,
                                private_features=private_features))


def server_algorithm(algorithm: Algorithm) -> Algorithm:
    """The same algorithm for clients whose private part is always 1; what they learn, they learn elsewhere."""

    def init_client(key, shared, private):
        return algorithm.init_client(key, shared, jnp.ones_like(private))

    def client_update(key, message, client, data):
        return algorithm.client_update(key, message, client, data)[0], client

    return algorithm._replace(init_client=init_client, client_update=client_update)
