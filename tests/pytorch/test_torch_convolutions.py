"""Convolutions as patches and a product are PyTorch's, whatever their strides, paddings and dilations."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cantons.problem.torchax_conv import convolve

torch = pytest.importorskip("torch", reason="make test-extras installs it")


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_patches_and_a_product_are_a_convolution(data):
    space = data.draw(st.integers(1, 3))
    channels, outputs = data.draw(st.tuples(st.integers(1, 3), st.integers(1, 3)))
    sides, stride, padding, dilation = (data.draw(st.tuples(*[st.integers(low, 3)] * space)) for low in (1, 1, 0, 1))
    least = [(side - 1) * apart + 1 for side, apart in zip(sides, dilation, strict=True)]
    shape = [size + data.draw(st.integers(0, 3)) for size in least]
    random = np.random.default_rng(0)
    images, kernel = random.normal(size=(2, channels, *shape)), random.normal(size=(outputs, channels, *sides))
    wanted = getattr(torch.nn.functional, f"conv{space}d")(
        torch.from_numpy(images), torch.from_numpy(kernel), stride=stride, padding=padding, dilation=dilation)
    found = convolve(images.astype(np.float32), kernel.astype(np.float32), stride, padding, dilation)
    np.testing.assert_allclose(found, wanted.numpy(), atol=1e-4)
