"""Parquet files: columns of numbers, of words and of lists."""

import datetime

import numpy as np
import pytest

from cantons.data import parquet, read_parquet
from cantons.errors import InputError

pyarrow = pytest.importorskip("pyarrow")
import pyarrow.parquet as files  # noqa: E402  (not before pyarrow is known to be there)

COLUMNS = {"pixels": [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], "weight": [7, 8, 9], "kind": ["cat", "dog", "cat"],
           "who": ["ann", "bob", "ann"]}


@pytest.fixture
def file(tmp_path):
    def write(columns, name="some.parquet"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        files.write_table(pyarrow.table(columns), tmp_path / name)
        return tmp_path / name
    return write


def test_one_column_keeps_its_shape_and_several_stand_side_by_side(file):
    path = file(COLUMNS)
    table = read_parquet(path, inputs="pixels", targets="kind", client="who")
    np.testing.assert_array_equal(table.inputs, COLUMNS["pixels"])
    np.testing.assert_array_equal(table.classes[table.targets], COLUMNS["kind"])
    assert table.clients.tolist() == COLUMNS["who"]
    rest = read_parquet(path, targets="kind", client="who")
    np.testing.assert_array_equal(rest.inputs, [[1, 2, 7], [3, 4, 8], [5, 6, 9]])


def test_lists_of_lists_categories_fixed_lists_and_slices_are_understood(file):
    pictures = np.arange(24, dtype=np.uint8).reshape(4, 3, 2)
    columns = {"picture": pyarrow.array(pictures.tolist(), pyarrow.list_(pyarrow.list_(pyarrow.uint8()))),
               "fixed": pyarrow.array([[1], [2], [3], [4]], pyarrow.list_(pyarrow.int16(), 1)),
               "kind": pyarrow.array(list("abab")).dictionary_encode(), "good": [True, False, True, True]}
    path = file({name: pyarrow.chunked_array([pyarrow.array(column)[:2], pyarrow.array(column)[2:]])
                 for name, column in columns.items()})
    table = read_parquet(path, inputs="picture", targets="kind")
    np.testing.assert_array_equal(table.inputs, pictures)
    assert table.inputs.dtype == np.uint8 and table.targets.tolist() == [0, 1, 0, 1]
    assert read_parquet(path, inputs="fixed", targets="good").inputs.tolist() == [[1], [2], [3], [4]]


def test_a_folder_of_parts_is_one_table(file):
    file(COLUMNS, "parts/1.parquet")
    path = file(COLUMNS, "parts/2.parquet").parent
    data = parquet(path, inputs="pixels", targets="weight", regression=True, client="who", test=0)
    assert data.train.sizes.tolist() == [4, 2] and data.classes is None and data.name == "parts"


def test_times_may_be_dates(file):
    days = [datetime.datetime(1970, 1, day) for day in (3, 2, 1)]
    table = read_parquet(file(COLUMNS | {"day": days}), inputs="pixels", targets="kind", time="day")
    assert table.times.tolist() == [2 * 86400.0, 86400.0, 0.0]


@pytest.mark.parametrize("columns, options, sentence", [
    ({}, {"targets": "kinds"}, r"unknown column in .*some.parquet: 'kinds'. Did you mean 'kind'\? Known: kind, pixels"),
    ({"pixels": [[1.0], [2.0, 3.0], [4.0]]}, {}, "'pixels' in .*some.parquet has 1 values in row 0 and 2 in row 1"),
    ({"pixels": [[1.0], None, [4.0]]}, {}, r"column 'pixels' in .*some.parquet has no value in row 1 \(from 0\)"),
    ({"pixels": [[1.0], [None], [4.0]]}, {}, "column 'pixels' in .*some.parquet has no value in row 1"),
    ({"kind": ["a", None, "b"]}, {}, "column 'kind' in .*some.parquet has no value in row 1"),
    ({"pixels": [[1.0], [float("inf")], [4.0]]}, {}, r"inputs hold inf in row 0 \(from 0\) of client 'bob'"),
    ({"pixels": ["1", "2", "c"]}, {}, "column 'pixels' in .*some.parquet holds 'c' in row 2"),
    ({"pixels": [{"bytes": b"1"}] * 3}, {}, "column 'pixels' in .* holds \"{'bytes'.* where a number belongs"),
    ({"who": [1.5, 2.5, 3.5]}, {}, r"client ids are of type float64 and shape \(3,\)"),
])
def test_bad_files_are_refused_by_name(file, columns, options, sentence):
    with pytest.raises(InputError, match=sentence) as error:
        parquet(file(COLUMNS | columns), **{"inputs": "pixels", "targets": "kind", "client": "who"} | options)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("content", [b"", b"hello", b"PAR1 hello PAR1"])
def test_what_is_no_parquet_is_refused_by_name(tmp_path, content):
    (tmp_path / "some.parquet").write_bytes(content)
    with pytest.raises(InputError, match="cannot read .*some.parquet") as error:
        parquet(tmp_path / "some.parquet", targets="y")
    assert "\n" not in str(error.value)


def test_a_damaged_file_is_refused_by_name(file):
    path = file({"x": np.random.default_rng(0).random(1000), "y": np.arange(1000)})
    content = bytearray(path.read_bytes())
    content[4:60] = b"?" * 56
    path.write_bytes(content)
    with pytest.raises(InputError, match="cannot read .*some.parquet") as error:
        read_parquet(path, targets="y")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["pixels", "pix.els"])
def test_a_column_that_unpacks_to_more_than_there_is_is_refused_before_it_is_read(file, monkeypatch, name):
    path = file({name: [[0.0] * 100_000] * 30, "kind": ["cat", "dog"] * 15})
    assert path.stat().st_size < 2**14
    monkeypatch.setattr("cantons.memory.available", lambda: 2**24)
    with pytest.raises(InputError, match=f"column '{name}' in .*some.parquet needs 0.022 GiB of memory, there"):
        read_parquet(path, inputs=name, targets="kind")


def test_text_and_missing_values_are_encoded_and_columns_ignored(file):
    columns = {"age": [31, None, 40, 25], "ward": ["icu", "er", None, "icu"], "id": list("pqrs"),
               "sick": ["no", "yes", "no", "yes"], "who": ["ann", "bob", "ann", "bob"]}
    data = parquet(file(columns), targets="sick", client="who", ignore=["id"], missing="mean", test=0)
    assert data.encoding.feature_names == ("age", "age is missing", "ward = er", "ward = icu", "ward is missing")
    np.testing.assert_array_equal(data.train.inputs, [[31, 0, 0, 1, 0], [40, 0, 0, 0, 1], [32, 1, 1, 0, 0],
                                                      [25, 0, 0, 1, 0]])
    with pytest.raises(InputError, match=r"column 'age' in .*some.parquet has no value in row 1 \(from 0\)"):
        parquet(file(columns), targets="sick", client="who", ignore=["id"])
