"""Block least squares inside balls, by Newton steps along a logarithmic barrier."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

TOLERANCE = 1e-11  # of the loss of predicting 0
COOLING = 0.1
STEPS = 60  # for one temperature; a handful is usual


class Eliminated(NamedTuple):
    """One client's weighted least squares, in a basis of what its private model can say.

    Its loss is |rotated - across @ shared - spread * own|^2 + |rest_targets - rest @ shared|^2, where `own` are the
    private vector's coordinates in `basis`. What lies outside the basis changes no output, and only adds to the norm.
    """

    across: np.ndarray  # [rank, d]
    rotated: np.ndarray  # [rank]
    spread: np.ndarray  # [rank]: singular values, largest first
    basis: np.ndarray  # [rank, d_i], orthonormal rows
    rest: np.ndarray  # [rows, d]
    rest_targets: np.ndarray  # [rows]


def constrained_least_squares(parts: Sequence[Eliminated], rest: np.ndarray, rest_targets: np.ndarray, radius: float,
                              private_radius: float) -> tuple[np.ndarray, list[np.ndarray]]:
    """The shared vector and every client's own coordinates that minimise the sum of the parts' losses in their balls.

    `rest` and `rest_targets` stand for those of all parts together. The minimiser of loss - t * sum_k log(radius_k^2 -
    |block_k|^2) is within (blocks) * t of the minimum. At each t, damped Newton steps solve for it: such a function is
    self-concordant, so they stay inside and need no search. A private block's Hessian is diagonal plus a vector times
    itself, and is eliminated; what remains to be solved is as wide as the shared vector.
    """
    worth = float(sum((part.rotated**2).sum() for part in parts) + (rest_targets**2).sum())
    shared, own = np.zeros(rest.shape[1]), [np.zeros(len(part.spread)) for part in parts]
    if worth == 0:
        return shared, own
    curvature = 2 * (rest.T @ rest + sum(part.across.T @ part.across for part in parts))
    temperature = worth / (1 + len(parts))
    while True:
        for _ in range(STEPS):
            room = radius**2 - shared @ shared
            errors = [part.rotated - part.across @ shared - part.spread * each
                      for part, each in zip(parts, own, strict=True)]
            gradient = 2 * (rest.T @ (rest @ shared - rest_targets) + temperature / room * shared)
            hessian = (curvature + 2 * temperature / room * np.eye(len(shared))
                       + 4 * temperature / room**2 * np.outer(shared, shared))
            side, answers, gradients = -gradient, [], []
            for part, each, error in zip(parts, own, errors, strict=True):
                gradient -= 2 * part.across.T @ error
                answer, towards = _answers(part, each, error, temperature, private_radius)
                side += 2 * part.across.T @ (error + part.spread * answer[:, 0])
                hessian -= 2 * part.across.T @ (part.spread[:, None] * answer[:, 1:])
                answers.append(answer)
                gradients.append(towards)
            move = np.linalg.solve(hessian, side)
            moves = [-answer[:, 0] - answer[:, 1:] @ move for answer in answers]
            decrease = -(gradient @ move + sum(towards @ step for towards, step in zip(gradients, moves, strict=True)))
            size = np.sqrt(max(decrease, 0.0) / temperature)
            length = 1.0 if size < 0.25 else 1 / (1 + size)
            shared, own = shared + length * move, [each + length * step for each, step in zip(own, moves, strict=True)]
            if size < 0.1:
                break
        if temperature * (1 + len(parts)) < TOLERANCE * worth:
            return shared, own
        temperature *= COOLING


def _answers(part: Eliminated, own: np.ndarray, error: np.ndarray, temperature: float,
             radius: float) -> tuple[np.ndarray, np.ndarray]:
    """The private block's inverse Hessian times its gradient and times its cross terms; and that gradient."""
    room = radius**2 - own @ own
    gradient = 2 * (temperature / room * own - part.spread * error)
    sides = np.column_stack([gradient, 2 * part.spread[:, None] * part.across])
    diagonal = 2 * part.spread**2 + 2 * temperature / room
    scaled, bent = sides / diagonal[:, None], own / diagonal
    pull = 4 * temperature / room**2
    return scaled - np.outer(bent, pull * (own @ scaled) / (1 + pull * (own @ bent))), gradient
