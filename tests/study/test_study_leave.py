"""Models leave: they predict on raw rows where the training file is gone, and where there is no cantons at all."""

import csv as standard_csv
import gc
import importlib.util
import itertools
import json
import os
import subprocess
import sys
import weakref
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest
from click.testing import CliRunner
from jax import export

import cantons as ct
from cantons.cli.main import cantons
from cantons.data.encoding import Column, Encoding, Scaling
from cantons.errors import Notice
from cantons.problem import Shapes
from cantons.study.client_model import ClientModel
from cantons.study.export_model import export_model
from cantons.study.kept import NAME, Kept, read_kept
from cantons.study.numpy_model import Model
from cantons.study.own_rows import refuse_own_rows

# Where flatbuffers is not installed, programs are left out with a notice, and the tests of programs are skipped.
pytestmark = pytest.mark.filterwarnings("ignore:model.jax is left out")
PROGRAMS = importlib.util.find_spec("flatbuffers") is not None
RANDOM = np.random.default_rng(0)
ROWS = 80
AGE, DOSE = RANDOM.integers(20, 90, ROWS), RANDOM.normal(1e4, 300, ROWS)
COLUMNS = {"age": AGE, "site": [f"s{row % 4}" for row in range(ROWS)], "dose": DOSE,
           "state": [["ill, badly", "well", "ill"][int(value)] for value in (AGE > 50) * 1 + (DOSE > 1e4) * 1]}
NEW = {name: values[:9] for name, values in COLUMNS.items() if name != "state"}


def write(path, columns, header=True):
    with open(path, "w", newline="") as file:
        writer = standard_csv.writer(file)
        if header:
            writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))
    return path


@pytest.fixture(scope="module")
def away(tmp_path_factory):
    """A result, and its run folder after the training file is gone."""
    folder = tmp_path_factory.mktemp("away")
    path = write(folder / "patients.csv", COLUMNS)
    data = ct.csv(path, targets="state", client="site", scale="standard")
    result = ct.run(ct.classification(data, ct.mlp(hidden=[4]), split="output"), data, ct.fedper(step_size=0.3),
                    rounds=4, out=folder / "run", progress=None)
    path.unlink()
    write(folder / "rows.csv", NEW)
    return result, folder


@pytest.fixture(scope="module")
def loaded(away):
    return ct.load(away[1] / "run")


def call(folder, *words):
    here = os.getcwd()
    os.chdir(folder)
    try:
        return CliRunner().invoke(cantons, list(words))
    finally:
        os.chdir(here)


def test_a_run_folder_predicts_on_raw_rows_without_the_training_file(away, loaded):
    result, _ = away
    assert loaded.data is None
    encoded = result.model.data.encoding.encode(NEW)
    for client in (None, "s2", 3):
        np.testing.assert_array_equal(loaded.outputs(NEW, client), result.outputs(NEW, client))
        np.testing.assert_array_equal(loaded.outputs(NEW, client), result.outputs(encoded, client, encoded=True))
        assert abs(loaded.outputs(NEW, client)).max() < 30, "unscaled rows would give far larger numbers"
    assert not np.array_equal(loaded.outputs(NEW, "s0"), loaded.outputs(NEW, "s1"))


def test_rows_of_the_run_s_own_data_are_not_scaled_a_second_time(away):
    result, data = away[0], away[0].model.data
    raw = np.stack([np.asarray(NEW[name]) for name in data.encoding.column_names], axis=1)
    for examples in (data.train, data.test):
        inputs = np.asarray(examples.inputs)
        for rows in (inputs, inputs[::-2], inputs[[3, 1]], inputs.astype(float), jax.numpy.asarray(inputs[:1])):
            for ask in (result.predict, result.predict_proba, result.outputs, result.model.client("s1").predict):
                with pytest.raises(ct.InputError, match="scaled already.*say encoded=True"):
                    ask(rows)
            assert len(result.predict(rows, encoded=True)) == len(rows)
        for mixed in ([raw, inputs[:1]], [inputs[:1], raw]):  # no more than one is: these are raw rows
            result.predict(np.concatenate(mixed))
        result.predict(np.stack([inputs[:, 0], inputs[:, 1] + 1], axis=1))  # half of a row is no row
        columns = dict(zip(data.encoding.column_names, inputs.T, strict=True))
        for named in (columns, [dict(zip(columns, row, strict=True)) for row in inputs[:2].tolist()], inputs.tolist()):
            with pytest.raises(ct.InputError, match="scaled already"):
                result.predict(named)
    result.predict(raw)
    result.predict(raw.astype(str))


