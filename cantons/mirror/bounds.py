"""The constants that the theorems speak of: moduli of convexity and the radius of a set as the divergence sees it.

Mitra, Hassani and Pappas, "Online Federated Learning", 2021.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp

from cantons.errors import InputError, positive
from cantons.mirror.maps import MirrorMap, euclidean
from cantons.mirror.norms import Convexity, finite
from cantons.mirror.projections import bregman_projection
from cantons.mirror.sets import ConvexSet
from cantons.protocol import Array, PyTree


def strong_convexity(mirror: MirrorMap, feasible: ConvexSet) -> Convexity:
    """The constant and the norm for which B(y, x) >= constant / 2 * ||y - x||^2 on the set.

    A step then moves by at most step_size / constant times the dual norm of the gradient, equation (26). The paper
    takes the constant to be 1; 0 means that the map is not strongly convex there.
    """
    return mirror.convexity(feasible)


def relative_strong_convexity(mirror: MirrorMap, curvature: float) -> Array | float:
    """sigma of Definition 1, for a loss with f(y) >= f(x) + <y - x, gradient> + curvature / 2 * ||y - x||_2^2.

    Definition 1 asks for sigma / 2 * B(y, x) in the last place, and B has a half of its own: for curvature 1, sigma is
    2 with psi = ||x||^2 / 2 and 1 with psi = ||x||^2. With the step size 2 / (sigma t) of Theorem 2, both step by 1/t.

    >>> relative_strong_convexity(euclidean(), 1.0), relative_strong_convexity(euclidean(2.0), 1.0)
    (2.0, 1.0)
    """
    positive("curvature", curvature)
    if isinstance(mirror.smoothness, float) and math.isinf(mirror.smoothness):
        raise InputError(f"the curvature of {mirror.name} has no bound, so a loss that is strongly convex in l2 need "
                         "not be so relative to it; work out sigma for your loss, or take euclidean or quadratic.")
    return 2 * curvature / mirror.smoothness


def largest_divergence(mirror: MirrorMap, feasible: ConvexSet, start: PyTree) -> Array:
    """The largest B(u, start) over u in the set: D^2 as the proof of Theorem 1 uses it, infinite on unbounded sets.

    The paper's D^2, the supremum over both points, is infinite for entropy even on a simplex; from the middle of one
    with n entries this is total * log n. For `quadratic` off a box it is a bound from above.

    >>> from cantons.mirror import entropy, simplex
    >>> float(largest_divergence(entropy(), simplex(), jnp.full(8, 1 / 8)) / jnp.log(8))
    1.0
    """
    bregman_projection(mirror, feasible)  # refuses pairs that do not go together
    if feasible.corner is None:
        return jnp.array(jnp.inf)
    if feasible.kind == "box":
        return _over_box(mirror, feasible, start)
    if "quadratic" in mirror.kind:
        mirror = euclidean(float(mirror.smoothness))
    # All corners of these sets lie equally high above their middle, so the linear term alone decides.
    gradient = jax.tree.map(jnp.subtract, mirror.to_dual(feasible.start(start)), mirror.to_dual(start))
    return mirror.divergence(feasible.corner(gradient), start)


def _over_box(mirror: MirrorMap, feasible: ConvexSet, start: PyTree) -> Array:
    """Entry by entry, the end of the interval that is further up."""
    assert mirror.entries is not None and feasible.corner is not None
    ones = jax.tree.map(jnp.ones_like, start)
    high, low = feasible.corner(ones), feasible.corner(jax.tree.map(jnp.negative, ones))

    entries, gradient = mirror.entries, mirror.to_dual(start)

    def height(end):
        return jax.tree.map(lambda potential, tangent, at: potential - tangent * at, entries(end), gradient, end)

    upper = jax.tree.map(jnp.greater_equal, height(high), height(low))
    far = jax.tree.map(jnp.where, upper, high, low)
    return jnp.where(finite((high, low)), mirror.divergence(far, start), jnp.inf)
