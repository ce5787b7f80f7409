"""Federated Residual Learning online by empirical risk minimisation: both sides fit all they have met, every step.

Agarwal, Langford and Wei, "Federated Residual Learning", 2020 (v1), section 3.1: Algorithms 1 and 2, and the variant of
equations (5) and (6). In the paper w^g is `shared`, w_i `private`, D `radius`; x^g and x^l are the `features` of the
two models. Least squares is fitted here, from sums over the examples; all else in fedres_erm_replay, from the examples.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp

from cantons.aggregate import total
from cantons.algorithm.fedres_erm_replay import Fit, erm_replay, fictitious_play_replay
from cantons.algorithm.fedres_online import Upload, joint_prediction
from cantons.algorithm.parts.trees import add
from cantons.options import Flat
from cantons.protocol import Algorithm, Array, Needs, Problem, PyTree
from cantons.recipe import algorithm
from cantons.solve.least_squares import Normal, equations, features, no_equations, solver, vector


class Server(NamedTuple):
    shared: PyTree
    normal: Normal  # of what private models leave over, summed over all examples that arrived


class Player(NamedTuple):
    private: PyTree
    normal: Normal  # of what shared models left over, each of its own time


class Client(NamedTuple):
    """A client whose sums tell what any pair of models would make of all its examples."""

    private: PyTree
    normal: Normal
    cross: Array  # sum of x^g x^l'
    told: Array  # cross @ private, with the private model of the last upload


class Change(NamedTuple):
    """All that the server needs to apply a new private model to a client's old examples, without seeing either."""

    features: PyTree
    targets: PyTree
    change: Array  # of `told`


@algorithm
def fedres_erm(problem: Problem, population: int, *, fit: Flat[Fit]) -> Algorithm:
    """Each client fits its private model to all it has met, and the server the shared one, at the other's newest.

    Without examples a side keeps its first model. Two linear models under the squared loss are fitted exactly, from
    sums that do not grow with time. A client sends the global features and targets of its new examples, and how the
    sum of global features times private outputs has changed: never a private model.

    Anything else is fitted by `solver_steps` accelerated gradient steps from the last model (from 0 under
    "minimum_norm") to the last `memory` examples of every client; older ones are dropped. A client then sends what its
    private model says about each of them. A silent client counts with what it sent last.
    """
    joint = joint_prediction(problem)
    fit = fit.for_both()
    if not joint.quadratic:
        return erm_replay(joint, population, fit)
    solve = solver(fit.private_radius, fit.ties)

    def init_client(key, shared, private):
        nothing = jnp.zeros_like(vector(shared))
        return Client(private, no_equations(private), jnp.outer(nothing, jnp.zeros_like(vector(private))), nothing)

    def receive(shared, receipt, client):  # equation (2): all examples before those of now
        left_over = client.normal._replace(moment=client.normal.moment - vector(shared) @ client.cross)
        return client._replace(private=solve(left_over, client.private))

    def client_update(key, shared, client, data):
        batch = data.now()
        seen = joint.features(batch.inputs)
        own = features(joint.private, client.private, batch.inputs)
        cross = client.cross + features(joint.shared, shared, seen).T @ own
        told = cross @ vector(client.private)
        # Changes add up only if none is lost on one side: when an upload is, the engine takes back the client's step.
        normal = add(client.normal, equations(own, joint.as_outputs(batch.targets)))
        return Change(seen, batch.targets, told - client.told), Client(client.private, normal, cross, told)

    def lift(upload, shared):
        found = equations(features(joint.shared, shared, upload.features), joint.as_outputs(upload.targets))
        return found._replace(moment=found.moment - upload.change)

    return _build(fit, init_client, client_update, lift)._replace(receive=receive)


@algorithm
def fictitious_play(problem: Problem, population: int, *, fit: Flat[Fit]) -> Algorithm:
    """Like fedres_erm, except that every example keeps what the other side said about it when it was new.

    Nothing old is sent or computed again: an upload has global features, private outputs and targets. The two sides can
    lock each other, and then both learn very slowly (the paper's Appendix C).
    """
    joint = joint_prediction(problem)
    fit = fit.for_both()
    if not joint.quadratic:
        return fictitious_play_replay(joint, population, fit)
    solve = solver(fit.private_radius, fit.ties)

    def init_client(key, shared, private):
        return Player(private, no_equations(private))

    def client_update(key, shared, client, data):  # equation (5)
        batch = data.now()
        seen = joint.features(batch.inputs)
        own = features(joint.private, client.private, batch.inputs)
        normal = add(client.normal, equations(own, joint.as_outputs(batch.targets) - joint.shared(shared, seen)))
        upload = Upload(seen, joint.private(client.private, batch.inputs), batch.targets)
        return upload, Player(solve(normal, client.private), normal)

    def lift(upload, shared):
        left_over = joint.as_outputs(upload.targets) - upload.outputs
        return equations(features(joint.shared, shared, upload.features), left_over)

    return _build(fit, init_client, client_update, lift)


def _build(fit: Fit, init_client: Callable, client_update: Callable, lift: Callable) -> Algorithm:
    """Build the rest: the server solves least squares, whose equations are the sum of all lifted uploads."""
    solve = solver(fit.radius, fit.ties)

    def init_server(key, shared, private):
        return Server(shared, no_equations(shared))

    def broadcast(key, server, central):
        return server.shared

    def server_update(key, server, arrived, central):  # equations (3) and (6)
        normal = add(server.normal, arrived)
        return Server(solve(normal, server.shared), normal)

    def model(key, shared, client, data):
        return shared, client.private

    return Algorithm(init_server, init_client, broadcast, client_update, total(lift), server_update, model,
                     needs=Needs(shared=False, stream=True))
