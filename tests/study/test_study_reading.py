"""Run folders and inputs as strangers left them: refused in a sentence that names the file, never a traceback."""

import json
import shutil
import zipfile
from types import SimpleNamespace

import jax
import numpy as np
import pytest

import cantons as ct
from cantons import InputError
from cantons.cli.predict import outputs_for
from cantons.data.encoding import Encoding
from cantons.problem import Shapes
from cantons.reporting.collect import collect
from cantons.reporting.page import write_report
from cantons.study.client_model import ClientModel
from cantons.study.load import load
from cantons.study.result import Trained

STUDY = {
    "name": "study", "seed": 0, "rounds": 20, "precision": "float32", "validation": None, "aggregate": None,
    "algorithm": {"name": "fedavg", "step_size": 0.1}, "clock": {"name": "rounds", "cohort": None},
    "problem": {"name": "classification", "input_shape": [3], "classes": 2, "split": "none", "l2": 0.0,
                "model": {"name": "linear", "bias": True}},
    "data": {"name": "toy", "made_by": {"name": "csv", "path": "gone.csv", "targets": "y"}, "population": 3,
             "examples": 30, "test_set": "rows held out", "checksum": 7},
}
PLACE = {"python": "3.11.0", "system": "Linux", "machine": "x86_64", "cores": 2, "versions": {"jax": "0.10.2"},
         "devices": ["cpu", "cpu"], "platform": "cpu"}
ROW = {"round": 0, "test.personal.accuracy.mean": 0.5, "test.shared.accuracy.mean": 0.5, "bytes_per_client": 1.0}
CLIENTS = "client,test.personal.accuracy,test.shared.accuracy,test_examples\nann,1,1,5\nbob,0,1,5\neve,1,1,5\n"


