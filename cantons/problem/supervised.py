"""Classification and regression with a named or a hand-made architecture."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

from cantons.errors import InputError, unknown
from cantons.models import Architecture, Augment, Model, Named, architecture, augmented, written_augment
from cantons.models import linear as linear_model
from cantons.problem.arguments import made_for_data
from cantons.problem.assemble import assemble, convex_if_linear
from cantons.problem.bandit import bandit
from cantons.problem.dual_encoder import dual_encoder
from cantons.problem.logged_bandit import logged_bandit
from cantons.problem.losses import LOSSES, SQUARED_SIGN
from cantons.problem.ranking import area_under_curve
from cantons.problem.residual import residual
from cantons.problem.shaped import Shaped, Shapes, check_targets
from cantons.problem.split import Split
from cantons.problem.target import target
from cantons.protocol import Problem
from cantons.ranges import NonNegative, checked

MODELS = ("model", "shared_model", "private_model")  # the options of a problem that are architectures


@checked
@made_for_data
def classification(data: Shaped, model: Architecture, *, split: Split = "none", l2: NonNegative = 0.0,
                   augment: Augment | None = None) -> Problem:
    """Softmax cross-entropy with integer labels; scores the loss and the accuracy.

    Where an example has several labels, such as one per token, those that are -1 are neither trained on nor scored.

    model: the network, by its name or as a table with options; in Python what its function makes, such as `ct.mlp()`.
    split: what is private: "none", "all", the "input" or the "output" layer, "norm" layers, a pattern such as "*/bias",
        or "adapter".
    l2: half of it times the sum of the squares of all parameters is added to the loss.
    augment: how images are changed at random in training: "crop", "flip", a table with options, or a list of these.
    """
    if data.classes is None:
        raise InputError("classification needs a number of classes, and this data has classes=None; "
                         "give data with integer labels, or use regression.")
    if data.classes < 2:
        raise InputError(f"classification got data with {data.classes} classes; give data with 2 or more.")
    about = {"name": "classification", "input_shape": list(data.input_shape), "classes": data.classes,
             "split": split if isinstance(split, str) else dict(split), "l2": l2}
    if unlabelled := getattr(data, "unlabelled", False):
        about |= {"unlabelled": True}
    network = augmented(model(tuple(data.input_shape), data.classes), augment, data.input_shape)
    problem = assemble(network, LOSSES["masked_softmax" if unlabelled else "softmax"], split, l2,
                       _spec(about, model, augment))
    if data.classes == 2:
        problem = problem._replace(set_metrics={"auc": area_under_curve(problem.predict)},
                                   maximise=(*problem.maximise, "auc"))
    return problem._replace(convex=convex_if_linear(model, l2, split))


@checked
@made_for_data
def regression(data: Shaped, model: Architecture, *, split: Split = "none", labels: Literal["real", "sign"] = "real",
               l2: NonNegative = 0.0, augment: Augment | None = None) -> Problem:
    """Squared error of one output, predicted as [B].

    model: the network, by its name or as a table with options; in Python what its function makes, such as `ct.mlp()`.
    split: what is private: "none", "all", the "input" or the "output" layer, "norm" layers, a pattern such as "*/bias",
        or "adapter".
    labels: "sign" says that targets are -1 and 1, and accuracy is scored too; "real" that they are any numbers.
    l2: half of it times the sum of the squares of all parameters is added to the loss.
    augment: how images are changed at random in training: "crop", "flip", a table with options, or a list of these.
    """
    check_targets(data)
    about = {"name": "regression", "input_shape": list(data.input_shape), "labels": labels,
             "split": split if isinstance(split, str) else dict(split), "l2": l2}
    network = augmented(_single(model(tuple(data.input_shape), 1)), augment, data.input_shape)
    loss = SQUARED_SIGN if labels == "sign" else LOSSES["squared"]
    problem = assemble(network, loss, split, l2, _spec(about, model, augment))
    return problem._replace(convex=convex_if_linear(model, l2, split), numeric_targets=True)


@checked
@made_for_data
def logistic(data: Shaped, *, split: Split = "none", l2: NonNegative = 0.0) -> Problem:
    """Multinomial logistic regression: classification with the linear model.

    split: what is private: "none", "all", the "input" or the "output" layer, "norm" layers, a pattern such as "*/bias",
        or "adapter".
    l2: half of it times the sum of the squares of all parameters is added to the loss.
    """
    return classification(data, linear_model(), split=split, l2=l2)


@checked
@made_for_data
def linear(data: Shaped, *, split: Split = "none", labels: Literal["real", "sign"] = "real",
           l2: NonNegative = 0.0) -> Problem:
    """Linear least squares: regression with the linear model.

    split: what is private: "none", "all", the "input" or the "output" layer, "norm" layers, a pattern such as "*/bias",
        or "adapter".
    labels: "sign" says that targets are -1 and 1, and accuracy is scored too; "real" that they are any numbers.
    l2: half of it times the sum of the squares of all parameters is added to the loss.
    """
    return regression(data, linear_model(), split=split, labels=labels, l2=l2)


PROBLEMS: dict[str, Callable[..., Problem]] = {
    "bandit": bandit, "classification": classification, "dual_encoder": dual_encoder,
    "logged_bandit": logged_bandit, "regression": regression, "residual": residual, "target": target}


def problem_from_spec(spec: Mapping[str, Any]) -> Problem:
    """Rebuild a problem from its `spec`, which names its parts and holds none of its data."""
    options = dict(spec)
    name = options.pop("name")
    if name not in PROBLEMS:
        raise unknown("problem", name, PROBLEMS)
    shapes = Shapes(tuple(options.pop("input_shape")), options.pop("classes", None), options.pop("unlabelled", False))
    models = {key: architecture(**options.pop(key)) for key in MODELS if key in options}
    return PROBLEMS[name](shapes, **models, **options)


def _spec(about: dict[str, Any], model: Architecture, augment: Augment | None) -> dict[str, Any] | None:
    """Plain names and numbers, fit for TOML and JSON; None for what has no name."""
    changes = written_augment(augment)
    if changes is None or not isinstance(model, Named):
        return None
    return {**about, **changes, "model": {"name": model.name, **model.options}}


def _single(model: Model) -> Model:
    train = model.train
    return model._replace(apply=lambda params, inputs: model.apply(params, inputs)[..., 0],
                          train=train and (lambda params, inputs, key: train(params, inputs, key)[..., 0]))
