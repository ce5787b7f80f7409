"""SCAFFOLD: control variates take the clients' drift out of their local steps.

Karimireddy et al., "SCAFFOLD: Stochastic Controlled Averaging for Federated Learning", ICML 2020,
Algorithm 1. In the paper x is `shared`, y_i the local copy, c `control` and c_i `own_control`.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp

from cantons.aggregate import divided
from cantons.algorithm.parts.averaging import Averaging
from cantons.algorithm.parts.fitting import fitter, mark_as_acted
from cantons.algorithm.parts.schedule import as_schedule
from cantons.algorithm.parts.training import LocalWork, Work, trainer
from cantons.algorithm.parts.trees import add, norm, scale, subtract, zeros
from cantons.algorithm.parts.tuning import name_diverged
from cantons.options import Flat
from cantons.protocol import Algorithm, Array, Average, Diagnostics, Needs, Problem, PyTree, Sum
from cantons.recipe import algorithm


class Server(NamedTuple):
    shared: PyTree
    control: PyTree
    round: Array


class Client(NamedTuple):
    private: PyTree
    own_control: PyTree
    visits: Array


class Message(NamedTuple):
    shared: PyTree
    control: PyTree
    step_size: Array


class Upload(NamedTuple):
    change: PyTree  # of the shared part
    control_change: PyTree
    weight: PyTree  # the number of examples; empty where all clients count alike


ALIKE = Averaging(weighting="uniform")


@algorithm
def scaffold(problem: Problem, population: int, *, option: Literal["I", "II"] = "II", local: Flat[LocalWork],
             averaged: Flat[Averaging] = ALIKE) -> Algorithm:
    """Control variates take the clients' drift out of their local steps.

    Steps go along g - c_i + c. Under sampling the server's control moves by |S|/N times the cohort's mean change. An
    upload that is lost rolls its client back, so that c stays the mean of all c_i; sampling with replacement would
    break that and is refused.

    option: "I" renews c_i by a gradient at the shared model, which costs one more pass over a client's examples, "II"
        by the path of its local steps.
    weighting: of the changes of the shared part: "uniform", or "examples", by how many a client has. Controls are
        plain means under either, so the limit is that of the plain mean of the clients' losses under either.
    """
    schedule = as_schedule(local.step_size)
    train = trainer(problem.loss, local.work)
    fit = fitter(problem.loss, Work(averaged.fit_epochs, batch_size=local.batch_size), local.step_size)
    weighted = averaged.weighting == "examples"

    def init_server(key, shared, private):
        return Server(shared, zeros(shared), jnp.zeros((), jnp.int32))

    def init_client(key, shared, private):
        return Client(private, zeros(shared), jnp.zeros((), jnp.int32))

    def broadcast(key, server, central):
        return Message(server.shared, server.control, schedule(server.round))

    def client_update(key, message, client, data):
        correction = subtract(message.control, client.own_control)
        trained = train(key, message.shared, client.private, data, message.step_size,
                        adjust=lambda gradient, shared, step: add(gradient, correction))
        change = subtract(trained.shared, message.shared)
        if option == "I":
            own_control = jax.grad(problem.loss)(message.shared, client.private, data.full())
        else:
            # c_i - c + (x - y_i) / (K * step): the mean gradient met on the way, seen from its end.
            way = trained.steps * message.step_size
            met = subtract(scale(-1.0 / jnp.where(way > 0, way, 1.0), change), correction)
            own_control = jax.tree.map(lambda new, old: jnp.where(way > 0, new, old), met, client.own_control)
        weight = jnp.asarray(data.size, float) if weighted else ()
        upload = Upload(change, subtract(own_control, client.own_control), weight)
        return upload, Client(trained.private, own_control, client.visits + 1)

    def lift(upload, message):
        weight = upload.weight if weighted else jnp.ones(())
        return Average(scale(weight, upload.change), weight), Average(upload.control_change, jnp.ones(()))

    def finish(key, total):
        return tuple(divided(part) for part in total)

    def server_update(key, server, cohort, central):
        change, control_change = cohort
        moved = scale(averaged.server_step_size, change.value)
        learned = scale(control_change.weight / population, control_change.value)  # weight: |S|
        return Server(add(server.shared, moved), add(server.control, learned), server.round + 1)

    def model(key, message, client, data):
        return fit(key, message.shared, client.private, data, client.visits)

    return Algorithm(init_server, init_client, broadcast, client_update, Sum(lift, finish), server_update, model,
                     adopt=mark_as_acted, needs=Needs(counts_once=True), diagnostics=Diagnostics(
                         server=lambda server: {"control_norm": norm(server.control)},
                         client=lambda message, client, model, data: {
                             "control_drift": norm(subtract(client.own_control, message.control))},
                         remarks=name_diverged))
