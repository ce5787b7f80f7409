"""Text and missing values become numbers by what training rows hold, and new rows become the same numbers."""

import json
import warnings

import numpy as np
import pytest

from cantons.data import csv, from_clients, read_csv
from cantons.data.encoding import Encoding
from cantons.errors import InputError, Notice
from cantons.study.numpy_model import Model

RANDOM = np.random.default_rng(3)
ROWS = 60
WARDS = ["icu", "er", "day, care", "x-ray"]


@pytest.fixture(scope="module")
def columns():
    """Raw columns of 6 sites; the last site alone has the ward "attic"."""
    site = np.arange(ROWS) % 6
    ward = [WARDS[row] for row in RANDOM.integers(0, 4, ROWS)]
    age = [str(value) for value in RANDOM.integers(20, 90, ROWS)]
    pressure = [f"{value:.3f}" for value in RANDOM.normal(120, 15, ROWS) + 30 * site]
    for row in RANDOM.choice(ROWS, 15, replace=False):
        pressure[row] = ["", "NA", "nan"][row % 3]
    for row in np.flatnonzero(site == 5)[:3]:
        ward[row] = "attic"
    ward[7] = ""
    return {"age": age, "ward": ward, "pressure": pressure, "floor": [str(row % 3) for row in range(ROWS)],
            "site": [f"s{number}" for number in site], "ill": ["yes" if row % 2 else "no" for row in range(ROWS)]}


@pytest.fixture(scope="module")
def path(columns, tmp_path_factory):
    path = tmp_path_factory.mktemp("columns") / "patients.csv"
    rows = zip(*columns.values(), strict=True)
    path.write_text("\n".join([",".join(columns), *(",".join(f'"{value}"' for value in row) for row in rows)]))
    return path


def back(encoding):
    return Encoding.from_json(json.loads(json.dumps(encoding.to_json())))


def loader(encoding):
    """What an exported model encodes rows with."""
    model = Model.__new__(Model)
    model.about = {"encoding": json.loads(json.dumps(encoding.to_json())), "inputs": {"dtype": "float32"}}
    return model


def populations(data):
    return [data.clients] + ([data.new] if data.new else [])


def rows_of(population, client):
    """All inputs of a client, in no particular order."""
    found = []
    for rows in (population.train, population.test):
        start = rows.starts[client]
        found.append(rows.inputs[start : start + rows.sizes[client]])
    return np.concatenate(found)


def in_order(rows):
    return rows[np.lexsort(rows.T)]


@pytest.mark.parametrize("over", ["all", "client"])
@pytest.mark.parametrize("scale", ["none", "unit", "standard"])
def test_raw_rows_of_every_client_become_the_bits_of_its_inputs(path, columns, scale, over):
    if (scale, over) == ("none", "client"):
        with pytest.raises(InputError, match="scale_over = \"client\" needs a scale"):
            csv(path, targets="ill", client="site", missing="mean", scale_over="client")
        return
    data = csv(path, targets="ill", client="site", missing="mean", categorical=["floor"], scale=scale, scale_over=over,
               new=2, test=0.25)
    encoding = back(data.encoding)
    assert encoding.column_names == ("age", "ward", "pressure", "floor")
    assert len(encoding.feature_names) == data.input_shape[0] and "floor = 2" in encoding.feature_names
    for population in populations(data):
        for client, name in enumerate(population.names):
            own = {key: [value for value, site in zip(values, columns["site"], strict=True) if site == name]
                   for key, values in columns.items()}
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", Notice)  # a value that no training row has
                encoded = encoding.of(name).encode(own)
            own["pressure"] = [float(value) if value not in ("", "NA", "nan") else None for value in own["pressure"]]
            alone = loader(encoding.of(name)).encode(own)
            np.testing.assert_allclose(alone, encoded, rtol=1e-6, atol=1e-6)
            assert encoded.dtype == data.train.inputs.dtype
            np.testing.assert_array_equal(in_order(encoded), in_order(rows_of(population, client)))


