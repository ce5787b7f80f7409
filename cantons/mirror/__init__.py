"""Owns: mirror maps, sets and Bregman projections. May import: solve, options, protocol, errors."""

from cantons.mirror.balls import ball
from cantons.mirror.bounds import largest_divergence, relative_strong_convexity, strong_convexity
from cantons.mirror.maps import MirrorMap, entropy, euclidean, log_barrier, p_norm
from cantons.mirror.norms import Convexity, Norm, l_norm
from cantons.mirror.projections import bregman_projection
from cantons.mirror.quadratics import quadratic
from cantons.mirror.sets import ConvexSet, affine, all_space, box
from cantons.mirror.simplices import capped_simplex, simplex
from cantons.mirror.steps import check_start, mirror_descent_step, mirror_step

MAPS = {build.__name__: build for build in (entropy, euclidean, log_barrier, p_norm, quadratic)}
SETS = {build.__name__: build for build in (affine, all_space, ball, box, capped_simplex, simplex)}

__all__ = [
    "MAPS",
    "SETS",
    "ConvexSet",
    "Convexity",
    "MirrorMap",
    "Norm",
    "affine",
    "all_space",
    "ball",
    "box",
    "bregman_projection",
    "capped_simplex",
    "check_start",
    "entropy",
    "euclidean",
    "l_norm",
    "largest_divergence",
    "log_barrier",
    "mirror_descent_step",
    "mirror_step",
    "p_norm",
    "quadratic",
    "relative_strong_convexity",
    "simplex",
    "strong_convexity",
]
