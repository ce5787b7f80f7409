"""Adapters and normalisation as the private part; and whatever the split, uploads have the bytes of the shared part."""

import equinox as eqx
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import cantons as ct
from cantons.engine.stepper import shapes_that_travel
from cantons.errors import InputError
from cantons.metrics.traffic import nbytes
from cantons.problem import paths, problem_from_spec
from cantons.problem.adapter import sides
from cantons.protocol import Batch

KEY = jax.random.key(0)
RANDOM = np.random.default_rng(0)
OWNERS = np.arange(12) % 3
IMAGES = ct.federation(RANDOM.normal(size=(12, 8, 8)).astype(np.float32), OWNERS, OWNERS, classes=3)
TOKENS = RANDOM.integers(0, 7, (12, 5)).astype(np.int32)
TEXT = ct.federation(TOKENS, TOKENS, OWNERS, classes=7)
MODELS = {"mlp": (IMAGES, ct.mlp(hidden=[6])), "cnn": (IMAGES, ct.cnn(channels=[2], dense=4)),
          "resnet18": (IMAGES, ct.resnet18()), "gru": (TEXT, ct.gru(7, width=4, units=6)),
          "transformer": (TEXT, ct.transformer(7, width=8, blocks=2, heads=2))}
WITH_NORMS = ("resnet18", "transformer")


class Norms(nn.Module):
    @nn.compact
    def __call__(self, inputs):
        return nn.Dense(3)(nn.LayerNorm(name="last")(nn.GroupNorm(2)(nn.Dense(6)(inputs))))


def equinox_norms(key):
    return eqx.nn.Sequential([eqx.nn.Linear(4, 6, key=key), eqx.nn.LayerNorm(6), eqx.nn.Linear(6, 3, key=key)])


def private_shapes(problem):
    own = jax.eval_shape(problem.init, KEY)[1]
    return {path: leaf.shape for path, leaf in zip(paths(own), jax.tree.leaves(own), strict=True)}


def shared_shapes(problem):
    return jax.eval_shape(problem.init, KEY)[0]


@pytest.mark.parametrize("name", MODELS)
def test_every_weight_of_a_model_gets_an_adapter_and_tables_do_not(name):
    data, model = MODELS[name]
    problem = ct.classification(data, model, split={"name": "adapter", "rank": 2})
    whole = shared_shapes(ct.classification(data, model))
    assert paths(shared_shapes(problem)) == paths(whole)  # all of the model is shared
    shapes = dict(zip(paths(whole), (leaf.shape for leaf in jax.tree.leaves(whole)), strict=True))
    weights = {path: sides(shape) for path, shape in shapes.items() if path.endswith("weight")}
    assert private_shapes(problem) == {
        f"{path}/{half}": shape for path, (rows, columns) in weights.items()
        for half, shape in (("A", (rows, 2)), ("B", (2, columns)))}
    assert {"table", "positions"}.isdisjoint(weights) and len(weights) > 1


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("split", ["none", "input", "output", "norm", "adapter", "*bias"])
def test_an_upload_has_the_bytes_of_the_shared_part(name, split):
    data, model = MODELS[name]
    if split == "norm" and name not in WITH_NORMS:
        with pytest.raises(InputError, match="no layer that is known to normalise; choose another split, or give a"):
            ct.classification(data, model, split=split)
        return
    problem = ct.classification(data, model, split=split)
    recipe = ct.ffgg(tuner={"name": "sgd", "batch_size": 4})
    upload = shapes_that_travel(problem, recipe.build(problem, 3), data.train)[1]
    everything = jax.eval_shape(problem.init, KEY)
    assert nbytes(upload) == nbytes(everything[0])
    alone = shared_shapes(ct.classification(data, model))
    private = 0 if split == "adapter" else nbytes(everything[1])
    assert nbytes(upload) == nbytes(alone) - private and (split == "none") == (nbytes(everything[1]) == 0)


def test_the_ledger_of_a_run_counts_the_shared_part_and_adapters_learn():
    problem = ct.classification(IMAGES, ct.mlp(hidden=[6]), split="adapter")
    result = ct.run(problem, IMAGES, ct.ffgg(step_size=0.01, private_init="last"), rounds=2)
    shared, private = jax.eval_shape(problem.init, KEY)
    assert result.final["bytes_up"] == 2 * 3 * nbytes(shared) and nbytes(private) > 0
    assert result.final["train.personal.loss.mean"] < result.final["train.shared.loss.mean"]


def test_adapters_begin_as_the_shared_model_and_then_add_a_product_of_their_rank():
    plain = ct.classification(IMAGES, ct.mlp(hidden=[6]))
    problem = ct.classification(IMAGES, ct.mlp(hidden=[6]), split={"name": "adapter", "rank": 2, "scale": 3.0})
    (shared, private), (alone, nothing) = problem.init(KEY), plain.init(KEY)
    jax.tree.map(np.testing.assert_array_equal, shared, alone)
    inputs = np.asarray(IMAGES.test.inputs)
    np.testing.assert_array_equal(problem.predict(shared, private, inputs), plain.predict(alone, nothing, inputs))
    assert all(np.ptp(leaf) > 0 for path, leaf in zip(paths(private), jax.tree.leaves(private), strict=True)
               if path.endswith("A"))

    moved = jax.tree.map(lambda leaf: leaf + RANDOM.normal(size=leaf.shape).astype(np.float32), private)
    change = {path: 3 * np.asarray(each["A"]) @ np.asarray(each["B"]) for path, each in moved.items()}
    assert all(np.linalg.matrix_rank(each, tol=1e-4) == 2 for each in change.values())
    merged = {name: {**layer, "weight": layer["weight"] + change[f"{name}/weight"]} for name, layer in alone.items()}
    np.testing.assert_allclose(problem.predict(shared, moved, inputs), plain.predict(merged, nothing, inputs),
                               rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["cnn", "resnet18", "gru", "transformer"])
