"""Partially personalised federated learning: tune the private part, then step on the shared one.

Mishchenko et al., "Partially Personalized Federated Learning: Breaking the Curse of Data Heterogeneity", Algorithms 1,
2 and 4. The paper's theta is `shared`, w_m `private`, gamma_theta `step_size` and Delta_m `gradient`. Clients keep
nothing between rounds unless they are told to. The paper's losses are sums over rows and ours are means, so its step
sizes are to be multiplied by a client's number of rows; `ffgg_step_sizes` gives those of its theorems. Clients count
alike.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax

from cantons.aggregate import mean
from cantons.algorithm.parts.schedule import StepSize, as_schedule, both_schedules
from cantons.algorithm.parts.theorem_steps import ffgg_advice
from cantons.algorithm.parts.training import Optimizer, Work, get_optimizer, gradient_norm
from cantons.algorithm.parts.trees import clip, descend, scale, subtract
from cantons.algorithm.parts.tuning import (
    Tuned,
    TunerTable,
    descent_step,
    name_diverged,
    read_tuner,
    round_of,
    tuner_of,
)
from cantons.options import Flat
from cantons.protocol import (
    Algorithm,
    Array,
    Average,
    Averages,
    Diagnostics,
    PersonalModel,
    Problem,
    PyTree,
)
from cantons.ranges import Count, Positive
from cantons.recipe import algorithm


class Tuning(NamedTuple):
    """How private parts come about.

    tuner: w ~ argmin_w f(theta, w): "gd", "sgd", "optimizer", "lbfgs", "newton" or "newton_cg"; "cg" or "exact" where
        the loss is quadratic in w; or a table with its options. It also tunes clients for evaluations, and new ones;
        where its steps have a schedule over rounds, with the peak or first value of that.
    private_init: what tuning begins with: "random" draws it anew each time, as in the paper, whatever the run began
        with; "fixed" takes the one that the run began with, as the public code does; "last" is where the client's last
        round ended, which it keeps.
    """

    tuner: TunerTable = "gd"
    private_init: Literal["random", "fixed", "last"] = "fixed"


class Serving(NamedTuple):
    """What the server does with the mean of what clients send.

    server_optimizer: "sgd", "momentum", "adam", "adamw", "adagrad", "rmsprop" or "yogi"; in Python also a function from
        a step size to an optax optimiser.
    server_step_size: of that optimiser; with "sgd" and 1, the algorithm as printed.
    """

    server_optimizer: Optimizer = "sgd"
    server_step_size: Positive = 1.0


class Server(NamedTuple):
    shared: PyTree
    start: PyTree  # the private part that tuning begins with, where that is one for all
    optimizer_state: PyTree
    round: Array


class Client(NamedTuple):
    private: PyTree  # nothing, unless it is kept
    diverged: Array  # in how many rounds tuning fell back to its beginning


class Message(NamedTuple):
    shared: PyTree
    start: PyTree
    step_size: Array | tuple[()] = ()  # this and the next one where clients take steps with both parts
    private_step_size: Array | tuple[()] = ()
    round: Array | None = None  # for a tuner whose steps have a schedule


class Upload(NamedTuple):
    gradient: PyTree  # Delta_m


@algorithm
def ffgg(problem: Problem, population: int, *, step_size: StepSize = 0.1, delta_batch_size: Count | None = None,
         tuning: Flat[Tuning], serving: Flat[Serving]) -> Algorithm:
    """Tune the private part at the shared one, send the shared part's gradient there, step along the mean of those.

    Algorithm 1 (FFGG).

    step_size: gamma_theta, of the server: a number, or a schedule over rounds; steps of another server optimizer than
        "sgd" are multiplied by it.
    delta_batch_size: examples behind the gradient that is sent, drawn anew; with none, all of the client's.
    """
    schedule = as_schedule(step_size)
    last = Work(steps=1, batch_size=delta_batch_size)

    def client_update(key, message, client, data):
        tuned = clients.tune(key, message, client, data, message.round)
        gradient = last.fold(jax.random.fold_in(key, 1), data, lambda nothing, batch: jax.grad(problem.loss)(
            message.shared, tuned.private, batch), message.shared)
        return Upload(gradient), clients.keep(client, tuned, tuned.private)

    def server_update(key, server, average, central):
        return clients.step(server, average.value, schedule(server.round))

    clients = clients_of(problem, tuning, serving)
    plain = serving.server_optimizer == "sgd" and delta_batch_size is None
    return clients.build(client_update, server_update, lambda round: ())._replace(advice=ffgg_advice(
        step_size if plain else None, serving.server_step_size, descent_step(tuning.tuner)))


@algorithm
def local_ffgg(problem: Problem, population: int, *, step_size: StepSize = 0.1,
               private_step_size: StepSize | None = None, steps: Count = 1, batch_size: Count | None = None,
               clip_norm: Positive | None = None, tuning: Flat[Tuning], serving: Flat[Serving]) -> Algorithm:
    """Tune the private part, then take some steps with both parts; the shared parts are averaged.

    Algorithm 4 (Local FFGG). In each step the private part moves first, and the shared one moves where that leads.

    step_size: gamma_theta, of a client's steps: a number, or a schedule over rounds.
    private_step_size: gamma_w, of the steps after tuning; the same as `step_size` unless given.
    steps: K.
    batch_size: examples in a step, the same for both parts; with none, all of the client's.
    clip_norm: no gradient of these steps is longer than this.
    """
    schedules, work = both_schedules(step_size, private_step_size), Work(steps=steps, batch_size=batch_size)

    def client_update(key, message, client, data):
        tuned = clients.tune(key, message, client, data, message.round)

        def step(parts, batch):
            shared, private = parts
            gradient = clip(jax.grad(problem.loss, 1)(shared, private, batch), clip_norm)
            private = descend(private, message.private_step_size, gradient)
            gradient = clip(jax.grad(problem.loss)(shared, private, batch), clip_norm)
            return descend(shared, message.step_size, gradient), private

        shared, private = work.fold(jax.random.fold_in(key, 1), data, step, (message.shared, tuned.private))
        return Upload(subtract(message.shared, shared)), clients.keep(client, tuned, private)

    def server_update(key, server, average, central):
        return clients.step(server, average.value)

    clients = clients_of(problem, tuning, serving)
    return clients.build(client_update, server_update, schedules)._replace(
        advice=ffgg_advice(None, 1.0, descent_step(tuning.tuner)))


class Clients(NamedTuple):
    """What Algorithms 1 and 4 have in common."""

    tune: Callable[..., Tuned]  # (key, message, client, data, round=None)
    keep: Callable[[Client, Tuned, PyTree], Client]
    step: Callable[..., Server]  # (server, the mean of what clients sent, length)
    build: Callable[..., Algorithm]


def clients_of(problem: Problem, tuning: Tuning, serving: Serving) -> Clients:
    (tune, needs), round_for = tuner_of(problem, tuning.tuner), round_of(read_tuner(tuning.tuner))
    optimizer = get_optimizer(serving.server_optimizer)(serving.server_step_size)
    kept = tuning.private_init == "last"

    def init_server(key, shared, private):
        return Server(shared, private if tuning.private_init == "fixed" else (), optimizer.init(shared),
                      jnp.zeros((), jnp.int32))

    def init_client(key, shared, private):
        return Client(private if kept else (), jnp.zeros((), jnp.int32))

    def tune_client(key, message, client, data, round=None):
        start = {"random": lambda: problem.init(jax.random.fold_in(key, 2))[1], "fixed": lambda: message.start,
                 "last": lambda: client.private}[tuning.private_init]()
        return tune(jax.random.fold_in(key, 0), message.shared, start, data, round)

    def keep(client, tuned, private):
        return Client(private if kept else (), client.diverged + tuned.diverged)

    def model(key, message, client, data):
        tuned = tune_client(key, message, client, data)
        return PersonalModel(message.shared, tuned.private, {"diverged_tunings": client.diverged + tuned.diverged})

    def diagnose(message, client, model, data):
        return {"gradient_norm": gradient_norm(problem.loss, model, data)}

    def build(client_update: Any, server_update: Any, step_sizes: Callable[[Array], tuple]) -> Algorithm:
        return Algorithm(
            init_server, init_client, lambda key, server, central: Message(
                server.shared, server.start, *step_sizes(server.round))._replace(round=round_for(server.round)),
            client_update, Averages(lambda upload: Average(upload.gradient, jnp.ones(())), mean().build()),
            server_update, model, needs=needs,
            diagnostics=Diagnostics(client=diagnose, remarks=name_diverged))

    return Clients(tune_client, keep, partial(step_server, optimizer), build)


def step_server(optimizer: optax.GradientTransformation, server: Server, direction: PyTree,
                length: Array | float = 1.0) -> Server:
    """The server after a step against a direction, the mean of what clients sent.

    The step is made longer or shorter, not the direction, which adaptive optimizers would scale back.
    """
    moves, state = optimizer.update(direction, server.optimizer_state, server.shared)
    return server._replace(shared=optax.apply_updates(server.shared, scale(length, moves)), optimizer_state=state,
                           round=server.round + 1)
