"""A linear model in NumPy: the simplest local model, and one whose every step can be checked."""

from __future__ import annotations

import numpy as np

from cantons.errors import InputError, at_least, one_of, positive

LOSSES = ("squared", "logistic", "softmax")


class Linear:
    """Online gradient steps on the loss of shared_prediction + x.weight + bias, from zero.

    `loss` is the problem's: "squared", "logistic" (labels -1 and 1) or "softmax", which also needs `classes`.
    """

    def __init__(self, step_size: float = 0.05, *, loss: str = "squared", classes: int | None = None,
                 bias: bool = True):
        one_of("loss", loss, LOSSES)
        positive("step_size", step_size)
        if (loss == "softmax") != (classes is not None):
            raise InputError("classes is for loss = \"softmax\", which has one output for each; give both or neither.")
        if classes is not None:
            at_least("classes", classes, 2)
        self.step_size, self.loss, self.classes, self.has_bias = step_size, loss, classes, bias
        self.weight: np.ndarray | None = None  # [features, outputs], once the number of features is known
        self.bias = np.zeros(classes or 1)

    def predict(self, x: np.ndarray) -> np.ndarray:
        rows = flat(x)
        if self.weight is None:
            self.weight = np.zeros((rows.shape[1], len(self.bias)))
        outputs = rows @ self.weight + self.bias
        return outputs if self.classes else outputs[:, 0]

    def update(self, x: np.ndarray, y: np.ndarray, shared_prediction: np.ndarray) -> None:
        gradients = output_gradient(self.loss, shared_prediction + self.predict(x), y) / len(x)
        gradients = gradients.reshape(len(x), -1)
        assert self.weight is not None
        self.weight -= self.step_size * (flat(x).T @ gradients)
        if self.has_bias:
            self.bias -= self.step_size * gradients.sum(axis=0)

    def get_state(self) -> dict[str, np.ndarray]:
        state = {"weight": self.weight, "bias": self.bias}
        return {name: array.copy() for name, array in state.items() if array is not None}

    def set_state(self, state: dict[str, np.ndarray]) -> None:
        self.weight, self.bias = state.get("weight"), state["bias"]


def output_gradient(loss: str, outputs: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The derivative of each example's loss by its outputs.

    >>> output_gradient("squared", np.array([3.0]), np.array([1.0]))
    array([4.])
    """
    if loss == "squared":
        return 2 * (outputs - y)
    if loss == "logistic":
        return -y * np.exp(-np.logaddexp(0, y * outputs))
    likelihood = np.exp(outputs - np.logaddexp.reduce(outputs, axis=1, keepdims=True))
    return likelihood - (np.arange(outputs.shape[1]) == y[:, None])


def flat(x: np.ndarray) -> np.ndarray:
    """One row of numbers per example, in double precision."""
    return np.asarray(x, float).reshape(len(x), -1)