def test_rows_of_all_sets_are_known_for_the_run_s_own_and_words_are_no_numbers():
    generator = np.random.default_rng(0)
    data = ct.with_validation(ct.federation(generator.normal(size=(300, 2)), np.arange(300) % 2, np.arange(300) % 6,
                                            new=2, test=0.2), 0.2)
    data = replace(data, central=data.clients.train, sets={"others": data.clients.test})
    for change in (None, "central", "sets"):  # of these two alone where they are all that holds the rows
        own = data if change is None else replace(
            ct.federation(np.zeros((4, 2)), np.zeros(4, int), [0, 0, 1, 1], test=0, classes=2),
            **{change: getattr(data, change)})
        rows = data.clients.test.inputs if change == "sets" else data.clients.train.inputs
        with pytest.raises(ct.InputError, match="scaled already"):
            refuse_own_rows(own, rows, rows / 2)
    for examples in (data.train, data.test, data.validation, data.new.train, data.new.test):
        rows = np.asarray(examples.inputs)
        with pytest.raises(ct.InputError, match="scaled already"):
            refuse_own_rows(data, rows, rows / 2)
        refuse_own_rows(data, rows, rows)
    refuse_own_rows(data, np.zeros((3, 5)), np.ones((3, 5)))  # whoever reads the rows says that they are too long


def test_raw_rows_of_few_different_numbers_are_not_taken_for_scaled_ones(tmp_path):
    """From 0, 1 and 2 to 0, 0.5 and 1: nearly every raw row without a 2 is the scaling of another one."""
    levels = np.array(list(itertools.product(range(3), repeat=3)))
    lines = [f"{number % 3},{','.join(map(str, row))},{row.sum()}" for number, row in enumerate(levels)]
    (tmp_path / "levels.csv").write_text("who,a,b,c,target\n" + "\n".join(lines) + "\n")
    data = ct.csv(tmp_path / "levels.csv", targets="target", client="who", regression=True, scale="unit", test=0)
    result = ct.run(ct.regression(data, ct.linear()), data, ct.fedavg(), rounds=1)
    for row in levels.astype(float):
        result.predict(row[None])
    result.predict(levels)
    with pytest.raises(ct.InputError, match="scaled already"):
        result.predict(np.array([[0.5, 0.5, 1.0]]))


def test_a_client_s_model_does_not_keep_the_data(away):
    data = ct.digits(clients=3)
    result = ct.run(ct.logistic(data), data, ct.fedavg(), rounds=1)
    model, rows, there = result.model.client(1), data.test.inputs[:2].copy(), weakref.ref(data)
    del data, result
    gc.collect()
    assert there() is None and len(model.predict(rows)) == 2


def test_rows_of_data_that_nobody_scaled_may_be_given_either_way():
    data = ct.digits(clients=3)
    result = ct.run(ct.logistic(data), data, ct.fedavg(), rounds=1)
    assert (result.predict(data.test.inputs[:9]) == result.predict(data.test.inputs[:9], encoded=True)).all()


def test_scikit_learn_takes_a_loaded_model_and_the_model_of_a_client(loaded):
    from sklearn import metrics

    pandas = pytest.importorskip("pandas")
    frame, truth = pandas.DataFrame(COLUMNS), np.array(COLUMNS["state"])
    for model in (loaded, loaded.client("s1")):
        assert model.classes_.tolist() == ["ill", "ill, badly", "well"]
        chances = model.predict_proba(frame)
        np.testing.assert_allclose(chances.sum(axis=1), 1, rtol=1e-5)
        np.testing.assert_array_equal(model.classes_[chances.argmax(axis=1)], model.predict(frame))
        assert metrics.accuracy_score(truth, model.predict(frame)) > 0.4
        assert np.isfinite(metrics.log_loss(truth, chances, labels=model.classes_))
        for scorer in ("accuracy", "neg_log_loss", "roc_auc_ovr"):
            assert np.isfinite(metrics.get_scorer(scorer)(model, frame, truth)), scorer
    with pytest.raises(ct.InputError, match="this model is trained"):
        loaded.client("s1").fit(frame, truth)
    assert "s1" in str(loaded.client("s1")) and "age, dose" in str(loaded.client("s1"))


