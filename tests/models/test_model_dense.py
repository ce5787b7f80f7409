"""Dense networks against products written by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cantons.errors import InputError
from cantons.models import architecture, linear, mlp

KEY = jax.random.key(0)
RANDOM = np.random.default_rng(0)
IMAGES = RANDOM.normal(size=(4, 2, 3)).astype(np.float32)
ROWS = IMAGES.reshape(4, 6)


def test_linear_starts_at_zero_whatever_the_seed():
    params = linear()((2, 3), 5).init(KEY)
    assert params["layer0"]["weight"].shape == (6, 5)
    assert params["layer0"]["bias"].shape == (5,)
    assert not any(leaf.any() for leaf in jax.tree.leaves(params))


@pytest.mark.parametrize("bias", [True, False])
def test_linear_is_a_product_with_flattened_inputs(bias):
    model = linear(bias=bias)((2, 3), 5)
    params = jax.tree.map(lambda leaf: RANDOM.normal(size=leaf.shape), model.init(KEY))
    layer = params["layer0"]
    assert ("bias" in layer) == bias
    expected = ROWS @ layer["weight"] + layer.get("bias", 0.0)
    np.testing.assert_allclose(model.apply(params, IMAGES), expected, rtol=1e-5)


def test_mlp_is_relu_between_products():
    model = mlp(hidden=[7, 8])((2, 3), 5)
    params = jax.tree.map(lambda leaf: RANDOM.normal(size=leaf.shape), jax.eval_shape(model.init, KEY))
    values = ROWS
    for i in range(3):
        layer = params[f"layer{i}"]
        values = (values if i == 0 else np.maximum(values, 0)) @ layer["weight"] + layer["bias"]
    np.testing.assert_allclose(jax.jit(model.apply)(params, IMAGES), values, rtol=1e-4, atol=1e-5)
    assert (model.input_layer, model.output_layer) == ("layer0/*", "layer2/*")


def test_mlp_weights_fill_the_glorot_interval():
    weight = np.asarray(mlp(hidden=[300])((500,), 2).init(KEY)["layer0"]["weight"])
    bound = np.sqrt(6 / (500 + 300))
    assert 0.99 * bound < np.abs(weight).max() <= bound
    assert abs(weight.mean()) < 0.01 * bound


def test_mlp_without_hidden_layers_has_one_layer():
    assert list(jax.eval_shape(mlp(hidden=[])((3,), 2).init, KEY)) == ["layer0"]


@pytest.mark.parametrize("named", [linear(bias=False), mlp(hidden=(7, 8))])
def test_name_and_options_make_the_architecture_again(named):
    again = architecture(named.name, **named.options)
    assert (again.name, again.options) == (named.name, named.options)
    before, after = (jax.eval_shape(one((3,), 2).init, KEY) for one in (named, again))
    assert before == after


def test_parameters_are_float64_when_jax_is():
    with jax.enable_x64(True):
        model = mlp(hidden=[4])((3,), 2)
        params = jax.eval_shape(model.init, jax.random.key(0))
        outputs = jax.eval_shape(model.apply, params, np.ones((1, 3), np.float32))
        assert {leaf.dtype for leaf in jax.tree.leaves((params, outputs))} == {jnp.dtype("float64")}


def test_a_name_or_option_that_is_not_there_is_refused_with_the_nearest():
    with pytest.raises(InputError, match=r"unknown model 'mpl'. Did you mean 'mlp'\?"):
        architecture("mpl")
    with pytest.raises(InputError, match=r"unknown option of mlp 'hiden'. Did you mean 'hidden'\?"):
        architecture("mlp", hiden=[3])
    with pytest.raises(InputError, match=r"hidden\[0\] is 0; give 1 or more"):
        mlp(hidden=[0])
