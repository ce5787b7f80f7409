"""The two ends every federated method is measured against: everyone alone, and everything in one place."""

from __future__ import annotations

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp

from cantons.aggregate import NO_UPLOADS, mean_of_uploads
from cantons.algorithm.parts.centre import CentralWork, central_batch, centre_of
from cantons.algorithm.parts.schedule import as_schedule, usual_step
from cantons.algorithm.parts.training import LocalOptimizer, LocalWork, Work, trainer
from cantons.algorithm.parts.trees import add
from cantons.options import Flat
from cantons.protocol import Algorithm, Array, Needs, Problem, PyTree
from cantons.ranges import Count
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
def independent(problem: Problem, population: int, *, local: Flat[LocalWork], optimizer: Flat[LocalOptimizer],
                fit_epochs: Count = 5, parts: Literal["all", "private"] = "all") -> Algorithm:
    """Every client trains alone: nothing is sent up, and only the step size comes down.

    fit_epochs: passes that a client which has never acted spends on its model before it predicts.
    parts: "all" of the model is trained, each client with a copy of its own; or the "private" part alone, while the
        shared part, which then comes down too, stands still: the final tuning of a model that was trained before.
    """
    schedule, tuning = as_schedule(local.step_size), parts == "private"

    def train(work, key, message, client, data, step_size):
        """The parts that are a client's own, trained."""
        if tuning:
            tune = trainer(lambda own, nothing, batch: problem.loss(message.shared, own, batch), work, optimizer)
            return (), tune(key, client.private, (), data, step_size).shared
        trained = trainer(problem.loss, work, optimizer)(key, client.own, client.private, data, step_size)
        return trained.shared, trained.private

    def init_server(key, shared, private):
        return Server(shared, (), jnp.zeros((), jnp.int32))

    def init_client(key, shared, private):
        return Alone(() if tuning else shared, private, jnp.zeros((), jnp.int32))

    def broadcast(key, server, central):
        return Message(server.shared if tuning else (), (), schedule(server.round))

    def client_update(key, message, client, data):
        own, private = train(local.work, key, message, client, data, message.step_size)
        return (), Alone(own, private, client.visits + 1)

    def server_update(key, server, nothing, central):
        return server._replace(round=server.round + 1)

    def model(key, message, client, data):
        def first_time():
            return train(Work(fit_epochs, batch_size=local.batch_size), key, message, client, data,
                         usual_step(local.step_size))

        own, private = jax.lax.cond(client.visits == 0, first_time, lambda: (client.own, client.private))
        return message.shared if tuning else own, private

    return Algorithm(init_server, init_client, broadcast, client_update, mean_of_uploads(only=NO_UPLOADS),
                     server_update, model, needs=Needs(shared=False, private=tuning))


TEN_STEPS = LocalWork(steps=10)


@algorithm
def central(problem: Problem, population: int, *, work: Flat[LocalWork] = TEN_STEPS,
            optimizer: Flat[LocalOptimizer]) -> Algorithm:
    """One model trained on everybody's examples together, as if privacy and bandwidth were no matter.

    Private parts are trained as one part common to all. Where the problem has a central loss, each step also has its
    gradient, on as many examples of the datacenter.

    step_size: of the steps: a number, or a schedule over rounds.
    epochs: if `steps` is none, passes over everybody's examples in one round.
    steps: batches drawn at random in one round.
    batch_size: examples in a batch; with none, everybody's examples at once.
    client_optimizer: as for the clients of other algorithms; its state is not kept between rounds.
    clip_norm: no gradient is longer than this.
    """
    schedule = as_schedule(work.step_size)
    train = trainer(lambda parts, nothing, batch: problem.loss(parts[0], parts[1], batch), work.work, optimizer)
    needs = Needs() if problem.central is None else centre_of(
        problem, CentralWork(central_batch_size=work.batch_size)).needs

    def joint(central):
        """Add the gradient of the central loss, where there is one."""
        if problem.central is None:
            return lambda gradient, parts, step: gradient
        loss = problem.central.loss
        return lambda gradient, parts, step: add(gradient, jax.grad(lambda parts: loss(
            *parts, central_batch(central, step, work.batch_size)))(parts))

    def init_server(key, shared, private):
        return Server(shared, private, jnp.zeros((), jnp.int32))

    def init_client(key, shared, private):
        return ()

    def broadcast(key, server, central):
        return Message(server.shared, server.private, schedule(server.round))

    def client_update(key, message, client, data):
        return (), client

    def server_update(key, server, nothing, central):
        trained = train(key, (server.shared, server.private), (), central.pooled, schedule(server.round),
                        adjust=joint(central))
        return Server(*trained.shared, server.round + 1)

    def model(key, message, client, data):
        return message.shared, message.private

    return Algorithm(init_server, init_client, broadcast, client_update, mean_of_uploads(only=NO_UPLOADS),
                     server_update, model, needs=needs._replace(shared=False, pooled=True))