def test_a_client_that_must_be_fitted_needs_its_rows_or_an_export(away, loaded):
    result, folder = away
    state = result.model.state
    never = state.clients._replace(visits=state.clients.visits * 0)
    snapshot = loaded.snapshot._replace(state=state._replace(clients=never))
    fitting, there = replace(loaded, snapshot=snapshot), replace(result.model, snapshot=snapshot)
    with pytest.raises(ct.InputError, match="fitted to its training examples .*, or export the run where its data is"):
        fitting.predict(NEW, client="s1")
    fitting.predict(NEW)
    ct.export(there, folder / "run" / "export")
    for client in (1, 3):
        np.testing.assert_array_equal(fitting.outputs(NEW, client), there.outputs(NEW, client))
    later = snapshot._replace(state=snapshot.state._replace(round=state.round + 1))
    with pytest.raises(ct.InputError, match="fitted to its training examples"):
        replace(fitting, snapshot=later).predict(NEW, client="s1")  # the export is of another round
    (folder / "run" / "export" / "private.safetensors").write_bytes(b"damaged")
    with pytest.raises(ct.InputError, match="private.safetensors, which should be an export of this run"):
        fitting.predict(NEW, client="s1")
    with pytest.raises(ct.InputError, match="unknown client 's9'. Known: s0, s1"):
        loaded.predict(NEW, client="s9")


def test_folders_of_older_versions_load_and_say_what_they_lack(away, tmp_path):
    import shutil

    result, folder = away
    old = tmp_path / "old"
    shutil.copytree(folder / "run", old)
    kept = json.loads((old / NAME).read_text())
    (old / NAME).unlink()
    bare = ct.load(old)
    with pytest.raises(ct.InputError, match="how raw rows become inputs is not known here: the run is of an older"):
        bare.predict(NEW)
    encoded = result.model.data.encoding.encode(NEW)
    np.testing.assert_array_equal(bare.outputs(encoded, encoded=True), result.outputs(NEW))
    with pytest.raises(ct.InputError, match="the names of this run's clients are with its data"):
        bare.predict(NEW, client="s1")
    with_data = ct.load(old, data=result.model.data)
    np.testing.assert_array_equal(with_data.predict(NEW, client="s1"), result.predict(NEW, client="s1"))
    study = json.loads((old / "study.json").read_text())
    study["data"]["made_by"]["scale"] = "none"
    unscaled = read_kept(old, study).encoding
    assert unscaled.shape == (2,) and unscaled.classes == (0, 1, 2)
    for damage in ("[]", "{}", json.dumps({**kept, "clients": 3}), json.dumps({**kept, "encoding": {"version": 99}})):
        (old / NAME).write_text(damage)
        with pytest.raises(ct.InputError, match=NAME):
            ct.load(old)


def test_the_folder_tells_columns_labels_clients_and_what_was_held_out(away):
    kept = json.loads((away[1] / "run" / NAME).read_text())
    assert [column["name"] for column in kept["encoding"]["columns"]] == ["age", "dose"]
    assert kept["encoding"]["classes"] == ["ill", "ill, badly", "well"] and kept["encoding"]["target"] == "state"
    assert kept["clients"] == ["s0", "s1", "s2", "s3"] and "20%" in kept["held_out"]["test"]
    assert kept["encoding"]["scaling"]["how"] == "standard"


