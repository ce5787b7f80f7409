"""Balls in the l_p norms."""

from __future__ import annotations

import math
from typing import Annotated, Literal

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree

from cantons.mirror.norms import dual_exponent, largest, power, size
from cantons.mirror.sets import ConvexSet, box, known, spread
from cantons.mirror.simplices import nearest_in_simplex
from cantons.protocol import PyTree
from cantons.ranges import Numbers, Positive, Range, checked

_EXPONENTS = {"l1": 1.0, "l2": 2.0, "linf": math.inf}


def _nearest_in_l1(point: PyTree, radius: float) -> PyTree:
    vector, back = ravel_pytree(point)
    on_border = jnp.sign(vector) * nearest_in_simplex(jnp.abs(vector), radius)
    return back(jnp.where(size(vector, 1) <= radius, vector, on_border))


_NEAREST = {1.0: _nearest_in_l1, 2.0: optax.projections.projection_l2_ball}


@checked
def ball(radius: Positive, norm: Literal["l1", "l2", "linf"] | Annotated[float, Range(1, math.inf)] = "l2",
         centre: Numbers = 0.0) -> ConvexSet:
    """||x - centre|| <= radius, the norm taken over all entries of a tree: "l1", "l2", "linf", or a number p >= 1.

    >>> ball(1.0).project({"weight": jnp.array([3.0]), "bias": jnp.array(4.0)})
    {'bias': Array(0.8, dtype=float32), 'weight': Array([0.6], dtype=float32)}
    """
    if isinstance(norm, str):
        norm = _EXPONENTS[norm]
    p = float(norm)
    if p == math.inf:
        low, high = (jax.tree.map(lambda part, move=move: part + move, centre) for move in (-radius, radius))
        return box(low, high)._replace(name="an linf ball")

    def around(point):
        return jax.tree.map(jnp.subtract, point, spread(centre, point))

    def moved(point):
        return jax.tree.map(jnp.add, point, spread(centre, point))

    def project(point):
        return moved(_NEAREST[p](around(point), radius))

    def diameter(like):
        entries = sum(np.size(leaf) for leaf in jax.tree.leaves(like))
        return 2 * radius * jnp.asarray(entries) ** max(0.0, 0.5 - 1 / p)

    def corner(direction):
        vector, back = ravel_pytree(direction)
        vector = jnp.where(jnp.any(vector != 0), vector, 1.0)  # nothing is furthest in no direction: take any
        if p == 1:
            peak = jax.nn.one_hot(jnp.argmax(jnp.abs(vector)), vector.size, dtype=vector.dtype)
            return moved(back(radius * peak * jnp.sign(vector)))
        arrow = jnp.sign(vector) * power(jnp.abs(vector) / largest(vector), dual_exponent(p) - 1)
        return moved(back(radius * arrow / size(arrow, p)))

    return ConvexSet(f"l{p:g} ball" if p in _NEAREST else "lp ball", f"an l{p:g} ball",
                     {"radius": radius, "p": p, "centre": centre},
                     lambda point: jnp.maximum(size(around(point), p) / radius - 1, 0.0),
                     lambda like: spread(centre, like), diameter, project if p in _NEAREST else None, corner)


def is_centred(feasible: ConvexSet) -> bool:
    """Is a ball's centre surely 0?"""
    centre = feasible.options["centre"]
    return known(centre) and all(np.all(np.asarray(leaf) == 0) for leaf in jax.tree.leaves(centre))
