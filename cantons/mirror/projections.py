"""Bregman projections: which mirror map has an exact one onto which set, and what it is."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from cantons.errors import InputError
from cantons.mirror.balls import is_centred
from cantons.mirror.maps import MirrorMap, above_zero
from cantons.mirror.norms import size
from cantons.mirror.quadratics import onto_affine, onto_ball
from cantons.mirror.roots import water_filling
from cantons.mirror.sets import ConvexSet, known
from cantons.protocol import PyTree

Projection = Callable[[PyTree], PyTree]  # dual -> argmin over the set of potential(x) - <dual, x>

Rule = Callable[[MirrorMap, ConvexSet], Projection | None]  # None: not for this one of its kind


def _free(mirror: MirrorMap, feasible: ConvexSet) -> Projection | None:
    return mirror.to_primal


def _nearest(mirror: MirrorMap, feasible: ConvexSet) -> Projection | None:
    project = feasible.project
    return project and (lambda dual: project(mirror.to_primal(dual)))


def _clipped(mirror: MirrorMap, feasible: ConvexSet) -> Projection | None:
    """A potential that is a sum over entries: an entry outside its interval goes to the nearer end."""
    high = feasible.options["high"]
    with jax.ensure_compile_time_eval():  # a step may be built inside a program being compiled
        reachable = not known(high) or bool(mirror.domain(jax.tree.map(lambda part: jnp.minimum(part, 1.0), high)))
    if not reachable:
        raise InputError(f"the box ends at {high}, and the points of {mirror.name} are positive; raise high above 0.")
    return _nearest(mirror, feasible)


def _softmax(mirror: MirrorMap, feasible: ConvexSet) -> Projection | None:
    def project(dual):
        vector, back = ravel_pytree(dual)
        # Softmax rather than exp / sum: it subtracts the maximum, so large duals stay finite.
        return back(feasible.options["total"] * above_zero(jax.nn.softmax(vector), vector))

    return project


def _filled(mirror: MirrorMap, feasible: ConvexSet) -> Projection | None:
    """A potential that is a sum over entries: all duals fall by one level until the entries add up."""

    def project(dual):
        feasible.start(dual)  # refuses a cap under which they cannot
        vector, back = ravel_pytree(dual)
        return back(water_filling(lambda vector: ravel_pytree(mirror.to_primal(back(vector)))[0],
                         lambda vector: ravel_pytree(mirror.to_dual(back(vector)))[0],
                         vector, feasible.options["total"], feasible.options["cap"]))

    return project


def _rescaled(mirror: MirrorMap, feasible: ConvexSet) -> Projection | None:
    """A ball of the potential's own norm around 0: the direction is right already, so only the length changes."""
    p, radius = mirror.options["p"], feasible.options["radius"]
    if feasible.options["p"] != p or not is_centred(feasible):
        return None

    def project(dual):
        point = mirror.to_primal(dual)
        shrink = radius / jnp.maximum(size(point, p), radius)
        return jax.tree.map(lambda leaf: shrink * leaf, point)

    return project


_FILLED: dict[str, Rule] = {"simplex": _filled, "capped_simplex": _filled}
_EXACT: dict[str, dict[str, Rule]] = {
    "euclidean": {"all_space": _free, **dict.fromkeys(
        ("box", "l1 ball", "l2 ball", "simplex", "capped_simplex", "affine"), _nearest)},
    "entropy": {"all_space": _free, "box": _clipped, **_FILLED, "simplex": _softmax},
    "log_barrier": {"all_space": _free, "box": _clipped, **_FILLED},
    "p_norm": {"all_space": _free, "l2 ball": _rescaled, "lp ball": _rescaled},
    "quadratic": {"all_space": _free, "l2 ball": onto_ball, "affine": onto_affine},
    "diagonal quadratic": {"all_space": _free, "box": _clipped, "l2 ball": onto_ball, **_FILLED,
                           "affine": onto_affine},
}


def bregman_projection(mirror: MirrorMap, feasible: ConvexSet) -> Projection:
    """The function dual -> argmin over the set of potential(x) - <dual, x>, exact to rounding.

    At dual = to_dual(z) it is the Bregman projection of z. A pair without an exact one is refused here.

    >>> from cantons.mirror import entropy, ball
    >>> bregman_projection(entropy(), ball(1.0))
    Traceback (most recent call last):
    cantons.errors.InputError: entropy has no exact step on an l2 ball. It has one on: all_space, box, simplex,
    capped_simplex; on an l2 ball take: euclidean, quadratic.
    """
    build = _table(mirror).get(feasible.kind)
    project = build and build(mirror, feasible)
    if not project:
        raise _refusal(mirror, feasible)
    return project


def _table(mirror: MirrorMap) -> dict[str, Rule]:
    """What is exact for a map of ours, or for one a user wrote."""
    own: dict[str, Rule] = {"all_space": _free, **({"box": _clipped, **_FILLED} if mirror.entries else {})}
    return _EXACT.get(mirror.kind, own)


def _refusal(mirror: MirrorMap, feasible: ConvexSet) -> InputError:
    sets = list(_table(mirror))
    if mirror.kind == "p_norm":
        sets = ["all_space", f"an l{mirror.options['p']:g} ball around 0"]
    # A p_norm serves only the ball of its own p, and a diagonal quadratic is a quadratic.
    others = [kind for kind, table in _EXACT.items() if feasible.kind in table and kind not in (mirror.kind, "p_norm")]
    if feasible.kind == "lp ball" and 1 < feasible.options["p"] <= 2 and is_centred(feasible):
        others = [f"p_norm({feasible.options['p']:g})"]
    if "quadratic" in others:
        others.remove("diagonal quadratic")
    way_out = f"; on {feasible.name} take: {', '.join(others)}" if others else ""
    return InputError(f"{mirror.name} has no exact step on {feasible.name}. It has one on: {', '.join(sets)}{way_out}.")
