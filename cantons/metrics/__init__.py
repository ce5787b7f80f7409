"""Owns: numbers from states and scores. May import: protocol, errors."""

from cantons.metrics.bounds import Measured, measured, theorem1_bound, theorem2_bound, theorem2_step_size
from cantons.metrics.hindsight import BestPair, best_pair, best_pair_by_solver
from cantons.metrics.off_policy import Estimate, doubly_robust, ips
from cantons.metrics.regret import average_regret, best_in_hindsight, times_met
from cantons.metrics.summary import STATISTICS, statistics
from cantons.metrics.traffic import leaves, nbytes

__all__ = [
    "STATISTICS",
    "BestPair",
    "Estimate",
    "Measured",
    "average_regret",
    "best_in_hindsight",
    "best_pair",
    "best_pair_by_solver",
    "doubly_robust",
    "ips",
    "leaves",
    "measured",
    "nbytes",
    "statistics",
    "theorem1_bound",
    "theorem2_bound",
    "theorem2_step_size",
    "times_met",
]
