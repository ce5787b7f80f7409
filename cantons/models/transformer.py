"""A transformer of tokens: every place looks at the places before it, and answers."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from cantons.errors import InputError
from cantons.models.base import Model, Named
from cantons.models.dropout import dropper
from cantons.models.layer import WEIGHTS, Layer, affine, glorot
from cantons.models.norm import layer_norm, norm
from cantons.models.text import whole_tokens
from cantons.protocol import Array, PyTree
from cantons.ranges import Count, Decay, checked

SPREAD = 0.02  # the standard deviation that the vectors of tokens and of places start with, as BERT's do


@checked
def transformer(vocabulary: Count | None = None, width: Count = 256, blocks: Count = 4, heads: Count = 4,
                dropout: Decay = 0.0) -> Named:
    """Tokens and their places become vectors, blocks of causal self-attention refine them, a dense layer answers each.

    Inputs are integers from 0 to `vocabulary` - 1 of shape [length]; targets are of the same shape, such as the token
    that comes next at every place.

    Vaswani et al., "Attention Is All You Need", 2017: dense layers of 4 * `width` numbers in each block, and dropout
    (section 5.4) of the vectors and of what each half of a block adds to them. Normalisation comes before each half of
    a block and before the last layer, activations are GELU and places have vectors that are learned, as in GPT-2. With
    the defaults it has the size of BERT Mini, as in section E.5 of the FFGG paper; "input" and "output" of a split are
    the first and the last block, as there.

    vocabulary: how many tokens there are; as many as labels unless it is given.
    width: numbers in the vector of a token.
    blocks: how many of them stand one after another.
    heads: how many heads attention has in each block; they divide the width.
    dropout: the probability with which a number is 0 in training.
    """
    if width % heads:
        raise InputError(f"transformer got a width of {width} and {heads} heads; give a width that they divide.")

    def build(input_shape: tuple[int, ...], outputs: int) -> Model:
        if len(input_shape) != 1:
            raise InputError(f"transformer got inputs of shape {input_shape}; it takes a row of tokens, of shape "
                             "(length,).")
        size = outputs if vocabulary is None else vocabulary

        def init(key):
            table, positions, outwards, *keys = jax.random.split(key, 3 + blocks)
            return {"table": SPREAD * jax.random.normal(table, (size, width)),
                    "positions": SPREAD * jax.random.normal(positions, (*input_shape, width)),
                    **{f"block{i}": init_block(keys[i], width) for i in range(blocks)},
                    "norm": norm(width), "output": glorot(outwards, (width, outputs))}

        def forward(params, tokens, key=None):
            drop = dropper(dropout, key)
            values = drop(jnp.take(params["table"], whole_tokens("transformer", tokens), axis=0) + params["positions"])
            for i in range(blocks):
                block = params[f"block{i}"]
                values = values + drop(attend(block["attention"], values, heads))
                values = values + drop(feed_forward(block["dense"], values))
            return affine(params["output"], layer_norm(params["norm"], values))

        return Model(init, forward, input_layer="block0/*", output_layer=f"block{blocks - 1}/*",
                     norm_layers=("*norm/*",), adapted=WEIGHTS, vocabulary=size,
                     train=forward if dropout else None)

    return Named("transformer", {"vocabulary": vocabulary, "width": width, "blocks": blocks, "heads": heads,
                                 "dropout": dropout}, build)


def init_block(key: jax.Array, width: int) -> PyTree:
    query, of_key, value, output, inner, outer = jax.random.split(key, 6)
    square = width, width
    return {"attention": {"norm": norm(width), "query": glorot(query, square), "key": glorot(of_key, square),
                          "value": glorot(value, square), "output": glorot(output, square)},
            "dense": {"norm": norm(width), "inner": glorot(inner, (width, 4 * width)),
                      "outer": glorot(outer, (4 * width, width))}}


def attend(layers: dict[str, Layer], values: Array, heads: int) -> Array:
    """softmax(Q K' / sqrt(d)) V for each head, over the places up to one's own; `values` are [B, length, width]."""
    batch, length, width = values.shape
    values = layer_norm(layers["norm"], values)

    def project(name: str) -> Array:
        return affine(layers[name], values).reshape(batch, length, heads, width // heads)

    scores = jnp.einsum("blhd,bmhd->bhlm", project("query"), project("key")) / (width // heads) ** 0.5
    past = jnp.tril(jnp.ones((length, length), bool))
    weights = jax.nn.softmax(jnp.where(past, scores, -jnp.inf), axis=-1)
    mixed = jnp.einsum("bhlm,bmhd->blhd", weights, project("value"))
    return affine(layers["output"], mixed.reshape(values.shape))


def feed_forward(layers: dict[str, Layer], values: Array) -> Array:
    values = layer_norm(layers["norm"], values)
    return affine(layers["outer"], jax.nn.gelu(affine(layers["inner"], values)))
