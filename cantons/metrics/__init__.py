"""Owns: numbers from states and scores. May import: protocol, errors."""

from cantons.metrics.off_policy import Estimate, doubly_robust, ips
from cantons.metrics.summary import STATISTICS, statistics
from cantons.metrics.traffic import leaves, nbytes

__all__ = [
    "STATISTICS",
    "Estimate",
    "doubly_robust",
    "ips",
    "leaves",
    "nbytes",
    "statistics",
]
