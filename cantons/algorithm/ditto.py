"""Ditto: beside FedAvg's model every client trains one of its own, which is pulled towards the shared one.

Li, Hu, Beirami and Smith, "Ditto: Fair and Robust Federated Learning Through Personalization", ICML 2021, Algorithm 1.
In the paper w is `shared`, v_k `own` and lambda `penalty`.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import optax

from cantons.algorithm.parts.averaging import Averaging, Client, averaging
from cantons.algorithm.parts.fitting import fit_whole_model
from cantons.algorithm.parts.schedule import usual_step
from cantons.algorithm.parts.training import LocalOptimizer, LocalWork, Work, trainer
from cantons.algorithm.parts.trees import norm, subtract
from cantons.algorithm.parts.whole_model import advise_whole_model
from cantons.options import Flat
from cantons.protocol import Algorithm, Problem, PyTree, begin_alike
from cantons.ranges import NonNegative
from cantons.recipe import algorithm


class Owner(NamedTuple):
    """A client with a whole model of its own, beside what it needs to take part in FedAvg."""

    own: PyTree
    private: PyTree
    rest: Client


@algorithm
def ditto(problem: Problem, population: int, *, penalty: NonNegative = 0.1, local: Flat[LocalWork],
          optimizer: Flat[LocalOptimizer], averaged: Flat[Averaging]) -> Algorithm:
    """FedAvg, and beside it a model of each client's own that stays near the shared one.

    In a round a client trains both, by the same steps on the same batches: the shared model as in FedAvg, and its own
    on f_k(v) + penalty/2 ||v - w||^2, where w is the model it was sent. It predicts with its own; a client that has
    never acted makes one from the shared model.

    penalty: lambda: 0 is local training, and a large one is nearly FedAvg.
    fit_epochs: passes that a client which has never acted spends on a model of its own before it predicts.
    """
    base = averaging(problem, local, optimizer, averaged, optax.sgd(averaged.server_step_size))
    train = trainer(problem.loss, local.work, optimizer)
    work = Work(averaged.fit_epochs, batch_size=local.batch_size)
    first = trainer(problem.loss, work, optimizer)

    def towards(shared):
        return lambda gradient, own, step: jax.tree.map(
            lambda leaf, here, there: leaf + penalty * (here - there), gradient, own, shared)

    def init_client(key, shared, private):
        return Owner(shared, private, base.init_client(key, shared, private))

    def client_update(key, message, client, data):
        upload, rest = base.client_update(key, message, client.rest, data)
        trained = train(key, client.own, client.private, data, message.step_size, adjust=towards(message.shared))
        return upload, Owner(trained.shared, trained.private, rest)

    def model(key, message, client, data):
        began = message.shared, client.private
        return fit_whole_model(problem.loss, work, key, data, began, lambda: first(
            key, *began, data, usual_step(local.step_size), adjust=towards(message.shared)),
            client.rest.visits, (client.own, client.private))

    def diagnose(message, client, model, data):
        return {"drift": norm(subtract(model[0], message.shared)),
                **base.diagnostics.client(message, client.rest, model, data)}

    return base._replace(init_client=init_client, adopt=begin_alike, client_update=client_update, model=model,
                         diagnostics=base.diagnostics._replace(client=diagnose), advice=advise_whole_model)
