"""What mixed federated learning is measured against: one loss alone, one after the other, or examples that travel.

Augenstein et al., "Mixed Federated Learning: Joint Decentralized and Centralized Learning", 2022, sections 3 and 5.
Only the clients' loss is `fedavg`; both losses with all examples in one place is `central`.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from cantons.aggregate import NO_UPLOADS, mean_of_uploads
from cantons.algorithm.mixed import TEN_STEPS, Server, Serving, clients_of
from cantons.algorithm.parts.centre import CentralWork, centre_of
from cantons.algorithm.parts.fitting import mark_as_acted
from cantons.algorithm.parts.training import LocalOptimizer, LocalWork, is_batch
from cantons.algorithm.parts.trees import add
from cantons.algorithm.parts.tuning import NAMES_DIVERGED
from cantons.options import Flat
from cantons.protocol import Algorithm, Array, Problem, PyTree
from cantons.ranges import Count
from cantons.recipe import algorithm


class Model(NamedTuple):
    shared: PyTree
    private: PyTree


class Examples(NamedTuple):
    """A message with examples of the datacenter: what gradient transfer does without."""

    shared: PyTree
    private: PyTree  # the centre's
    step_size: Array
    batches: PyTree


@algorithm
def only_central(problem: Problem, population: int, *, central: Flat[CentralWork]) -> Algorithm:
    """The centre trains alone, on its own loss; clients are given its model."""
    centre = centre_of(problem, central)

    def init_server(key, shared, private):
        return Server(shared, private, (), (), (), (), jnp.zeros((), jnp.int32))

    def server_update(key, server, nothing, central):
        trained = centre.train(central, server)
        return server._replace(shared=trained.shared, private=trained.private, round=server.round + 1)

    return Algorithm(
        init_server, init_client=lambda key, shared, private: (),
        broadcast=lambda key, server, central: Model(server.shared, server.private),
        client_update=lambda key, message, client, data: ((), client),
        aggregate=mean_of_uploads(only=NO_UPLOADS), server_update=server_update,
        model=lambda key, message, client, data: (message.shared, message.private), needs=centre.needs)


@algorithm
def sequential(problem: Problem, population: int, *, central_rounds: Count = 10, local: Flat[LocalWork] = TEN_STEPS,
               optimizer: Flat[LocalOptimizer], serving: Flat[Serving], central: Flat[CentralWork]) -> Algorithm:
    """The centre trains alone first, then the clients do: what the centre learned is forgotten by and by.

    central_rounds: rounds in which the centre trains and clients' changes are left out.
    """
    clients, centre = clients_of(problem, local, optimizer, serving), centre_of(problem, central)

    def init_server(key, shared, private):
        return Server(shared, private, clients.init_optimizer(shared), (), (), (), jnp.zeros((), jnp.int32))

    def server_update(key, server, mean, central):
        def by_centre():
            trained = centre.train(central, server)
            return server._replace(shared=trained.shared, private=trained.private)

        def by_clients():
            shared, state = clients.serve(mean, server)
            return server._replace(shared=shared, optimizer_state=state)

        moved = jax.lax.cond(server.round < central_rounds, by_centre, by_clients)
        return moved._replace(round=server.round + 1)

    return Algorithm(init_server, clients.init, clients.broadcast, clients.update, clients.averages, server_update,
                     clients.model, adopt=mark_as_acted, needs=centre.needs, diagnostics=NAMES_DIVERGED)


@algorithm
def example_transfer(problem: Problem, population: int, *, local: Flat[LocalWork] = TEN_STEPS,
                     optimizer: Flat[LocalOptimizer], serving: Flat[Serving], central_batch_size: Count = 32,
                     central_batches: Count = 10) -> Algorithm:
    """Clients are sent examples of the datacenter, and take the central loss's gradient where they are.

    That is what gradient transfer approximates, at the price of examples in every message. Where the central loss looks
    at no examples, clients compute it all the same.

    central_batch_size: examples in a central batch.
    central_batches: how many are sent in a round; a client's k-th step uses the k-th, and after the last the first.
    """
    centre = centre_of(problem, CentralWork(central_batch_size=central_batch_size))
    assert problem.central is not None
    loss = problem.central.loss

    def by_examples(message):
        def joint(gradient, shared, step):
            batch = jax.tree.map(lambda leaf: leaf[step % central_batches], message.batches)
            return add(gradient, jax.grad(loss)(shared, message.private, batch))

        return joint

    clients = clients_of(problem, local, optimizer, serving, adjust=by_examples)

    def init_server(key, shared, private):
        return Server(shared, private, clients.init_optimizer(shared), (), (), (), jnp.zeros((), jnp.int32))

    def broadcast(key, server, central):
        batches = jax.vmap(lambda step: central.batch(step, central_batch_size))(jnp.arange(central_batches))
        batches = jax.tree.map(lambda batch: batch._replace(key=()), batches, is_leaf=is_batch)  # keys do not travel
        return Examples(server.shared, server.private, clients.schedule(server.round), batches)

    def server_update(key, server, mean, central):
        shared, state = clients.serve(mean, server)
        return server._replace(shared=shared, optimizer_state=state, round=server.round + 1)

    return Algorithm(init_server, clients.init, broadcast, clients.update, clients.averages, server_update,
                     clients.model, adopt=mark_as_acted, needs=centre.needs, diagnostics=NAMES_DIVERGED)
