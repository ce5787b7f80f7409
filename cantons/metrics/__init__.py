"""Owns: numbers from states and scores. May import: protocol, errors."""

from cantons.metrics.flops import dual_encoder_flops
from cantons.metrics.headline import HEADLINES, UPWARDS, headline_of
from cantons.metrics.off_policy import Estimate, doubly_robust, ips
from cantons.metrics.paired import LEVEL, Paired, adjust_for_several, fewest_pairs, paired
from cantons.metrics.robustness import Robustness, measure_robustness
from cantons.metrics.summary import STATISTICS, standard_errors, statistics
from cantons.metrics.traffic import leaves, nbytes

__all__ = [
    "HEADLINES",
    "LEVEL",
    "STATISTICS",
    "UPWARDS",
    "Estimate",
    "Paired",
    "Robustness",
    "adjust_for_several",
    "doubly_robust",
    "dual_encoder_flops",
    "fewest_pairs",
    "headline_of",
    "ips",
    "leaves",
    "measure_robustness",
    "nbytes",
    "paired",
    "standard_errors",
    "statistics",
]
