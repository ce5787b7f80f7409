"""Hugging Face datasets, as objects and from disk."""

import numpy as np
import pytest

from cantons.data import Division, from_table, huggingface, read_huggingface
from cantons.errors import InputError

datasets = pytest.importorskip("datasets")
COLUMNS = {"x": [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], "weight": [7, 8, 9], "kind": ["cat", "dog", "cat"],
           "who": ["ann", "bob", "ann"]}


@pytest.fixture(autouse=True)
def quiet():
    datasets.disable_progress_bars()


def made(**columns):
    return datasets.Dataset.from_dict(COLUMNS | columns)


def test_a_dataset_becomes_a_table():
    table = read_huggingface(made(), inputs="x", targets="kind", client="who")
    np.testing.assert_array_equal(table.inputs, COLUMNS["x"])
    np.testing.assert_array_equal(table.classes[table.targets], COLUMNS["kind"])
    assert from_table(table, Division(test=0)).clients.names == ("ann", "bob")
    both = read_huggingface(made(), inputs=["weight", "x"], targets="kind")
    np.testing.assert_array_equal(both.inputs, [[7, 1, 2], [8, 3, 4], [9, 5, 6]])


def test_rows_that_were_shuffled_or_selected_stay_so():
    chosen = made().select([2, 1])
    assert read_huggingface(chosen, inputs="weight", targets="kind").inputs.tolist() == [9, 8]


def test_pictures_and_class_labels_are_understood():
    pictures = np.random.default_rng(0).integers(0, 255, (3, 5, 4), dtype=np.uint8)
    features = datasets.Features(image=datasets.Image(), label=datasets.ClassLabel(names=["no", "yes"]))
    dataset = datasets.Dataset.from_dict({"image": list(pictures), "label": [1, 0, 1]}, features)
    table = read_huggingface(dataset, inputs="image", targets="label")
    np.testing.assert_array_equal(table.inputs, pictures)
    assert table.inputs.dtype == np.uint8 and table.targets.tolist() == [1, 0, 1]


def test_a_saved_dataset_has_natural_or_made_up_clients(tmp_path):
    made().save_to_disk(tmp_path / "pets")
    data = huggingface(tmp_path / "pets", inputs="x", targets="kind", client="who")
    assert data.clients.names == ("ann", "bob") and data.name == "pets"
    assert huggingface(tmp_path / "pets", inputs="x", targets="kind", partition="iid", clients=3).population == 3


def test_the_split_test_is_the_test_set(tmp_path):
    splits = {"train": made(), "test": made().select([1]), "validation": made()}
    datasets.DatasetDict(splits).save_to_disk(tmp_path / "pets")
    options = {"inputs": "x", "targets": "kind", "client": "who"}
    data = huggingface(tmp_path / "pets", **options)
    assert data.train.sizes.tolist() == [2, 1] and data.test.sizes.tolist() == [0, 1]
    assert huggingface(tmp_path / "pets", test=0.5, **options).test.sizes.tolist() == [1, 1]


def test_a_single_split_train_is_enough():
    table = read_huggingface(datasets.DatasetDict({"train": made()}), inputs="x", targets="kind")
    assert table.test is None and len(table.inputs) == 3


@pytest.mark.parametrize("columns, options, sentence", [
    ({}, {"inputs": "xx"}, r"unknown column in the dataset: 'xx'. Did you mean 'x'\? Known: kind, weight, who, x."),
    ({"x": [[1.0], [2.0, 3.0], [4.0]]}, {}, r"column 'x' in the dataset has shape \(1,\) in row 0 and \(2,\) in row 1"),
    ({"x": [[1.0], None, [4.0]]}, {}, r"column 'x' in the dataset has no value in row 1 \(from 0\)"),
    ({"kind": ["a", None, "b"]}, {}, "column 'kind' in the dataset has no value in row 1"),
    ({"x": [], "weight": [], "kind": [], "who": []}, {}, "the dataset holds no rows"),
    ({"x": ["a", "b", "c"]}, {}, "column 'x' in the dataset holds 'a' in row 0"),
])
def test_bad_datasets_are_refused(columns, options, sentence):
    with pytest.raises(InputError, match=sentence) as error:
        read_huggingface(made(**columns), **{"inputs": "x", "targets": "kind"} | options)
    assert "\n" not in str(error.value)


def test_splits_that_do_not_fit_are_refused():
    with pytest.raises(InputError, match="unknown split of the dataset: 'train'. Known: valid."):
        read_huggingface(datasets.DatasetDict({"valid": made()}), inputs="x", targets="kind")
    other = datasets.DatasetDict({"train": made(), "test": made(x=["a", "b", "c"])})
    with pytest.raises(InputError, match="the splits train and test of the dataset differ in their columns"):
        read_huggingface(other, inputs="x", targets="kind")


def test_other_folders_and_objects_are_refused(tmp_path):
    with pytest.raises(InputError, match="it is not a whole folder as save_to_disk writes it"):
        huggingface(tmp_path, inputs="x", targets="y")
    made().save_to_disk(tmp_path / "pets")
    for name, content in (("state.json", "{"), ("data-00000-of-00001.arrow", "?")):
        (tmp_path / "pets" / name).write_text(content)
        with pytest.raises(InputError, match="cannot read .*pets") as error:
            huggingface(tmp_path / "pets", inputs="x", targets="kind")
        assert "\n" not in str(error.value)
        made().save_to_disk(tmp_path / "pets")
    with pytest.raises(InputError, match="read_huggingface got a dict"):
        read_huggingface(COLUMNS, inputs="x", targets="y")
