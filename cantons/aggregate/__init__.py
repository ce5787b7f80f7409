"""Owns: rules that turn many uploads into one aggregate. May import: protocol, errors."""

from cantons.aggregate.mean import Mean, mean, weighted_mean

__all__ = ["Mean", "mean", "weighted_mean"]
