"""Mixed federated learning: the clients' loss and one of the datacenter are minimised jointly.

Augenstein et al., "Mixed Federated Learning: Joint Decentralized and Centralized Learning", 2022, Algorithms 1 and 2.
The paper's x is `shared`, its g~_c `central_gradient` and g~_f `federated_gradient`. Two misprints are mended: g~_c is
divided by the central step size, and the centre takes J steps everywhere. It adds up its own gradients, so that g~_c is
their mean for every CENTRALOPT. A client's weight is the number of examples it has met, as printed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax.numpy as jnp
import optax

from cantons.aggregate import divided, weighted_mean
from cantons.algorithm.parts.centre import CentralWork, centre_of
from cantons.algorithm.parts.compress import Compression, Compressor, compressor_of
from cantons.algorithm.parts.dissimilarity import dissimilarity_probe
from cantons.algorithm.parts.fitting import fitter, mark_as_acted
from cantons.algorithm.parts.groups import by_group, for_each_group, mapped, refuse_groups, sum_of
from cantons.algorithm.parts.schedule import as_schedule
from cantons.algorithm.parts.select_rows import Absent, Rows, map_tables, select_rows, tables_of
from cantons.algorithm.parts.step_limit import ONE_WAY, PARALLEL, TWO_WAY, Bound, Stepping, step_advice
from cantons.algorithm.parts.training import (
    PLAIN_STEPS,
    Adjust,
    LocalOptimizer,
    LocalWork,
    Optimizer,
    Work,
    get_optimizer,
    trainer,
)
from cantons.algorithm.parts.trees import add, choose, norm, scale, subtract, zeros
from cantons.algorithm.parts.tuning import name_diverged
from cantons.errors import InputError
from cantons.options import Flat
from cantons.protocol import Algorithm, Array, Average, Averages, Diagnostics, Problem, PyTree, Sum
from cantons.ranges import Count, Positive
from cantons.recipe import algorithm

TEN_STEPS = LocalWork(steps=10)


class Serving(NamedTuple):
    """How the changes of clients become that of the federated model, and how a new client catches up.

    server_optimizer: SERVEROPT, of the federated model: the same choice as `client_optimizer`; its state is kept.
    server_step_size: of that optimiser; with "sgd", what the mean change is multiplied by.
    weighting: "examples" counts a client by the examples it met, as printed, so one with K steps moves the mean by
        K^2; "per_step" averages the changes per step instead, and takes the mean number of such steps.
    fit_epochs: passes that a client which has never acted spends on its private part before it predicts.
    """

    server_optimizer: Optimizer = "sgd"
    server_step_size: Positive = 1.0
    weighting: Literal["examples", "per_step"] = "examples"
    fit_epochs: Count = 5


class Merging(NamedTuple):
    """How the change of the federated model and that of the centre become one.

    merge_optimizer: MERGEOPT: the same choice as `client_optimizer`; its state is kept.
    merge_step_size: of that optimiser; with "sgd", what the sum of the two changes is multiplied by.
    """

    merge_optimizer: Optimizer = "sgd"
    merge_step_size: Positive = 1.0


ADDED = Merging()


class Server(NamedTuple):
    shared: PyTree
    private: PyTree  # the centre's own, where the problem has a private part
    optimizer_state: PyTree  # of SERVEROPT
    merge_state: PyTree  # of MERGEOPT
    central_gradient: PyTree  # the mean one of the last round, where it is transferred
    federated_gradient: PyTree
    round: Array
    residual: PyTree = ()  # of the transferred gradient: what clients have not been sent yet


class Client(NamedTuple):
    private: PyTree
    visits: Array


class Message(NamedTuple):
    shared: PyTree
    step_size: Array
    central_gradient: PyTree  # compressed; added to every local gradient; nothing where none is transferred
    group: Array | tuple[()] = ()  # the client's, where there are several


class Upload(NamedTuple):
    change: PyTree
    weight: Array  # examples met
    steps: Array | tuple[()]  # gradient steps made, where they are needed
    gradient_sum: PyTree = ()  # of the raw gradients, where clients send that


@algorithm
def parallel_training(problem: Problem, population: int, *, local: Flat[LocalWork] = TEN_STEPS,
                      optimizer: Flat[LocalOptimizer], serving: Flat[Serving], central: Flat[CentralWork],
                      merging: Flat[Merging], selecting: Flat[Rows]) -> Algorithm:
    """A round of FedAvg beside some steps of the centre, both from the same model; their changes are added.

    Where clients make K steps and the centre J, it minimises K times the clients' loss plus J times the centre's. Where
    clients are of several groups with losses of their own, each group has a round of FedAvg, with a centre or without.
    """
    refuse_groups(problem, selecting.rows)
    clients, centre = clients_of(problem, local, optimizer, serving), centre_of(problem, central, or_groups=True)
    merge_optimizer = get_optimizer(merging.merge_optimizer)(merging.merge_step_size)

    def init_server(key, shared, private):
        return Server(shared, private, for_each_group(problem, clients.init_optimizer(shared)),
                      merge_optimizer.init(shared), (), (), jnp.zeros((), jnp.int32))

    def server_update(key, server, mean, central):
        trained = centre.train(central, server)
        federated, optimizer_state = clients.change(mean, server)
        change = add(subtract(trained.shared, server.shared), federated)
        shared, merge_state = step_along(merge_optimizer, change, server.merge_state, server)
        return server._replace(shared=shared, private=trained.private, optimizer_state=optimizer_state,
                               merge_state=merge_state, round=server.round + 1)

    whole = Algorithm(init_server, clients.init, clients.broadcast, clients.update, clients.averages, server_update,
                      clients.model, adopt=mark_as_acted, needs=centre.needs, diagnostics=Diagnostics(
                          remarks=name_diverged, probe=dissimilarity_probe(
                              problem, local.batch_size, central.central_batch_size)),
                      advice=advice_of(PARALLEL, local, optimizer, serving, central, merging))
    return select_rows(by_group(whole, problem), problem, local.work, optimizer, selecting.rows)


@algorithm
def one_way_transfer(problem: Problem, population: int, *, local: Flat[LocalWork] = TEN_STEPS,
                     optimizer: Flat[LocalOptimizer], serving: Flat[Serving],
                     central_batch_size: Count | None = 32, compressing: Flat[Compression],
                     selecting: Flat[Rows]) -> Algorithm:
    """FedAvg whose clients add one gradient of the central loss, taken before the round, to each of theirs.

    With server_optimizer = "adam" it is the paper's adaptive variant (Figure 12). Clients of several groups are one
    population here, whose mean is over the cohort.

    central_batch_size: examples of the datacenter behind that gradient; with none, all it has.
    """
    check_rows(selecting.rows, optimizer, compressing)
    compressor = compressor_of(compressing)
    clients = clients_of(problem, local, optimizer, serving, by_central_gradient(compressor),
                         counts_steps=selecting.rows is not None)
    centre = centre_of(problem, CentralWork(central_batch_size=central_batch_size))

    def init_server(key, shared, private):
        return Server(shared, private, clients.init_optimizer(shared), (), (), (), jnp.zeros((), jnp.int32),
                      compressor.init(shared))

    def transfer(server, central):
        return compressor.compress(central.key, centre.gradient(central, server), server.residual)

    def broadcast(key, server, central):
        return Message(server.shared, clients.schedule(server.round), transfer(server, central).travels)

    def server_update(key, server, mean, central):
        shared, optimizer_state = clients.serve(mean, server)
        return server._replace(shared=shared, optimizer_state=optimizer_state, round=server.round + 1,
                               residual=transfer(server, central).residual)

    def complete(server, mean, lacking, central):
        followed = compressor.decompress(transfer(server, central).travels, server.shared)
        return clients.complete(server, mean, lacking, followed)

    whole = Algorithm(init_server, clients.init, broadcast, clients.update, clients.averages, server_update,
                      clients.model, adopt=mark_as_acted, needs=centre.needs, diagnostics=Diagnostics(
                          remarks=name_diverged, probe=dissimilarity_probe(
                              problem, local.batch_size, central_batch_size)),
                      advice=advice_of(ONE_WAY, local, optimizer, serving))
    return select_rows(whole, problem, local.work, optimizer, selecting.rows, Absent(clients.step_weight, complete))


@algorithm
def two_way_transfer(problem: Problem, population: int, *, local: Flat[LocalWork] = TEN_STEPS,
                     optimizer: Flat[LocalOptimizer], serving: Flat[Serving], central: Flat[CentralWork],
                     merging: Flat[Merging], compressing: Flat[Compression], selecting: Flat[Rows],
                     federated_gradient: Literal["change", "raw"] = "change") -> Algorithm:
    """Parallel training in which either side adds the other's mean gradient of the last round to each of its own.

    Each side then follows both losses, and the two changes are added: merge_step_size = 0.5 is the setting in which it
    moves as far as the others do, and only then is a faster run more than a doubled step. Where clients are of several
    groups with losses of their own, each is a side: of n sides, each adds the gradients of all others, and 1 / n is
    the fair setting.

    federated_gradient: "change" takes the clients' mean gradient from their changes, which needs plain SGD at clients;
        "raw" lets them send the sum of their gradients too, for any optimiser and twice the upload.
    """
    check_rows(selecting.rows, optimizer, compressing)
    refuse_groups(problem, selecting.rows)
    raw = federated_gradient == "raw"
    if not raw and optimizer != PLAIN_STEPS:
        raise InputError("two_way_transfer takes the clients' gradients from their changes, which needs "
                         "client_optimizer = \"sgd\" without clip_norm; use them, or let clients send their gradients "
                         "with federated_gradient = \"raw\".")
    compressor = compressor_of(compressing)
    clients = clients_of(problem, local, optimizer, serving, by_central_gradient(compressor), counts_steps=True,
                         raw=raw)
    centre = centre_of(problem, central, or_groups=True)
    merge_optimizer = get_optimizer(merging.merge_optimizer)(merging.merge_step_size)

    def init_server(key, shared, private):
        return Server(shared, private, for_each_group(problem, clients.init_optimizer(shared)),
                      merge_optimizer.init(shared), zeros(shared), for_each_group(problem, zeros(shared)),
                      jnp.zeros((), jnp.int32), for_each_group(problem, compressor.init(shared)))

    def transfer(server, central):
        return mapped(problem, lambda gradient, residual: compressor.compress(central.key, gradient, residual))(
            of_the_others(server), server.residual)

    def of_the_others(server):
        if not problem.groups:
            return server.central_gradient
        everybody = add(server.central_gradient, sum_of(problem, server.federated_gradient))
        return subtract(for_each_group(problem, everybody), server.federated_gradient)

    def broadcast(key, server, central):
        return Message(server.shared, clients.schedule(server.round), transfer(server, central).travels)

    def lift(upload, message):
        # -Delta_i / eta - K_i g~_c: the sum of the gradients that the client met, without what was added to them.
        met = upload.gradient_sum if raw else subtract(
            scale(-1 / message.step_size, upload.change),
            scale(upload.steps, compressor.decompress(message.central_gradient, message.shared)))
        value, weight = clients.averages.read(upload)
        return Average(scale(weight, value), weight), Average(met, upload.steps)

    def finish(key, total):
        return tuple(divided(part) for part in total)

    def server_update(key, server, cohort, central):
        mean, met = cohort
        trained = centre.train(central, server, sum_of(problem, server.federated_gradient))
        federated, optimizer_state = clients.change(mean, server)
        change = add(subtract(trained.shared, server.shared), federated)
        shared, merge_state = step_along(merge_optimizer, change, server.merge_state, server)
        return Server(shared, trained.private, optimizer_state, merge_state,
                      scale(1 / trained.steps.astype(float), trained.gradient_sum),
                      latest(met, server.federated_gradient), server.round + 1, transfer(server, central).residual)

    def latest(met, before):  # a group of which nobody was heard keeps its gradient
        return mapped(problem, lambda met, old: choose(met.weight > 0, met.value, old))(met, before) if (
            problem.groups) else met.value

    def complete(server, cohort, lacking, central):
        mean, met = cohort  # a client meets no gradient in the rows that it does not hold
        followed = compressor.decompress(transfer(server, central).travels, server.shared)
        return clients.complete(server, mean, lacking, followed), met

    whole = Algorithm(init_server, clients.init, broadcast, clients.update, Sum(lift, finish), server_update,
                      clients.model, adopt=mark_as_acted, needs=centre.needs, diagnostics=Diagnostics(
                          lambda server: {"central_gradient": norm(server.central_gradient),
                                          "federated_gradient": norm(server.federated_gradient)},
                          probe=dissimilarity_probe(problem, local.batch_size, central.central_batch_size),
                          remarks=name_diverged),
                      advice=advice_of(TWO_WAY, local, optimizer, serving, central, merging))
    return select_rows(by_group(whole, problem), problem, local.work, optimizer, selecting.rows,
                       Absent(clients.step_weight, complete))


class Clients(NamedTuple):
    """CLIENTUPDATE, and what becomes of the changes it returns."""

    schedule: Callable[[Array], Array]
    init: Callable[..., Client]
    broadcast: Callable[..., Message]  # of the model and nothing more
    update: Callable[..., tuple[Upload, Client]]
    model: Callable[..., tuple[PyTree, PyTree]]
    averages: Averages
    init_optimizer: Callable[[PyTree], PyTree]
    serve: Callable[[Average, Server], tuple[PyTree, PyTree]]  # SERVEROPT: -> (the federated model, optimizer_state)
    change: Callable[[Average, Server], tuple[PyTree, PyTree]]  # the same: -> (its change, optimizer_state)
    step_weight: Callable[[Upload], Array]  # what one step of a client, or all of them, weigh in the mean change
    complete: Callable[[Server, Average, Array, PyTree], Average]  # where clients hold some rows only; see there


def by_central_gradient(compressor: Compressor) -> Callable[[Message], Adjust]:
    """Add the centre's gradient to each local one."""

    def adjust(message: Message) -> Adjust:
        central_gradient = compressor.decompress(message.central_gradient, message.shared)
        return lambda gradient, shared, step: add(gradient, central_gradient)

    return adjust


