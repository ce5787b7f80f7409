"""One number per client becomes three: the mean, the mean by examples, and the worst tenth of the clients.

Where a sample of the clients was scored, there are standard errors too.
"""

from __future__ import annotations

import numpy as np

STATISTICS = ("mean", "weighted", "worst10")


def statistics(values: np.ndarray, examples: np.ndarray, larger_is_better: bool) -> dict[str, float]:
    """Summarise one metric over clients; clients without examples do not count.

    "worst10" is the mean over the tenth of the clients (at least one) who fare worst.

    >>> statistics(np.array([0.0, 1.0, 1.0]), np.array([1, 1, 2]), larger_is_better=True)
    {'mean': 0.6666666666666666, 'weighted': 0.75, 'worst10': 0.0}
    """
    there = examples > 0
    values, examples = values[there].astype(float), examples[there]
    if not len(values):
        return dict.fromkeys(STATISTICS, float("nan"))
    worst_first = np.argsort(values if larger_is_better else -values)
    tenth = values[worst_first[: max(1, len(values) // 10)]]
    return {
        "mean": float(values.mean()),
        "weighted": float(np.average(values, weights=examples)),
        "worst10": float(tenth.mean()),
    }


def standard_errors(values: np.ndarray, examples: np.ndarray, population: int) -> dict[str, float]:
    """How far a sample's "mean" and "weighted" mean may be from those of all `population` clients with examples.

    The sample is drawn without replacement: one of everybody has no error. The weighted mean is a ratio of two means,
    whose error is the usual one of first order (Cochran, "Sampling Techniques", 1977, section 6.4).

    >>> standard_errors(np.array([0.0, 1.0, 1.0]), np.array([1, 1, 2]), population=12)
    {'error': 0.28867513459481287, 'weighted_error': 0.24803918541230538}
    """
    there = examples > 0
    values, examples = values[there].astype(float), examples[there]
    size = len(values)
    if size >= population:
        return {"error": 0.0, "weighted_error": 0.0}
    if size < 2:
        return {"error": float("nan"), "weighted_error": float("nan")}
    missing = 1 - size / population
    apart = examples * (values - np.average(values, weights=examples))
    return {
        "error": float(np.sqrt(missing * values.var(ddof=1) / size)),
        "weighted_error": float(np.sqrt(missing * size / (size - 1) * (apart**2).sum()) / examples.sum()),
    }
