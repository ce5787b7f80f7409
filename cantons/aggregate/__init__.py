"""Owns: rules that turn many uploads into one aggregate. May import: protocol, recipe, errors."""

from collections.abc import Callable

from cantons.aggregate.mean import as_sum, divided, mean, weighted_mean
from cantons.aggregate.median import median
from cantons.aggregate.total import mean_of, rows, total
from cantons.aggregate.uploads import KEEPS_MEAN, NO_UPLOADS, mean_of_uploads
from cantons.protocol import Recipe

# The rules a study can name.
RULES: dict[str, Callable[..., Recipe]] = {build.__name__: build for build in (mean, median, weighted_mean)}

__all__ = ["KEEPS_MEAN", "NO_UPLOADS", "RULES", "as_sum", "divided", "mean", "mean_of", "mean_of_uploads", "median",
           "rows", "total", "weighted_mean"]
