"""Owns: numbers from states and scores. May import: protocol, errors."""

from cantons.metrics.summary import STATISTICS, statistics
from cantons.metrics.traffic import leaves, nbytes

__all__ = ["STATISTICS", "leaves", "nbytes", "statistics"]
