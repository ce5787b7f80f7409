"""Regret: what a stream of examples has cost, beside what the best fixed pair of models would have cost in hindsight.

Agarwal, Langford and Wei, "Federated Residual Learning", 2020 (v1), equation (1):

    Reg = 1 / (P T) * sum_i lambda_i sum_t (loss_{i,t}(played) - loss_{i,t}(best)),

where the best pair minimises the same weighted sum over the same examples. P counts all clients and T all steps: one
who is silent in a step is charged nothing in it. With lambda_i = T / N_i, for N_i steps that are not silent, every
client counts with its average.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cantons.regret.best_pair import BestPair, Rows, best_pair


def best_in_hindsight(inputs_global: Rows, inputs_local: Rows, targets: Rows, counts: Rows,
                      weights: np.ndarray) -> tuple[BestPair, np.ndarray]:
    """The best pair for the squared loss, and what it would have cost each client in all.

    `counts` says how often each row was met, in steps (with a batch, each counts for its share), and `weights` has
    lambda_i for each client.
    """
    each = [weight * count for weight, count in zip(weights, counts, strict=True)]
    pair = best_pair(inputs_global, inputs_local, targets, each)
    said = pair.outputs(inputs_global, inputs_local)
    return pair, np.array([count @ (target - output) ** 2
                           for count, target, output in zip(counts, targets, said, strict=True)])


def average_regret(charged: Sequence[float] | np.ndarray, best: Sequence[float] | np.ndarray, weights: np.ndarray,
                   steps: int) -> float:
    """Equation (1), given what each client was charged in all, and would have been charged with the best pair.

    >>> average_regret([3.0, 2.0], [1.0, 2.0], np.ones(2), steps=10)
    0.1
    """
    excess = np.asarray(charged, float) - np.asarray(best, float)
    return float(np.asarray(weights) @ excess) / (len(excess) * steps)
