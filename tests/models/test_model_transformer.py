"""The transformer against one that is made of Flax's layers."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import cantons as ct
from cantons.errors import InputError
from cantons.models import transformer
from cantons.problem import problem_from_spec

RANDOM = np.random.default_rng(0)
WIDTH, HEADS, LENGTH = 8, 2, 5
TOKENS = RANDOM.integers(0, 7, (3, LENGTH)).astype(np.int32)
SMALL = transformer(7, width=WIDTH, blocks=2, heads=HEADS)
MODEL = SMALL((LENGTH,), 6)


def drawn(seed=0):
    random = np.random.default_rng(seed)
    return jax.tree.map(lambda leaf: random.normal(size=leaf.shape).astype(np.float32) / 2,
                        jax.eval_shape(MODEL.init, jax.random.key(0)))


def in_flax(params, tokens):
    """The same parameters in Flax's LayerNorm, Dense and MultiHeadDotProductAttention."""
    def normalise(layer, values):
        own = {"scale": layer["scale"], "bias": layer["shift"]}
        return nn.LayerNorm(epsilon=1e-5).apply({"params": own}, values)

    def dense(layer, values):
        own = {"kernel": layer["weight"], "bias": layer["bias"]}
        return nn.Dense(layer["bias"].size).apply({"params": own}, values)

    def attend(layers, values):
        inwards = {name: {"kernel": layers[name]["weight"].reshape(WIDTH, HEADS, -1),
                          "bias": layers[name]["bias"].reshape(HEADS, -1)} for name in ("query", "key", "value")}
        outwards = {"kernel": layers["output"]["weight"].reshape(HEADS, -1, WIDTH), "bias": layers["output"]["bias"]}
        return nn.MultiHeadDotProductAttention(HEADS).apply(
            {"params": {**inwards, "out": outwards}}, values, mask=nn.make_causal_mask(tokens))

    values = nn.Embed(7, WIDTH).apply({"params": {"embedding": params["table"]}}, tokens) + params["positions"]
    for i in range(2):
        attention, layers = params[f"block{i}"]["attention"], params[f"block{i}"]["dense"]
        values = values + attend(attention, normalise(attention["norm"], values))
        inner = nn.gelu(dense(layers["inner"], normalise(layers["norm"], values)))
        values = values + dense(layers["outer"], inner)
    return dense(params["output"], normalise(params["norm"], values))


def test_answers_and_gradients_are_those_of_flax_also_for_weights_per_client():
    def gradients(apply):
        return jax.jit(jax.vmap(jax.value_and_grad(lambda params, tokens: jnp.sin(apply(params, tokens)).mean())))

    clients = jax.tree.map(lambda *leaves: np.stack(leaves), drawn(0), drawn(1))
    tokens = np.stack([TOKENS, TOKENS[::-1]])
    ours, theirs = gradients(MODEL.apply)(clients, tokens), gradients(in_flax)(clients, tokens)
    jax.tree.map(lambda one, other: np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5), ours, theirs)
    # But for keys' biases, which shift all scores of a place alike.
    assert all(np.abs(leaf).max() > 1e-5 for path, leaf in jax.tree_util.tree_leaves_with_path(ours[1])
               if "['key']['bias']" not in jax.tree_util.keystr(path))


def test_no_place_sees_what_comes_after_it():
    apply = jax.jit(MODEL.apply)
    answers, changed = (apply(drawn(), tokens) for tokens in (TOKENS, np.where(
        np.arange(LENGTH) < 3, TOKENS, (TOKENS + 1) % 7)))
    np.testing.assert_array_equal(answers[:, :3], changed[:, :3])
    assert np.abs(answers - changed)[:, 3:].max() > 0.1


def test_default_has_the_size_of_bert_mini():
    shapes = jax.eval_shape(transformer(10_000)((20,), 10_000).init, jax.random.key(0))
    assert sum(leaf.size for leaf in jax.tree.leaves(shapes["block3"])) == 789_760  # a layer of google/bert_uncased_L-4
    assert "block4" not in shapes and shapes["block0"]["dense"]["inner"]["weight"].shape == (256, 1024)


def test_splits_are_the_first_and_the_last_block_and_the_spec_makes_it_again():
    data = ct.federation(TOKENS, TOKENS, [0, 1, 1], classes=7)
    for split, block in (("input", "block0"), ("output", "block1")):
        problem = ct.classification(data, SMALL, split=split)
        own = problem.init(jax.random.key(0))[1]
        assert {name for name, part in own.items() if jax.tree.leaves(part)} == {block}
        again = problem_from_spec(problem.spec)
        first, second = (jax.jit(lambda key, some=some: some.predict(*some.init(key), TOKENS))(jax.random.key(0))
                         for some in (problem, again))
        np.testing.assert_array_equal(first, second)


def test_inputs_and_sizes_that_do_not_fit_are_refused():
    with pytest.raises(InputError, match="width of 8 and 3 heads; give a width that they divide"):
        transformer(7, width=8, heads=3)
    with pytest.raises(InputError, match="it takes a row of tokens"):
        SMALL((3, 4), 2)
    with pytest.raises(InputError, match="transformer got inputs of type float32; tokens are numbered"):
        jax.eval_shape(lambda: MODEL.apply(drawn(), np.zeros((2, LENGTH), np.float32)))
