"""FedAlt and FedSim: the private and the shared part are trained in turn, or together, and the shared ones averaged.

Pillutla et al., "Federated Learning with Partial Model Personalization", ICML 2022, Algorithms 1 and 2, as they are
compared with FFGG by Mishchenko et al. Stateful clients go on with the private part of their last round; stateless ones
begin with the same one each time, as in the public code.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp

from cantons.aggregate import weighted_mean
from cantons.algorithm.ffgg import Message, Server, Serving, step_server
from cantons.algorithm.parts.fitting import fitter, mark_as_acted
from cantons.algorithm.parts.schedule import StepSize, both_schedules
from cantons.algorithm.parts.training import LocalOptimizer, Work, get_optimizer, gradient_norm
from cantons.algorithm.parts.trees import clip, descend, subtract
from cantons.algorithm.parts.tuning import name_diverged
from cantons.options import Flat
from cantons.protocol import Algorithm, Array, Average, Averages, Data, Diagnostics, Key, Problem, PyTree
from cantons.ranges import Count, Positive
from cantons.recipe import algorithm


class Personal(NamedTuple):
    """How private parts come about, and how much clients count.

    step_size: of the shared part's steps: a number, or a schedule over rounds.
    private_step_size: of the private part's steps; the same as `step_size` unless given.
    batch_size: examples in a batch; with none, all examples of a client at once.
    state: "kept" private parts go on where the client's last round ended; "none" begins with the same one each time.
    weighting: "batches" counts a client by the batches in one pass over its examples, as the public code does;
        "examples" by how many it has; "uniform" counts all clients alike.
    clip_norm: no gradient of a step is longer than this, and no pair of gradients where both parts move together.
    fit_epochs: passes that a client without a private part of its own spends on one before it predicts.
    """

    step_size: StepSize = 0.1
    private_step_size: StepSize | None = None
    batch_size: Count | None = 32
    state: Literal["kept", "none"] = "kept"
    weighting: Literal["batches", "examples", "uniform"] = "uniform"
    clip_norm: Positive | None = None
    fit_epochs: Count = 5


class Client(NamedTuple):
    private: PyTree  # nothing, unless it is kept
    visits: Array


class Upload(NamedTuple):
    change: PyTree
    weight: Array


Train = Callable[[Key, Message, PyTree, Data], tuple[PyTree, PyTree]]  # (key, message, private part, data)


@algorithm
def fedalt(problem: Problem, population: int, *, private_steps: Count = 1, steps: Count = 1,
           personal: Flat[Personal], serving: Flat[Serving]) -> Algorithm:
    """Some steps of the private part while the shared one stands still, then some of the shared part.

    FedAlt, with batches drawn at random.

    private_steps: of the private part in a round.
    steps: of the shared part, after them.
    """
    works = (Work(steps=count, batch_size=personal.batch_size) for count in (private_steps, steps))
    return build(problem, personal, serving, alternate(problem, personal, *works))


@algorithm
def fedsim(problem: Problem, population: int, *, steps: Count = 1, personal: Flat[Personal],
           serving: Flat[Serving]) -> Algorithm:
    """Steps of both parts together: their gradients are taken at the same point, on the same batch.

    FedSim, with batches drawn at random.

    steps: in a round.
    """
    def train(key, message, private, data):
        def step(parts, batch):
            of_shared, of_private = clip(jax.grad(problem.loss, (0, 1))(*parts, batch), personal.clip_norm)
            return (descend(parts[0], message.step_size, of_shared),
                    descend(parts[1], message.private_step_size, of_private))

        return Work(steps=steps, batch_size=personal.batch_size).fold(key, data, step, (message.shared, private))

    return build(problem, personal, serving, train)


def alternate(problem: Problem, personal: Personal, private_work: Work, work: Work) -> Train:
    """First the private part moves while the shared one stands still, then the other way round."""
    def train(key, message, private, data):
        def private_step(private, batch):
            gradient = clip(jax.grad(problem.loss, 1)(message.shared, private, batch), personal.clip_norm)
            return descend(private, message.private_step_size, gradient)

        private = private_work.fold(jax.random.fold_in(key, 0), data, private_step, private)

        def step(shared, batch):
            gradient = clip(jax.grad(problem.loss)(shared, private, batch), personal.clip_norm)
            return descend(shared, message.step_size, gradient)

        return work.fold(jax.random.fold_in(key, 1), data, step, message.shared), private

    return train


def build(problem: Problem, personal: Personal, serving: Serving, train: Train) -> Algorithm:
    """What they have in common; `train` gives the two parts after a round."""
    schedules, kept = both_schedules(personal.step_size, personal.private_step_size), personal.state == "kept"
    optimizer = get_optimizer(serving.server_optimizer)(serving.server_step_size)
    own_step_size = personal.step_size if personal.private_step_size is None else personal.private_step_size
    fit = fitter(problem.loss, Work(personal.fit_epochs, batch_size=personal.batch_size), own_step_size,
                 LocalOptimizer("sgd", personal.clip_norm))

    def init_server(key, shared, private):
        return Server(shared, () if kept else private, optimizer.init(shared), jnp.zeros((), jnp.int32))

    def init_client(key, shared, private):
        return Client(private if kept else (), jnp.zeros((), jnp.int32))

    def broadcast(key, server, central):
        return Message(server.shared, server.start, *schedules(server.round))

    def weight_of(examples):
        if personal.weighting == "examples":
            return examples
        return 1.0 if personal.weighting == "uniform" or personal.batch_size is None else -(
            -examples // personal.batch_size)

    def client_update(key, message, client, data):
        start = client.private if kept else message.start
        shared, private = train(key, message, start, data)
        return (Upload(subtract(message.shared, shared), jnp.asarray(weight_of(data.size), float)),
                Client(private if kept else (), client.visits + 1))

    def server_update(key, server, average, central):
        return step_server(optimizer, server, average.value)

    def model(key, message, client, data):
        own, visits = (client.private, client.visits) if kept else (message.start, jnp.zeros((), jnp.int32))
        return fit(key, message.shared, own, data, visits)

    def diagnose(message, client, model, data):
        return {"gradient_norm": gradient_norm(problem.loss, model, data)}

    return Algorithm(init_server, init_client, broadcast, client_update,
                     Averages(lambda upload: Average(upload.change, upload.weight), weighted_mean().build()),
                     server_update, model, adopt=mark_as_acted,
                     diagnostics=Diagnostics(client=diagnose, remarks=name_diverged))
