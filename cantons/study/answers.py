"""What a model's outputs say: labels and probabilities, by what the problem takes its outputs for."""

from __future__ import annotations

from typing import Any

import numpy as np

from cantons.data.encoding import Encoding
from cantons.errors import InputError

OF_EACH = ("logits", "scores")  # one output for each class
OF_TWO = ("log_odds", "sign")  # one output for two classes: positive for the second


def labels_of(kind: str, outputs: np.ndarray, encoding: Encoding | None) -> np.ndarray:
    """The label of each row, or its outputs where these are numbers."""
    if kind not in (*OF_EACH, *OF_TWO):
        return outputs
    unknown = np.isnan(outputs).reshape(len(outputs), -1).any(axis=1)
    if unknown.any():
        raise InputError(f"the outputs for row {int(unknown.argmax())} (from 0) are not a number, so they have no "
                         "label; training may have diverged: look at its loss.")
    numbers = outputs.argmax(axis=-1) if kind in OF_EACH else (_single(outputs) > 0).astype(int)
    return classes_of(kind, encoding, outputs.shape[-1] if kind in OF_EACH else 2)[numbers]


def probabilities_of(kind: str, outputs: np.ndarray) -> np.ndarray:
    """The probability of each class, in the order of `classes_of`.

    >>> probabilities_of("log_odds", np.array([0.0])).tolist()
    [[0.5, 0.5]]
    """
    if kind == "log_odds":
        odds = _single(outputs)
        outputs = np.stack([np.zeros_like(odds), odds], axis=-1)
    elif kind != "logits":
        raise InputError(f"this model's outputs are {'scores' if kind in ('scores', 'sign') else 'numbers'} and no "
                         "probabilities; use predict, or outputs.")
    powers = np.exp(outputs - outputs.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def classes_of(kind: str, encoding: Encoding | None, count: int | None = None) -> np.ndarray:
    """The labels that a model knows, in the order of its outputs; those without names are numbers.

    >>> classes_of("logits", Encoding(classes=("no", "yes"))).tolist(), classes_of("sign", Encoding()).tolist()
    (['no', 'yes'], [-1, 1])
    """
    named = None if encoding is None else encoding.classes
    if kind in OF_TWO:
        return np.array(named if named is not None and len(named) == 2 else (-1, 1))  # -1 and 1 are numbers, no classes
    if kind not in OF_EACH:
        raise AttributeError("this model predicts numbers, so it has no classes_.")
    if named is not None and count in (None, len(named)):
        return np.array(named)
    if count is None:
        raise AttributeError("how many classes this model has is only known from its outputs; predict first.")
    return np.arange(count)


def estimator_tags(kind: str) -> Any:
    """What scikit-learn asks of a model before it scores it."""
    from sklearn.utils import ClassifierTags, RegressorTags, Tags, TargetTags  # slow to import

    classifies = kind in (*OF_EACH, *OF_TWO)
    return Tags(estimator_type="classifier" if classifies else "regressor", target_tags=TargetTags(required=True),
                classifier_tags=ClassifierTags() if classifies else None,
                regressor_tags=None if classifies else RegressorTags())


def _single(outputs: np.ndarray) -> np.ndarray:
    """One number per row; some models give them as [B, 1]."""
    return outputs[..., 0] if outputs.ndim > 1 and outputs.shape[-1] == 1 else outputs
