"""One number per client becomes three: the mean, the mean by examples, and the worst tenth of the clients."""

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
    worst_first = np.sort(values if larger_is_better else -values)
    tenth = worst_first[: max(1, len(values) // 10)].mean()
    return {
        "mean": float(values.mean()),
        "weighted": float(np.average(values, weights=examples)),
        "worst10": float(tenth if larger_is_better else -tenth),
    }
