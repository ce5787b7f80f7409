"""pFedMe: every client has a model near the shared one, which descends on the Moreau envelopes of their losses.

T. Dinh, Tran and Nguyen, "Personalized Federated Learning with Moreau Envelopes", NeurIPS 2020, Algorithm 1. In the
paper w is `shared`, theta_i(w) `own`, lambda `penalty`, eta `step_size`, R `steps` and beta `server_step_size`. A
personal model is a function of the shared one, theta_i(w) = argmin_theta f_i(theta) + lambda/2 ||theta - w||^2, so
clients keep nothing of it, and new ones have theirs like all others.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from cantons.aggregate import mean
from cantons.algorithm.parts.schedule import StepSize, as_schedule
from cantons.algorithm.parts.trees import add, norm, norm_squared, scale, subtract
from cantons.algorithm.parts.tuning import TunerTable, name_diverged, read_tuner, round_of, tuner_of
from cantons.algorithm.parts.whole_model import advise_whole_model
from cantons.protocol import Algorithm, Array, Average, Averages, Diagnostics, PersonalModel, Problem, PyTree
from cantons.ranges import Count, Positive
from cantons.recipe import algorithm


class Server(NamedTuple):
    shared: PyTree
    round: Array


class Client(NamedTuple):
    private: PyTree  # the problem's private part, which nothing pulls
    diverged: Array  # how often a personal model fell back to the shared one


class Message(NamedTuple):
    shared: PyTree
    step_size: Array
    round: Array | None  # for a tuner whose steps have a schedule


class Upload(NamedTuple):
    change: PyTree


@algorithm
def pfedme(problem: Problem, population: int, *, penalty: Positive = 1.0, step_size: StepSize = 0.1, steps: Count = 5,
           tuner: TunerTable = "gd", server_step_size: Positive = 1.0) -> Algorithm:
    """Personal models stay near the shared one, which moves towards them: gradient descent on Moreau envelopes.

    Clients count alike. A private part of the problem belongs to the personal model, and nothing pulls it.

    penalty: lambda: strength of the pull of a personal model towards the shared one; a large one is nearly FedAvg.
    step_size: eta, of the steps along lambda (w - theta(w)): a number, or a schedule over rounds.
    steps: R, how many of them a client takes in a round.
    tuner: how theta(w) is found, from w on: "gd", "sgd", "optimizer", "lbfgs", "newton" or "newton_cg"; "cg" or "exact"
        for losses that are quadratic in the model; or a table with its options. Which examples it looks at is up to it.
        It also finds the models for evaluations, and of new clients.
    server_step_size: beta: the server moves so far towards the mean of what clients ended with.
    """
    schedule = as_schedule(step_size)

    def near(shared, parts, batch):
        """f_i(theta) + lambda/2 ||theta - w||^2."""
        away = norm_squared(subtract(parts[0], shared))
        return problem.loss(*parts, batch) + penalty / 2 * away

    def init_parts(key):
        shared, private = problem.init(key)
        return shared, (shared, private)

    tune, needs = tuner_of(problem._replace(loss=near, init=init_parts), tuner)
    round_for = round_of(read_tuner(tuner))

    def init_server(key, shared, private):
        return Server(shared, jnp.zeros((), jnp.int32))

    def init_client(key, shared, private):
        return Client(private, jnp.zeros((), jnp.int32))

    def broadcast(key, server, central):
        return Message(server.shared, schedule(server.round), round_for(server.round))

    def client_update(key, message, client, data):
        def step(number, carry):
            shared, private, diverged = carry
            (own, private), failed = tune(jax.random.fold_in(key, number), shared, (shared, private), data,
                                          message.round)
            slope = scale(penalty, subtract(shared, own))  # of the Moreau envelope
            return subtract(shared, scale(message.step_size, slope)), private, diverged + failed

        shared, private, diverged = jax.lax.fori_loop(
            0, steps, step, (message.shared, client.private, client.diverged))
        return Upload(subtract(shared, message.shared)), Client(private, diverged)

    def server_update(key, server, average, central):
        return Server(add(server.shared, scale(server_step_size, average.value)), server.round + 1)

    def model(key, message, client, data):
        tuned = tune(key, message.shared, (message.shared, client.private), data)
        return PersonalModel(*tuned.private, {"diverged_tunings": client.diverged + tuned.diverged})

    def diagnose(message, client, model, data):
        return {"drift": norm(subtract(model[0], message.shared))}

    return Algorithm(init_server, init_client, broadcast, client_update,
                     Averages(lambda upload: Average(upload.change, jnp.ones(())), mean().build()),
                     server_update, model, needs=needs,
                     diagnostics=Diagnostics(client=diagnose, remarks=name_diverged),
                     advice=advise_whole_model)