def test_only_training_rows_of_training_clients_say_which_values_there_are(path, columns):
    data = csv(path, targets="ill", client="site", missing="mean", new=5, test=0.5)
    (client,) = data.clients.names
    ward, pressure = (next(column for column in data.encoding.columns if column.name == name)
                      for name in ("ward", "pressure"))
    own = [row for row, site in enumerate(columns["site"]) if site == client]
    assert set(ward.values) <= {columns["ward"][row] for row in own} - {""}
    features = list(data.encoding.feature_names)
    marks = data.train.inputs[:, [place for place, name in enumerate(features) if name.startswith("ward")]]
    assert (marks.sum(axis=1) == 1).all() and (marks.sum(axis=0) > 0).all()
    known = [value for value in data.train.inputs[:, features.index("pressure")].tolist() if value != pressure.fill]
    np.testing.assert_allclose(pressure.fill, np.mean(known))
    unseen = sum(value not in (*ward.values, "") for value, site in zip(columns["ward"], columns["site"], strict=True)
                 if site != client)
    said = next(note for note in data.notes if note.startswith("values of ward that no training row has"))
    assert f"{unseen} rows of new clients" in said and "one-hot: ward" in data.describe()


def test_a_client_s_own_scale_is_that_of_its_training_rows(path):
    data = csv(path, targets="ill", client="site", missing="mean", scale="standard", scale_over="client", new=2)
    features = list(data.encoding.feature_names)
    places = [features.index("age"), features.index("pressure")]
    for population in populations(data):
        for client in range(len(population.names)):
            start = population.train.starts[client]
            own = population.train.inputs[start : start + population.train.sizes[client]]
            np.testing.assert_allclose(own[:, places].mean(axis=0), 0, atol=1e-6)
            np.testing.assert_allclose(own[:, places].std(axis=0), 1, atol=1e-6)
            marks = np.delete(own, places, axis=1)
            assert np.isin(marks, [0, 1]).all()


def test_unseen_and_missing_values_of_new_rows_are_said(path):
    encoding = back(csv(path, targets="ill", client="site", missing="mean").encoding)
    row = {"age": 50, "ward": "moon", "pressure": None, "floor": 2}
    with pytest.warns(Notice, match=r"a value that no training row had, .*: ward \(1 row\)"):
        inputs = encoding.encode([row, row | {"ward": "er", "pressure": 130.0}])
    features = list(encoding.feature_names)
    pressure = encoding.columns[2]
    alone = loader(encoding).encode([[50, "moon", None, 2], [50, "er", 130.0, 2.0]])
    np.testing.assert_array_equal(alone, inputs.astype(np.float32))
    np.testing.assert_array_equal(inputs[:, features.index("pressure")], [pressure.fill, 130])
    np.testing.assert_array_equal(inputs[:, features.index("pressure is missing")], [1, 0])
    np.testing.assert_array_equal(inputs[:, features.index("ward = er")], [0, 1])
    np.testing.assert_array_equal(encoding.encode([[50, "er", 130.0, 2]])[0], inputs[1])
    with pytest.raises(InputError, match="the rows have no column 'ward'"):
        encoding.encode([{"age": 1, "pressure": 2, "floor": 3}])
    with pytest.raises(InputError, match="give 4 values in a row, in this order"):
        encoding.encode([[1, "er", 2]])


@pytest.mark.parametrize("form", ["columns", "dicts", "lists", "numbers"])
def test_an_exported_model_reads_what_a_file_has_as_we_do(columns, path, form):
    """As csv.DictReader and csv.reader give it: words, some of which say that there is no number."""
    options = {"missing": "mean"} | ({"inputs": ["age", "floor"], "scale": "standard"} if form == "numbers" else {})
    encoding = csv(path, targets="ill", client="site", **options).encoding
    names = encoding.column_names
    rows = {name: [*columns[name], " null ", " 7 "] if name == "pressure" else [*columns[name], *columns[name][:2]]
            for name in names}
    dicts = [dict(zip(rows, row, strict=True)) for row in zip(*rows.values(), strict=True)]
    given = {"columns": rows, "lists": [list(row.values()) for row in dicts]}.get(form, dicts)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Notice)
        np.testing.assert_array_equal(loader(encoding).encode(given), encoding.encode(rows).astype(np.float32))
    del dicts[3]["age"]
    with pytest.raises(ValueError, match=f"the rows have no column 'age'; give {', '.join(names)}."):
        loader(encoding).encode(dicts)


