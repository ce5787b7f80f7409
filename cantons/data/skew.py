"""How much the clients of a federation differ: in what they train on, and in how much of it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cantons.data.federation import Federation
from cantons.errors import InputError


def label_counts(federation: Federation) -> np.ndarray:
    """How often each client trains on each label: integers [clients, classes]."""
    if federation.classes is None:
        raise InputError(f"the targets of {federation.name!r} are numbers, not labels, so there is nothing to count.")
    targets = np.asarray(federation.train.targets)
    labels_each = targets[:1].size  # a text has one label per token
    owners = np.repeat(np.arange(federation.population), np.asarray(federation.train.sizes) * labels_each)
    told = targets.ravel() >= 0  # -1 is no label
    places = (owners * federation.classes + targets.ravel())[told]
    counts = np.bincount(places, minlength=federation.population * federation.classes)
    return counts.reshape(federation.population, federation.classes)


def label_skew(federation: Federation) -> float:
    """The mean over clients of the total variation between their labels and everybody's: 0 if all are alike.

    Half the sum over classes of |share among the client's labels - share among all labels|. It is below 1, and
    close to it when there are many clients with labels of their own.

    >>> from cantons.data.build import federation
    >>> ann_and_bob = federation(np.zeros((4, 1)), np.array([0, 0, 1, 1]), list("aabb"), classes=2, test=0)
    >>> label_skew(ann_and_bob)
    0.5
    """
    counts = label_counts(federation)
    shares = counts / counts.sum(axis=1, keepdims=True)
    everybody = counts.sum(axis=0) / counts.sum()
    return float(np.abs(shares - everybody).sum(axis=1).mean() / 2)


def size_quantiles(federation: Federation, fractions: Sequence[float] = (0, 0.25, 0.5, 0.75, 1)) -> np.ndarray:
    """How many training examples the smallest client has, the median one, the largest: one number per fraction."""
    return np.quantile(np.asarray(federation.train.sizes), fractions)
