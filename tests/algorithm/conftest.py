"""What tests of algorithms with a datacenter share."""

from dataclasses import replace

import numpy as np
import pytest

from cantons.data import from_sizes


@pytest.fixture(scope="module")
def rows():
    """The datacenter's, which follow a rule of their own."""
    random = np.random.default_rng(5)
    inputs = random.normal(size=(40, 3))
    return inputs, inputs @ np.array([2.0, -1.0, 0.5]) + 0.1 * random.normal(size=40)


@pytest.fixture(scope="module")
def data(numbers, rows):
    return replace(numbers, central=from_sizes(*rows, np.array([len(rows[1])])))