def test_predict_prints_labels_and_probabilities_under_a_header(away):
    result, folder = away
    printed = call(folder, "predict", "rows.csv", "--run", "run", "--client", "s3")
    assert printed.exit_code == 0, printed.output
    header, *lines = standard_csv.reader(printed.output.splitlines())
    assert header == ["label", "probability"]
    assert [label for label, _ in lines] == result.predict(NEW, client="s3").tolist()
    np.testing.assert_allclose([float(chance) for _, chance in lines],
                               result.predict_proba(NEW, client="s3").max(axis=1), atol=1e-4)
    write(folder / "turned.csv", dict(reversed(NEW.items())))
    write(folder / "bare.csv", {name: NEW[name] for name in ("age", "dose")}, header=False)
    for rows in ("turned.csv", "bare.csv"):
        assert call(folder, "predict", rows, "--run", "run", "--client", "s3").output == printed.output
    raw = call(folder, "predict", "rows.csv", "--run", "run", "--client", "s3", "--raw").output.splitlines()
    np.testing.assert_allclose(np.loadtxt(raw, delimiter=","), result.outputs(NEW, client="s3"), rtol=1e-5)
    assert call(folder, "predict", "rows.csv", "--run", "run", "--client", "s3", "--out", "said.csv").exit_code == 0
    assert (folder / "said.csv").read_text() == printed.output
    write(folder / "less.csv", {"age": [1], "site": ["s0"]})
    assert "no column 'dose'" in call(folder, "predict", "less.csv", "--run", "run").output


# Models that run without cantons

def packages(folder, *names):
    """A folder with these packages alone."""
    home = Path(np.__file__).parent.parent
    folder.mkdir()
    for name in names:
        for path in home.glob(name):
            (folder / path.name).symlink_to(path)
    return folder


def test_an_exported_model_runs_with_numpy_alone(away, tmp_path):
    result, folder = away
    done = call(folder, "export", "--run", "run", "--client", "s2")
    assert done.exit_code == 0, done.output
    place = folder / "run" / "export" / "s2"
    assert {Path(line).name for line in done.stdout.split()} == {path.name for path in place.iterdir()} == {
        "model.safetensors", "model.json", "numpy_model.py"} | ({"model.jax"} if PROGRAMS else set())
    alone = packages(tmp_path / "alone", "numpy", "numpy.libs")
    program = f"""
import importlib, json, sys
sys.path = [path for path in sys.path if "site-packages" not in path] + [{str(alone)!r}, {str(place)!r}]
for name in ("cantons", "jax", "safetensors", "sklearn"):
    try:
        importlib.import_module(name)
    except ModuleNotFoundError:
        continue
    raise SystemExit(name + " is there")
from numpy_model import Model
rows = json.loads({json.dumps(json.dumps({name: list(map(str, values)) for name, values in NEW.items()}))})
model = Model({str(place)!r})
print(json.dumps([model.outputs(rows).tolist(), model.predict(rows).tolist()]))
try:
    model.predict({{"age": [1]}})
except ValueError as error:
    print(error)
"""
    found = subprocess.run([sys.executable, "-I", "-S", "-c", program], capture_output=True, text=True, check=True)
    numbers, refusal = found.stdout.splitlines()
    outputs, labels = json.loads(numbers)
    np.testing.assert_allclose(outputs, result.outputs(NEW, client="s2"), rtol=1e-4, atol=1e-5)
    assert labels == result.predict(NEW, client="s2").tolist()
    assert refusal == "the rows have no column 'dose'; give age, dose."


def test_an_exported_program_runs_with_jax_alone(away, tmp_path):
    pytest.importorskip("flatbuffers")
    result, _ = away
    ct.export(result, tmp_path / "out", client="s1")
    program = f"""
import sys
sys.modules["cantons"] = None
import jax, numpy as np
from jax import export
sys.path.append({str(tmp_path / "out")!r})
from numpy_model import Model
model = Model({str(tmp_path / "out")!r})
program = export.deserialize(bytearray(open({str(tmp_path / "out/model.jax")!r}, "rb").read()))
rows = np.array({np.stack([NEW["age"], NEW["dose"]], axis=1).tolist()!r})
for count in (1, 9):
    print(*model.answer(program.call(model.encode(rows[:count]))), sep=";")
"""
    home = {"PYTHONPATH": str(Path(jax.__file__).parent.parent), "JAX_PLATFORMS": "cpu"}
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=tmp_path,
                           env=os.environ | home)
    labels = result.predict(NEW, client="s1").tolist()
    assert found.stdout.splitlines() == [labels[0], ";".join(labels)]


def made(problem, encoding, key=0):
    """A model of random parameters."""
    keys = iter(jax.random.split(jax.random.key(key), 40))
    parts = jax.tree.map(lambda leaf: jax.random.normal(next(keys), leaf.shape), problem.init(jax.random.key(0)))
    return ClientModel("ann", problem, parts, encoding, jax.jit(problem.predict))


