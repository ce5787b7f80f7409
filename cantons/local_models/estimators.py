"""Scikit-learn estimators as local models: those that learn step by step, and those that are fitted again.

A regressor learns y - shared_prediction, for the squared loss. A classifier cannot learn numbers: it learns y itself,
and what it says becomes outputs, so that the shared model learns what all classifiers leave over, not they what it
does. `classes = K` makes K outputs, for a softmax: logarithms of its probabilities (or its decision function), less
their mean. `classes = (-1, 1)` makes one output: 2 p - 1, on the scale of the labels, or with `scale = "logit"` the
logarithm of the odds, for the logistic loss. No probability is taken to be below 1 %: trees are too sure of themselves.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from cantons.errors import InputError, at_least, one_of
from cantons.local_models.linear import flat
from cantons.local_models.saving import try_saving

LEAST = 0.01  # of a probability
# What scikit-learn makes anew from an estimator's options whenever it learns: no need to save it.
MADE_ANEW = ("_loss_function_",)


@functools.cache
def _threads() -> Any:
    from threadpoolctl import ThreadpoolController  # comes with scikit-learn

    return ThreadpoolController()


def _alone() -> Any:
    """As a context: one thread. On a busy machine threads that wait for each other made boosted trees 240 times slower,
    and no client has so many examples that they would help."""
    return _threads().limit(limits=1, user_api="openmp")


class _Estimator:
    def __init__(self, estimator: Any, classes: int | Sequence[int] | None, scale: str):
        from sklearn.base import is_classifier  # slow to import, and only needed here

        name = type(estimator).__name__
        if is_classifier(estimator) and classes is None:
            raise InputError(f"{name} is a classifier; say which classes there are, classes = 10 for the labels 0 to 9 "
                             "of a softmax or classes = (-1, 1), or take a regressor, which can learn residuals.")
        if not is_classifier(estimator) and classes is not None:
            raise InputError(f"{name} is no classifier and learns residuals; leave classes out.")
        one_of("scale", scale, ("label", "logit"))
        self.single, self.labels = not isinstance(classes, int), None
        if isinstance(classes, int):
            at_least("classes", classes, 2)
            self.labels = np.arange(classes)
        elif classes is not None:
            if tuple(classes) != (-1, 1):
                raise InputError(f"classes is {classes}; give a number of classes, or (-1, 1).")
            self.labels = np.array((-1, 1))
        self.given = copy.deepcopy(estimator)  # as it was before it learned here; one may be given to many clients
        self.estimator = copy.deepcopy(estimator)
        self.scale, self.fitted = scale, False

    def predict(self, x: np.ndarray) -> np.ndarray:
        if not self.fitted:
            return np.zeros(len(x) if self.single or self.labels is None else (len(x), len(self.labels)))
        with _alone():
            if self.labels is None:
                return np.asarray(self.estimator.predict(flat(x)), float).reshape(len(x))
            return outputs_of(self.estimator, flat(x), self.labels, self.single, self.scale)

    def lesson(self, y: np.ndarray, shared_prediction: np.ndarray) -> np.ndarray:
        """What the estimator is to say about these examples."""
        return y - shared_prediction if self.labels is None else y

    def loose_randomness(self) -> str:
        """Why the estimator would draw other numbers in a resumed run; empty if it would not."""
        for name, value in self.given.get_params().items():
            if name.split("__")[-1] == "random_state" and not isinstance(value, int | np.integer):
                what = "numpy's common stream" if value is None else "a stream that others may share"
                return f"draws from {what} ({name} is {value}); give it a number, such as {name}=0"
        return ""


class PartialFit(_Estimator):
    """An estimator with `partial_fit`, such as SGDRegressor, MLPRegressor or SGDClassifier; it is copied.

    It can be saved if all that it learns are arrays, numbers and words, which a multi-layer perceptron's optimiser is
    not, and if its random_state is a number.
    """

    def __init__(self, estimator: Any, *, classes: int | Sequence[int] | None = None, scale: str = "label"):
        super().__init__(estimator, classes, scale)
        self.classes = classes
        if not hasattr(estimator, "partial_fit"):
            raise InputError(f"{type(estimator).__name__} has no partial_fit; Refit fits it again every so often.")

    def update(self, x: np.ndarray, y: np.ndarray, shared_prediction: np.ndarray) -> None:
        more = {} if self.labels is None else {"classes": self.labels}
        self.estimator.partial_fit(flat(x), self.lesson(y, shared_prediction), **more)
        self.fitted = True

    def get_state(self) -> dict[str, np.ndarray]:
        options = self.estimator.get_params(deep=False)
        learned = {name: value for name, value in vars(self.estimator).items()
                   if name not in options and name not in MADE_ANEW and value is not None}
        for name, value in learned.items():
            if not isinstance(value, np.ndarray | np.generic | int | float | str):
                raise TypeError(f"keeps {name}, a {type(value).__name__}, which is no array, number or word")
        return {"fitted": np.array(self.fitted)} | {
            f"estimator.{name}": np.array(value) for name, value in learned.items()}

    def set_state(self, state: dict[str, np.ndarray]) -> None:
        self.fitted, self.estimator = bool(state["fitted"]), copy.deepcopy(self.given)
        for name, value in state.items():
            if name.startswith("estimator."):
                setattr(self.estimator, name.removeprefix("estimator."), value if value.ndim else value.item())

    def why_not_saved(self) -> str:
        return self._trial

    @functools.cached_property
    def _trial(self) -> str:
        return self.loose_randomness() or try_saving(
            lambda: PartialFit(self.given, classes=self.classes, scale=self.scale),
            getattr(self.given, "n_features_in_", 3), self.labels)


class Refit(_Estimator):
    """Any estimator, such as a forest or boosted trees: fitted anew every so many steps to the latest examples.

    After `every` updates it is fitted to the last `window` examples. An old example keeps the shared prediction of its
    own time: the newer ones are not known. Until the first fit the model says 0. The estimator is copied.

    Its examples are saved, and it is fitted to them again, so it can be saved if its random_state is a number.
    """

    def __init__(self, estimator: Any, *, every: int = 20, window: int = 500,
                 classes: int | Sequence[int] | None = None, scale: str = "label"):
        super().__init__(estimator, classes, scale)
        at_least("every", every, 1)
        at_least("window", window, 1)
        self.every, self.window, self.updates = every, window, 0
        self.examples: tuple[np.ndarray, np.ndarray] | None = None  # the last ones, and what to say about them
        self.fitted_to: tuple[np.ndarray, np.ndarray] | None = None  # those of the last fit

    def update(self, x: np.ndarray, y: np.ndarray, shared_prediction: np.ndarray) -> None:
        news = flat(x), self.lesson(y, shared_prediction)
        pairs = [news] if self.examples is None else [self.examples, news]
        rows, lessons = (np.concatenate(parts)[-self.window:] for parts in zip(*pairs, strict=True))
        self.examples = rows, lessons
        self.updates += 1
        # A classifier that has met one class only has nothing to tell apart.
        if self.updates % self.every == 0 and (self.labels is None or len(np.unique(lessons)) > 1):
            self._fit(rows, lessons)

    def _fit(self, rows: np.ndarray, lessons: np.ndarray) -> None:
        with _alone():
            self.estimator.fit(rows, lessons)
        self.fitted, self.fitted_to = True, (rows, lessons)

    def get_state(self) -> dict[str, np.ndarray]:
        state = {"updates": np.array(self.updates)}
        for name, pair in (("", self.examples), ("fitted_", self.fitted_to)):
            if pair is not None:
                state |= {f"{name}rows": pair[0], f"{name}lessons": pair[1]}
        return state

    def set_state(self, state: dict[str, np.ndarray]) -> None:
        self.updates, self.estimator = int(state["updates"]), copy.deepcopy(self.given)
        self.examples = (state["rows"], state["lessons"]) if "rows" in state else None
        self.fitted, self.fitted_to = False, None
        if "fitted_rows" in state:
            self._fit(state["fitted_rows"], state["fitted_lessons"])

    def why_not_saved(self) -> str:
        if self.given.get_params().get("warm_start"):
            return "begins each fit where the last one ended (warm_start), and only the last one's examples are kept"
        return self.loose_randomness()


def outputs_of(estimator: Any, rows: np.ndarray, labels: np.ndarray, single: bool, scale: str) -> np.ndarray:
    """A classifier's answers as numbers that can be added to a shared model's."""
    if hasattr(estimator, "predict_proba"):
        found = np.zeros((len(rows), len(labels)))
        found[:, np.searchsorted(labels, estimator.classes_)] = estimator.predict_proba(rows)
        found = np.clip(found, LEAST, 1)
        found /= found.sum(axis=1, keepdims=True)
        if single and scale == "label":
            return 2 * found[:, 1] - 1
        logits = np.log(found)
    else:
        margins = np.asarray(estimator.decision_function(rows), float)
        if single and scale == "label":
            return np.clip(margins, -1, 1)
        if margins.ndim == 1:  # of two classes
            margins = np.stack([-margins / 2, margins / 2], axis=1)
        logits = np.zeros((len(rows), len(labels)))
        logits[:, np.searchsorted(labels, estimator.classes_)] = margins
    return logits[:, 1] - logits[:, 0] if single else logits - logits.mean(axis=1, keepdims=True)
