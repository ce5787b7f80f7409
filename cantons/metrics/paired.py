"""Paired differences between two methods, over seeds or over clients: their mean, an interval and a test."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

LEVEL = 0.05  # of tests; intervals have the rest
RESAMPLES = 5000
AT_ONCE = 10**6  # resampled numbers in memory
EXACT = 12  # so many pairs have all their signs tried: 2^12 of them


class Paired(NamedTuple):
    """What differences say, each of one pair."""

    number: int
    mean: float
    low: float  # 95% bootstrap interval of the mean; of fewer than `fewest_pairs()`, the smallest difference
    high: float  # and the largest
    p: float  # of Wilcoxon's signed-rank test: that differences are as often above 0 as below
    signs: tuple[int, int, int]  # how many are above 0, equal to it, below

    @property
    def tested(self) -> bool:
        """Whether there are enough pairs for a test to see anything, and for an interval to be one."""
        return self.number >= fewest_pairs()


def paired(differences: np.ndarray, unit: float = 0.0) -> Paired:
    """Summarise differences; those below `unit` are 0, and those that agree up to it are tied.

    The order of the pairs does not matter: the bootstrap draws from sorted differences, always with the same seed.

    >>> paired(np.array([0.5, 1.0, -0.25]))
    Paired(number=3, mean=0.4166666666666667, low=-0.25, high=1.0, p=0.5, signs=(2, 0, 1))
    """
    values = np.sort(np.asarray(differences, float))
    if unit:
        values = np.round(values / unit) * unit
    if not len(values) or not np.isfinite(values).all():
        raise ValueError("differences of at least one pair are needed, and finite ones")
    signs = (int((values > 0).sum()), int((values == 0).sum()), int((values < 0).sum()))
    low, high = bootstrap_interval(values) if len(values) >= fewest_pairs() else (values[0], values[-1])
    return Paired(len(values), float(values.mean()), float(low), float(high), signed_rank_p(values), signs)


def bootstrap_interval(values: np.ndarray) -> tuple[float, float]:
    """The 95% percentile interval of the mean over values that are drawn again with replacement."""
    random, at_once = np.random.default_rng(0), max(1, AT_ONCE // len(values))
    sizes = [min(at_once, RESAMPLES - done) for done in range(0, RESAMPLES, at_once)]
    means = np.concatenate([random.choice(values, (size, len(values))).mean(axis=1) for size in sizes])
    low, high = np.quantile(means, (LEVEL / 2, 1 - LEVEL / 2))
    return float(low), float(high)


def signed_rank_p(values: np.ndarray) -> float:
    """The two-sided p-value of Wilcoxon's signed-rank test, in which differences of 0 do not count.

    It is 1 if one or none is left. With few pairs all signs are tried, because the usual tables know no ties.
    """
    from scipy.stats import PermutationMethod, wilcoxon

    there = values[values != 0]
    if len(there) < 2:
        return 1.0
    method = PermutationMethod(n_resamples=2**EXACT) if len(there) <= EXACT else "auto"
    return float(wilcoxon(there, method=method).pvalue)


def fewest_pairs(tests: int = 1) -> int:
    """How many pairs a signed-rank test needs to see anything, even if all differ alike: its least p is 2^(1 - pairs).

    >>> fewest_pairs(), fewest_pairs(tests=4)
    (6, 8)
    """
    return next(count for count in range(1, 64) if tests * 2.0 ** (1 - count) < LEVEL)


def adjust_for_several(p_values: Sequence[float]) -> list[float]:
    """Holm's correction: whoever makes several tests, and looks at the smallest p, must ask more of it.

    >>> adjust_for_several([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    order = np.argsort(p_values, kind="stable")
    found, largest = [0.0] * len(p_values), 0.0
    for place, index in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - place) * p_values[index]))
        found[index] = largest
    return found
