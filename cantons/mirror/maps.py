"""Mirror maps as values: a convex potential, its gradient and the inverse of its gradient.

Mitra, Hassani and Pappas, "Online Federated Learning", 2021, section III. Points are vectors or trees of arrays.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.special import xlogy

from cantons.mirror.norms import Convexity, dual_exponent, finite, l_norm, power, size, total, unit_of
from cantons.mirror.sets import ConvexSet
from cantons.protocol import Array, PyTree
from cantons.ranges import Positive, Range, checked


class MirrorMap(NamedTuple):
    """A potential (psi in the paper) with all that mirror descent asks of it."""

    kind: str  # decides on which sets it has an exact step
    name: str  # for sentences
    options: Mapping[str, Any]  # what it was built from
    potential: Callable[[PyTree], Array]
    to_dual: Callable[[PyTree], PyTree]  # gradient of the potential
    to_primal: Callable[[PyTree], PyTree]  # gradient of its conjugate
    domain: Callable[[PyTree], Array]  # has the potential a finite gradient here?
    convexity: Callable[[ConvexSet], Convexity]  # how strongly convex the potential is on a set
    smoothness: Array | float  # B(y, x) <= smoothness / 2 * ||y - x||_2^2, wherever x and y are
    averages: bool  # Assumption 2: B(u, mean of z) <= mean of B(u, z)
    entries: Callable[[PyTree], PyTree] | None = None  # the potential entry by entry, if it is a sum over them

    def divergence(self, left: PyTree, right: PyTree) -> Array:
        """The Bregman divergence B(left, right): how far the potential at `left` is above its tangent at `right`."""

        def rise(gradient, end, begin):
            moved = end != begin  # an entry that stays where the gradient is infinite adds nothing
            return jnp.where(moved, jnp.where(moved, gradient, 0.0) * (end - begin), 0.0)

        tangent = total(jax.tree.map(rise, self.to_dual(right), left, right))
        return self.potential(left) - self.potential(right) - tangent


@checked
def euclidean(scale: Positive = 1.0) -> MirrorMap:
    """scale / 2 * ||x||_2^2: gradient steps of step_size / scale, and the nearest point in l2."""
    def entries(point):
        return jax.tree.map(lambda leaf: scale / 2 * leaf**2, point)

    return MirrorMap(
        "euclidean", "euclidean", {"scale": scale},
        potential=lambda point: total(entries(point)),
        to_dual=lambda point: jax.tree.map(lambda leaf: scale * leaf, point),
        to_primal=lambda dual: jax.tree.map(lambda leaf: leaf / scale, dual),
        domain=finite, convexity=lambda feasible: Convexity(scale, l_norm(2)), smoothness=scale, averages=True,
        entries=entries)


def _positive(point: PyTree) -> Array:
    return finite(point) & jnp.all(jnp.array([jnp.all(leaf > 0) for leaf in jax.tree.leaves(point)], bool))


def above_zero(value: Array, dual: Array) -> Array:
    """Keep an entry from rounding down to zero, where it would stay for ever; it is zero only if its dual is -inf."""
    return jnp.where(dual == -jnp.inf, 0.0, jnp.maximum(value, jnp.finfo(value.dtype).tiny))


def entropy() -> MirrorMap:
    """sum x log x - x over positive x: multiplicative weights. Its divergence is the (unnormalised) KL divergence.

    B(y, x) >= ||y - x||_1^2 / (2 total) where the entries add up to `total` (Pinsker), >= ||y - x||_2^2 / (2 most)
    where no entry is above `most`.
    """

    def entries(point):
        return jax.tree.map(lambda leaf: xlogy(leaf, leaf) - leaf, point)

    def logarithm(leaf):
        zero = leaf == 0
        return jnp.where(zero, -jnp.inf, jnp.log(jnp.where(zero, 1.0, leaf)))

    return MirrorMap(
        "entropy", "entropy", {},
        potential=lambda point: total(entries(point)),
        to_dual=lambda point: jax.tree.map(logarithm, point),
        to_primal=lambda dual: jax.tree.map(lambda leaf: above_zero(jnp.exp(leaf), leaf), dual),
        domain=_positive, convexity=lambda feasible: _where_small(feasible, 1), smoothness=math.inf, averages=True,
        entries=entries)


def log_barrier() -> MirrorMap:
    """-sum log x over positive x; its divergence is that of Itakura and Saito.

    Where a step has no minimiser, because the loss falls for ever and nothing bounds the set, it gives infinity.
    Assumption 2 does not hold: u / z + log z is concave in z beyond 2u.
    """

    def entries(point):
        return jax.tree.map(lambda leaf: -jnp.log(leaf), point)

    def inverse(leaf):
        falls = leaf < 0
        return jnp.where(falls, -1 / jnp.where(falls, leaf, -1.0), jnp.inf)

    return MirrorMap(
        "log_barrier", "log_barrier", {},
        potential=lambda point: total(entries(point)),
        to_dual=lambda point: jax.tree.map(lambda leaf: -1 / leaf, point),
        to_primal=lambda dual: jax.tree.map(inverse, dual),
        domain=_positive, convexity=lambda feasible: _where_small(feasible, 2), smoothness=math.inf, averages=False,
        entries=entries)


def _where_small(feasible: ConvexSet, degree: int) -> Convexity:
    """The second derivative is x^-degree in each entry, so it is bounded below where x is bounded above.

    If the entries add up to `total`, a move v raises some by as much as it lowers others: |v|_1 / 2 each. By Cauchy and
    Schwarz sum v^2 / x^degree is least if either half has half of the total: (|v|_1 / 2)^2 * 2 / (total / 2)^degree.
    """
    if feasible.total is not None:
        return Convexity(0.5 / (feasible.total / 2) ** degree, l_norm(1))
    return Convexity(0.0 if feasible.most is None else 1 / feasible.most**degree, l_norm(2))


@checked
def p_norm(p: Annotated[float, Range(1, 2, above=True)]) -> MirrorMap:
    """||x||_p^2 / (2 (p - 1)) for 1 < p <= 2: between entropy's sparse world and the Euclidean one.

    B(y, x) >= ||y - x||_p^2 / 2. Assumption 2, on which the paper's theorems rest, fails for p < 2.
    """
    p = float(p)

    def gradient(point, exponent, factor):
        """The gradient of factor / 2 * ||x||^2. It is homogeneous: dividing by the largest entry changes nothing."""
        unit = unit_of(point)
        shape = jax.tree.map(lambda leaf: leaf / unit, point)
        rest = factor * unit * power(size(shape, exponent), 2 - exponent)
        return jax.tree.map(lambda leaf: rest * jnp.sign(leaf) * power(jnp.abs(leaf), exponent - 1), shape)

    return MirrorMap(
        "p_norm", f"p_norm({p:g})", {"p": p},
        potential=lambda point: size(point, p) ** 2 / (2 * (p - 1)),
        to_dual=lambda point: gradient(point, p, 1 / (p - 1)),
        to_primal=lambda dual: gradient(dual, dual_exponent(p), p - 1),
        domain=finite, convexity=lambda feasible: Convexity(1.0, l_norm(p)),
        smoothness=1.0 if p == 2 else math.inf, averages=p == 2)
