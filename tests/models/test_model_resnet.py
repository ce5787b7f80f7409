"""ResNet-18 against the compiler's convolutions and Flax's group normalisation."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cantons.errors import InputError
from cantons.models import resnet18
from cantons.models.conv import conv
from cantons.models.resnet import init_block, residual_block

RANDOM = np.random.default_rng(0)


def native(images, kernel, stride=1, padding=0):
    return jax.lax.conv_general_dilated(images, kernel, (stride, stride), [(padding, padding)] * 2,
                                        dimension_numbers=("NHWC", "HWIO", "NHWC"))


def normalise(layer, values, groups):
    own = {"scale": layer["scale"], "bias": layer["shift"]}
    return nn.GroupNorm(groups, epsilon=1e-5).apply({"params": own}, values)


def block_by_hand(params, images, groups):
    """He et al., Figure 5 left, with a projection (option B) where the shape changes."""
    stride = 1 if images.shape[-1] == params["norm0"]["scale"].size else 2
    values = nn.relu(normalise(params["norm0"], native(images, params["conv0"]["weight"], stride, 1), groups))
    values = normalise(params["norm1"], native(values, params["conv1"]["weight"], 1, 1), groups)
    if stride == 2:
        images = normalise(params["skip"]["norm"], native(images, params["skip"]["conv"]["weight"], 2), groups)
    return nn.relu(images + values)


def drawn(init):
    return jax.tree.map(lambda leaf: RANDOM.normal(size=leaf.shape).astype(np.float32),
                        jax.eval_shape(init, jax.random.key(0)))


@pytest.mark.parametrize("outputs", [4, 6])
def test_a_block_and_its_gradients_are_those_of_native_layers_for_weights_per_client(outputs):
    params = [drawn(lambda key: init_block(key, 4, outputs)) for _ in range(2)]
    clients = jax.tree.map(lambda *leaves: np.stack(leaves), *params)
    images = RANDOM.normal(size=(2, 3, 7, 6, 4)).astype(np.float32)

    def gradients(block):
        return jax.jit(jax.vmap(jax.value_and_grad(lambda *args: jnp.sin(block(*args, 2)).mean(), (0, 1))))

    ours, theirs = gradients(residual_block)(clients, images), gradients(block_by_hand)(clients, images)
    jax.tree.map(lambda one, other: np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5), ours, theirs)


@pytest.mark.parametrize(("side", "stride", "padding"), [(3, 1, 1), (3, 2, 1), (1, 2, 0), (3, 2, 0)])
def test_stride_and_padding_are_the_native_ones(side, stride, padding):
    kernel = RANDOM.normal(size=(side, side, 3, 2)).astype(np.float32)
    for shape in ((2, 7, 6, 3), (1, 4, 5, 3)):
        images = RANDOM.normal(size=shape).astype(np.float32)
        np.testing.assert_allclose(conv(images, kernel, stride, padding), native(images, kernel, stride, padding),
                                   rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("shape", "parameters"), [((28, 28), 11_199_486), ((32, 32, 3), 11_200_638)])
def test_it_is_resnet_18(shape, parameters):
    """As many parameters as torchvision's, 11,689,512, with a stem of 3 x 3 for 7 x 7 and 62 classes for 1000."""
    model = resnet18()(shape, 62)
    params = jax.eval_shape(model.init, jax.random.key(0))
    colours = (*shape, 1)[2]
    assert parameters == 11_689_512 - 64 * (49 * 3 - 9 * colours) - 513 * (1000 - 62)
    assert sum(leaf.size for leaf in jax.tree.leaves(params)) == parameters
    assert jax.eval_shape(model.apply, params, np.zeros((2, *shape))).shape == (2, 62)


def test_the_whole_is_stem_blocks_mean_and_dense():
    model = resnet18(groups=4)((8, 8), 3)
    params, images = drawn(model.init), RANDOM.normal(size=(2, 8, 8)).astype(np.float32)

    def by_hand(params, images):
        values = native(images[..., None], params["stem"]["conv"]["weight"], padding=1)
        values = nn.relu(normalise(params["stem"]["norm"], values, 4))
        for stage in range(4):
            for block in range(2):
                values = block_by_hand(params[f"stage{stage}"][f"block{block}"], values, 4)
        assert values.shape == (2, 1, 1, 512)
        return values.mean((1, 2)) @ params["output"]["weight"] + params["output"]["bias"]

    ours, theirs = jax.jit(model.apply)(params, images), jax.jit(by_hand)(params, images)
    np.testing.assert_allclose(ours, theirs, rtol=2e-5, atol=1e-3)  # outputs are about 100, of weights of size 1


def test_what_does_not_fit_is_refused():
    with pytest.raises(InputError, match="3 groups; give a number that divides its 64 channels"):
        resnet18(groups=3)
    with pytest.raises(InputError, match=r"inputs of shape \(64,\); give images"):
        resnet18()((64,), 10)