SCALED = Encoding((Column("a"), Column("b"), Column("c"), Column("d")), (4,), "float64",
                  Scaling("standard", np.array([1e4, 0, -1, 5]), np.array([100.0, 1, 2, 3])))


@pytest.mark.parametrize("problem", [
    lambda: ct.logistic(Shapes((4,), 3)),
    lambda: ct.classification(Shapes((4,), 2), ct.mlp(hidden=[5, 3]), split="output"),
    lambda: ct.classification(Shapes((4,), 3), ct.mlp(hidden=[6]), split={"name": "adapter", "rank": 2, "scale": 3.0}),
    lambda: ct.regression(Shapes((4,)), ct.mlp(hidden=[5])),
    lambda: ct.regression(Shapes((4,)), ct.linear(bias=False), labels="sign"),
    lambda: ct.residual(Shapes((4,), 3), shared_features="first_half", private_features=[1, 3]),
    lambda: ct.residual(Shapes((4,), 2), loss="logistic", labels="sign", private_features="none"),
    lambda: ct.residual(Shapes((4,)), private_model=ct.mlp(hidden=[3])),
], ids=["linear", "mlp", "adapter", "regression", "sign", "residual", "log_odds", "residual mlp"])
def test_what_leaves_predicts_as_it_did_here(problem, tmp_path):
    problem = problem()
    classes = {"logits": ("no", "yes", "maybe"), "log_odds": ("no", "yes")}.get(problem.outputs)
    if problem.spec.get("classes") == 2:
        classes = ("no", "yes")
    model = made(problem, replace(SCALED, classes=classes))
    export_model(model, tmp_path / "out")
    alone, rows = Model(tmp_path / "out"), RANDOM.normal([1e4, 0, -1, 5], [100, 1, 2, 3], (20, 4))
    columns = dict(zip("dcab", rows[:, [3, 2, 0, 1]].T, strict=True))
    np.testing.assert_allclose(alone.outputs(columns), model.outputs(rows), rtol=1e-4, atol=1e-4)
    if problem.outputs == "numbers":
        np.testing.assert_array_equal(alone.predict(rows), alone.outputs(rows))
        np.testing.assert_array_equal(model.predict(columns), model.outputs(rows))
    else:
        np.testing.assert_array_equal(alone.predict(rows), model.predict(columns))
    assert len(set(alone.predict(rows).tolist())) > 1
    if problem.outputs in ("logits", "log_odds"):
        np.testing.assert_allclose(alone.predict_proba(rows), model.predict_proba(rows), atol=1e-4)
    else:
        with pytest.raises(ct.InputError, match="no probabilities"):
            model.predict_proba(rows)
        with pytest.raises(ValueError, match="no probabilities"):
            alone.predict_proba(rows)
    if PROGRAMS:
        program = export.deserialize(bytearray((tmp_path / "out" / "model.jax").read_bytes()))
        np.testing.assert_allclose(program.call(alone.encode(rows)), model.outputs(rows), rtol=1e-5, atol=1e-5)


def test_what_numpy_cannot_do_is_left_to_the_program(tmp_path):
    pytest.importorskip("flatbuffers")
    problem = ct.classification(Shapes((9, 9), 3), ct.cnn(), split="output")
    model = made(problem, Encoding(shape=(9, 9), dtype="uint8", classes=(0, 1, 2)))
    export_model(model, tmp_path / "out")
    alone, rows = Model(tmp_path / "out"), RANDOM.integers(0, 255, (2, 81), np.uint8)
    with pytest.raises(ValueError, match="not made of dense layers alone: load model.jax with jax.export"):
        alone.predict(rows)
    program = export.deserialize(bytearray((tmp_path / "out" / "model.jax").read_bytes()))
    np.testing.assert_array_equal(alone.answer(program.call(alone.encode(rows))), model.predict(rows))


