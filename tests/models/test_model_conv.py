"""The convolution of our own against the compiler's, which is used nowhere else."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cantons.errors import InputError
from cantons.models import architecture, cnn
from cantons.models.conv import conv, max_pool

KEY = jax.random.key(0)
RANDOM = np.random.default_rng(0)
IMAGES = RANDOM.normal(size=(2, 7, 6, 3)).astype(np.float32)
KERNEL = RANDOM.normal(size=(3, 3, 3, 4)).astype(np.float32)


def native(images, kernel):
    layout = ("NHWC", "HWIO", "NHWC")
    return jax.lax.conv_general_dilated(images, kernel, (1, 1), "VALID", dimension_numbers=layout)


def value_and_gradients(function):
    """Of a scalar that depends on every output."""
    return jax.value_and_grad(lambda *arguments: jnp.sin(function(*arguments)).sum(), argnums=(0, 1))


def drawn(model):
    """Random parameters, biases too, and nothing to compile."""
    return jax.tree.map(lambda leaf: RANDOM.normal(size=leaf.shape).astype(np.float32) / 4,
                        jax.eval_shape(model.init, KEY))


def close(actual, expected, tolerance=1e-4):
    def check(one, other):
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)

    jax.tree.map(check, actual, expected)


def test_conv_is_the_native_convolution():
    close(jax.jit(conv)(IMAGES, KERNEL), native(IMAGES, KERNEL))


def test_both_gradients_of_conv_are_the_native_ones():
    ours, theirs = (jax.jit(value_and_gradients(one))(IMAGES, KERNEL) for one in (conv, native))
    close(ours, theirs)


def test_conv_and_gradients_agree_for_a_kernel_per_client():
    kernels = np.stack([KERNEL, -KERNEL, 2 * KERNEL])
    images = np.stack([IMAGES, IMAGES + 1, 3 * IMAGES])
    ours, theirs = (jax.jit(jax.vmap(value_and_gradients(one)))(images, kernels) for one in (conv, native))
    close(ours, theirs)


def test_hessian_vector_products_of_conv_are_the_native_ones():
    def product(function):
        gradient = jax.grad(lambda kernel: jnp.sin(function(IMAGES, kernel)).sum())
        return jax.jit(lambda kernel: jax.jvp(gradient, (kernel,), (kernel + 1,))[1])(KERNEL)

    close(product(conv), product(native), tolerance=1e-3)


def test_patches_are_made_before_the_product_and_not_within_it():
    """JAX 0.11 stops the process where it makes them within, on a GPU: openxla/xla, issue 47381."""
    images, kernel = jnp.ones((2, 5, 5, 1)), jnp.ones((3, 3, 1, 4))
    program = jax.make_jaxpr(conv)(images, kernel).eqns
    (product,) = (equation for equation in program if equation.primitive.name == "dot_general")
    (barrier,) = (equation for equation in program if equation.primitive.name == "optimization_barrier")
    assert barrier.outvars[0] in product.invars


def test_conv_in_float64_is_exact_to_its_rounding():
    with jax.enable_x64(True):
        images, kernel = np.asarray(IMAGES, np.float64), np.asarray(KERNEL, np.float64)
        ours, theirs = (jax.jit(value_and_gradients(one))(images, kernel) for one in (conv, native))
        assert ours[1][0].dtype == jnp.float64
        close(ours, theirs, tolerance=1e-12)


def test_max_pool_takes_the_largest_and_drops_an_odd_row():
    image = jnp.arange(15.0).reshape(1, 3, 5, 1)
    np.testing.assert_array_equal(max_pool(image)[0, :, :, 0], [[6.0, 8.0]])


def test_max_pool_passes_the_gradient_to_the_largest_alone():
    image = jnp.arange(15.0).reshape(1, 3, 5, 1)
    gradient = jax.jit(jax.grad(lambda images: (max_pool(images) * 3).sum()))(image)
    expected = np.zeros((3, 5))
    expected[1, [1, 3]] = 3
    np.testing.assert_array_equal(gradient[0, :, :, 0], expected)


def reference(params, images):
    """The same network in the words of the paper, on native operations."""
    values = images
    for name in ("layer0", "layer1"):
        values = jax.nn.relu(native(values, params[name]["weight"]) + params[name]["bias"])
    window = (1, 2, 2, 1)
    values = jax.lax.reduce_window(values, -jnp.inf, jax.lax.max, window, window, "VALID")
    values = values.reshape(images.shape[0], -1)
    values = jax.nn.relu(values @ params["layer2"]["weight"] + params["layer2"]["bias"])
    return values @ params["layer3"]["weight"] + params["layer3"]["bias"]


def test_cnn_and_its_gradient_are_those_of_native_operations():
    model = cnn(channels=(4, 5), dense=6)((9, 8, 3), 10)
    params, images = drawn(model), RANDOM.normal(size=(2, 9, 8, 3)).astype(np.float32)
    ours, theirs = (jax.jit(value_and_gradients(apply))(params, images) for apply in (model.apply, reference))
    close(ours, theirs)


def test_gradient_of_every_scanned_client_is_its_own():
    model = cnn(channels=(2,), dense=3)((6, 6), 2)
    clients = jax.tree.map(lambda *leaves: np.stack(leaves), *(drawn(model) for _ in range(3)))
    images = RANDOM.normal(size=(3, 4, 6, 6)).astype(np.float32)
    gradients = value_and_gradients(model.apply)
    _, scanned = jax.lax.scan(lambda carry, client: (carry, gradients(*client)), 0, (clients, images))
    close(scanned, jax.jit(jax.vmap(gradients))(clients, images))


def test_default_is_the_pfl_network():
    params = jax.eval_shape(lambda: cnn()((32, 32, 3), 10).init(jax.random.key(0)))
    shapes = [params[f"layer{i}"]["weight"].shape for i in range(4)]
    assert shapes == [(3, 3, 3, 32), (3, 3, 32, 64), (14 * 14 * 64, 128), (128, 10)]


def test_greyscale_is_one_channel():
    model, coloured = (cnn(channels=[2], dense=3)(shape, 2) for shape in ((8, 8), (8, 8, 1)))
    params, images = drawn(model), RANDOM.normal(size=(4, 8, 8)).astype(np.float32)
    close(jax.jit(model.apply)(params, images), jax.jit(coloured.apply)(params, images[..., None]))


def test_name_and_options_make_the_cnn_again():
    named = cnn(channels=(2, 3), dense=4)
    assert architecture(named.name, **named.options).options == {"channels": [2, 3], "dense": 4}


def test_inputs_that_are_no_images_are_refused():
    with pytest.raises(InputError, match=r"inputs of shape \(64,\); give images"):
        cnn()((64,), 10)
    with pytest.raises(InputError, match="images of 5 x 8, but 2 convolutions and a pooling need 6 or more"):
        cnn()((5, 8), 10)
    with pytest.raises(InputError, match="convolutions in channels is 0"):
        cnn(channels=())
