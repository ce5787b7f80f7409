"""Data with a name: plain options in, a federation out, and no accelerator touched on the way."""

import subprocess
import sys

import numpy as np
import pytest
from sklearn.datasets import dump_svmlight_file

from cantons.data import digits, libsvm, npz
from cantons.errors import InputError

X = np.random.default_rng(0).integers(0, 255, (120, 6), dtype=np.uint8)
Y = np.repeat(np.arange(6), 20)


@pytest.fixture
def archive(tmp_path):
    path = tmp_path / "boxes.npz"
    np.savez(path, x=X, y=Y, who=np.tile(np.arange(4), 30), speed=Y / 2)
    return path


@pytest.fixture
def lines(tmp_path):
    path = tmp_path / "boxes.txt"
    dump_svmlight_file(X.astype(float), Y, str(path))
    return path


@pytest.mark.parametrize("partition", ["tasks", "iid", "dirichlet", "shards"])
def test_digits_come_in_every_partition(partition):
    data, same, other = (digits(30, partition=partition, new=5, seed=seed) for seed in (0, 0, 1))
    assert data.population == 25 and data.new.train.population == 5
    assert data.input_shape == (64,) and data.train.inputs.dtype == np.float32
    assert data.train.inputs.min() == 0 and data.train.inputs.max() == 1
    assert data.classes == (2 if partition == "tasks" else 10)
    np.testing.assert_array_equal(data.train.inputs, same.train.inputs)
    assert not np.array_equal(data.train.inputs, other.train.inputs)


def test_an_archive_has_natural_clients(archive):
    data = npz(archive, client="who", scale="unit")
    assert data.name == "boxes" and data.clients.names == ("0", "1", "2", "3")
    assert data.classes == 6 and 0.9 < data.train.inputs.max() <= 1


def test_a_file_can_be_divided_in_every_partition(archive, lines):
    for partition in ("tasks", "iid", "dirichlet", "shards"):
        one = npz(archive, partition=partition, clients=6)
        other = libsvm(lines, 6, partition=partition)
        assert one.population == other.population == 6
        np.testing.assert_array_equal(one.train.inputs, other.train.inputs)


def test_targets_of_a_regression_are_numbers(archive, lines):
    data = npz(archive, targets="speed", regression=True, client="who")
    assert data.classes is None and data.train.targets.dtype == np.float32
    assert libsvm(lines, 3, regression=True).classes is None


@pytest.mark.parametrize("options, sentence", [
    ({}, "partition 'natural' finds its clients in the file: give client"),
    ({"client": "who", "clients": 3}, "and not clients"),
    ({"partition": "iid"}, "partition 'iid' makes up its clients: give clients, their number"),
    ({"partition": "iid", "clients": 3, "client": "who"}, "neither client nor min_examples"),
    ({"partition": "iid", "clients": 3, "min_examples": 3}, "neither client nor min_examples"),
    ({"partition": "idd", "clients": 3}, "partition is 'idd'; give one of 'natural', 'tasks', 'iid'"),
    ({"partition": "shards", "clients": 3, "regression": True}, "'shards' goes by label, and regression"),
])
def test_contradictions_are_refused(archive, options, sentence):
    with pytest.raises(InputError, match=sentence):
        npz(archive, **options)


def test_loading_starts_no_backend():
    script = ("import jax; from cantons.data import digits, synthetic; digits(); synthetic(3, new=1); "
              "jax.config.update('jax_num_cpu_devices', 3); assert jax.device_count() == 3")
    environment = {"JAX_PLATFORMS": "cpu", "PYTHONPATH": ":".join(sys.path)}
    subprocess.run([sys.executable, "-c", script], check=True, env=environment)
