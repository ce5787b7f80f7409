"""What all named data has in common: plain options, a record of them, and one sentence when something is missing."""

import inspect
import json
import sys
import typing

import jax
import numpy as np
import pytest

from cantons.data import DATA, csv, hdf5, huggingface, parquet
from cantons.errors import InputError
from cantons.options import meanings, options_of
from cantons.study.read import check_study

FILES = {name: make for name, make in DATA.items() if "path" in inspect.signature(make).parameters}
REQUIRED = {"libsvm": {"clients": 2}, "csv": {"targets": "y"}, "parquet": {"targets": "y"},
            "bandit_log": {"client": "who"}, "huggingface": {"inputs": "x", "targets": "y"},
            "stream": {"targets": "y", "client": "who", "time": "when"}}
EXTRAS = {"hdf5": "h5py", "parquet": "pyarrow", "huggingface": "datasets"}


@pytest.mark.parametrize("make", DATA.values(), ids=DATA)
def test_every_option_is_typed_and_has_a_plain_default(make):
    for parameter in options_of(make).parameters:
        assert parameter.annotation is not typing.Any
        if parameter.default is not inspect.Parameter.empty:
            assert parameter.default is None or isinstance(parameter.default, str | int | float | bool)


@pytest.mark.parametrize("make", DATA.values(), ids=DATA)
def test_every_option_has_a_meaning(make):
    plain = inspect.unwrap(make)
    groups = options_of(plain).groups.values()
    names = [option.name for option in options_of(make).parameters]
    told = meanings(plain.__doc__, *(group.__doc__ for group in groups), names=names)
    assert list(names) == [name for name in names if name in told]


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file_is_refused_by_name(name, tmp_path):
    pytest.importorskip(EXTRAS.get(name, "numpy"))
    with pytest.raises(InputError, match=r"^cannot read .*none.here: No such file or directory.$"):
        FILES[name](tmp_path / "none.here", **REQUIRED.get(name, {}))


@pytest.mark.parametrize("make, package, extra, options", [
    (hdf5, "h5py", "hdf5", {}),
    (parquet, "pyarrow", "parquet", {"targets": "y"}),
    (huggingface, "datasets", "hf", {"inputs": "x", "targets": "y"}),
])
def test_a_missing_package_is_named_with_its_extra(make, package, extra, options, tmp_path, monkeypatch):
    for module in [package, *(name for name in sys.modules if name.startswith(f"{package}."))]:
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(InputError, match=rf"needs {package}, .* not installed: pip install 'cantons\[{extra}\]'$"):
        make(tmp_path, **options)


@pytest.fixture
def table(tmp_path):
    rows = [f"{row},{row * row},{'no' if row % 3 else 'yes'},{row % 4}" for row in range(40)]
    (tmp_path / "some.csv").write_text("\n".join(["a,b,good,who", *rows]))
    return tmp_path / "some.csv"


def test_the_record_makes_the_same_data_again(table, monkeypatch):
    monkeypatch.chdir(table.parent)
    data = csv("some.csv", targets="good", inputs=["a", "b"], client="who", new=1, scale="standard", seed=3)
    spec = json.loads(json.dumps(data.spec))
    assert spec["path"] == str(table) and spec["inputs"] == ["a", "b"]
    monkeypatch.chdir("/")
    again = DATA[spec.pop("name")](**spec)
    jax.tree.map(np.testing.assert_array_equal, (again.train, again.test), (data.train, data.test))
    assert again.clients.names == data.clients.names and again.spec == data.spec


def test_a_study_can_name_columns(table):
    def study(**options):
        data = {"name": "cantons.data:csv", "path": "some.csv", "targets": "good", "client": "who", **options}
        raw = {"rounds": 1, "data": data, "problem": {"name": "logistic"}, "algorithm": {"name": "fedavg"}}
        return check_study(raw, "some.toml", table.parent)

    assert study(inputs=["a"]).tables["data"]["path"] == str(table)
    assert study(inputs="a").tables["data"]["inputs"] == "a"
    with pytest.raises(InputError, match="some.toml: data.inputs = 3; give a valid string, or a valid list"):
        study(inputs=3)
