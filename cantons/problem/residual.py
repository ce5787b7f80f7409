"""Joint prediction: a shared model on global features plus a private model on local features.

Wei, Agarwal and Langford, "Federated Residual Learning", 2020 (v2), equations (1) to (3), and Agarwal, Langford and
Wei, 2020 (v1), section 2: outputs (or logits) are summed, so each model fits what the other leaves over. The features
may be the same, overlap or be disjoint; either model may be a network; either side may be left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from cantons.errors import InputError, one_of, unknown
from cantons.models import Architecture, Model, Named
from cantons.models import linear as linear_model
from cantons.problem.arguments import made_for_data
from cantons.problem.assemble import is_linear
from cantons.problem.losses import LOSSES, SQUARED_SIGN, masked_mean
from cantons.problem.shaped import Shaped, check_targets, check_tokens
from cantons.protocol import Array, Batch, Convex, Dense, Problem, Residual
from cantons.ranges import Positive, Whole, checked

Features = str | Sequence[Whole]
NAMED = ("all", "none", "first_half", "second_half")


@checked
@made_for_data
def residual(data: Shaped, *, shared_features: Features = "all", private_features: Features = "all",
             shared_model: Architecture | None = None, private_model: Architecture | None = None,
             loss: str | None = None, labels: Literal["real", "sign"] = "real",
             clip: Positive | None = None) -> Problem:
    """A shared and a private model whose outputs are summed; both are linear unless you say otherwise.

    shared_features: which columns the shared model sees: "all", "none", "first_half", "second_half" or a list.
    private_features: the same for the private models.
    shared_model: a network, like `model` of classification; linear unless given.
    private_model: the same for the private models.
    loss: "softmax" for data with classes and "squared" otherwise, or "logistic" for labels -1 and 1.
    labels: "sign" says that targets are -1 and 1, and makes them of two classes; the squared loss then scores accuracy
        too.
    clip: bounds the summed output by -clip and clip in loss and score, as Vowpal Wabbit does: the gradient keeps the
        clipped error and looks past the clipping.
    """
    check_targets(data)
    kind = loss or ("squared" if data.classes is None else "softmax")
    if kind not in (known := [name for name in LOSSES if name != "masked_softmax"]):
        raise unknown("loss", kind, known)
    if kind == "softmax" and data.classes is None:
        raise InputError("loss is softmax, and this data has no classes; use squared or logistic.")
    if kind != "softmax" and labels == "sign" and data.classes not in (None, 2):
        raise InputError(f"labels -1 and 1 stand for two classes, and this data has {data.classes}; use softmax.")
    if kind != "softmax" and labels == "real" and data.classes is not None:
        raise InputError(f"loss is {kind}, and this data has {data.classes} classes; use softmax, or for two classes "
                         "labels = \"sign\".")
    classes_as_signs = labels == "sign" and data.classes is not None
    rule = SQUARED_SIGN if (kind, labels) == ("squared", "sign") else LOSSES[kind]
    outputs = data.classes if kind == "softmax" else 1
    assert outputs is not None
    shape = tuple(data.input_shape)
    sides = {"shared": (shared_features, shared_model), "private": (private_features, private_model)}
    columns = {side: _columns(f"{side}_features", features, shape) for side, (features, _) in sides.items()}
    if all(found is not None and not len(found) for found in columns.values()):
        raise InputError("both feature sets are empty: no model sees anything; give one of them features.")
    models = {side: _network(model or linear_model(), columns[side], shape, outputs)
              for side, (_, model) in sides.items()}

    def init(key):
        shared_key, private_key = jax.random.split(key)
        return models["shared"].init(shared_key), models["private"].init(private_key)

    def shared_view(inputs):
        return _picked(inputs, columns["shared"])

    def by_shared(shared, features):
        return models["shared"].apply(shared, features)

    def private_view(inputs):
        return _picked(inputs, columns["private"])

    def by_private(private, inputs):
        return models["private"].apply(private, private_view(inputs))

    def clipped(values):
        if clip is None:
            return values
        return values + jax.lax.stop_gradient(jnp.clip(values, -clip, clip) - values)

    def predict(shared, private, inputs):
        return by_shared(shared, shared_view(inputs)) + by_private(private, inputs)

    def signed(targets):
        return 2 * targets - 1 if classes_as_signs else targets

    def as_outputs(targets):
        if kind != "softmax" and jnp.ndim(targets) > 1:
            raise InputError(f"residual predicts one number for each example, and these have targets of shape "
                             f"{targets.shape[1:]}; give one each, or use the problem bandit for rewards of actions.")
        return targets if kind == "softmax" else signed(targets).astype(float)

    def joint_loss(values, targets, mask):
        return masked_mean(rule.per_example(clipped(values), signed(targets)), mask)

    def mean_loss(shared, private, batch):
        return joint_loss(predict(shared, private, batch.inputs), batch.targets, batch.mask)

    def score_outputs(values, targets):
        targets = signed(targets)
        found = {"loss": rule.per_example(clipped(values), targets)}
        if rule.correct is not None:
            found["accuracy"] = rule.correct(values, targets).astype(values.dtype)
        return found

    def score(shared, private, batch):
        return score_outputs(predict(shared, private, batch.inputs), batch.targets)

    def networks(shared, private):
        sides = (Dense(shared, columns["shared"]), Dense(private, columns["private"]))
        return [side for side in sides if side.columns is None or len(side.columns)]

    def empty_batch(rows):
        targets = jnp.zeros(rows, int if kind == "softmax" else float)
        return Batch(jnp.zeros((rows, *shape), int if tokens else float), targets, jnp.zeros(rows))

    def check_inputs(inputs):
        for side, model in models.items():
            if columns[side] is not None and np.shape(inputs)[-1:] != shape:
                raise InputError(f"inputs have shape {np.shape(inputs)}, and {side}_features picks among {shape[0]} "
                                 "columns; give as many.")
            if model.vocabulary is not None:
                check_tokens(_picked(inputs, columns[side]), model.vocabulary)

    tokens = any(model.vocabulary is not None for model in models.values())
    linear = clip is None and all(_is_linear(model, columns[side]) for side, (_, model) in sides.items())
    about = {"name": "residual", "input_shape": list(shape), "classes": data.classes, "loss": kind, "labels": labels,
             "clip": clip, "shared_features": _plain(shared_features), "private_features": _plain(private_features)}
    return Problem(init, mean_loss, predict, score, spec=_spec(about, shared_model, private_model),
                   residual=Residual(shared_view, by_shared, by_private, joint_loss, as_outputs,
                                     linear and kind == "squared", empty_batch, private_view, score_outputs),
                   convex=Convex() if linear else None, check_inputs=check_inputs, every_label=kind == "softmax",
                   outputs=rule.outputs, dense=networks if all(model.dense for model in models.values()) else None)


def _picked(inputs: Array, columns: np.ndarray | None) -> Array:
    if columns is None:
        return inputs
    if not len(columns):  # not by a gather of nothing, over which XLA 0.11 on a CPU stumbles when it is vectorised
        return jnp.zeros((*inputs.shape[:-1], 0), inputs.dtype)
    first, last = int(columns[0]), int(columns[-1])
    if np.array_equal(columns, np.arange(first, last + 1)):
        return inputs[..., first : last + 1]  # a slice is cheaper than a gather
    return inputs[..., columns]


def _columns(name: str, features: Features, shape: tuple[int, ...]) -> np.ndarray | None:
    """The columns of a feature set; None stands for all, whatever the inputs' shape."""
    if isinstance(features, str):
        one_of(name, features, NAMED)
        if features == "all":
            return None
    if len(shape) != 1:
        raise InputError(f"{name} picks columns, and an input here has shape {shape}; give it \"all\", or flatten the "
                         "inputs.")
    width = shape[0]
    if isinstance(features, str):
        picked = {"none": [], "first_half": range(width // 2), "second_half": range(width // 2, width)}[features]
        return np.asarray(list(picked), np.int32)
    found = np.asarray(features)
    if found.size and (found.dtype.kind not in "iu" or found.ndim != 1):
        raise InputError(f"{name} is {features}; give a list of column numbers, or one of {', '.join(NAMED)}.")
    if found.size and (found.min() < 0 or found.max() >= width):
        raise InputError(f"{name} has column {int(found.max())}; inputs have {width} columns, numbered from 0.")
    if len(set(found.tolist())) < len(found):
        raise InputError(f"{name} names a column twice; name each once.")
    return found.astype(np.int32)


def _network(architecture: Architecture, columns: np.ndarray | None, shape: tuple[int, ...], outputs: int) -> Model:
    """A network of the chosen columns; without columns it has no parameters and says 0."""
    if columns is not None and not len(columns):
        return Model(lambda key: {}, lambda params, inputs: jnp.zeros((inputs.shape[0], outputs))[
            ..., 0 if outputs == 1 else slice(None)], dense=True)
    network = architecture(shape if columns is None else (len(columns),), outputs)
    if network.train is not None:
        raise InputError("a joint prediction sums the outputs of two models as they predict, and has no dropout; give "
                         "them a dropout of 0.")
    if outputs > 1:
        return network
    return network._replace(apply=lambda params, inputs: network.apply(params, inputs)[..., 0])


def _is_linear(architecture: Architecture | None, columns: np.ndarray | None) -> bool:
    """Is a side linear in its parameters? One that sees nothing has none."""
    return (columns is not None and not len(columns)) or is_linear(architecture or linear_model())


def _plain(features: Features) -> Any:
    return features if isinstance(features, str) else [int(column) for column in features]


def _spec(about: dict[str, Any], *models: Architecture | None) -> dict[str, Any] | None:
    """Plain names and numbers; None where an architecture has no name."""
    chosen = [model or linear_model() for model in models]
    if not all(isinstance(model, Named) for model in chosen):
        return None
    sides = zip(("shared_model", "private_model"), chosen, strict=True)
    return about | {side: {"name": model.name, **model.options} for side, model in sides}  # type: ignore[attr-defined]