def test_without_flatbuffers_the_program_is_left_out_unless_it_is_all_there_is(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "flatbuffers", None)
    with pytest.warns(Notice, match=r"model.jax is left out: .* pip install 'cantons\[export\]'"):
        export_model(made(ct.logistic(Shapes((4,), 3)), SCALED), tmp_path / "out")
    assert not (tmp_path / "out" / "model.jax").exists()
    with pytest.raises(ct.InputError, match=r"needs flatbuffers, which is not installed: pip install 'cantons"):
        export_model(made(ct.classification(Shapes((9, 9), 3), ct.cnn()), Encoding(shape=(9, 9))), tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_an_onnx_file_is_an_extra_that_is_asked_for(tmp_path, monkeypatch):
    model = made(ct.logistic(Shapes((4,), 3)), SCALED)
    monkeypatch.setitem(sys.modules, "jax2onnx", None)
    with pytest.raises(ct.InputError, match=r"needs jax2onnx, which is not installed: pip install 'cantons\[onnx\]'"):
        export_model(model, tmp_path / "out", onnx=True)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("problem", [lambda: ct.classification(Shapes((4,), 3), ct.mlp(hidden=[5])),
                                     lambda: ct.residual(Shapes((4,)))])
def test_an_onnx_file_computes_the_same(problem, tmp_path):
    runtime = pytest.importorskip("onnxruntime")
    pytest.importorskip("jax2onnx")
    model = made(problem(), SCALED)
    export_model(model, tmp_path / "out", onnx=True)
    alone, rows = Model(tmp_path / "out"), RANDOM.normal([1e4, 0, -1, 5], [100, 1, 2, 3], (6, 4))
    session = runtime.InferenceSession(tmp_path / "out" / "model.onnx")
    (found,) = session.run(None, {session.get_inputs()[0].name: alone.encode(rows)})
    np.testing.assert_allclose(found, model.outputs(rows), rtol=1e-4, atol=1e-4)
    export_model(model, tmp_path / "out")
    assert not (tmp_path / "out" / "model.onnx").exists(), "an older one would be of another model"


def test_exports_are_refused_in_a_sentence(away, loaded, tmp_path):
    with pytest.raises(ct.InputError, match="give one of them"):
        ct.export(loaded, tmp_path / "out", client="s1", common=True)
    with pytest.raises(ct.InputError, match="an ONNX file is of one model; say whose"):
        ct.export(loaded, tmp_path / "out", onnx=True)
    with pytest.raises(ct.InputError, match="export got a int"):
        ct.export(3, tmp_path / "out")
    with pytest.raises(ct.InputError, match="how raw rows become its inputs is not known"):
        ct.export(replace(loaded, kept=Kept(None, None, {})), tmp_path / "out", common=True)
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "model.jax").write_text("mine")
    with pytest.raises(ct.InputError, match="model.jax exists and was not written by this command"):
        ct.export(loaded, tmp_path / "theirs", common=True)
    assert not (tmp_path / "out").exists()
    ct.export(loaded, tmp_path / "theirs", common=True, overwrite=True)
    ct.export(loaded, tmp_path / "theirs", client="s0")  # what an export wrote, an export replaces
    assert json.loads((tmp_path / "theirs" / "model.json").read_text())["client"] == "s0"


def test_the_parts_of_all_clients_carry_the_encoding_too(away, tmp_path):
    result, _ = away
    ct.export(result, tmp_path / "out")
    about = json.loads((tmp_path / "out" / "model.json").read_text())
    assert Encoding.from_json(about["encoding"]).classes == ("ill", "ill, badly", "well")
    assert about["clients"] == ["s0", "s1", "s2", "s3"] and about["outputs"] == "logits" and about["held_out"]["test"]
    assert about["problem"]["split"] == "output"


def test_an_export_of_all_clients_asks_for_them_at_once(tmp_path, monkeypatch):
    """One client after another took minutes for ten thousand."""
    from safetensors.numpy import load_file

    data = ct.digits(clients=5)
    problem = ct.classification(data, ct.mlp(hidden=(4,)), split="output")
    trained = ct.run(problem, data, ct.fedrep(step_size=0.1, batch_size=8), rounds=2, cohort=2, progress=None).model
    own = [trained.parts(client)[1]["layer1"]["weight"] for client in range(5)]
    asked = []
    parts = type(trained).parts
    monkeypatch.setattr(type(trained), "parts", lambda self, client=None: asked.append(client) or parts(self, client))
    ct.export(trained, tmp_path / "all")
    assert asked == [None] and not (tmp_path / "all" / "personal.safetensors").exists()
    np.testing.assert_allclose(load_file(tmp_path / "all" / "private.safetensors")["layer1/weight"], own, rtol=1e-5)
