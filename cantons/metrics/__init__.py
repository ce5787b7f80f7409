"""Owns: numbers from states and scores. May import: protocol, errors."""

from cantons.metrics.flops import dual_encoder_flops
from cantons.metrics.off_policy import Estimate, doubly_robust, ips
from cantons.metrics.robustness import Robustness, measure_robustness
from cantons.metrics.summary import STATISTICS, standard_errors, statistics
from cantons.metrics.traffic import leaves, nbytes

__all__ = [
    "STATISTICS",
    "Estimate",
    "Robustness",
    "doubly_robust",
    "dual_encoder_flops",
    "ips",
    "leaves",
    "measure_robustness",
    "nbytes",
    "standard_errors",
    "statistics",
]
