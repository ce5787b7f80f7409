"""FedOpt: FedAvg with an optimiser of one's choice at the server.

Reddi et al., "Adaptive Federated Optimization", ICLR 2021, Algorithms 1 and 2; FedAvgM is Hsu et al.,
"Measuring the Effects of Non-Identical Data Distribution for Federated Visual Classification", 2019.
The adaptive ones are optax's, which correct Adam's bias where the paper's Algorithm 2 does not; the
paper's degree of adaptivity tau is `epsilon`.
"""

from __future__ import annotations

import optax

from cantons.algorithm.parts.averaging import averaging
from cantons.algorithm.parts.schedule import Schedule
from cantons.algorithm.parts.training import Optimizer, Work, get_optimizer, trainer
from cantons.errors import at_least, positive
from cantons.protocol import Algorithm, Problem
from cantons.recipe import algorithm


@algorithm
def fedopt(problem: Problem, population: int, *, server_optimizer: Optimizer = "sgd",
           server_step_size: float = 1.0, step_size: float | dict | Schedule = 0.1, epochs: int = 1,
           steps: int | None = None, batch_size: int | None = 32, client_optimizer: Optimizer = "sgd",
           weighting: str = "examples", clip_norm: float | None = None, fit_epochs: int = 5) -> Algorithm:
    """Any optax optimiser on either side: a name, or a function from a step size to an optimiser."""
    positive("server_step_size", server_step_size)
    train = trainer(problem.loss, Work(epochs, steps, batch_size), client_optimizer, clip_norm)
    server = get_optimizer(server_optimizer)(server_step_size)
    return averaging(problem, train, step_size, server, weighting, fit_epochs, batch_size)


@algorithm
def fedadam(problem: Problem, population: int, *, server_step_size: float = 0.01, beta1: float = 0.9,
            beta2: float = 0.99, epsilon: float = 1e-3, step_size: float | dict | Schedule = 0.1,
            epochs: int = 1, steps: int | None = None, batch_size: int | None = 32,
            weighting: str = "examples", fit_epochs: int = 5) -> Algorithm:
    """FedOpt with Adam at the server."""
    return _preset(lambda rate: optax.adam(rate, beta1, beta2, epsilon), problem, population, server_step_size,
                   step_size, epochs, steps, batch_size, weighting, fit_epochs)


@algorithm
def fedyogi(problem: Problem, population: int, *, server_step_size: float = 0.01, beta1: float = 0.9,
            beta2: float = 0.99, epsilon: float = 1e-3, step_size: float | dict | Schedule = 0.1,
            epochs: int = 1, steps: int | None = None, batch_size: int | None = 32,
            weighting: str = "examples", fit_epochs: int = 5) -> Algorithm:
    """FedOpt with Yogi at the server."""
    return _preset(lambda rate: optax.yogi(rate, beta1, beta2, epsilon), problem, population, server_step_size,
                   step_size, epochs, steps, batch_size, weighting, fit_epochs)


@algorithm
def fedavgm(problem: Problem, population: int, *, server_step_size: float = 1.0, momentum: float = 0.9,
            step_size: float | dict | Schedule = 0.1, epochs: int = 1, steps: int | None = None,
            batch_size: int | None = 32, weighting: str = "examples", fit_epochs: int = 5) -> Algorithm:
    """FedAvg with server momentum."""
    at_least("momentum", momentum, 0)
    return _preset(lambda rate: optax.sgd(rate, momentum), problem, population, server_step_size,
                   step_size, epochs, steps, batch_size, weighting, fit_epochs)


def _preset(optimizer, problem, population, server_step_size, step_size, epochs, steps, batch_size, weighting,
            fit_epochs) -> Algorithm:
    return fedopt(server_optimizer=optimizer, server_step_size=server_step_size, step_size=step_size,
                  epochs=epochs, steps=steps, batch_size=batch_size, weighting=weighting,
                  fit_epochs=fit_epochs).build(problem, population)
