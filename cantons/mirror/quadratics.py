"""The mirror map of a positive definite matrix, and its projections onto affine sets and Euclidean balls."""

from __future__ import annotations

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from cantons.errors import InputError
from cantons.mirror.maps import MirrorMap
from cantons.mirror.norms import Convexity, Norm, finite, power
from cantons.mirror.roots import root
from cantons.mirror.sets import ConvexSet, spread
from cantons.protocol import PyTree
from cantons.ranges import Numbers, checked


@checked
def quadratic(matrix: Numbers) -> MirrorMap:
    """x'Mx / 2 for a symmetric positive definite M, or for the diagonal matrix whose diagonal is given.

    The entries of a tree count in the order of its leaves. A diagonal M has an exact step on more sets.

    >>> quadratic([1.0, 4.0]).to_dual(jnp.array([1.0, 1.0]))
    Array([1., 4.], dtype=float32)
    """
    given = np.asarray(matrix, np.float64)
    if given.ndim not in (1, 2) or (given.ndim == 2 and not np.allclose(given, given.T, rtol=1e-10, atol=0)):
        raise InputError(f"the matrix, of shape {given.shape}, is not symmetric; give M = M', or its diagonal alone.")
    diagonal = given.ndim == 1 or not np.any(given - np.diag(np.diag(given)))
    if diagonal:
        weights, basis = (given if given.ndim == 1 else np.diag(given)), None
    else:
        weights, basis = np.linalg.eigh(given)
    if not weights.min(initial=np.inf) > 0:
        raise InputError(f"the matrix has the eigenvalue {weights.min():g}; all must be above 0.")
    rotate, rotate_back = _rotations(basis)

    def flat(point):
        vector, back = ravel_pytree(point)
        if vector.size != weights.size:
            raise InputError(f"the matrix has {weights.size} rows and the point {vector.size} entries; give one row "
                             "for each entry.")
        return vector, back, jnp.asarray(weights, vector.dtype)

    def entries(point):
        vector, back, weight = flat(point)
        return back(weight / 2 * vector**2)

    def applied(point, exponent):
        vector, back, weight = flat(point)
        return back(rotate_back(weight**exponent * rotate(vector)))

    def squared(point, exponent):
        vector, _, weight = flat(point)
        return jnp.sum(weight**exponent * rotate(vector) ** 2)

    norm = Norm("the norm of its matrix", lambda point: power(squared(point, 1), 0.5),
                lambda dual: power(squared(dual, -1), 0.5))
    return MirrorMap(
        "diagonal quadratic" if diagonal else "quadratic", "quadratic", {"weights": weights, "basis": basis},
        potential=lambda point: squared(point, 1) / 2,
        to_dual=lambda point: applied(point, 1),
        to_primal=lambda dual: applied(dual, -1),
        domain=finite, convexity=lambda feasible: Convexity(1.0, norm), smoothness=float(weights.max(initial=0.0)),
        averages=True, entries=entries if diagonal else None)


def _rotations(basis: np.ndarray | None) -> tuple[Callable, Callable]:
    """Into the eigenvectors' coordinates and back."""
    if basis is None:
        return lambda vector: vector, lambda vector: vector
    return (lambda vector: jnp.asarray(basis.T, vector.dtype) @ vector,
            lambda vector: jnp.asarray(basis, vector.dtype) @ vector)


def onto_affine(mirror: MirrorMap, feasible: ConvexSet) -> Callable[[PyTree], PyTree]:
    """x - M^-1 A' (A M^-1 A')^+ (A x - b), taken at the unconstrained minimiser x."""
    weights, basis = mirror.options["weights"], mirror.options["basis"]
    matrix, values = feasible.options["matrix"], feasible.options["values"]
    if matrix.shape[1] != weights.size:
        raise InputError(f"A has {matrix.shape[1]} columns and the matrix of quadratic {weights.size} rows; both "
                         "should be the number of entries of a point.")
    basis = np.eye(weights.size) if basis is None else basis
    lifted = basis @ ((basis.T @ matrix.T) / weights[:, None])
    gain = lifted @ np.linalg.pinv(matrix @ lifted, hermitian=True)

    def project(dual):
        vector, back = ravel_pytree(mirror.to_primal(dual))
        gap = jnp.asarray(matrix, vector.dtype) @ vector - jnp.asarray(values, vector.dtype)
        return back(vector - jnp.asarray(gain, vector.dtype) @ gap)

    return project


def onto_ball(mirror: MirrorMap, feasible: ConvexSet) -> Callable[[PyTree], PyTree]:
    """(M + level I)^-1 dual, seen from the centre: outside the ball, `level` is the root of one equation."""
    rotate, rotate_back = _rotations(mirror.options["basis"])
    radius = feasible.options["radius"]

    def project(dual):
        centre, back = ravel_pytree(spread(feasible.options["centre"], dual))
        target = rotate(ravel_pytree(dual)[0] - ravel_pytree(mirror.to_dual(back(centre)))[0])
        weight = jnp.asarray(mirror.options["weights"], target.dtype)

        def excess(target, level):
            return jnp.sum((target / (weight + level)) ** 2) - radius**2

        # At the upper end even the smallest weight brings everything inside.
        high = jnp.maximum(jnp.sqrt(jnp.sum(target**2)) / radius - jnp.min(weight), 0.0)
        level = root(excess, target, jnp.zeros_like(high), high)
        level = jnp.where(excess(target, 0.0) > 0, level, 0.0)
        return back(centre + rotate_back(target / (weight + level)))

    return project