def test_a_model_with_adapters_predicts_as_the_model_with_the_sums(name, float64):
    """Kernels of convolutions and the matrices of attention too; adapters of zeros leave the weights as they are."""
    (data, model), random = MODELS[name], np.random.default_rng(1)
    problem = ct.classification(data, model, split={"name": "adapter", "rank": 2, "scale": 0.5})
    shared, adapters = jax.tree.map(lambda leaf: random.normal(size=leaf.shape) / 2, jax.eval_shape(problem.init, KEY))
    assert any(leaf.ndim > 2 for leaf in jax.tree.leaves(shared)) == (name in ("cnn", "resnet18"))
    leaves, structure = jax.tree.flatten(shared)
    sums = jax.tree.unflatten(structure, [
        leaf + 0.5 * np.reshape(adapters[path]["A"] @ adapters[path]["B"], leaf.shape) if path in adapters else leaf
        for path, leaf in zip(paths(shared), leaves, strict=True)])
    predict, zeros = jax.jit(problem.predict), jax.tree.map(np.zeros_like, adapters)
    found, expected, without = (predict(*parts, data.train.inputs[:3]) for parts in (
        (shared, adapters), (sums, zeros), (shared, zeros)))
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9 * np.abs(expected).max())
    assert np.abs(found - without).max() > 0.1 * np.abs(expected).max()


def test_adapters_differ_from_layer_to_layer_and_from_the_weights():
    problem = ct.classification(IMAGES, ct.mlp(hidden=[64, 64]), split={"name": "adapter", "rank": 64})
    shared, private = problem.init(KEY)
    drawn = [np.asarray(each["A"]) for each in private.values()][:2] + [shared["layer0"]["weight"]]
    for i, one in enumerate(drawn):
        for other in drawn[:i]:
            assert abs(np.corrcoef(one.ravel(), other.ravel())[0, 1]) < 0.1


def test_a_rank_beyond_that_of_the_matrix_is_cut_and_the_spec_keeps_the_options():
    problem = ct.classification(IMAGES, ct.mlp(hidden=[6]), split={"name": "adapter", "rank": 5})
    assert private_shapes(problem)["layer1/weight/A"] == (6, 3)
    assert problem.spec["split"] == {"name": "adapter", "rank": 5}
    assert private_shapes(problem_from_spec(problem.spec)) == private_shapes(problem)


def test_wrapped_models_have_adapters_and_norms():
    flax, inputs = Norms(), np.zeros((1, 4), np.float32)
    assert private_shapes(ct.from_flax(flax, inputs, split="norm")) == {
        f"{layer}/{leaf}": (6,) for layer in ("GroupNorm_0", "last") for leaf in ("bias", "scale")}
    assert private_shapes(ct.from_equinox(equinox_norms, split="norm")) == {
        "layers/1/weight": (6,), "layers/1/bias": (6,)}
    adapted = {f"Dense_{i}/kernel/{half}" for i in range(2) for half in "AB"}
    assert set(private_shapes(ct.from_flax(flax, inputs, split="adapter"))) == adapted
    problem = ct.from_equinox(equinox_norms, split="adapter")
    shared, private = problem.init(KEY)
    assert set(private) == {"layers/0/weight", "layers/2/weight"}
    np.testing.assert_allclose(problem.predict(shared, private, inputs), jax.vmap(equinox_norms(KEY))(inputs))
    gradient = jax.jit(jax.grad(problem.loss, 1))(shared, private, Batch(inputs + 1, np.array([1]), np.ones(1)))
    assert all(jnp.any(each["B"]) for each in gradient.values())


def test_a_product_of_private_parts_is_not_called_convex():
    assert ct.logistic(IMAGES).convex is not None and ct.logistic(IMAGES, split="adapter").convex is None


@pytest.mark.parametrize(("split", "said"), [
    ({"name": "adapter", "rank": 0}, "split.rank is 0"), ({"name": "adapter", "ranks": 1}, "Did you mean 'rank'"),
    ({"name": "adaptor"}, "unknown split 'adaptor'. Did you mean 'adapter'"),
    ("*", "matches every parameter; give one that leaves some to be shared, or say \"all\"")])
def test_what_cannot_be_split_is_refused(split, said):
    with pytest.raises(InputError, match=said):
        ct.classification(IMAGES, ct.mlp(), split=split)
    with pytest.raises(InputError, match=said):
        ct.from_functions(lambda key: {"a": jnp.zeros((3, 2)), "b": jnp.zeros(3)}, lambda params, x: x, split=split)


def test_a_model_without_matrices_has_no_adapters():
    with pytest.raises(InputError, match="no matrix that one could be added to; there are a, b"):
        ct.from_functions(lambda key: {"a": jnp.zeros(3), "b": jnp.zeros(3)}, lambda params, x: x, split="adapter")
