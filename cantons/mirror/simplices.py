"""The simplex, and the simplex whose entries have a cap: total and cap make both."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree

from cantons.errors import InputError
from cantons.mirror.norms import largest, size
from cantons.mirror.norms import total as added
from cantons.mirror.roots import water_filling
from cantons.mirror.sets import ConvexSet, known
from cantons.protocol import Array, PyTree
from cantons.ranges import Positive, checked


@checked
def simplex(total: Positive = 1.0) -> ConvexSet:
    """x >= 0 with entries that add up to `total`.

    >>> simplex().start(jnp.zeros(4))
    Array([0.25, 0.25, 0.25, 0.25], dtype=float32)
    """
    def project(point):
        vector, back = ravel_pytree(point)
        return back(nearest_in_simplex(vector, total))

    return _filled("simplex", "a simplex", total, total)._replace(project=project)


def nearest_in_simplex(vector: Array, total: float) -> Array:
    # Only differences matter; from the largest entry down, sums of large entries lose no digits.
    lowered = vector - jax.lax.stop_gradient(jnp.max(vector))
    # Optax computes in the default precision and is surprised by any other.
    return optax.projections.projection_simplex(lowered.astype(float), total).astype(vector.dtype)


@checked
def capped_simplex(cap: Positive, total: Positive = 1.0) -> ConvexSet:
    """0 <= x <= cap with entries that add up to `total`: no entry may hold more than its cap.

    >>> [f"{entry:.3f}" for entry in capped_simplex(cap=0.5).project(jnp.array([1.0, 0.25, 0.0]))]
    ['0.500', '0.375', '0.125']
    """
    return _filled("capped_simplex", "a capped simplex", total, cap)


def _filled(kind: str, name: str, total: float, cap: float) -> ConvexSet:
    def entries(like: PyTree) -> int:
        number = sum(np.size(leaf) for leaf in jax.tree.leaves(like))
        if known((cap, total)) and number * cap < total * (1 - 1e-12):
            raise InputError(f"{number} entries of at most {cap} cannot add up to {total}; raise cap to "
                             f"{total / max(number, 1):g} or more, or lower total.")
        return number

    def share(like):
        number = entries(like)
        return jax.tree.map(lambda leaf: jnp.full_like(leaf, total / number), like)

    def violation(point):
        outside = [largest(jax.tree.map(lambda leaf: jnp.maximum(jnp.maximum(-leaf, leaf - cap), 0.0), point)),
                   jnp.abs(added(point) - total)]
        return jnp.max(jnp.stack(outside)) / total

    def project(point):
        entries(point)
        vector, back = ravel_pytree(point)
        return back(water_filling(lambda dual: dual, lambda point: point, vector, total, cap))

    def steps(number: int) -> Array:
        """The entries of a corner: full ones, the rest, zeros."""
        return jnp.clip(total - cap * jnp.arange(number), 0.0, cap)

    def diameter(like):
        corner = steps(entries(like))
        return size(corner - corner[::-1], 2)  # all corners have the same entries, here as unlike as can be

    def corner(direction):
        vector, back = ravel_pytree(direction)
        return back(steps(entries(direction))[jnp.argsort(jnp.argsort(-vector))].astype(vector.dtype))

    return ConvexSet(kind, name, {"total": total, "cap": cap}, violation, share, diameter, project, corner,
                     most=jnp.minimum(cap, total) if not known((cap, total)) else min(cap, total), total=total)