@pytest.fixture
def run(tmp_path):
    """`run(file=content, ...)`: a run folder of three clients in which some files are others."""
    def write(**contents):
        folder = tmp_path / "run"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        sound = {"study.json": json.dumps(STUDY), "environment.json": json.dumps(PLACE), "clients.csv": CLIENTS,
                 "metrics.jsonl": json.dumps(ROW) + "\n" + json.dumps(ROW | {"round": 20}) + "\n"}
        for name, content in (sound | {name.replace("_", "."): content for name, content in contents.items()}).items():
            (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
        return folder
    return write


def changed(table, key, value):
    """The table with another value under a dotted key."""
    first, _, rest = key.partition(".")
    return table | {first: changed(table[first], rest, value) if rest else value}


NO_TABLES = [b"", b"null", b"[]", b"3", b'"x"', b"{", b"\xff\xfe", b"[" * 100_000, b'{"a": ' * 900 + b"1" + b"}" * 900,
             b'{"a": ' + b"9" * 5000 + b"}", b'{"name": "\\ud800"}', b"{}"]


@pytest.mark.parametrize("content", NO_TABLES, ids=range(len(NO_TABLES)))
@pytest.mark.parametrize("file", ["study_json", "environment_json"])
def test_a_file_without_a_table_is_named(run, file, content):
    folder = run(**{file: content})
    with pytest.raises(InputError, match=f"run.*{file.replace('_', '.')}"):
        collect([folder])
    if file == "study_json":
        with pytest.raises(InputError, match=r"run.*study\.json"):
            load(folder)


@pytest.mark.parametrize("key, value", [
    ("seed", None), ("seed", -1), ("seed", 10**30), ("rounds", "x"), ("rounds", True), ("name", 3), ("algorithm", []),
    ("algorithm.name", None), ("data", "x"), ("data.population", 1.5), ("data.examples", {}), ("data.checksum", None)])
def test_a_key_that_holds_something_else_is_named_with_its_value(run, key, value):
    folder = run(study_json=json.dumps(changed(STUDY, key, value)))
    for read in (lambda: collect([folder]), lambda: load(folder)):
        with pytest.raises(InputError) as error:
            read()
        assert str(folder / "study.json") in str(error.value) and f"{key} is {json.dumps(value)}" in str(error.value)


@pytest.mark.parametrize("key, value", [
    ("precision", "float16"), ("precision", None), ("validation", "x"), ("clock", None), ("clock.name", 3),
    ("clock.name", "clok"), ("clock.cohort", "x"), ("clock.odd", 1), ("problem", 3), ("problem.name", "x"),
    ("problem.input_shape", None), ("problem.input_shape", [1e300]), ("problem.model", None), ("problem.model", {}),
    ("problem.odd", 1), ("problem.l2", "x"), ("algorithm.name", ["a"]), ("algorithm.step_size", {"name": 3}),
    ("algorithm.odd", 1), ("aggregate", 3), ("aggregate", {"name": 3}), ("data.made_by", "x")])
def test_a_run_that_cannot_be_made_again_is_named(run, key, value):
    with pytest.raises(InputError, match="(run.*study.json)|(cannot rebuild the algorithm of .*run)"):
        load(run(study_json=json.dumps(changed(STUDY, key, value))))


@pytest.mark.parametrize("file, content, sentence", [
    ("metrics_jsonl", "[]\n", "line 1 of .*metrics.jsonl holds '.*', where a table"),
    ("metrics_jsonl", "{}\n", "line 1 of .*metrics.jsonl has the round null"),
    ("metrics_jsonl", '{"round": 3}\n{"round": 3}\n', "line 2 of .*metrics.jsonl has the round 3"),
    ("metrics_jsonl", '{"round": "x"}\n', 'line 1 of .*metrics.jsonl has the round "x"'),
    ("metrics_jsonl", json.dumps(ROW) + "\nxx\n" + json.dumps(ROW) + "\n", "line 2 of .*metrics.jsonl should be JSON"),
    ("metrics_jsonl", b"\xff\n", "cannot read .*metrics.jsonl: it is not UTF-8"),
    ("metrics_jsonl", '{"round": 0', "run has no evaluation yet"),
    ("metrics_jsonl", '{"round": 0, "x": ' + "[" * 200 + "]" * 200 + "}\n", "metrics.jsonl nests its tables more than"),
    ("metrics_jsonl", json.dumps(ROW | {"test.personal.accuracy.mean": "x"}) + "\n",
     "test.personal.accuracy.mean after round 0 in .*metrics.jsonl is 'x', where a number belongs"),
    ("clients_csv", "", "the header of .*clients.csv is ''"),
    ("clients_csv", "client,client\na,b\n", "the header of .*clients.csv is 'client, client'"),
    ("clients_csv", CLIENTS + "dee\n", r"row 3 \(from 0\) of .*clients.csv has 1 values for 4 columns"),
    ("clients_csv", CLIENTS + "dee,1,1,5,9\n", r"row 3 \(from 0\) of .*clients.csv has 5 values for 4 columns"),
    ("clients_csv", CLIENTS + "dee,1,1,5\n", "clients.csv has 4 rows, and its study.json speaks of 3 clients"),
    ("clients_csv", CLIENTS.replace("bob,0", "bob,x"), r"test.personal.accuracy in row 1 \(from 0\) of .*clients.csv"),
    ("clients_csv", CLIENTS.replace("1,5", "1,x"), r"test_examples in row 0 \(from 0\) of .*clients.csv is 'x'"),
    ("clients_csv", CLIENTS.replace("test.shared", "odd"), "clients.csv has no column test.shared.accuracy"),
    ("clients_csv", b"client\n\xff\n", "cannot read .*clients.csv: it is not UTF-8"),
    ("clients_csv", 'client\n"a\n', "cannot read .*clients.csv, which should be CSV: unexpected end of data"),
])
def test_what_a_report_reads_is_checked(run, file, content, sentence):
    folder = run(**{file: content})
    with pytest.raises(InputError, match=sentence):
        write_report([folder], folder / "report.html")


def test_names_may_hold_any_sign(run):
    [group] = collect([run(clients_csv=CLIENTS.replace("ann", '"a\u2028n\n,n"'))])
    assert group.runs[0].clients["client"] == ["a\u2028n\n,n", "bob", "eve"]


ECHO = ClientModel(None, ct.logistic(Shapes((3,), 2)), ((), ()), Encoding(shape=(3,)),
                   apply=lambda shared, private, inputs: inputs)  # what it computes is what it was given
ROWS = np.arange(6.0).reshape(2, 3)


def written(path, save, values):
    save(path, **values) if isinstance(values, dict) else save(path, values)
    return path.read_bytes()


@pytest.mark.parametrize("name, content, sentence", [
    ("a.npz", b"", "a.npz: it is not an npz file"), ("a.npy", b"", "cannot read .*a.npy"),
    ("a.npy", b"\x93NUMPY", "cannot read .*a.npy"), ("a.npz", b"PK\x03\x04", "a.npz: it is not an npz file"),
    ("a.csv", b"", "a.csv holds no rows"), ("a.csv", b"a,b,c\n", "a.csv holds no rows"),
    ("a.csv", b"a,b,c\n1,2,x\n", "a.csv: .* 'x' in line 2"), ("a.csv", b"\xff\n", "it is not UTF-8"),
    ("a.csv", b'a,b\n"1\n', "cannot read line 2 of .*a.csv"), ("a.csv", b"1,2\n3,4\n", r"a.csv: the rows have shape"),
    ("a.txt", b"1,2,3\n", "give a .npy, .npz or .csv file"),
])
def test_files_that_are_no_inputs_are_named(run, tmp_path, name, content, sentence):
    folder = run()
    (folder / name).write_bytes(content)
    with pytest.raises(InputError, match=sentence):
        outputs_for(ECHO, folder / name, "x", ",")


def test_damaged_and_renamed_arrays_are_named(run):
    folder = run()
    archive = written(folder / "a.npz", np.savez, {"x": ROWS})
    array = written(folder / "a.npy", np.save, ROWS)
    flipped = bytearray(archive)
    flipped[len(archive) // 2] ^= 255
    for name, content in (("a.npz", array), ("a.npy", archive), ("a.npz", archive[:-40]), ("a.npy", array[:-8]),
                          ("a.npz", bytes(flipped))):
        (folder / name).write_bytes(content)
        with pytest.raises(InputError, match=name):
            outputs_for(ECHO, folder / name, "x", ",")
    with zipfile.ZipFile(folder / "a.npz", "w") as file:
        file.writestr("x", "no array")
    with pytest.raises(InputError, match="'x' in .*a.npz is no array"):
        outputs_for(ECHO, folder / "a.npz", "x", ",")
    for values in (np.array([["a", "b", "c"]]), ROWS * 1j, np.array([{}, {}], object), np.zeros((0, 3)), np.array(3.0),
                   np.full((2, 3), 2**62), np.full((2, 3), 1e300), np.full((2, 3), np.nan), np.zeros((2, 4))):
        written(folder / "a.npz", np.savez, {"x": values})
        with pytest.raises(InputError, match=r"a.npz"):
            outputs_for(ECHO, folder / "a.npz", "x", ",")


def test_a_csv_file_with_a_header_serves_a_run_that_is_not_from_csv(run):
    folder = run(study_json=json.dumps(changed(STUDY, "data.made_by", None)))
    (folder / "a.csv").write_text("a,b,c\n1,2,3\n")
    assert outputs_for(ECHO, folder / "a.csv", "x", ",").tolist() == [[1, 2, 3]]
    (folder / "a.csv").write_text("1,2,3\n")
    assert outputs_for(ECHO, folder / "a.csv", "x", ",").tolist() == [[1, 2, 3]]


@pytest.mark.parametrize("inputs, sentence", [
    (np.full((1, 3), 2**62), r"inputs hold 4611686018427387904 in row 0 \(from 0\)"),
    (np.full((1, 3), 1e300), r"inputs hold 1e\+300 in row 0"),
    (np.zeros((2, 4)), r"shape \(2, 4\), and the model was trained on rows of shape \(3,\)"),
    (np.zeros((2, 3), object), "inputs are of type object"), (np.zeros((2, 3), complex), "inputs are of type complex"),
    ([[1, 2], [3]], "inputs cannot be made an array"), (np.array("abc"), "inputs are of type"),
    (3.0, "inputs are the single value 3.0"),
])
def test_inputs_are_never_changed_to_fit(inputs, sentence):
    problem = ct.logistic(ct.from_clients({"ann": (np.zeros((2, 3)), np.arange(2))}, classes=2))
    shared, private = problem.init(jax.random.key(0))
    snapshot = SimpleNamespace(state=SimpleNamespace(server=SimpleNamespace(shared=shared)), start_private=private)
    trained = Trained(problem, None, snapshot, None)
    with pytest.raises(InputError, match=sentence):
        trained.outputs(inputs, encoded=True)
    assert trained.outputs([[1, 2, 3]], encoded=True).shape == (1, 2)


@pytest.mark.parametrize("client", [[], 1.5, "²", "dee", 7, -1, True, np.zeros(2), "9" * 30])
def test_a_client_that_is_not_there_is_refused(numbers, client):
    with pytest.raises(InputError, match="client"):
        Trained(None, None, None, numbers)._index(client)
