"""An encoding makes of raw rows what the reader made of the training rows, from a JSON file alone."""

import csv as standard_csv
import json
from types import SimpleNamespace

import numpy as np
import pytest

import cantons as ct
from cantons.data import scale_inputs
from cantons.data.encoding import Encoding
from cantons.errors import InputError

RANDOM = np.random.default_rng(0)
ROWS = 40
COLUMNS = {"age": RANDOM.integers(20, 90, ROWS), "site": [f"s{row % 4}" for row in range(ROWS)],
           "pressure": RANDOM.normal(120, 15, ROWS), "ill": ["yes" if row % 3 else "no" for row in range(ROWS)],
           "dose": RANDOM.normal(0, 1e-3, ROWS)}


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("encoding") / "patients.csv"
    with open(path, "w", newline="") as file:
        writer = standard_csv.writer(file)
        writer.writerow(COLUMNS)
        writer.writerows(zip(*COLUMNS.values(), strict=True))
    return path


def back(encoding):
    return Encoding.from_json(json.loads(json.dumps(encoding.to_json())))


def sorted_rows(rows):
    return rows[np.lexsort(rows.T)]


@pytest.mark.parametrize("scale", ["none", "unit", "standard"])
def test_raw_rows_become_the_very_bits_of_the_training_rows(path, scale):
    data = ct.csv(path, targets="ill", client="site", scale=scale, test=0.25)
    encoded = back(data.encoding).encode(COLUMNS)
    whole = np.concatenate([data.train.inputs, data.test.inputs])
    assert encoded.dtype == whole.dtype
    np.testing.assert_array_equal(sorted_rows(encoded), sorted_rows(whole))
    assert data.encoding.column_names == ("age", "pressure", "dose")
    assert data.encoding.classes == ("no", "yes") and data.encoding.target == "ill"
    assert back(data.encoding).decode([1, 0]).tolist() == ["yes", "no"]


def test_rows_may_come_in_any_form_and_their_columns_in_any_order(path):
    pandas = pytest.importorskip("pandas")
    encoding = back(ct.csv(path, targets="ill", client="site", scale="standard").encoding)
    expected = encoding.encode(COLUMNS)
    frame = pandas.DataFrame(COLUMNS)
    records = [dict(zip(COLUMNS, values, strict=True)) for values in zip(*COLUMNS.values(), strict=True)]
    ordered = np.stack([COLUMNS[name] for name in ("age", "pressure", "dose")], axis=1)
    for rows in (frame, frame[list(COLUMNS)[::-1]], frame.astype(object), records, ordered, ordered.tolist()):
        np.testing.assert_array_equal(encoding.encode(rows), expected)


def test_one_column_alone_keeps_its_shape(path):
    data = ct.csv(path, targets="ill", client="site", inputs="age", scale="unit")
    assert data.encoding.shape == () and back(data.encoding).encode(COLUMNS).shape == (ROWS,)


@pytest.mark.parametrize("dtype", ["uint8", "float32", "float64", "int32", "bool"])
@pytest.mark.parametrize("how", ["unit", "standard"])
def test_arrays_are_scaled_as_they_were_whatever_their_type_was(dtype, how):
    raw = RANDOM.integers(0, 200, (30, 2, 3)).astype(dtype)
    data = ct.federation(raw, np.zeros(30), np.zeros(30, int), test=0.0)
    scaled = scale_inputs(data, how)
    again = back(scaled.encoding)
    np.testing.assert_array_equal(again.encode(data.train.inputs), scaled.train.inputs)
    np.testing.assert_array_equal(again.encode(data.train.inputs.reshape(30, 6)), scaled.train.inputs)
    assert again.encode(data.train.inputs).dtype == scaled.train.inputs.dtype
    assert scale_inputs(scaled, how).encoding is None  # twice is more than an encoding can say


def test_labels_are_those_of_the_file(tmp_path):
    np.savez(tmp_path / "labels.npz", x=np.zeros((6, 2)), y=np.array([5, 2, 9, 5, 2, 9]), who=np.arange(6) % 2)
    data = ct.npz(tmp_path / "labels.npz", client="who")
    assert back(data.encoding).decode(data.train.targets).tolist() == [
        {0: 2, 1: 5, 2: 9}[label] for label in data.train.targets.tolist()]
    assert ct.digits(clients=5).encoding.classes == (0, 1)  # of tasks: they mean something else to each client
    assert ct.digits(clients=5, partition="iid").encoding.classes == tuple(range(10))
    assert ct.synthetic(clients=2, regression=True).encoding.classes is None


@pytest.mark.parametrize(("rows", "complaint"), [
    ({"age": [1], "dose": [1]}, "no column 'pressure'; this model was trained on the columns age, pressure, dose, and "
                                "the rows have age, dose"),
    (np.zeros((5, 2)), r"shape \(5, 2\), and this model was trained on the columns age, .*; give 3 numbers in a row"),
    (np.zeros(3), "this may be a single row: give rows.None., of shape"),
    ({**COLUMNS, "dose": ["much"] * ROWS}, "the column 'dose' holds .*much.* in row 0 .from 0.; give numbers"),
    ({**COLUMNS, "age": np.full(ROWS, np.nan)}, r"the rows hold nan in row 0 \(from 0\)"),
    ({name: 1.0 for name in COLUMNS}, "the column 'age' has shape"),
    ([["a", "b", "c"]], "give numbers"),
    (np.zeros((0, 3)), "there are no rows"),
    (4.0, "the single value 4.0"),
])
def test_rows_that_do_not_fit_are_refused_in_a_sentence(path, rows, complaint):
    encoding = ct.csv(path, targets="ill", client="site").encoding
    with pytest.raises(InputError, match=complaint):
        encoding.encode(rows)


def test_names_are_refused_where_the_training_rows_had_none():
    data = ct.federation(np.zeros((4, 2)), np.zeros(4), np.zeros(4, int))
    with pytest.raises(InputError, match=r"trained on rows of shape \(2,\); give an array"):
        data.encoding.encode({"a": [1.0], "b": [2.0]})


def test_inputs_of_several_arrays_are_taken_as_they_come():
    data = ct.federation({"a": np.ones((4, 2)), "b": np.ones(4)}, np.zeros(4), np.zeros(4, int))
    rows = SimpleNamespace()
    assert data.encoding.encode(rows) is rows
    assert scale_inputs(data, "unit").encoding is None


@pytest.mark.parametrize("change", [
    {"version": 2}, {"version": None}, {"shape": 3}, {"shape": ["x"]}, {"columns": [{"nam": "a"}]}, {"columns": 7},
    {"columns": [{"name": 3}]}, {"dtype": "no type"}, {"scaling": {}}, {"classes": 3}, {"classes": [1.5]},
    {"scaling": {"how": "unit", "shift": 0, "size": 0}}, {"scaling": {"how": "unit", "shift": [0, 0], "size": 1}},
    {"target": 5}])
def test_a_damaged_encoding_is_refused_in_a_sentence(path, change):
    table = ct.csv(path, targets="ill", client="site", scale="unit").encoding.to_json()
    with pytest.raises(InputError, match="the encoding is (damaged|of version)"):
        Encoding.from_json({**table, **change})
