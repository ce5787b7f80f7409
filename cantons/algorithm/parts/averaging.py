"""Train locally, average the changes, let a server optimiser step: the family FedAvg belongs to.

Reddi et al., "Adaptive Federated Optimization", ICLR 2021, Algorithm 1 (FedOpt). With a server step of 1
it is FedAvg. If the problem has a private part, it moves in the same local steps and stays at its client.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

import jax.numpy as jnp
import optax

from cantons.aggregate import weighted_mean
from cantons.algorithm.parts.fitting import fitter, mark_as_acted
from cantons.algorithm.parts.schedule import as_schedule
from cantons.algorithm.parts.select_rows import ALL_ROWS, Rows, select_rows
from cantons.algorithm.parts.training import Adjust, LocalOptimizer, LocalWork, Work, trainer
from cantons.algorithm.parts.trees import scale, subtract
from cantons.algorithm.parts.tuning import name_diverged
from cantons.protocol import Algorithm, Array, Average, Averages, Diagnostics, Problem, PyTree
from cantons.ranges import Count, Positive


class Averaging(NamedTuple):
    """How the changes of clients become the next shared model, and how a new client catches up.

    server_step_size: what the server multiplies the mean change by, or the step size of its optimiser.
    weighting: "examples" counts a client by how many it has, "uniform" counts all clients alike.
    fit_epochs: passes that a client which has never acted spends on its private part before it predicts.
    """

    server_step_size: Positive = 1.0
    weighting: Literal["examples", "uniform"] = "examples"
    fit_epochs: Count = 5


class Server(NamedTuple):
    shared: PyTree
    optimizer_state: PyTree  # the server optimiser's state
    round: Array


class Client(NamedTuple):
    private: PyTree
    visits: Array  # rounds this client has acted in
    clipped: Array | tuple[()] = ()  # the fraction of its last round's steps with a clipped gradient, if any can be


class Message(NamedTuple):
    shared: PyTree
    step_size: Array


class Upload(NamedTuple):
    change: PyTree  # of the shared part
    weight: Array


def averaging(
    problem: Problem,
    local: LocalWork,
    optimizer: LocalOptimizer,
    averaged: Averaging,
    server_optimizer: optax.GradientTransformation,
    adjust: Callable[[PyTree], Adjust] | None = None,
    selecting: Rows = ALL_ROWS,
) -> Algorithm:
    """Build the algorithm; `adjust(anchor)` changes the local direction given the shared part received."""
    schedule = as_schedule(local.step_size)
    train = trainer(problem.loss, local.work, optimizer)
    fit = fitter(problem.loss, Work(averaged.fit_epochs, batch_size=local.batch_size), local.step_size, optimizer)

    def init_server(key, shared, private):
        return Server(shared, server_optimizer.init(shared), jnp.zeros((), jnp.int32))

    def init_client(key, shared, private):
        return Client(private, jnp.zeros((), jnp.int32), () if optimizer.clip_norm is None else jnp.zeros(()))

    def broadcast(key, server, central):
        return Message(server.shared, schedule(server.round))

    def client_update(key, message, client, data):
        extra = {} if adjust is None else {"adjust": adjust(message.shared)}
        trained = train(key, message.shared, client.private, data, message.step_size, **extra)
        weight = jnp.asarray(data.size, float) if averaged.weighting == "examples" else jnp.ones(())
        clipped = () if optimizer.clip_norm is None else trained.clipped / jnp.maximum(trained.steps, 1)
        return (Upload(subtract(trained.shared, message.shared), weight),
                Client(trained.private, client.visits + 1, clipped))

    def diagnose(message, client, model, data):
        return {} if optimizer.clip_norm is None else {"clipped": client.clipped}

    def server_update(key, server, mean, central):
        # The negated mean change plays the gradient's part.
        moves, optimizer_state = server_optimizer.update(scale(-1.0, mean.value), server.optimizer_state, server.shared)
        return Server(optax.apply_updates(server.shared, moves), optimizer_state, server.round + 1)

    def model(key, message, client, data):
        return fit(key, message.shared, client.private, data, client.visits)

    averages = Averages(lambda upload: Average(upload.change, upload.weight), weighted_mean().build())
    whole = Algorithm(init_server, init_client, broadcast, client_update, averages, server_update, model,
                      adopt=mark_as_acted, diagnostics=Diagnostics(client=diagnose, remarks=name_diverged))
    return select_rows(whole, problem, local.work, optimizer, selecting.rows)
