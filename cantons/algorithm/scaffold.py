"""SCAFFOLD: control variates take the clients' drift out of their local steps.

Karimireddy et al., "SCAFFOLD: Stochastic Controlled Averaging for Federated Learning", ICML 2020,
Algorithm 1. In the paper x is `shared`, y_i the local copy, c `control` and c_i `own_control`.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from cantons.aggregate import mean
from cantons.algorithm.parts.schedule import Schedule, as_schedule, usual_step
from cantons.algorithm.parts.training import Work, fitter, trainer
from cantons.algorithm.parts.trees import add, scale, subtract, zeros
from cantons.errors import at_least, one_of, positive
from cantons.protocol import Algorithm, Array, Needs, Problem, PyTree
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


@algorithm
def scaffold(problem: Problem, population: int, *, option: str = "II", step_size: float | dict | Schedule = 0.1,
             server_step_size: float = 1.0, epochs: int = 1, steps: int | None = None,
             batch_size: int | None = 32, fit_epochs: int = 5) -> Algorithm:
    """Control variates take the clients' drift out of their local steps.

    Steps go along g - c_i + c. `option` "I" renews c_i by a gradient at the shared model, "II" by the path taken.
    Under sampling the server's control moves by |S|/N times the cohort's mean change. An upload that is lost rolls
    its client back, so that c stays the mean of all c_i; sampling with replacement would break that and is refused.
    """
    one_of("option", option, ("I", "II"))
    positive("server_step_size", server_step_size)
    at_least("fit_epochs", fit_epochs, 1)
    schedule = as_schedule(step_size)
    train = trainer(problem.loss, Work(epochs, steps, batch_size))
    fit = fitter(problem.loss, Work(epochs=fit_epochs, batch_size=batch_size), usual_step(step_size))

    def init_server(key, shared, private):
        return Server(shared, zeros(shared), jnp.zeros((), jnp.int32))

    def init_client(key, shared, private):
        return Client(private, zeros(shared), jnp.zeros((), jnp.int32))

    def broadcast(key, server, central):
        return Message(server.shared, server.control, schedule(server.round))

    def client_update(key, message, client, data):
        correction = subtract(message.control, client.own_control)
        local = train(key, message.shared, client.private, data, message.step_size,
                      adjust=lambda gradient, shared: add(gradient, correction))
        change = subtract(local.shared, message.shared)
        if option == "I":
            own_control = jax.grad(problem.loss)(message.shared, client.private, data.full())
        else:
            # c_i - c + (x - y_i) / (K * step): the mean gradient met on the way, seen from its end.
            way = local.steps * message.step_size
            met = subtract(scale(-1.0 / jnp.where(way > 0, way, 1.0), change), correction)
            own_control = jax.tree.map(lambda new, old: jnp.where(way > 0, new, old), met, client.own_control)
        upload = Upload(change, subtract(own_control, client.own_control))
        return upload, Client(local.private, own_control, client.visits + 1)

    def server_update(key, server, cohort, central):
        moved = scale(server_step_size, cohort.value.change)
        learned = scale(cohort.weight / population, cohort.value.control_change)
        return Server(add(server.shared, moved), add(server.control, learned), server.round + 1)

    def model(key, message, client, data):
        private = fit(key, message.shared, client.private, data, client.visits)
        return message.shared, private

    return Algorithm(init_server, init_client, broadcast, client_update, mean, server_update, model,
                     needs=Needs(counts_once=True))
