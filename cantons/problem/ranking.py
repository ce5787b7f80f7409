"""Metrics of a whole set that look at the order of its examples."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from cantons.protocol import Array, PyTree, SetMetric


def area_under_curve(predict: Callable[[PyTree, PyTree, PyTree], Array]) -> SetMetric:
    """The area under the ROC curve of two classes: how often an example of class 1 is ranked above one of class 0."""

    def collect(shared, private, batch):
        outputs = predict(shared, private, batch.inputs)
        return outputs[..., 1] - outputs[..., 0], batch.targets

    def finish(collected: Any) -> float:
        from sklearn.metrics import roc_auc_score

        margins, labels = collected
        if not np.isfinite(margins).all() or len(np.unique(labels)) < 2:
            return float("nan")
        return float(roc_auc_score(labels, margins))

    return SetMetric(collect, finish)
