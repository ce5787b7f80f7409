"""Networks of tokens: an input is a row of whole numbers, each looked up in a table."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp

from cantons.errors import InputError
from cantons.models.base import Model, Named
from cantons.models.dropout import dropper, rate_option
from cantons.models.layer import WEIGHTS, affine, flat, glorot
from cantons.protocol import Array
from cantons.ranges import Count, Decay, checked


@checked
def embedding(vocabulary: Count, width: Count | None = 16, hidden: Sequence[Count] = (64,),
              dropout: Decay = 0.0) -> Named:
    """Tokens become vectors of `width` numbers, which are put side by side and go through the layers of an mlp.

    Inputs are integers from 0 to `vocabulary` - 1, a single one or of shape [context]; targets are one class for all of
    them, such as the token that comes next. Bengio et al., "A Neural Probabilistic Language Model", JMLR 2003, without
    the direct connections. Without vectors and without hidden layers, that is a table of logits per place, and starts
    at zero like `linear`.

    vocabulary: how many tokens there are.
    width: numbers in the vector of a token; with None there are no vectors: the first layer sees a one where a token is
        and zeros elsewhere.
    hidden: the width of each hidden layer.
    dropout: the probability with which a number of a token's vector, or one that a hidden layer gives, is 0 in
        training.
    """

    def build(input_shape: tuple[int, ...], outputs: int) -> Model:
        if len(input_shape) > 1:
            raise InputError(f"embedding got inputs of shape {input_shape}; it takes a token, or a row of them of "
                             "shape (context,).")
        context = math.prod(input_shape)
        shapes = list(itertools.pairwise([context * (width or vocabulary), *hidden, outputs]))
        last = len(shapes) - 1

        def init(key):
            table_key, *keys = jax.random.split(key, 1 + len(shapes))
            layers = {f"layer{i}": glorot(keys[i], shape) for i, shape in enumerate(shapes)}
            if width is not None:
                return {"table": jax.random.normal(table_key, (vocabulary, width)), **layers}
            return layers if hidden else jax.tree.map(jnp.zeros_like, layers)

        def forward(params, tokens, key=None):
            drop = dropper(dropout, key)
            tokens = flat(whole_tokens("embedding", tokens))
            if width is None:
                weight = params["layer0"]["weight"].reshape(context, vocabulary, -1)
                # what the product of ones and zeros with the weights is, without the zeros
                found = [jnp.take(weight[place], tokens[:, place], axis=0) for place in range(context)]
                values = sum(found) + params["layer0"]["bias"]
            else:
                values = affine(params["layer0"], flat(drop(jnp.take(params["table"], tokens, axis=0))))
            for i in range(1, len(shapes)):
                values = affine(params[f"layer{i}"], drop(jax.nn.relu(values)))
            return values

        return Model(init, forward, input_layer="layer0/*" if width is None else "table",
                     output_layer=f"layer{last}/*", adapted=WEIGHTS, vocabulary=vocabulary,
                     train=forward if dropout else None)

    return Named("embedding", {"vocabulary": vocabulary, "width": width, "hidden": list(hidden),
                               **rate_option(dropout)}, build)


def whole_tokens(model: str, tokens: Array) -> Array:
    """The tokens, if they are whole numbers."""
    if not jnp.issubdtype(tokens.dtype, jnp.integer):
        raise InputError(f"{model} got inputs of type {tokens.dtype}; tokens are numbered: give integers from 0 to "
                         "vocabulary - 1.")
    return tokens
