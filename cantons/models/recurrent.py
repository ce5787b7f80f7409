"""A recurrent network of tokens: it reads a row from left to right and answers at every place.

The loop over places holds one matrix product and nothing else that could stand outside. Differentiated as it is, it
would also add a gradient of the recurrent weights to a running sum at every place. Federated training has such weights
for each client, far more than a cache holds, so that reading and writing the sum would cost as much as the rest. The
derivative below is written so that its transpose has one product of all places instead; on a CPU that saves a quarter
of the time. It is a rule for the forward direction, because JAX makes the backward one from it and both stay available,
as do derivatives of higher order.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from cantons.errors import InputError
from cantons.models.base import Model, Named
from cantons.models.dropout import dropper, rate_option
from cantons.models.layer import WEIGHTS, Layer, affine, glorot
from cantons.models.text import whole_tokens
from cantons.protocol import Array, Key
from cantons.ranges import Count, Decay, checked

SPREAD = 0.05  # the vectors of tokens start uniform in [-SPREAD, SPREAD], as those of Keras do


@checked
def gru(vocabulary: Count | None = None, width: Count = 256, units: Count = 1024, dropout: Decay = 0.0) -> Named:
    """Tokens become vectors of `width` numbers, a gated recurrent unit reads them, and a dense layer answers each.

    Inputs are integers from 0 to `vocabulary` - 1 of shape [length]; targets are of the same shape, such as the token
    that comes next at every place.

    Cho et al., "Learning Phrase Representations using RNN Encoder-Decoder", EMNLP 2014, in the form that Keras and
    cuDNN have as their standard: the reset gate multiplies what comes out of the recurrent weights, and these have a
    bias of their own (`reset_after=True`). Parameters start as Keras's do: the recurrent ones orthogonal, those of the
    dense layers as Glorot and Bengio (2010) draw them.

    With the defaults it is the network of the language models in Augenstein et al., "Mixed Federated Learning", 2022.
    Dropout is that of Zaremba et al., "Recurrent Neural Network Regularization", 2014: of what enters the recurrent
    unit and of what leaves it, never of the state that goes from place to place.

    vocabulary: how many tokens there are; as many as labels unless it is given.
    width: numbers in the vector of a token.
    units: numbers in the state that goes from place to place.
    dropout: the probability with which a number of a token's vector, or one that enters the dense layer, is 0 in
        training.
    """

    def build(input_shape: tuple[int, ...], outputs: int) -> Model:
        if len(input_shape) != 1:
            raise InputError(f"gru got inputs of shape {input_shape}; it takes a row of tokens, of shape (length,).")
        size = outputs if vocabulary is None else vocabulary

        def init(key):
            table, inwards, recurrent, outwards = jax.random.split(key, 4)
            return {"table": jax.random.uniform(table, (size, width), minval=-SPREAD, maxval=SPREAD),
                    "input": glorot(inwards, (width, 3 * units)),
                    "recurrent": orthogonal(recurrent, (units, 3 * units)),
                    "output": glorot(outwards, (units, outputs))}

        def forward(params, tokens, key=None):
            drop = dropper(dropout, key)
            vectors = drop(jnp.take(params["table"], whole_tokens("gru", tokens).T, axis=0))  # [length, B, width]
            states = gru_states(affine(params["input"], vectors), **params["recurrent"])
            return affine(params["output"], drop(states)).swapaxes(0, 1)

        return Model(init, forward, input_layer="table", output_layer="output/*", adapted=WEIGHTS, vocabulary=size,
                     train=forward if dropout else None)

    return Named("gru", {"vocabulary": vocabulary, "width": width, "units": units, **rate_option(dropout)}, build)


def orthogonal(key: Key, shape: tuple[int, int]) -> Layer:
    return {"weight": jax.nn.initializers.orthogonal()(key, shape), "bias": jnp.zeros(shape[-1])}


@jax.custom_jvp
def gru_states(projected: Array, weight: Array, bias: Array) -> Array:
    """The states [length, B, units] after each place; the first is made from a state of zeros.

    `projected` [length, B, 3 units] is what the inputs contribute to update gate, reset gate and candidate, in this
    order; the state before contributes state @ `weight` [units, 3 units] + `bias`.
    """

    def step(state: Array, place: Array) -> tuple[Array, Array]:
        state, _ = _next_state(state, place, weight, bias)
        return state, state

    return jax.lax.scan(step, _no_state(projected), projected)[1]


@gru_states.defjvp
def _derivative(primals: tuple[Array, Array, Array], tangents: tuple[Array, Array, Array]) -> tuple[Array, Array]:
    projected, weight, bias = primals
    change_projected, change_weight, change_bias = tangents

    def step(state: Array, place: Array) -> tuple[Array, tuple[Array, tuple[Array, ...]]]:
        state, gates = _next_state(state, place, weight, bias)
        return state, (state, gates)

    _, (states, (update, reset, candidate, recalled)) = jax.lax.scan(step, _no_state(projected), projected)
    before = jnp.concatenate([_no_state(projected)[None], states[:-1]])

    # How the next state changes with what enters the two gates and with what is recalled. The inputs of the candidate
    # pass no reset gate: what it would have held back of them is `past_reset`.
    by_candidate = (1 - update) * (1 - candidate**2)
    by_update = update * (1 - update) * (before - candidate)
    by_reset = by_candidate * recalled * reset * (1 - reset)
    slopes = jnp.concatenate([by_update, by_reset, by_candidate * reset], axis=-1)
    past_reset = by_candidate * (1 - reset)

    # All that does not go through the state before, for all places at once; then the loop over the rest, which is
    # linear, and in which the weights themselves do not change.
    entering = change_projected + before @ change_weight + change_bias
    direct = _summed(slopes * entering) + past_reset * jnp.split(change_projected, 3, axis=-1)[2]

    def change(state: Array, place: tuple[Array, Array, Array]) -> tuple[Array, Array]:
        direct, update, slopes = place
        state = direct + update * state + _summed(slopes * (state @ weight))
        return state, state

    return states, jax.lax.scan(change, jnp.zeros_like(states[0]), (direct, update, slopes))[1]


def _next_state(state: Array, place: Array, weight: Array, bias: Array) -> tuple[Array, tuple[Array, ...]]:
    """The state after one more place; and the two gates, the candidate, and what the candidate recalls of the past."""
    update, reset, candidate = jnp.split(place, 3, axis=-1)
    from_update, from_reset, recalled = jnp.split(state @ weight + bias, 3, axis=-1)
    update, reset = jax.nn.sigmoid(update + from_update), jax.nn.sigmoid(reset + from_reset)
    candidate = jnp.tanh(candidate + reset * recalled)
    return update * state + (1 - update) * candidate, (update, reset, candidate, recalled)


def _no_state(projected: Array) -> Array:
    return jnp.zeros((projected.shape[1], projected.shape[2] // 3), projected.dtype)


def _summed(parts: Array) -> Array:
    """The sum of the three parts of the last axis."""
    first, second, third = jnp.split(parts, 3, axis=-1)
    return first + second + third
