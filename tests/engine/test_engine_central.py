"""The centre's batches are divided over the devices, where that pays and where they can be."""

from dataclasses import replace

import jax
import numpy as np
import pytest
from starting import start

import cantons as ct
from cantons.data import from_sizes
from cantons.engine.central import LEAST_NUMBERS, LEAST_ROWS
from cantons.problem import with_central_loss

WIDTH = LEAST_NUMBERS // LEAST_ROWS


@pytest.fixture(scope="module")
def problem(mixed):
    return with_central_loss(ct.classification(mixed, ct.mlp(hidden=[2])))


@pytest.fixture(scope="module")
def mixed():
    random = np.random.default_rng(0)

    def rows(count):
        return random.normal(size=(count, WIDTH)), random.integers(0, 2, count)

    inputs, labels = rows(3 * LEAST_ROWS)
    central = from_sizes(inputs, labels.astype(np.int32), np.array([len(labels)]))
    return replace(ct.from_clients({name: rows(4) for name in "ab"}, classes=2, test=0), central=central)


def steps(batch):
    return ct.only_central(central_batch_size=batch, central_steps=2)


def played(problem, data, recipe, devices):
    """The model after some rounds, and what each device computes in one of them."""
    algorithm = recipe.build(problem, data.population)
    session = start(ct.Local(devices=devices), problem, algorithm, ct.rounds().build(data.population), data,
                    data.central)
    state = session.begin()
    session.prepare(state)
    work = session._block.cost_analysis()["flops"]
    return jax.device_get(session.advance(state, 3).server.shared), work


@pytest.mark.parametrize("recipe, part, x64", [
    (steps(2 * LEAST_ROWS), 0.5, True), (steps(2 * LEAST_ROWS), 0.5, False), (steps(None), 0.5, True),
    (steps(2 * LEAST_ROWS + 1), 1.0, True), (steps(LEAST_ROWS), 1.0, True),
    (ct.one_way_transfer(steps=1, batch_size=1, central_batch_size=2 * LEAST_ROWS), 0.5, True),
], ids=["drawn", "float32", "all", "uneven", "small", "before the round"])
def test_two_devices_share_a_batch_and_end_where_one_does(problem, mixed, recipe, part, x64):
    with jax.enable_x64(x64):
        (one, work), (two, share) = (played(problem, mixed, recipe, devices) for devices in (1, 2))
    assert share / work == pytest.approx(part, abs=0.1)
    for left, right in zip(*map(jax.tree.leaves, (one, two)), strict=True):
        np.testing.assert_allclose(left, right, rtol=0, atol=1e-13 if x64 else 1e-6)
