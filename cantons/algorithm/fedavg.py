"""FedAvg: every client trains from the shared model, the server averages what they became.

McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized Data", AISTATS 2017,
Algorithm 1; `fedavg_finetune` then lets every client train on from the average before it predicts.
"""

from __future__ import annotations

import optax

from cantons.algorithm.parts.averaging import averaging
from cantons.algorithm.parts.schedule import Schedule
from cantons.algorithm.parts.training import Optimizer, Work, trainer
from cantons.errors import at_least, positive
from cantons.protocol import Algorithm, Problem
from cantons.recipe import algorithm


@algorithm
def fedavg(problem: Problem, population: int, *, step_size: float | dict | Schedule = 0.1, epochs: int = 1,
           steps: int | None = None, batch_size: int | None = 32, client_optimizer: Optimizer = "sgd",
           server_step_size: float = 1.0, weighting: str = "examples", clip_norm: float | None = None,
           fit_epochs: int = 5) -> Algorithm:
    """Average the clients' models after some local epochs (or, with `steps`, sampled batches).

    `weighting` counts a client by its "examples" or all alike ("uniform"); `clip_norm` bounds each local
    gradient; `fit_epochs` is the work a new client spends on its private part, if the model has one.
    """
    positive("server_step_size", server_step_size)
    train = trainer(problem.loss, Work(epochs, steps, batch_size), client_optimizer, clip_norm)
    return averaging(problem, train, step_size, optax.sgd(server_step_size), weighting, fit_epochs, batch_size)


@algorithm
def fedavg_finetune(problem: Problem, population: int, *, step_size: float | dict | Schedule = 0.1,
                    epochs: int = 1, steps: int | None = None, batch_size: int | None = 32,
                    client_optimizer: Optimizer = "sgd", server_step_size: float = 1.0,
                    weighting: str = "examples", clip_norm: float | None = None, fit_epochs: int = 5,
                    tune_epochs: int = 5, tune_step_size: float = 0.05) -> Algorithm:
    """FedAvg; to predict, each client first trains the whole model on its own training data.

    Nothing of the fine-tuning travels or is remembered: the shared model is FedAvg's.
    """
    at_least("tune_epochs", tune_epochs, 1)
    positive("tune_step_size", tune_step_size)
    base = fedavg(step_size=step_size, epochs=epochs, steps=steps, batch_size=batch_size,
                  client_optimizer=client_optimizer, server_step_size=server_step_size, weighting=weighting,
                  clip_norm=clip_norm, fit_epochs=fit_epochs).build(problem, population)
    tune = trainer(problem.loss, Work(tune_epochs, batch_size=batch_size), clip_norm=clip_norm)

    def model(key, message, client, data):
        tuned = tune(key, message.shared, client.private, data, tune_step_size)
        return tuned.shared, tuned.private

    return base._replace(model=model)
