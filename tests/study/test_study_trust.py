"""Files of others run no code: a study calls marked parts only, a run folder imports nothing, no file is unpickled."""

import io
import json
import pickle
import re
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import cantons as ct
from cantons.cli.main import cantons
from cantons.study.read import check_study
from cantons.study.registry import REGISTRY, make, part

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def finished(labels, tmp_path_factory):
    path = tmp_path_factory.mktemp("finished") / "run"
    ct.run(ct.logistic(labels), labels, ct.fedavg(), rounds=1, aggregate=ct.mean(), out=path)
    return path


@pytest.fixture
def run(finished, tmp_path, monkeypatch):
    """A copy of a finished run, beside a module that leaves a file when it is imported, and one when it is called."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    Path("evil.py").write_text("from pathlib import Path\nPath('imported').touch()\n"
                               "def part(*args, **options): Path('called').touch()\n")
    np.save("rows.npy", np.zeros((1, 4), np.float32))
    yield Path(shutil.copytree(finished, tmp_path / "run"))
    sys.modules.pop("evil", None)


@pytest.mark.parametrize("kind", REGISTRY)
@pytest.mark.parametrize("name", ["os:system", "json:loads", "builtins:print", "builtins:eval", "evil:part"])
def test_what_is_not_marked_is_not_called(kind, name, run):
    with pytest.raises(ct.InputError, match=f"{name} is not marked as (an? )?{kind}, so it is not called; .* @cantons"):
        part(kind, name)
    with pytest.raises(ct.InputError, match="is not marked"):
        make(kind, {"name": name, "command": "touch called"})
    assert not Path("called").exists()


@pytest.mark.parametrize("table", [
    {"problem": "os:system"}, {"data": {"name": "os:system", "command": "touch called"}}, {"clock": "builtins:print"},
    {"problem": {"name": "classification", "model": "builtins:eval"}}, {"engine": "subprocess:Popen"},
    {"aggregate": "builtins:print"}, {"algorithm": "json:loads"}])
def test_a_study_that_names_no_part_is_refused_when_it_is_read(table):
    study = {"rounds": 1, "data": "digits", "problem": "logistic", "algorithm": "fedavg"}
    with pytest.raises(ct.InputError, match="odd.toml: .*(is not marked as|is no engine)"):
        check_study({**study, **table}, "odd.toml")


@pytest.mark.parametrize("name", [":", ".x:y", "x:", ":y", "a b:c", "x:y.z", "x:y:z", "\0:x"])
def test_a_name_that_is_no_name_is_refused_in_a_sentence(name):
    with pytest.raises(ct.InputError, match="write module:function"):
        part("problem", name)


def test_marked_parts_are_found_and_those_of_another_kind_refused():
    assert part("data", "cantons.data:csv") is ct.csv
    assert part("engine", "cantons.engine:Plain") is ct.Plain
    assert part("problem", "cantons.problem:logistic") is ct.logistic
    with pytest.raises(ct.InputError, match=r"is for \[algorithm\], not for \[clock\]"):
        part("clock", "cantons.algorithm:fedavg")


def plant(run, *keys, value):
    """Write a name into the study of a run folder."""
    file = run / "study.json"
    study = table = json.loads(file.read_text())
    for key in keys[:-1]:
        table = table[key]
    table[keys[-1]] = value
    file.write_text(json.dumps(study))


@pytest.mark.parametrize("keys, value", [
    (("data", "made_by"), {"name": "evil:part"}),
    (("problem",), {"name": "evil:part"}),
    (("problem", "model"), {"name": "evil:part"}),
    (("problem", "model"), "evil:part"),
    (("algorithm",), {"name": "evil:part"}),
    (("clock",), {"name": "evil:part"}),
    (("aggregate",), {"name": "evil:part"}),
])
def test_a_run_folder_imports_nothing_without_trust(keys, value, run):
    plant(run, *keys, value=value)
    with pytest.raises(ct.InputError, match=r"names parts outside cantons: evil:part \(\w+\).*trust=True"):
        ct.load(run)
    for words in (["predict", "rows.npy", "--run", "run"], ["export", "--run", "run"]):
        done = CliRunner().invoke(cantons, words)
        assert done.exit_code == 1 and "evil:part" in done.output and "--trust" in done.output
    CliRunner().invoke(cantons, ["report", "run", "--out", "page.html"])
    assert not Path("imported").exists() and not Path("export").exists()


def test_with_trust_it_is_imported_and_still_not_called_if_it_is_not_marked(run):
    plant(run, "algorithm", value={"name": "evil:part"})
    with pytest.raises(ct.InputError, match="evil:part is not marked as an algorithm"):
        ct.load(run, trust=True)
    done = CliRunner().invoke(cantons, ["predict", "rows.npy", "--run", "run", "--trust"])
    assert done.exit_code == 1 and "is not marked" in done.output
    assert Path("imported").exists() and not Path("called").exists()


def test_a_part_that_is_given_need_not_be_trusted(run):
    plant(run, "algorithm", value={"name": "evil:part"})
    with pytest.raises(ct.InputError, match="holds another study: its algorithm"):  # the checkpoint knows better
        ct.load(run, algorithm=ct.fedavg())
    assert not Path("imported").exists()


def test_nothing_is_unpickled(run, monkeypatch):
    def refuse(*args, **options):
        raise AssertionError("something is unpickled")

    for name in ("load", "loads", "Unpickler"):
        monkeypatch.setattr(pickle, name, refuse)
    monkeypatch.setattr(np.lib._format_impl.pickle, "load", refuse)
    assert ct.load(run).outputs(np.zeros((1, 4))).shape == (1, 3)
    pickled = io.BytesIO()
    np.save(pickled, np.array([{}, 1], object))
    Path("rows.npy").write_bytes(pickled.getvalue())
    np.savez("rows.npz", x=np.array([{}, 1], object), y=np.zeros(2), who=np.zeros(2))
    with pytest.raises(ct.InputError, match="pickle"):
        ct.npz("rows.npz", client="who")
    done = CliRunner().invoke(cantons, ["predict", "rows.npy", "--run", "run"])
    assert done.exit_code == 1 and isinstance(done.exception, SystemExit), done.output


def test_no_file_of_ours_can_unpickle():
    for file in sorted((ROOT / "cantons").rglob("*.py")):
        text = file.read_text()
        assert not re.search(r"^\s*(import|from) (pickle|cloudpickle|dill|joblib|shelve|marshal)", text, re.M), file
        assert not re.search(r"allow_pickle=True|torch\.load\(|read_pickle|trust_remote_code", text), file
        for call in re.findall(r"np\.load\([^\n]*", text):
            assert "allow_pickle=False" in call, f"{file}: {call}"