def check_rows(rows: int | None, optimizer: LocalOptimizer, compressing: Compression) -> None:
    """Refuse rows where a client's steps along the central gradient cannot be told without it, or it has no rows."""
    if rows is not None and compressing.compression == "top_k":
        raise InputError("compression = \"top_k\" sends entries of whole tables, and with rows a client holds some "
                         "of them only; use compression = \"int8\", or leave rows out.")
    if rows is not None and optimizer != PLAIN_STEPS:
        raise InputError("with rows, the server adds what clients would have done along the central gradient to the "
                         "rows they do not hold, which needs client_optimizer = \"sgd\" without clip_norm; use them, "
                         "or leave rows out.")


def advice_of(bound: Bound, local: LocalWork, optimizer: LocalOptimizer, serving: Serving,
              central: CentralWork | None = None, merging: Merging = ADDED) -> Callable[..., list[str]]:
    """A notice where the steps of clients or centre are above Table 4's limit; its merging rate is 1."""
    rates = {"server_step_size": serving.server_step_size, "merge_step_size": merging.merge_step_size}
    optimizers = [serving.server_optimizer, merging.merge_optimizer]
    steppings = [Stepping(local.step_size, math.prod(rates.values()), local.work.most_steps)]
    if central is not None:
        optimizers.append(central.central_optimizer)
        steppings.append(Stepping(central.central_step_size, merging.merge_step_size,
                                  lambda size: central.central_steps))
    plain = optimizer == PLAIN_STEPS and all(name == "sgd" for name in optimizers)
    return step_advice(bound, rates, steppings, plain)


