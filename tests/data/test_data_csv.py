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
    (ROWS, {"targets": "sick"}, r"column 'who' in .*people.csv holds 'ann' in line 2, where a number"),
    (ROWS.replace("25", ""), {"targets": "sick", "client": "who"}, r"column 'age' .* has no value in line 4"),
    (ROWS + "1,ann,2\n", {"targets": "sick"}, r"line 5 of .*people.csv has 3 values for 4 columns \(age, who"),
    (ROWS, {"targets": "sick", "time": "who", "inputs": "age"}, "'who' .* holds neither numbers nor dates"),
    ("x,y,t\n1,2,2026-01-01\n1,3,\n", {"targets": "y", "time": "t"}, "'t' in .*people.csv has no date in line 3"),
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


def test_not_a_number_is_refused_with_its_line(file):
    with pytest.raises(InputError, match=r"column 'age' in .*people.csv has no value in line 4"):
        csv(file(ROWS.replace("25", "nan")), targets="sick", client="who")


SITES = {"north": "x,y\n1,no\n2,yes\n3,no\n", "south": "y,x\nyes,4\nno,5.5\n", "west": "x,y\n6,no\n7,yes\n"}


@pytest.fixture
def sites(tmp_path):
    """A folder with a file for each client, and what is none."""
    folder = tmp_path / "sites"
    folder.mkdir()
    for name, content in SITES.items():
        (folder / f"{name}.csv").write_text(content)
    (folder / "notes.txt").write_text("not a table")
    (folder / "._west.csv").write_bytes(b"\xff")
    return folder


def test_a_list_a_folder_and_a_pattern_of_files_are_the_same_clients(sites):
    files = [sites / f"{name}.csv" for name in SITES]
    found = [csv(path, targets="y", test=0) for path in (files, list(map(str, files)), sites, sites / "*.csv")]
    for data in found:
        assert data.clients.names == ("north", "south", "west") and data.name == "sites"
        assert data.train.sizes.tolist() == [3, 2, 2]
        np.testing.assert_array_equal(data.train.inputs[:, 0], [1, 2, 3, 4, 5.5, 6, 7])
        np.testing.assert_array_equal(data.train.targets, [0, 1, 0, 1, 0, 0, 1])
    assert found[0].spec["path"] == [str(file) for file in files] and found[3].spec["path"] == str(sites / "*.csv")


def test_files_of_one_name_are_told_apart_by_their_folders(tmp_path):
    for place in ("a", "b"):
        (tmp_path / place).mkdir()
        (tmp_path / place / "rows.csv").write_text(SITES["north"])
    assert csv(str(tmp_path / "*" / "rows.csv"), targets="y").clients.names == ("a/rows", "b/rows")


def test_rows_of_several_files_may_be_divided_otherwise(sites):
    assert csv(sites, targets="y", partition="iid", clients=2, test=0).population == 2
    for name in SITES:
        lines = (sites / f"{name}.csv").read_text().splitlines()
        more = [f"who,{lines[0]}", *(f"{len(line)},{line}" for line in lines[1:])]
        (sites / f"{name}.csv").write_text("\n".join(more))
    assert csv(sites, targets="y", client="who", test=0).clients.names == ("4", "5", "6")


def test_ignored_columns_are_left_alone(file):
    path = file(ROWS)
    np.testing.assert_array_equal(read_csv(path, targets="sick", ignore=["who", "age"]).inputs, [[1.5], [1.75], [2]])
    data = csv(path, targets="sick", ignore=["who"], partition="iid", clients=1, test=0)
    assert data.input_shape == (2,) and data.spec["ignore"] == ["who"]


@pytest.mark.parametrize("change, options, sentence", [
    ({"south": "y,x\nyes,4\n\nno,five\n"}, {}, r"column 'x' in .*sites holds 'five' in line 4 of .*south.csv, where"),
    ({"south": 'y,x\n"yes",4\n"no\n",inf\n'}, {}, r"inputs hold inf in line 3 of .*south.csv"),
    ({"west": "x,y,z\n6,no,1\n"}, {}, r"north.csv has no column 'z', which .*west.csv has; give every file the same"),
    ({"west": "y\nno\n"}, {}, "west.csv has no column 'x', which .*north.csv has"),
    ({"west": "x,y\n1\n"}, {}, "line 2 of .*west.csv has 1 values for 2 columns"),
    ({"west": ""}, {}, "west.csv holds no rows"),
    ({}, {"ignore": ["z"]}, "unknown column in .*sites: 'z'"),
    ({}, {"ignore": ["y"]}, "ignore names 'y', which is also to be used"),
    ({}, {"path": "sites/*.txt.gz"}, r"no file fits the pattern sites/\*.txt.gz"),
    ({}, {"path": []}, "path is an empty list"),
    ({}, {"path": ["sites/north.csv", "sites/east.csv"]}, "cannot read sites/east.csv: No such file"),
    ({}, {"path": ["sites/north.csv", "sites"]}, "path names sites/north.csv twice"),
])
def test_what_is_wrong_in_one_of_several_files_is_named_with_its_line(sites, monkeypatch, change, options, sentence):
    monkeypatch.chdir(sites.parent)
    for name, content in change.items():
        (sites / f"{name}.csv").write_text(content)
    with pytest.raises(InputError, match=sentence) as error:
        csv(**({"path": sites, "targets": "y"} | options))
    assert "\n" not in str(error.value)
