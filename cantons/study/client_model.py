"""One model to predict with: that of a client, or the common one. It looks to scikit-learn like a fitted estimator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import jax
import numpy as np

from cantons.data import Federation
from cantons.data.checks import Where, as_array, check_sizes, is_real
from cantons.data.encoding import Encoding, count_from_0
from cantons.display import Displayed, Table
from cantons.errors import InputError, listed
from cantons.metrics import leaves
from cantons.protocol import Problem, PyTree
from cantons.study.answers import classes_of, estimator_tags, labels_of, probabilities_of
from cantons.study.own_rows import refuse_own_rows


@dataclass(frozen=True, repr=False)
class ClientModel(Displayed):
    """The shared and the private part that somebody predicts with."""

    name: str | None  # of the client; None: the common one, for nobody in particular
    problem: Problem
    parts: tuple[PyTree, PyTree]
    encoding: Encoding | None  # of raw rows; None: it is not known
    apply: Callable[[PyTree, PyTree, PyTree], PyTree]  # (shared, private, inputs) -> outputs
    precision: str = "float32"
    input_shape: tuple[int, ...] | None = None  # of one row, where it is known
    data: Callable[[], Federation | None] = lambda: None  # of the run, while somebody else holds it
    alone: bool = True  # `apply` is all of the problem's `predict`; else a client's own local model is a part of it

    def predict(self, rows: Any, *, encoded: bool = False) -> np.ndarray:
        """The label of each row, or the number where the model predicts numbers.

        Rows are raw, as in the file that the data came from: an array, a data frame, {column: values} or a list of
        {column: value}. What the run scaled is scaled. `encoded=True` says that they are as in `data.test.inputs`.
        """
        return self.answers(self.outputs(rows, encoded=encoded))

    def predict_proba(self, rows: Any, *, encoded: bool = False) -> np.ndarray:
        """The probability of each class, in the order of `classes_`; rows as for `predict`."""
        return self.probabilities(self.outputs(rows, encoded=encoded))

    def answers(self, outputs: np.ndarray) -> np.ndarray:
        """The labels that these outputs speak for, or the outputs themselves where they are numbers."""
        return labels_of(self.problem.outputs, outputs, self.encoding)

    def probabilities(self, outputs: np.ndarray) -> np.ndarray:
        """The probabilities that these outputs stand for."""
        return probabilities_of(self.problem.outputs, outputs)

    def outputs(self, rows: Any, *, encoded: bool = False) -> np.ndarray:
        """What the model computes, such as logits; rows as for `predict`."""
        with jax.enable_x64(self.precision == "float64"):
            inputs = as_inputs(rows if encoded else self._encoded(rows), self.precision)
            self.problem.check_inputs(inputs)
            try:
                return jax.device_get(self.apply(*self.parts, inputs))
            except (TypeError, ValueError) as error:  # a model that takes what it was not trained on may do so
                shape = self.input_shape
                if shape is None or not hasattr(inputs, "shape") or inputs.shape[1:] == shape:
                    raise
                instead = (f"this may be a single row: give inputs[None], of shape {(1, *shape)}"
                           if inputs.shape == shape else "give one such row per example")
                raise InputError(f"inputs have shape {inputs.shape}, and the model was trained on rows of shape "
                                 f"{shape}; {instead}.") from error

    def _encoded(self, rows: Any) -> Any:
        """Raw rows as inputs; rows that are scaled already are refused."""
        data = self.data()
        if data is None or self.encoding is None or None in (self.encoding.scaling, self.encoding.shape):
            return encode(self.encoding, rows)
        unscaled = self.encoding.unscaled(rows)
        inputs = self.encoding.scale(unscaled)
        refuse_own_rows(data, unscaled, inputs)
        return inputs

    @property
    def classes_(self) -> np.ndarray:
        """The labels, in the order of the probabilities."""
        return classes_of(self.problem.outputs, self.encoding)

    def labels(self, width: int) -> np.ndarray:
        """The labels of a model that has so many outputs."""
        return classes_of(self.problem.outputs, self.encoding, width)

    def fit(self, *data: Any) -> NoReturn:
        raise InputError("this model is trained; train another one with run(problem, data, algorithm, rounds=...).")

    @property
    def _estimator_type(self) -> str:
        return self.__sklearn_tags__().estimator_type

    def __sklearn_tags__(self) -> Any:
        return estimator_tags(self.problem.outputs)

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def _display(self) -> tuple[str, Table]:
        rows = [["rows", "unknown" if self.encoding is None else self.encoding.describe()],
                ["shared part", parameters(self.parts[0])], ["private part", parameters(self.parts[1])],
                ["use", "predict(rows), predict_proba(rows), outputs(rows), classes_"]]
        return "the common model" if self.name is None else f"model of client {self.name}", rows


def encode(encoding: Encoding | None, rows: Any, where: Where = count_from_0) -> Any:
    """Raw rows as inputs; refused where nobody knows how."""
    if encoding is None:
        raise InputError("how raw rows become inputs is not known here: the run is of an older version and its data "
                         "are gone, or inputs of several arrays were scaled; bring the data back, or in Python give "
                         "rows as in data.test.inputs and say encoded=True.")
    return encoding.encode(rows, where)


def as_inputs(inputs: Any, precision: str) -> Any:
    """Arrays of numbers to predict on, none of which is changed by putting it into the run's precision."""
    def check(leaf: Any) -> Any:
        array = leaf if hasattr(leaf, "dtype") else as_array("inputs", leaf)
        if not is_real(array.dtype):
            raise InputError(f"inputs are of type {array.dtype}; give numbers.")
        if array.ndim == 0:
            raise InputError(f"inputs are the single value {array}; give an array with one row per example.")
        return array

    rows = check(inputs) if isinstance(inputs, list) else jax.tree.map(check, inputs)
    if precision == "float32":
        check_sizes("inputs", rows, count_from_0)
    return rows


def parameters(part: PyTree) -> str:
    """How many numbers there are, and in which arrays."""
    arrays = leaves(part)
    if not arrays:
        return "none"
    total = sum(int(np.prod(shape)) for _, shape, _ in arrays)
    return f"{total:,} numbers: {listed([f'{path} {words_of(shape)}'.strip() for path, shape, _ in arrays], most=4)}"


def words_of(shape: Sequence[int]) -> str:
    return " x ".join(map(str, shape)) or "1"