def clients_of(problem: Problem, local: LocalWork, optimizer: LocalOptimizer, serving: Serving,
               adjust: Callable[[Any], Adjust] | None = None, counts_steps: bool = False, raw: bool = False) -> Clients:
    """Clients that train as FedAvg's do; `adjust(message)` changes their local directions."""
    schedule = as_schedule(local.step_size)
    train = trainer(problem.loss, local.work, optimizer, sum_gradients=raw)
    fit = fitter(problem.loss, Work(serving.fit_epochs, batch_size=local.batch_size), local.step_size, optimizer)
    per_step = serving.weighting == "per_step"
    server_optimizer = get_optimizer(serving.server_optimizer)(serving.server_step_size)

    def init_client(key, shared, private):
        return Client(private, jnp.zeros((), jnp.int32))

    def broadcast(key, server, central):
        return Message(server.shared, schedule(server.round), ())

    def client_update(key, message, client, data):
        extra = {} if adjust is None else {"adjust": adjust(message)}
        trained = train(key, message.shared, client.private, data, message.step_size, **extra)
        weight = jnp.asarray(local.work.examples(data.size), float)
        steps = trained.steps.astype(float) if per_step or counts_steps else ()
        return (Upload(subtract(trained.shared, message.shared), weight, steps, trained.gradient_sum),
                Client(trained.private, client.visits + 1))

    def model(key, message, client, data):
        return fit(key, message.shared, client.private, data, client.visits)

    def read(upload):
        if not per_step:
            return Average(upload.change, upload.weight)
        return Average((scale(1 / jnp.maximum(upload.steps, 1), upload.change), upload.steps), upload.weight)

    def serve(mean, server):
        change = scale(mean.value[1], mean.value[0]) if per_step else mean.value
        return step_along(server_optimizer, change, server.optimizer_state, server)

    def change(mean, server):
        def of_one(mean, optimizer_state):
            federated, optimizer_state = serve(mean, server._replace(optimizer_state=optimizer_state))
            return subtract(federated, server.shared), optimizer_state

        changes, optimizer_state = mapped(problem, of_one)(mean, server.optimizer_state)
        return sum_of(problem, changes), optimizer_state

    def step_weight(upload):
        return upload.weight if per_step else upload.weight * upload.steps

    def complete(server, mean, lacking, gradient):
        """The mean change, had all clients held all rows: where they lack one, each step follows `gradient` alone."""
        share = schedule(server.round) * lacking / jnp.maximum(mean.weight, jnp.finfo(mean.weight.dtype).tiny)

        def follow(leaf, gradient):
            return leaf - share.reshape(-1, *[1] * (leaf.ndim - 1)) * gradient

        change = mean.value[0] if per_step else mean.value
        change = map_tables(tables_of(problem), follow, change, gradient)
        return mean._replace(value=(change, mean.value[1]) if per_step else change)

    return Clients(schedule, init_client, broadcast, client_update, model,
                   Averages(read, weighted_mean().build()), server_optimizer.init, serve, change, step_weight,
                   complete)


def step_along(optimizer: optax.GradientTransformation, change: PyTree, state: PyTree,
          server: Server) -> tuple[PyTree, PyTree]:
    """The shared part after a step along a change, whose negative plays the gradient's part."""
    moves, state = optimizer.update(scale(-1.0, change), state, server.shared)
    return optax.apply_updates(server.shared, moves), state
