"""Clients of any algorithm beside a datacenter: both begin at the shared part of a round, and both changes are added.

Parallel training of Augenstein et al., "Mixed Federated Learning: Joint Decentralized and Centralized Learning", 2022,
Algorithm 1 with plain merging, in which FedAvg at the clients is replaced by an algorithm of choice: FFGG or FedRes,
say, whose clients have private parts. That algorithm is used as it is: what clients do, keep and send does not change.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from cantons.aggregate import NO_UPLOADS
from cantons.algorithm.ffgg import ffgg
from cantons.algorithm.parts.centre import CentralWork, centre_of
from cantons.algorithm.parts.trees import add, subtract
from cantons.errors import InputError
from cantons.options import Flat
from cantons.protocol import Algorithm, Array, Averages, Diagnostics, Probe, Problem, PyTree, Recipe
from cantons.recipe import algorithm

FFGG = ffgg()


class Server(NamedTuple):
    clients: PyTree  # the server's state in the clients' algorithm
    private: PyTree  # the centre's own, where the problem has a private part
    round: Array

    @property
    def shared(self) -> PyTree:
        return self.clients.shared


@algorithm
def parallel_centre(problem: Problem, population: int, *, clients: Recipe = FFGG,
                    central: Flat[CentralWork]) -> Algorithm:
    """A round of any algorithm beside some steps of the centre, both from the same model; their changes are added.

    With fedavg at the clients it is parallel_training with plain merging. Where the clients' algorithm moves the shared
    part by a step of gamma, and the centre makes J of eta, the sum minimises gamma times the clients' loss plus J eta
    times the centre's.

    clients: the algorithm of the clients, with its options: one in rounds, with uploads and without a centre.
    """
    base, centre = built(clients, problem, population), centre_of(problem, central)

    def init_server(key, shared, private):
        return Server(base.init_server(key, shared, private), private, jnp.zeros((), jnp.int32))

    def broadcast(key, server, central):
        return base.broadcast(key, server.clients, central)

    def server_update(key, server, aggregate, central):
        trained = centre.train(central, server)
        moved = base.server_update(key, server.clients, aggregate, central)
        shared = add(moved.shared, subtract(trained.shared, server.shared))
        return Server(moved._replace(shared=shared), trained.private, server.round + 1)

    return base._replace(
        init_server=init_server, broadcast=broadcast, server_update=server_update,
        needs=base.needs._replace(central=centre.needs.central, central_rows=centre.needs.central_rows),
        diagnostics=diagnosed(base.diagnostics))


def diagnosed(base: Diagnostics) -> Diagnostics:
    """What the clients' algorithm measures of its own server."""
    asked = base.probe
    probe = None if asked is None else Probe(
        client=lambda key, server, client, data: asked.client(key, server.clients, client, data),
        finish=lambda server, mean, central: asked.finish(server.clients, mean, central))
    return base._replace(server=lambda server: base.server(server.clients), probe=probe)


def built(clients: Recipe, problem: Problem, population: int) -> Algorithm:
    """The clients' algorithm, unless a centre beside it makes no sense."""
    if not isinstance(clients, Recipe) or clients.kind != "algorithm":
        raise InputError(f"clients is a {type(clients).__name__}, not an algorithm; give one, such as "
                         "ffgg(step_size=0.1), or in a study file { name = \"ffgg\", step_size = 0.1 }.")
    base = clients.build(problem, population)
    uploads = not isinstance(base.aggregate, Averages) or base.aggregate.only != NO_UPLOADS
    reasons = {"it learns from a stream, and a centre works in rounds": base.needs.stream,
               "it pools the clients' examples": base.needs.pooled,
               "it has a datacenter already": bool(base.needs.central),
               "its clients upload nothing, so there is no change of theirs to add": not uploads}
    for reason, holds in reasons.items():
        if holds:
            raise InputError(f"{clients.name} cannot be the clients' algorithm beside a centre, because {reason}; "
                             "choose another, such as ffgg, fedres_avg or fedavg.")
    return base
