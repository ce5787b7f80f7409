"""FedAvg: every client trains from the shared model, the server averages what they became.

McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized Data", AISTATS 2017,
Algorithm 1; `fedavg_finetune` then lets every client train on from the average before it predicts.
"""

from __future__ import annotations

import optax

from cantons.algorithm.parts.averaging import Averaging, averaging
from cantons.algorithm.parts.fitting import fit_whole_model
from cantons.algorithm.parts.select_rows import Rows
from cantons.algorithm.parts.training import LocalOptimizer, LocalWork, Work, trainer
from cantons.algorithm.parts.whole_model import advise_whole_model
from cantons.options import Flat
from cantons.protocol import Algorithm, Problem
from cantons.ranges import Count, Positive
from cantons.recipe import algorithm


@algorithm
def fedavg(problem: Problem, population: int, *, local: Flat[LocalWork], optimizer: Flat[LocalOptimizer],
           averaged: Flat[Averaging], selecting: Flat[Rows]) -> Algorithm:
    """Average the clients' models after some local epochs (or, with `steps`, sampled batches)."""
    return averaging(problem, local, optimizer, averaged, optax.sgd(averaged.server_step_size), selecting=selecting)


@algorithm
def fedavg_finetune(problem: Problem, population: int, *, local: Flat[LocalWork], optimizer: Flat[LocalOptimizer],
                    averaged: Flat[Averaging], tune_epochs: Count = 5, tune_step_size: Positive = 0.05) -> Algorithm:
    """FedAvg; to predict, each client first trains the whole model on its own training data.

    Nothing of the fine-tuning travels or is kept: the shared model is FedAvg's.

    tune_epochs: passes over a client's own examples before it predicts.
    tune_step_size: of these passes.
    """
    base = averaging(problem, local, optimizer, averaged, optax.sgd(averaged.server_step_size))
    work = Work(tune_epochs, batch_size=local.batch_size)
    tune = trainer(problem.loss, work, optimizer._replace(client_optimizer="sgd"))

    def model(key, message, client, data):
        began = message.shared, client.private
        return fit_whole_model(problem.loss, work, key, data, began, lambda: tune(key, *began, data, tune_step_size))

    return base._replace(model=model, advice=advise_whole_model)
