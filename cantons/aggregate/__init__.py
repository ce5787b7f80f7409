"""Owns: rules that turn many uploads into one aggregate. May import: protocol, recipe, options, ranges, errors."""

from collections.abc import Callable

from cantons.aggregate.centred_clipping import centred_clipping
from cantons.aggregate.geometric_median import geometric_median
from cantons.aggregate.krum import krum, multi_krum
from cantons.aggregate.mean import as_sum, divided, mean, weighted_mean
from cantons.aggregate.median import median
from cantons.aggregate.norm_bound import norm_bound
from cantons.aggregate.total import mean_of, rows, total
from cantons.aggregate.trimmed_mean import trimmed_mean
from cantons.aggregate.uploads import KEEPS_MEAN, NO_UPLOADS, mean_of_uploads
from cantons.protocol import Recipe

# The rules a study can name.
RULES: dict[str, Callable[..., Recipe]] = {build.__name__: build for build in (
    centred_clipping, geometric_median, krum, mean, median, multi_krum, norm_bound, trimmed_mean, weighted_mean)}

__all__ = ["KEEPS_MEAN", "NO_UPLOADS", "RULES", "as_sum", "centred_clipping", "divided", "geometric_median", "krum",
           "mean", "mean_of", "mean_of_uploads", "median", "multi_krum", "norm_bound", "rows", "total", "trimmed_mean",
           "weighted_mean"]
