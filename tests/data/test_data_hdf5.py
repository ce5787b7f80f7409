"""HDF5 files in the layout of fed_emnist."""

import numpy as np
import pytest

from cantons.data import hdf5, read_hdf5
from cantons.errors import InputError

h5py = pytest.importorskip("h5py")
PIXELS = np.random.default_rng(0).random((5, 4, 4), np.float32)
ANN, BOB = {"pixels": PIXELS[:3], "label": np.array([3, 7, 3])}, {"pixels": PIXELS[3:], "label": np.array([7, 9])}


@pytest.fixture
def file(tmp_path):
    def write(clients, name="some.h5", group="examples"):
        with h5py.File(tmp_path / name, "w") as file:
            file.create_group(group)
            for client, features in clients.items():
                for feature, values in features.items():
                    file[f"{group}/{client}/{feature}"] = values
        return tmp_path / name
    return write


def test_one_file_has_the_rows_of_its_clients(file):
    table = read_hdf5(file({"ann": ANN, "bob": BOB}))
    np.testing.assert_array_equal(table.inputs, PIXELS)
    assert table.inputs.dtype == np.float32 and table.test is None
    np.testing.assert_array_equal(table.classes[table.targets], [3, 7, 3, 7, 9])
    assert table.clients.tolist() == ["ann"] * 3 + ["bob"] * 2


def test_a_folder_has_a_file_for_training_and_one_for_testing(file):
    file({"ann": BOB}, "fed_test.h5")
    path = file({"ann": ANN, "bob": BOB}, "fed_train.h5").parent
    data = hdf5(path)
    assert data.train.sizes.tolist() == [3, 2] and data.test.sizes.tolist() == [2, 0]
    assert data.input_shape == (4, 4) and data.classes == 3
    assert hdf5(path, test=0.4).test.sizes.tolist() == [2, 1]
    assert hdf5(path / "fed_train.h5", test=0).test.sizes.tolist() == [0, 0]


def test_other_features_can_be_named(file):
    path = file({"ann": {"image": np.arange(6, dtype=np.uint8).reshape(2, 3), "score": np.array([0.5, 1.5])}})
    data = hdf5(path, inputs="image", targets="score", regression=True, test=0, scale="unit")
    assert data.classes is None and data.train.targets.tolist() == [0.5, 1.5]
    np.testing.assert_allclose(data.train.inputs, np.arange(6).reshape(2, 3) / 255)


@pytest.mark.parametrize("clients, options, sentence", [
    ({"ann": ANN}, {"inputs": "pixel"}, r"unknown dataset of client 'ann' in .*some.h5: 'pixel'. Did you mean"),
    ({"ann": ANN, "bob": {"pixels": PIXELS}}, {}, "dataset of client 'bob' in .*some.h5: 'label'. Known: pixels."),
    ({"ann": ANN | {"pixels": PIXELS}}, {}, r"inputs of client 'ann' in .* have shape \(5, 4, 4\) and its targets"),
    ({"ann": ANN, "bob": BOB | {"pixels": PIXELS[3:, 0]}}, {}, r"client 'bob' in .* numbers of shape \(4,\)"),
    ({"ann": ANN, "bob": BOB | {"pixels": PIXELS[3:] * np.nan}}, {}, r"hold nan in row 0 \(from 0\) of client 'bob'"),
    ({"ann": {"pixels": PIXELS[:0], "label": np.arange(0)}}, {}, "no examples for 'ann' in .*some.h5"),
    ({"ann": {"pixels": PIXELS, "label": 3}}, {}, r"have shape \(5, 4, 4\) and its targets \(\); both need"),
    ({}, {}, "there are no clients in .*some.h5"),
])
def test_bad_files_are_refused_by_name(file, clients, options, sentence):
    with pytest.raises(InputError, match=sentence) as error:
        hdf5(file(clients), **options)
    assert "\n" not in str(error.value)


def test_another_layout_is_refused_by_name(file):
    with pytest.raises(InputError, match="unknown group in .*some.h5: 'examples'. Did you mean 'example'"):
        hdf5(file({"ann": ANN}, group="example"))


def test_what_is_no_hdf5_is_refused_by_name(tmp_path):
    (tmp_path / "some.h5").write_bytes(b"hello")
    with pytest.raises(InputError, match="cannot read .*some.h5: Unable to"):
        hdf5(tmp_path / "some.h5")


def test_a_folder_with_other_files_is_refused(file):
    path = file({"ann": ANN}, "one.h5").parent
    with pytest.raises(InputError, match="holds one.h5; keep one file that ends in train.h5"):
        hdf5(path)
