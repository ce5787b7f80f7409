"""One step of mirror descent, and where it may begin."""

from __future__ import annotations

from collections.abc import Callable

import jax

from cantons.errors import InputError
from cantons.mirror.maps import MirrorMap
from cantons.mirror.projections import bregman_projection
from cantons.mirror.sets import ConvexSet, known
from cantons.protocol import Array, PyTree

Step = Callable[[PyTree, PyTree, Array | float], PyTree]  # (point, gradient, step_size) -> point


def mirror_descent_step(mirror: MirrorMap, feasible: ConvexSet) -> Step:
    """Build `step(point, gradient, step_size)`; a pair without an exact step is refused here, not in a round.

    argmin over x in X of <gradient, x> + B(x, point) / step_size, equation (3) of Mitra, Hassani and Pappas,
    "Online Federated Learning", 2021; step_size is eta_t. With `entropy` on `simplex` it is multiplicative weights:

    >>> import jax.numpy as jnp
    >>> from cantons.mirror import entropy, simplex
    >>> step = mirror_descent_step(entropy(), simplex())
    >>> [f"{entry:.2f}" for entry in step(jnp.array([0.5, 0.5]), jnp.array([0.0, jnp.log(3.0)]), 1.0)]
    ['0.75', '0.25']
    """
    project = bregman_projection(mirror, feasible)

    def step(point, gradient, step_size):
        dual = jax.tree.map(lambda leaf, part: leaf - step_size * part, mirror.to_dual(point), gradient)
        return project(dual)

    return step


def mirror_step(mirror: MirrorMap, feasible: ConvexSet, point: PyTree, gradient: PyTree,
                step_size: Array | float) -> PyTree:
    """The same step, built and taken at once."""
    return mirror_descent_step(mirror, feasible)(point, gradient, step_size)


def check_start(feasible: ConvexSet, point: PyTree, mirror: MirrorMap | None = None, tolerance: float = 1e-5) -> None:
    """Refuse a start outside the set, or one where the mirror map has no gradient and could never leave.

    >>> from cantons.mirror import simplex
    >>> check_start(simplex(), [0.7, 0.7])
    Traceback (most recent call last):
    cantons.errors.InputError: the start is outside a simplex, by 0.4 of its size; start from a point of the set, such
    as its project(point), or start(point), which is in its middle.
    """
    if not known((point, feasible.violation(point))):
        return  # inside a program being compiled there is nothing to look at yet
    if not bool(feasible.contains(point, tolerance)):
        nearest = "project(point), or " if feasible.project else ""
        distance = float(feasible.violation(point))
        raise InputError(f"the start is outside {feasible.name}, by {distance:.3g} of its size; "
                         f"start from a point of the set, such as its {nearest}start(point), which is in its middle.")
    if mirror is not None and not bool(mirror.domain(point)):
        raise InputError(f"the start has entries that are not above 0, where {mirror.name} has no finite gradient and "
                         "a step cannot leave; start from positive entries.")
