"""A point that is charged for where the clients' targets are: the losses online learning is explained with."""

from __future__ import annotations

from typing import Any, Literal

import jax.numpy as jnp

from cantons.problem.arguments import made_for_data
from cantons.problem.losses import masked_mean
from cantons.problem.shaped import Shaped
from cantons.protocol import Array, Convex, Problem
from cantons.ranges import Finite, checked

LOSSES = {
    "half_squared": lambda point, target: ((point - target) ** 2).sum(-1) / 2,
    "absolute": lambda point, target: jnp.abs(point - target).sum(-1),
    "linear": lambda point, target: (point * target).sum(-1),
}


@checked
@made_for_data
def target(data: Shaped, *, loss: Literal["half_squared", "absolute", "linear"] = "half_squared", start: Finite = 0.0,
           split: Literal["none", "all"] = "none") -> Problem:
    """One point x for all inputs; an example's loss is |x - input|^2 / 2, |x - input|_1 or <x, input>.

    Targets of the data are not looked at.

    loss: "half_squared" (equation 46 of "Online Federated Learning"), "absolute" or "linear".
    start: where every entry of x begins.
    split: "all" gives every client a point of its own; with "none" there is one for all.
    """
    shape = tuple(data.input_shape)
    rule = LOSSES[loss]

    def init(key):
        del key  # nothing is drawn at random
        point = {"point": jnp.full(shape, float(start))}
        return (point, {}) if split == "none" else ({}, point)

    def predict(shared, private, inputs) -> Array:
        point = (shared | private)["point"]
        return jnp.broadcast_to(point, (inputs.shape[0], *shape))

    def each(shared, private, inputs) -> Array:
        said = predict(shared, private, inputs)
        return rule(said.reshape(len(said), -1), inputs.reshape(len(said), -1))

    def mean_loss(shared, private, batch):
        return masked_mean(each(shared, private, batch.inputs), batch.mask)

    def score(shared, private, batch):
        return {"loss": each(shared, private, batch.inputs)}

    spec: dict[str, Any] = {"name": "target", "input_shape": list(shape), "loss": loss, "start": start, "split": split}
    convex = Convex(1.0 if loss == "half_squared" else 0.0, loss)
    return Problem(init, mean_loss, predict, score, spec=spec, convex=convex)