@pytest.mark.parametrize("value", ["", "NA", None, np.nan, np.inf, "-inf", "old"])
def test_an_exported_model_refuses_rows_that_we_refuse(path, value):
    row = {"age": value, "ward": "er", "pressure": 1, "floor": "2"}
    for options in ({"inputs": ["age"]}, {"categorical": ["floor"], "missing": "mean"}):
        encoding = csv(path, targets="ill", client="site", **options).encoding
        try:
            inputs = encoding.encode([row])
        except InputError:
            with pytest.raises(ValueError, match="column 'age'"):
                loader(encoding).encode([row])
        else:
            assert "missing" in options and value not in (np.inf, "-inf", "old")
            np.testing.assert_array_equal(loader(encoding).encode([row]), inputs.astype(np.float32))


def test_frames_have_text_and_missing_values_too(columns, path):
    pandas = pytest.importorskip("pandas")
    frame = pandas.read_csv(path)
    parts = {name: part.drop(columns="site") for name, part in frame.groupby("site")}
    one = from_clients(parts, targets="ill", missing="mean", scale="standard", test=0)
    other = csv(path, targets="ill", client="site", missing="mean", scale="standard", test=0)
    assert one.encoding.column_names == other.encoding.column_names
    np.testing.assert_allclose(one.train.inputs, other.train.inputs)
    np.testing.assert_allclose(back(one.encoding).encode(frame), back(other.encoding).encode(columns))


def test_numbers_alone_are_read_as_ever(tmp_path):
    path = tmp_path / "numbers.csv"
    path.write_text("x,z,y,who\n1,2.5,a,p\n3,4,b,q\n5,6,a,p\n")
    table, data = read_csv(path, targets="y", client="who"), csv(path, targets="y", client="who", test=0)
    assert table.raw is None and all(column.plain for column in data.encoding.columns)
    assert data.train.inputs.dtype == table.inputs.dtype
    np.testing.assert_array_equal(data.train.inputs, table.inputs[[0, 2, 1]])


@pytest.mark.parametrize("change, options, sentence", [
    ({}, {}, r"column 'ward' in .*bad.csv has no value in line 9; .* give missing = \"mean\""),
    ({"age": "forty"}, {}, r"column 'age' in .*bad.csv holds 'forty' in line 2, where a number belongs"),
    ({"ill": ""}, {}, r"column 'ill' in .*bad.csv has no value in line 2; remove such rows"),
    ({"site": ""}, {}, r"column 'site' in .*bad.csv has no value in line 2"),
    ({"age": "inf"}, {"missing": "mean"}, "bad.csv: inputs hold inf in line 2"),
    ({}, {"categorical": ["flor"]}, "in categorical: 'flor'. Did you mean 'floor'"),
    ({}, {"missing": "median"}, "missing is 'median'"),
])
def test_what_cannot_be_encoded_is_named_with_its_line(path, tmp_path, columns, change, options, sentence):
    lines = path.read_text().splitlines()
    first = [change.get(name, values[0]) for name, values in columns.items()]
    bad = tmp_path / "bad.csv"
    bad.write_text("\n".join([lines[0], ",".join(f'"{value}"' for value in first), *lines[2:]]))
    with pytest.raises(InputError, match=sentence):
        csv(bad, targets="ill", client="site", **options)


def test_a_column_of_names_is_no_category(tmp_path):
    path = tmp_path / "names.csv"
    path.write_text("name,y,who\n" + "".join(f"person{row},{row % 2},{row % 3}\n" for row in range(150)))
    with pytest.raises(InputError, match="'name' in .* holds 150 different texts; leave it out by ignore"):
        csv(path, targets="y", client="who")
    data = csv(path, targets="y", client="who", categorical=["name"], test=0)
    assert data.input_shape == (150,)
