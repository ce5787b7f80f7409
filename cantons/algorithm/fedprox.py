"""FedProx: FedAvg whose clients are pulled back towards the model they were sent.

Li et al., "Federated Optimization in Heterogeneous Networks", MLSys 2020, Algorithm 2: the local objective
gains (mu / 2) ||w - w_t||^2, here taken by gradient steps; its inexactness gamma is the local work chosen.
With `predict_with = "local"` it is the variant of Wei et al., "Federated Residual Learning" (v2), appendix E.2.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import jax
import optax

from cantons.algorithm.parts.averaging import Averaging, Client, averaging
from cantons.algorithm.parts.fitting import fit_whole_model
from cantons.algorithm.parts.schedule import usual_step
from cantons.algorithm.parts.training import LocalOptimizer, LocalWork, Trained
from cantons.algorithm.parts.trees import add, norm, subtract
from cantons.options import Flat
from cantons.protocol import Algorithm, Problem, PyTree, begin_alike
from cantons.ranges import NonNegative
from cantons.recipe import algorithm


class Keeper(NamedTuple):
    """A client that keeps its copy of the shared part, as its own steps left it."""

    own: PyTree
    rest: Client


@algorithm
def fedprox(problem: Problem, population: int, *, mu: NonNegative = 0.1,
            predict_with: Literal["shared", "local"] = "shared", local: Flat[LocalWork],
            optimizer: Flat[LocalOptimizer], averaged: Flat[Averaging]) -> Algorithm:
    """FedAvg with a proximal pull of strength `mu`; `mu = 0` is FedAvg.

    What is sent and averaged does not depend on `predict_with`.

    mu: strength of the pull towards the model received.
    predict_with: "shared", or "local": a client predicts with its copy of the model before it was averaged, which it
        keeps; a client that has never acted first trains a copy as in a round.
    """

    def pull(anchor):
        return lambda gradient, shared, step: jax.tree.map(
            lambda leaf, here, there: leaf + mu * (here - there), gradient, shared, anchor)

    base = averaging(problem, local, optimizer, averaged, optax.sgd(averaged.server_step_size), adjust=pull)
    if predict_with == "shared":
        return base

    def init_client(key, shared, private):
        return Keeper(shared, base.init_client(key, shared, private))

    def client_update(key, message, client, data):
        upload, rest = base.client_update(key, message, client.rest, data)
        return upload, Keeper(add(message.shared, upload.change), rest)

    def model(key, message, client, data):
        def first_time():
            _, trained = client_update(key, message._replace(step_size=usual_step(local.step_size)), client, data)
            return Trained(trained.own, trained.rest.private, trained.rest.visits)

        return fit_whole_model(problem.loss, local.work, key, data, (message.shared, client.rest.private), first_time,
                           client.rest.visits, (client.own, client.rest.private))

    def diagnose(message, client, model, data):
        drift = norm(subtract(model[0], message.shared))
        return {"drift": drift, **base.diagnostics.client(message, client.rest, model, data)}

    return base._replace(init_client=init_client, adopt=begin_alike, client_update=client_update, model=model,
                         diagnostics=base.diagnostics._replace(client=diagnose))
