"""The best fixed pair of models in hindsight: one shared vector, and a private one for each client.

The comparator of equation (1) in Agarwal, Langford and Wei, "Federated Residual Learning", 2020 (v1). Both models are
linear and their outputs are summed. Arguments have one entry per client: rows of features for either model, targets,
and a weight for each row (or one for all rows of the client).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from cantons.solve.ball_least_squares import Eliminated, constrained_least_squares

Rows = Sequence[np.ndarray]
Weights = Sequence[float | np.ndarray]
EPSILON = float(np.finfo(float).eps)


class BestPair(NamedTuple):
    shared: np.ndarray
    private: tuple[np.ndarray, ...]

    def outputs(self, inputs_global: Rows, inputs_local: Rows) -> list[np.ndarray]:
        """The summed outputs for each client's rows."""
        return [there @ self.shared + here @ own
                for there, here, own in zip(inputs_global, inputs_local, self.private, strict=True)]


def best_pair(inputs_global: Rows, inputs_local: Rows, targets: Rows, weights: Weights, radius: float | None = None,
              private_radius: float | None = None) -> BestPair:
    """The minimiser of sum_i sum_rows weight * (target - shared . x^g - private_i . x^l)^2, by block least squares.

    The private blocks are eliminated by the singular values of each client's local rows, which leaves a least squares
    problem in the shared vector. Of several minimisers it is the one of smallest norm, all blocks taken together.
    With `radius`, the norms of the shared and of each private vector (`private_radius`, if given) are at most that:
    where the free minimiser is outside, a barrier method finds the loss to 1e-11 of that of predicting 0.

    >>> found = best_pair([np.ones((2, 1)), np.ones((2, 1))], [np.ones((2, 1)), np.zeros((2, 1))],
    ...                   [np.array([2.0, 4.0]), np.array([1.0, 1.0])], [1.0, 1.0])
    >>> found.shared.round(9), found.private[0].round(9)  # the second client has only the shared model
    (array([1.]), array([2.]))
    """
    parts = [_eliminated(*client) for client in zip(inputs_global, inputs_local, targets, weights, strict=True)]
    rest = np.concatenate([part.rest for part in parts])
    rest_targets = np.concatenate([part.rest_targets for part in parts])
    # What rounding leaves of rows that private models explain is noise: it is measured by the rows as they were.
    norm = np.sqrt(sum(float((part.across**2).sum() + (part.rest**2).sum()) for part in parts))
    noise = 4 * EPSILON * norm * max(1, *rest.shape)
    if len(rest) > rest.shape[1]:  # as many rows as there are unknowns say the same
        rotation, rest = np.linalg.qr(rest)
        rest_targets = rotation.T @ rest_targets
    shared = _smallest(parts, rest, rest_targets, noise)
    own = [_left_over(part, shared) for part in parts]
    if radius is not None:
        bounds = float(radius), float(radius if private_radius is None else private_radius)
        if np.linalg.norm(shared) > bounds[0] or any(np.linalg.norm(each) > bounds[1] for each in own):
            shared, own = constrained_least_squares(parts, rest, rest_targets, *bounds)
    return BestPair(shared, tuple(part.basis.T @ each for part, each in zip(parts, own, strict=True)))


def best_pair_by_solver(inputs_global: Rows, inputs_local: Rows, targets: Rows, weights: Weights,
                        loss: Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]],
                        outputs: int | None = None, iterations: int = 2000) -> BestPair:
    """The same for any smooth convex loss, by L-BFGS: as near as the solver gets, where squares are exact.

    `loss(outputs, targets)` gives the loss of each row and its gradient in the outputs. Models say one number, or a row
    of `outputs` many. A minimum that is not attained, as for separable classes, is left after `iterations`.
    """
    from scipy.optimize import minimize

    more = () if outputs is None else (outputs,)
    shapes = [(inputs_global[0].shape[1], *more), *((here.shape[1], *more) for here in inputs_local)]
    ends = np.cumsum([int(np.prod(shape)) for shape in shapes])
    total = max(sum(float(np.sum(np.broadcast_to(weight, len(target))))
                    for weight, target in zip(weights, targets, strict=True)), EPSILON)

    def unpacked(vector: np.ndarray) -> BestPair:
        blocks = [block.reshape(shape) for block, shape in zip(np.split(vector, ends[:-1]), shapes, strict=True)]
        return BestPair(blocks[0], tuple(blocks[1:]))

    def objective(vector: np.ndarray) -> tuple[float, np.ndarray]:
        said = unpacked(vector).outputs(inputs_global, inputs_local)
        value, gradients = 0.0, [np.zeros(shapes[0])]
        clients = zip(inputs_global, inputs_local, targets, weights, said, strict=True)
        for there, here, target, weight, output in clients:
            losses, gradient = loss(output, target)
            shares = np.broadcast_to(weight, len(target)) / total
            gradient = (shares * gradient.T).T
            value += float(shares @ losses)
            gradients[0] = gradients[0] + there.T @ gradient
            gradients.append(here.T @ gradient)
        return value, np.concatenate([gradient.ravel() for gradient in gradients])

    found = minimize(objective, np.zeros(ends[-1]), jac=True, method="L-BFGS-B",
                     options={"maxiter": iterations, "maxfun": 2 * iterations, "ftol": 1e-15, "gtol": 1e-10})
    return unpacked(found.x)


def _eliminated(there: np.ndarray, here: np.ndarray, target: np.ndarray, weight: float | np.ndarray) -> Eliminated:
    """One client's rows, turned so that its private model reaches the first of them one by one."""
    roots = np.sqrt(np.broadcast_to(np.asarray(weight, float), len(target)))
    kept = roots > 0
    there, here, target = (roots[kept] * np.asarray(part, float)[kept].T for part in (there, here, target))
    there, here = there.T, here.T
    if not here.size:
        return Eliminated(np.zeros((0, there.shape[1])), np.zeros(0), np.zeros(0), np.zeros((0, here.shape[1])),
                          there, target)
    left, spread, basis = np.linalg.svd(here, full_matrices=False)
    rank = int((spread > EPSILON * max(here.shape) * spread[0]).sum())
    left, spread, basis = left[:, :rank], spread[:rank], basis[:rank]
    across, rotated = left.T @ there, left.T @ target
    return Eliminated(across, rotated, spread, basis, there - left @ across, target - left @ rotated)


def _smallest(parts: Sequence[Eliminated], rest: np.ndarray, rest_targets: np.ndarray, noise: float) -> np.ndarray:
    """The shared vector of the joint minimiser of smallest norm."""
    width = rest.shape[1]
    if not width:
        return np.zeros(0)
    if np.linalg.norm(rest) > noise:
        left, spread, basis = np.linalg.svd(rest, full_matrices=True)
        rank = int((spread > noise).sum())
        shared = basis[:rank].T @ ((left[:, :rank].T @ rest_targets) / spread[:rank])
        free = basis[rank:]
    else:
        shared, free = np.zeros(width), np.eye(width)
    if not len(free):
        return shared
    # Along `free` the shared model can move without loss if the private ones make up for it: the least norm of all.
    traded = np.concatenate([(part.across @ free.T) / part.spread[:, None] for part in parts])
    owed = np.concatenate([_left_over(part, shared) for part in parts])
    return shared + free.T @ np.linalg.solve(np.eye(len(free)) + traded.T @ traded, traded.T @ owed)


def _left_over(part: Eliminated, shared: np.ndarray) -> np.ndarray:
    """What the private model answers to a shared one, in its basis."""
    return (part.rotated - part.across @ shared) / part.spread
