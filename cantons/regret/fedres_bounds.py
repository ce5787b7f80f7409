"""What is promised about the regret of Federated Residual Learning, with the quantities of a stream put in.

Agarwal, Langford and Wei, "Federated Residual Learning", 2020 (v1), Theorems 1 and 2 in their complete form
(Appendices A and B). Constants are those of the proofs where these are explicit; where they hide behind O() they are 1,
and logarithms are left out, so a bound is a scale to hold a regret against rather than a certificate. The theorems
assume examples that are independent in time. The paper counts a delay of 1 where nothing is late, and the functions
here take delays that are 0 then.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from cantons.regret.best_pair import BestPair, Rows


class Measured(NamedTuple):
    """What the theorems ask about losses and models; measured at a few pairs of models, and so between them."""

    shared_distance: float  # |w^g_* - w^g_0|^2, from the start to the best
    private_distances: np.ndarray  # |w_{i,*} - w_{i,0}|^2 of each client
    diameter: float  # D: the largest norm of a part
    steepest: float  # G: the largest norm of a gradient
    smoothness: float  # gamma: the largest curvature
    gradient_variances: np.ndarray  # sigma_i^2 of Theorem 2
    loss_variances: np.ndarray  # sigma_i^2 of Theorem 1
    dimensions: int  # d + sum_i d_i

    @property
    def distance(self) -> float:
        return self.shared_distance + float(self.private_distances.sum())


def measured(start: BestPair, best: BestPair, inputs_global: Rows, inputs_local: Rows, targets: Rows, counts: Rows,
             batch: int = 1) -> Measured:
    """Measure a stream of examples with the squared loss, at its first and its best pair of models.

    `counts` says how often each row was met. A step's loss is the mean over a `batch`, whose variance is that of one
    example divided by its size.
    """
    met = [np.asarray(count) > 0 for count in counts]
    squared_gradients, variances, loss_variances = [0.0], [], []
    norms = [(there**2).sum(axis=1) + (here**2).sum(axis=1)
             for there, here in zip(inputs_global, inputs_local, strict=True)]
    for pair in (start, best):
        for client, output in enumerate(pair.outputs(inputs_global, inputs_local)):
            rows = met[client]
            if not rows.any():
                variances.append(0.0)
                loss_variances.append(0.0)
                continue
            shares = np.asarray(counts[client], float)[rows] / np.sum(counts[client])
            error = (output - targets[client])[rows]
            squares = 4 * error**2 * norms[client][rows]
            mean = [2 * (shares * error) @ part[client][rows] for part in (inputs_global, inputs_local)]
            variances.append((shares @ squares - sum(float(half @ half) for half in mean)) / batch)
            loss_variances.append((shares @ error**4 - (shares @ error**2) ** 2) / batch)
            squared_gradients.append(float(squares.max()))
    return Measured(
        shared_distance=float(((best.shared - start.shared) ** 2).sum()),
        private_distances=np.array([((one - other) ** 2).sum() for one, other in
                                    zip(best.private, start.private, strict=True)]),
        diameter=max(float(np.linalg.norm(part)) for pair in (start, best) for part in (pair.shared, *pair.private)),
        steepest=float(np.sqrt(max(squared_gradients))),
        smoothness=2 * max([0.0, *(float(norm[rows].max()) for norm, rows in zip(norms, met, strict=True)
                                   if rows.any())]),
        gradient_variances=_larger(variances), loss_variances=_larger(loss_variances),
        dimensions=len(best.shared) + sum(len(own) for own in best.private))


def _larger(values: Sequence[float]) -> np.ndarray:
    """Each client's value at the first pair of models or at the second, whichever is larger; none is below 0."""
    return np.maximum(np.reshape(values, (2, -1)).max(axis=0), 0.0)


def fedres_theorem1_bound(about: Measured, delays: ArrayLike, steps: int) -> float:
    """Equation (21): FedRes by empirical risk minimisation, for losses between 0 and 1.

    sqrt((d + sum d_i) sigma^2 / (P T)) + C_0 (tau / T)^(3/4) + (C_0 tau + d + sum d_i) / T, where the proof has
    C_0 = 18 gamma D^2 + 2 and the statement hides it behind 1 + D^2 gamma.
    """
    clients, late = len(about.private_distances), float(np.max(np.asarray(delays))) + 1
    constant = 18 * about.smoothness * about.diameter**2 + 2
    return float(np.sqrt(about.dimensions * about.loss_variances.max() / (clients * steps))
                 + constant * (late / steps) ** 0.75 + (constant * late + about.dimensions) / steps)


def fedres_theorem2_step_size(about: Measured, delays: ArrayLike, steps: int) -> float:
    """The step size of Theorem 2 for both sides: where the stream's noise, or its delay, would begin to cost more."""
    clients, late = len(about.private_distances), float(np.max(np.asarray(delays))) + 1
    noisy = steps * clients * about.gradient_variances.max()
    drifting = about.smoothness * clients**3 * about.steepest**2 * late**2 * steps
    choices = [(about.distance / cost) ** power for cost, power in ((noisy, 1 / 2), (drifting, 1 / 3)) if cost > 0]
    return float(min(choices)) if choices else float("inf")


def fedres_theorem2_bound(about: Measured, delays: ArrayLike, steps: int, step_size: float | None = None,
                   private_step_size: float | None = None) -> float:
    """Equation (26): FedRes.SGD with these step sizes, or `fedres_theorem2_step_size`, which leads to (27).

    1/(P T) times: |w^g_*|^2 / (2 eta) + sum_i |w_{i,*}|^2 / (2 eta_i) + T sum_i (eta + eta_i) sigma_i^2
    + gamma/2 T sum_i (1 + tau_i^2) (eta^2 P^2 + eta_i^2) G^2 + D G sum_i tau_i.
    The halves are those of Lemmas 7 to 9 and of the proof's last two terms; the last term's factor, hidden there, is 1.
    With E = |w^g_*|^2 + sum_i |w_{i,*}|^2, the middle term of (27) follows from (26) as (gamma E^2 G^2 tau^2)^(1/3) /
    T^(2/3): the paper prints D^4 in place of E^2, which is smaller when many clients are far from 0.
    """
    shared_step = fedres_theorem2_step_size(about, delays, steps) if step_size is None else step_size
    own_step = shared_step if private_step_size is None else private_step_size
    clients = len(about.private_distances)
    late = np.broadcast_to(np.asarray(delays, float), clients) + 1
    if not np.isfinite(shared_step):  # no gradient anywhere: the start is the best
        return 0.0
    approach = [distance / (2 * step) if distance else 0.0
                for distance, step in ((about.shared_distance, shared_step),
                                       (float(about.private_distances.sum()), own_step))]
    noise = steps * (shared_step + own_step) * about.gradient_variances.sum()
    drift = (about.smoothness / 2 * steps * (1 + late**2).sum()
             * ((shared_step * clients) ** 2 + own_step**2) * about.steepest**2)
    ends = about.diameter * about.steepest * late.sum()
    return float((sum(approach) + noise + drift + ends) / (clients * steps))
