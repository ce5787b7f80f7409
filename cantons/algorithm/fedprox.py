"""FedProx: FedAvg whose clients are pulled back towards the model they were sent.

Li et al., "Federated Optimization in Heterogeneous Networks", MLSys 2020, Algorithm 2: the local objective
gains (mu / 2) ||w - w_t||^2, here taken by gradient steps; its inexactness gamma is the local work chosen.
With `predict_with = "local"` it is the variant of Wei et al., "Federated Residual Learning" (v2), appendix E.2.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import optax

from cantons.algorithm.parts.averaging import Client, averaging
from cantons.algorithm.parts.schedule import Schedule, usual_step
from cantons.algorithm.parts.training import Optimizer, Work, trainer
from cantons.algorithm.parts.trees import add
from cantons.errors import at_least, one_of
from cantons.protocol import Algorithm, Problem, PyTree
from cantons.recipe import algorithm


class Keeper(NamedTuple):
    """A client that keeps its copy of the shared part, as its own steps left it."""

    own: PyTree
    rest: Client


@algorithm
def fedprox(problem: Problem, population: int, *, mu: float = 0.1, step_size: float | dict | Schedule = 0.1,
            epochs: int = 1, steps: int | None = None, batch_size: int | None = 32,
            client_optimizer: Optimizer = "sgd", weighting: str = "examples",
            clip_norm: float | None = None, fit_epochs: int = 5, predict_with: str = "shared") -> Algorithm:
    """FedAvg with a proximal pull of strength `mu`; `mu = 0` is FedAvg.

    `predict_with = "local"` lets a client predict with its copy of the model before it was averaged, which it keeps;
    one that has never acted first trains a copy as in a round. What is sent and averaged stays the same.
    """
    at_least("mu", mu, 0)
    one_of("predict_with", predict_with, ("shared", "local"))
    train = trainer(problem.loss, Work(epochs, steps, batch_size), client_optimizer, clip_norm)

    def pull(anchor):
        return lambda gradient, shared: jax.tree.map(
            lambda leaf, here, there: leaf + mu * (here - there), gradient, shared, anchor)

    base = averaging(problem, train, step_size, optax.sgd(1.0), weighting, fit_epochs, batch_size, adjust=pull)
    if predict_with == "shared":
        return base

    def init_client(key, shared, private):
        return Keeper(shared, base.init_client(key, shared, private))

    def client_update(key, message, client, data):
        upload, rest = base.client_update(key, message, client.rest, data)
        return upload, Keeper(add(message.shared, upload.change), rest)

    def model(key, message, client, data):
        def first_time():
            _, trained = client_update(key, message._replace(step_size=usual_step(step_size)), client, data)
            return trained.own, trained.rest.private

        return jax.lax.cond(client.rest.visits == 0, first_time, lambda: (client.own, client.rest.private))

    return base._replace(init_client=init_client, client_update=client_update, model=model)
