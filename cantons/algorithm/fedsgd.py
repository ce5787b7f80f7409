"""FedSGD: clients send a gradient at the shared model, the server takes one step.

McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized Data", AISTATS 2017,
section 2: the baseline FedAvg is measured against (one batch holding all local data, one epoch).
"""

from __future__ import annotations

import optax

from cantons.algorithm.parts.averaging import Averaging, averaging
from cantons.algorithm.parts.schedule import StepSize
from cantons.algorithm.parts.training import LocalOptimizer, LocalWork
from cantons.options import Flat
from cantons.protocol import Algorithm, Problem
from cantons.ranges import Count, Positive
from cantons.recipe import algorithm


@algorithm
def fedsgd(problem: Problem, population: int, *, step_size: StepSize = 0.1, batch_size: Count | None = None,
           clip_norm: Positive | None = None, averaged: Flat[Averaging]) -> Algorithm:
    """One gradient per client and round, over all its examples or over `batch_size` sampled ones.

    FedAvg with a single local step: the upload is minus the step size times the gradient.

    step_size: of the one step in a round: a number, or a schedule over rounds.
    batch_size: sampled examples behind a gradient; with none, all examples of a client.
    clip_norm: no client's gradient is longer than this.
    """
    local = LocalWork(step_size, steps=1, batch_size=batch_size)
    return averaging(problem, local, LocalOptimizer(clip_norm=clip_norm), averaged,
                     optax.sgd(averaged.server_step_size))
