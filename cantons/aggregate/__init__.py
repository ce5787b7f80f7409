"""Owns: rules that turn many uploads into one aggregate. May import: protocol, errors."""

from cantons.aggregate.mean import Mean, mean, weighted_mean
from cantons.aggregate.total import mean_of, rows, total

__all__ = ["Mean", "mean", "mean_of", "rows", "total", "weighted_mean"]
