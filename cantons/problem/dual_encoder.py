"""Dual encoders: what comes next is what lies nearest to the context, in one space for both.

Ning et al., "Learning Federated Representations and Recommendations with Limited Negatives", 2021, and Augenstein et
al., "Mixed Federated Learning", 2022, section 5.3 and appendix C.3. The left tower is the mean of the vectors of what
was met, then the context hidden layer; the right tower looks the next one up in the same table. The loss of a client
pulls the two together and has no negatives: alone, it pulls everything to one point. The central loss "spreadout"
pushes the rows of the table apart.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from cantons.errors import InputError
from cantons.models.layer import affine, glorot
from cantons.problem.arguments import made_for_data
from cantons.problem.losses import masked_mean
from cantons.problem.normalize import unit_rows
from cantons.problem.shaped import Shaped
from cantons.protocol import Array, Batch, Problem, Tables
from cantons.ranges import Classes, Count, checked

MARGIN = 0.9  # a cosine beyond it costs nothing
START = 0.05  # entries of the table begin between minus and plus this
NEAREST = 10


@checked
@made_for_data
def dual_encoder(data: Shaped, *, vocabulary: Classes | None = None, width: Count = 16) -> Problem:
    """The next thing, such as a movie, from those before it; scores the loss and recall@10.

    Inputs are [context] numbers of things, with -1 where there are fewer; targets are the number of the next. The loss
    is the mean of max(0, 0.9 - cosine)^2. An example's recall@10 is 1 if at most nine other rows of the table have
    a cosine as large as the target's, and 0 otherwise; `predict` gives the cosines with all rows.

    vocabulary: how many things there are, numbered from 0; without it, as many as the data has classes.
    width: numbers in the vector of each.
    """
    shape, size = tuple(data.input_shape), data.classes if vocabulary is None else vocabulary
    if len(shape) != 1:
        raise InputError(f"dual_encoder got inputs of shape {shape}; it takes rows of numbers, (context,), such as "
                         "those of movie_sequences.")
    if size is None:
        raise InputError("dual_encoder needs to know how many things there are, and this data has classes=None; give "
                         "vocabulary.")

    targets = getattr(getattr(data, "train", None), "targets", None)
    if targets is not None and getattr(targets, "ndim", 0) != 1:
        raise InputError("dual_encoder predicts one thing for each example, and these examples have several targets; "
                         "give rows such as those of movie_sequences.")

    def init(key):
        table_key, hidden_key = jax.random.split(key)
        table = jax.random.uniform(table_key, (size, width), minval=-START, maxval=START)
        return {"hidden": glorot(hidden_key, (width, width)), "table": table}, {}

    def encode_context(shared, inputs) -> Array:
        """The left tower: the mean of those that are there, and the hidden layer."""
        there = (_whole("inputs", inputs) >= 0)[..., None]
        vectors = jnp.where(there, jnp.take(shared["table"], jnp.maximum(inputs, 0), axis=0), 0)
        mean = vectors.sum(axis=1) / jnp.maximum(there.sum(axis=1), 1)
        return unit_rows(jax.nn.relu(affine(shared["hidden"], mean)))

    def each(shared, batch) -> Array:
        """The hinge loss of every example."""
        targets = jnp.maximum(_whole("targets", batch.targets), 0)
        wanted = unit_rows(jnp.take(shared["table"], targets, axis=0))
        cosines = (encode_context(shared, batch.inputs) * wanted).sum(axis=1)
        return jnp.maximum(0, MARGIN - cosines) ** 2

    def loss(shared, private, batch):
        return masked_mean(each(shared, batch), batch.mask)

    def predict(shared, private, inputs):
        return encode_context(shared, inputs) @ unit_rows(shared["table"]).T

    def score(shared, private, batch):
        cosines = predict(shared, private, batch.inputs)
        own = jnp.take_along_axis(cosines, jnp.maximum(batch.targets, 0)[:, None], axis=1)
        # Equals count against it: where all vectors are one, nothing is found.
        found = (cosines >= own).sum(axis=1) <= NEAREST
        return {"loss": each(shared, batch), f"recall@{NEAREST}": found.astype(cosines.dtype)}

    def rows(batch: Batch) -> Array:
        numbers = jnp.concatenate([_whole("inputs", batch.inputs), _whole("targets", batch.targets)[:, None]], axis=1)
        return jnp.where(batch.mask[:, None] > 0, numbers, -1)

    def renumber(batch: Batch, number) -> Batch:
        return batch._replace(inputs=number(batch.inputs), targets=number(batch.targets))

    spec = {"name": "dual_encoder", "input_shape": list(shape), "vocabulary": size, "width": width}
    return Problem(init, loss, predict, score, maximise=(f"recall@{NEAREST}",), spec=spec,
                   tables=Tables(("table",), size, rows, renumber), outputs="scores")


def _whole(what: str, numbers: Array) -> Array:
    if not jnp.issubdtype(numbers.dtype, jnp.integer):
        raise InputError(f"dual_encoder got {what} of type {numbers.dtype}; things are numbered: give integers from 0, "
                         "and -1 where there is none.")
    return numbers
