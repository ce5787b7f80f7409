"""FedSGD: clients send a gradient at the shared model, the server takes one step.

McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized Data", AISTATS 2017,
section 2: the baseline FedAvg is measured against (one batch holding all local data, one epoch).
"""

from __future__ import annotations

from cantons.algorithm.fedavg import fedavg
from cantons.algorithm.parts.schedule import Schedule
from cantons.protocol import Algorithm, Problem
from cantons.recipe import algorithm


@algorithm
def fedsgd(problem: Problem, population: int, *, step_size: float | dict | Schedule = 0.1,
           batch_size: int | None = None, weighting: str = "examples", clip_norm: float | None = None,
           fit_epochs: int = 5) -> Algorithm:
    """One gradient per client and round, over all its examples or over `batch_size` sampled ones.

    FedAvg with a single local step: the upload is minus the step size times the gradient.
    """
    return fedavg(step_size=step_size, steps=1, batch_size=batch_size, weighting=weighting, clip_norm=clip_norm,
                  fit_epochs=fit_epochs).build(problem, population)
