"""The two ends every federated method is measured against: everyone alone, and everything in one place."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from cantons.aggregate import mean
from cantons.algorithm.parts.schedule import Schedule, as_schedule, usual_step
from cantons.algorithm.parts.training import Optimizer, Work, trainer
from cantons.errors import at_least
from cantons.protocol import Algorithm, Array, Needs, Problem, PyTree
from cantons.recipe import algorithm


class Alone(NamedTuple):
    """A client that keeps the whole model."""

    own: PyTree
    private: PyTree
    visits: Array


class Server(NamedTuple):
    shared: PyTree
    private: PyTree
    round: Array


class Message(NamedTuple):
    shared: PyTree
    private: PyTree
    step_size: Array


@algorithm
def independent(problem: Problem, population: int, *, step_size: float | dict | Schedule = 0.1, epochs: int = 1,
                steps: int | None = None, batch_size: int | None = 32, optimizer: Optimizer = "sgd",
                clip_norm: float | None = None, fit_epochs: int = 5) -> Algorithm:
    """Every client trains alone: nothing is sent up, and only the step size comes down."""
    at_least("fit_epochs", fit_epochs, 1)
    schedule = as_schedule(step_size)
    train = trainer(problem.loss, Work(epochs, steps, batch_size), optimizer, clip_norm)
    first = trainer(problem.loss, Work(fit_epochs, batch_size=batch_size), optimizer, clip_norm)

    def init_server(key, shared, private):
        return Server(shared, (), jnp.zeros((), jnp.int32))

    def init_client(key, shared, private):
        return Alone(shared, private, jnp.zeros((), jnp.int32))

    def broadcast(key, server, central):
        return Message((), (), schedule(server.round))

    def client_update(key, message, client, data):
        local = train(key, client.own, client.private, data, message.step_size)
        return (), Alone(local.shared, local.private, client.visits + 1)

    def server_update(key, server, nothing, central):
        return server._replace(round=server.round + 1)

    def model(key, message, client, data):
        def first_time():
            trained = first(key, client.own, client.private, data, usual_step(step_size))
            return trained.shared, trained.private

        return jax.lax.cond(client.visits == 0, first_time, lambda: (client.own, client.private))

    return Algorithm(init_server, init_client, broadcast, client_update, mean, server_update, model,
                     needs=Needs(shared=False))


@algorithm
def central(problem: Problem, population: int, *, step_size: float | dict | Schedule = 0.1, steps: int = 10,
            batch_size: int | None = 32, optimizer: Optimizer = "sgd",
            clip_norm: float | None = None) -> Algorithm:
    """One model trained on everybody's examples together, as if privacy and bandwidth were no matter.

    A round is `steps` sampled batches; private parts are trained as one part common to all.
    """
    schedule = as_schedule(step_size)
    train = trainer(problem.loss, Work(steps=steps, batch_size=batch_size), optimizer, clip_norm)

    def init_server(key, shared, private):
        return Server(shared, private, jnp.zeros((), jnp.int32))

    def init_client(key, shared, private):
        return ()

    def broadcast(key, server, everything):
        return Message(server.shared, server.private, schedule(server.round))

    def client_update(key, message, client, data):
        return (), client

    def server_update(key, server, nothing, everything):
        trained = train(key, server.shared, server.private, everything, schedule(server.round))
        return Server(trained.shared, trained.private, server.round + 1)

    def model(key, message, client, data):
        return message.shared, message.private

    return Algorithm(init_server, init_client, broadcast, client_update, mean, server_update, model,
                     needs=Needs(shared=False, central="pooled"))
