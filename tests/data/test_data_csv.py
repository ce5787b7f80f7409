"""CSV files: what the header names comes back, and what is wrong is named with its line."""

import numpy as np
import pytest

from cantons.data import csv, read_csv
from cantons.errors import InputError

ROWS = "age,who,height,sick\n31,ann,1.5,no\n40,bob,1.75,yes\n25,ann,2,no\n"


@pytest.fixture
def file(tmp_path):
    def write(content, name="people.csv"):
        (tmp_path / name).write_bytes(content.encode() if isinstance(content, str) else content)
        return tmp_path / name
    return write


def test_all_other_columns_are_the_inputs(file):
    table = read_csv(file(ROWS), targets="sick", client="who")
    np.testing.assert_array_equal(table.inputs, [[31, 1.5], [40, 1.75], [25, 2]])
    np.testing.assert_array_equal(table.classes[table.targets], ["no", "yes", "no"])
    assert table.clients.tolist() == ["ann", "bob", "ann"]


def test_named_columns_are_the_inputs_and_one_alone_keeps_its_shape(file):
    path = file(ROWS)
    np.testing.assert_array_equal(read_csv(path, inputs=["height", "age"], targets="sick").inputs[0], [1.5, 31])
    alone = read_csv(path, inputs="age", targets="height", regression=True)
    np.testing.assert_array_equal(alone.inputs, [31, 40, 25])
    assert alone.inputs.dtype == np.int64 and alone.targets.dtype == np.float32 and alone.clients is None


def test_quotes_blank_lines_marks_of_order_and_other_separators_are_understood(file):
    plain = read_csv(file(ROWS), targets="sick", client="who")
    odd = "\ufeff" + ROWS.replace(",", "; ").replace("ann", '"ann"').replace("\n", "\r\n") + "\r\n\r\n"
    other = read_csv(file(odd), targets="sick", client="who", separator=";")
    for one, two in zip(plain[:4], other[:4], strict=True):
        np.testing.assert_array_equal(one, two)


def test_times_are_numbers_or_dates(file):
    numbers = file("x,y,t\n1,0,3.5\n2,1,2\n", "numbers.csv")
    assert read_csv(numbers, targets="y", time="t").times.tolist() == [3.5, 2.0]
    dates = file("x,y,t\n1,0,1970-01-02\n2,1,1970-01-01T00:00:01.5Z\n", "dates.csv")
    assert read_csv(dates, targets="y", time="t").times.tolist() == [86400.0, 1.5]


def test_a_csv_file_has_natural_clients_or_made_up_ones(file):
    path = file("x,y,who\n" + "".join(f"{row},{row % 2},{row % 3}\n" for row in range(30)))
    data = csv(path, targets="y", client="who", scale="unit")
    assert data.clients.names == ("0", "1", "2") and data.classes == 2 and data.name == "people"
    assert data.input_shape == (1,) and data.train.inputs.max() == 1
    made_up = csv(path, targets="y", inputs=["x"], partition="dirichlet", clients=4, new=1)
    assert made_up.population == 3 and made_up.new.train.population == 1


@pytest.mark.parametrize("content, options, sentence", [
    (ROWS, {"targets": "sik"}, r"unknown column in .*people.csv: 'sik'. Did you mean 'sick'\? Known: age, height"),
    (ROWS, {"targets": "sick", "client": "whom"}, "'whom'. Did you mean 'who'"),
    (ROWS, {"targets": "sick", "time": "day"}, "unknown column in .*people.csv: 'day'"),
    (ROWS, {"targets": "sick", "inputs": ["age", "weight"]}, "'weight'"),
    (ROWS, {"targets": "sick"}, r"column 'who' in .*people.csv holds 'ann' in row 0 \(from 0\), where a number"),
    (ROWS.replace("25", ""), {"targets": "sick", "client": "who"}, r"column 'age' .* holds '' in row 2 \(from 0\)"),
    (ROWS + "1,ann,2\n", {"targets": "sick"}, r"line 5 of .*people.csv has 3 values for 4 columns \(age, who"),
    (ROWS, {"targets": "sick", "time": "who", "inputs": "age"}, "'who' .* holds neither numbers nor dates"),
    ("x,y,t\n1,2,2026-01-01\n1,3,\n", {"targets": "y", "time": "t"}, "'t' in .*people.csv has no date in row 1"),
    ("y\n1\n2\n", {"targets": "y"}, "no column of .*people.csv is left for the inputs"),
    ("x,x,y\n1,2,3\n", {"targets": "y"}, "header of .*people.csv is x, x, y; give every column a name of its own"),
    ("x,y\n", {"targets": "y"}, "people.csv holds no rows"),
    ("", {"targets": "y"}, "people.csv holds no rows"),
    ('x,y\n1,"2\n', {"targets": "y"}, "line 2 of .*people.csv"),
    (b"x,y\n\xff,1\n", {"targets": "y"}, "cannot read .*people.csv: it is not UTF-8 text"),
    (ROWS, {"targets": "sick", "separator": "::"}, "separator is '::'; give a single character"),
    (ROWS, {"targets": "height", "inputs": "age"}, "targets in .*people.csv hold 1.5, which is no label"),
])
def test_bad_files_are_refused_by_name(file, content, options, sentence):
    with pytest.raises(InputError, match=sentence) as error:
        read_csv(file(content), **options)
    assert "\n" not in str(error.value)


def test_not_a_number_is_refused_with_its_client(file):
    with pytest.raises(InputError, match=r"inputs hold nan in row 1 \(from 0\) of client 'ann'"):
        csv(file(ROWS.replace("25", "nan")), targets="sick", client="who")
