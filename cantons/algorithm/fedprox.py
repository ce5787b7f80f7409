"""FedProx: FedAvg whose clients are pulled back towards the model they were sent.

Li et al., "Federated Optimization in Heterogeneous Networks", MLSys 2020, Algorithm 2: the local objective
gains (mu / 2) ||w - w_t||^2, here taken by gradient steps; its inexactness gamma is the local work chosen.
"""

from __future__ import annotations

import jax
import optax

from cantons.algorithm.averaging import averaging
from cantons.algorithm.schedule import Schedule
from cantons.algorithm.training import Optimizer, Work, trainer
from cantons.errors import at_least
from cantons.protocol import Algorithm, Problem
from cantons.recipe import algorithm


@algorithm
def fedprox(problem: Problem, population: int, *, mu: float = 0.1, step_size: float | dict | Schedule = 0.1,
            epochs: int = 1, steps: int | None = None, batch_size: int | None = 32,
            client_optimizer: Optimizer = "sgd", weighting: str = "examples",
            clip_norm: float | None = None, fit_epochs: int = 5) -> Algorithm:
    """FedAvg with a proximal pull of strength `mu`; `mu = 0` is FedAvg."""
    at_least("mu", mu, 0)
    train = trainer(problem.loss, Work(epochs, steps, batch_size), client_optimizer, clip_norm)

    def pull(anchor):
        return lambda gradient, shared: jax.tree.map(
            lambda slope, here, there: slope + mu * (here - there), gradient, shared, anchor)

    return averaging(problem, train, step_size, optax.sgd(1.0), weighting, fit_epochs, batch_size, adjust=pull)
