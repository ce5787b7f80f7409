"""FedOpt: FedAvg with an optimiser of one's choice at the server.

Reddi et al., "Adaptive Federated Optimization", ICLR 2021, Algorithms 1 and 2; FedAvgM is Hsu et al.,
"Measuring the Effects of Non-Identical Data Distribution for Federated Visual Classification", 2019.
The adaptive ones are optax's, which correct Adam's bias where the paper's Algorithm 2 does not; the
paper's degree of adaptivity tau is `epsilon`.
"""

from __future__ import annotations

from typing import NamedTuple

import optax

from cantons.algorithm.parts.averaging import Averaging, averaging
from cantons.algorithm.parts.select_rows import Rows
from cantons.algorithm.parts.training import LocalOptimizer, LocalWork, Optimizer, get_optimizer
from cantons.options import Flat
from cantons.protocol import Algorithm, Problem
from cantons.ranges import Decay, Positive
from cantons.recipe import algorithm


class Adaptive(NamedTuple):
    """Adam and Yogi at the server.

    beta1: decay of the server's average of the changes.
    beta2: decay of its average of their squares.
    epsilon: the paper's degree of adaptivity, tau: the smaller, the more the step of each coordinate is its own.
    """

    beta1: Decay = 0.9
    beta2: Decay = 0.99
    epsilon: Positive = 1e-3


SMALL_STEP = Averaging(server_step_size=0.01)


@algorithm
def fedopt(problem: Problem, population: int, *, server_optimizer: Optimizer = "sgd", local: Flat[LocalWork],
           optimizer: Flat[LocalOptimizer], averaged: Flat[Averaging], selecting: Flat[Rows]) -> Algorithm:
    """Any optax optimiser on either side: a name, or a function from a step size to an optimiser.

    server_optimizer: the same choice as `client_optimizer`, for the server, which keeps its state.
    """
    return averaging(problem, local, optimizer, averaged, get_optimizer(server_optimizer)(averaged.server_step_size),
                     selecting=selecting)


@algorithm
def fedadam(problem: Problem, population: int, *, adaptive: Flat[Adaptive], local: Flat[LocalWork],
            optimizer: Flat[LocalOptimizer], averaged: Flat[Averaging] = SMALL_STEP,
            selecting: Flat[Rows]) -> Algorithm:
    """FedOpt with Adam at the server."""
    return averaging(problem, local, optimizer, averaged, optax.adam(averaged.server_step_size, *adaptive),
                     selecting=selecting)


@algorithm
def fedyogi(problem: Problem, population: int, *, adaptive: Flat[Adaptive], local: Flat[LocalWork],
            optimizer: Flat[LocalOptimizer], averaged: Flat[Averaging] = SMALL_STEP,
            selecting: Flat[Rows]) -> Algorithm:
    """FedOpt with Yogi at the server."""
    return averaging(problem, local, optimizer, averaged, optax.yogi(averaged.server_step_size, *adaptive),
                     selecting=selecting)


@algorithm
def fedavgm(problem: Problem, population: int, *, momentum: Decay = 0.9, local: Flat[LocalWork],
            optimizer: Flat[LocalOptimizer], averaged: Flat[Averaging], selecting: Flat[Rows]) -> Algorithm:
    """FedAvg with server momentum.

    momentum: how much of its last move the server repeats.
    """
    return averaging(problem, local, optimizer, averaged, optax.sgd(averaged.server_step_size, momentum),
                     selecting=selecting)
