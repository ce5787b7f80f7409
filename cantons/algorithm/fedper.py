"""FedPer: base layers are averaged, personalisation layers stay with their clients, and both are trained together.

Arivazhagan, Aggarwal, Singh and Choudhary, "Federated Learning with Personalization Layers", 2019, Algorithms 1 and 2.
The base W_B is the shared part and W_P the private one. It is FedAvg of the shared part, and clients count by their
examples.
"""

from __future__ import annotations

import optax

from cantons.algorithm.parts.averaging import Averaging, averaging
from cantons.algorithm.parts.training import LocalOptimizer, LocalWork, gradient_norm
from cantons.options import Flat
from cantons.protocol import Algorithm, Needs, Problem
from cantons.recipe import algorithm


@algorithm
def fedper(problem: Problem, population: int, *, local: Flat[LocalWork], optimizer: Flat[LocalOptimizer],
           averaged: Flat[Averaging]) -> Algorithm:
    """Some epochs of both parts together; the shared parts are averaged, and the private ones kept."""
    base = averaging(problem, local, optimizer, averaged, optax.sgd(averaged.server_step_size))
    told = base.diagnostics

    def diagnose(message, client, model, data):
        return {**told.client(message, client, model, data), "gradient_norm": gradient_norm(problem.loss, model, data)}

    return base._replace(needs=Needs(private=True), diagnostics=told._replace(client=diagnose))
