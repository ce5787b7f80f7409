"""What is easily given in the wrong place in Python is answered with what to write; and a run may be begun anew."""

import sys

import jax
import numpy as np
import pytest
from click.testing import CliRunner

import cantons as ct
from cantons.cli.main import cantons

DATA = ct.digits(clients=4)
PROBLEM = ct.logistic(DATA)
RECIPE = ct.fedavg(step_size=0.5, batch_size=8)


def run(problem=PROBLEM, data=DATA, recipe=RECIPE, **options):
    return ct.run(problem, data, recipe, **{"rounds": 1, "progress": None, **options})


@pytest.mark.parametrize("attempt, words", [
    (lambda: run(recipe=ct.fedavg), r"algorithm is the function fedavg itself; give what it makes: fedavg\(\.\.\.\)"),
    (lambda: run(recipe="fedavg"), r"algorithm is the text 'fedavg'; give what that function makes: ct\.fedavg\("),
    (lambda: run(recipe="fedavgg"), r"ct\.fedavg\("),
    (lambda: run(recipe=3), r"algorithm is an int; give an algorithm, such as ct\.fedavg\("),
    (lambda: run(DATA, PROBLEM), r"with \(data, problem, algorithm\); the order is \(problem, data, algorithm\)"),
    (lambda: run(PROBLEM, RECIPE, DATA), r"called with \(problem, algorithm, data\)"),
    (lambda: run(ct.logistic), r"give what it makes: logistic\(data\)"),
    (lambda: run(data=ct.digits), r"data is the function digits itself"),
    (lambda: run(data=(np.zeros(3), np.zeros(3))), r"data is a tuple; give data, such as ct\.digits\(\)"),
    (lambda: run(clock=ct.online), r"give what it makes: online"),
    (lambda: run(clock=RECIPE), r"clock is an algorithm; give a clock, such as ct\.rounds"),
    (lambda: run(aggregate="median"), r"ct\.median\("),
    (lambda: run(engine=ct.Local), r"engine is the class Local; give what it makes: Local\("),
    (lambda: run(engine="local"), r"ct\.Local\("),
    (lambda: run(byzantine=ct.byzantine), r"give what it makes: byzantine"),
    (lambda: ct.Study(PROBLEM, DATA, ct.fedavg, rounds=1), r"the function fedavg itself"),
    (lambda: ct.logistic(RECIPE), r"logistic is made for data, and this is a Recipe; give a federation"),
    (lambda: ct.residual(ct.digits), r"residual is made for data, .* give what it makes: digits"),
    (lambda: ct.classification(DATA, ct.mlp), r"model is the function mlp itself; give what it makes: mlp"),
    (lambda: ct.classification(DATA, "mlp"), r"model is the text 'mlp'; give ct\.mlp\(\)"),
    (lambda: ct.residual(DATA, shared_model=ct.cnn), r"shared_model is the function cnn itself"),
    (lambda: run(ct.from_functions(lambda key: np.zeros((64, 1), np.float32), lambda weight, rows: rows @ weight)),
     r"digits: a label is 1, and the outputs of the model are those of the labels 0 to 0; give it one output per"),
    (lambda: run(resume=True), r"give out"),
    (lambda: run(resume=True, overwrite=True, out="x"), r"give one of them"),
])
def test_a_part_in_the_wrong_place_is_named_with_what_belongs_there(attempt, words):
    with pytest.raises(ct.InputError, match=words):
        attempt()


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    return run(out=tmp_path_factory.mktemp("arguments") / "run")


def test_a_folder_that_holds_a_run_says_in_both_languages_what_may_be_done(result):
    for words in ("--resume", "resume=True", "--overwrite", "overwrite=True"):
        with pytest.raises(ct.InputError, match=words):
            run(out=result.folder)


def test_overwriting_begins_anew_and_touches_nothing_of_others(result, tmp_path):
    folder = tmp_path / "run"
    run(recipe=ct.fedavg(step_size=0.1), rounds=2, out=folder, checkpoint_every=1)
    (folder / "notes.txt").write_text("mine")
    again = run(out=folder, overwrite=True)
    assert (folder / "notes.txt").read_text() == "mine"
    jax.tree.map(np.testing.assert_array_equal, again.model.state, result.model.state)
    jax.tree.map(np.testing.assert_array_equal, ct.load(folder).state, result.model.state)
    assert [row["round"] for row in again.history] == [0, 1]
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "thesis.txt").write_text("mine")
    with pytest.raises(ct.InputError, match="is not a run folder"):
        run(out=tmp_path / "theirs", overwrite=True)
    assert (tmp_path / "theirs" / "thesis.txt").read_text() == "mine"


def test_a_single_row_and_rows_of_another_width_are_told_apart(result):
    with pytest.raises(ct.InputError, match=r"this may be a single row: give rows\[None\], of shape \(1, 64\)"):
        result.outputs(np.zeros(64))
    with pytest.raises(ct.InputError, match="give 64 numbers in a row"):
        result.outputs(np.zeros((2, 5)))


def test_an_error_keeps_its_type_and_points_at_the_users_own_line():
    def count(row):
        return 1 / 0

    with pytest.raises(ZeroDivisionError) as raised:
        run(callbacks=[count])
    (note,) = raised.value.__notes__
    assert note.startswith("It came from count (") and __file__ in note and note.endswith("return 1 / 0).")


STUDY = """
rounds = 1
data = { name = "csv", path = "nowhere.csv", targets = "label", client = "who" }
problem = "logistic"
algorithm = "beside_study:method"
"""
MODULE = """
import cantons as ct
from cantons.recipe import algorithm

@algorithm
def method(problem, population, *, step_size: float = 0.1):
    return ct.fedavg(step_size=step_size).build(problem, population)
"""


def test_modules_are_found_beside_the_study_and_describe_takes_the_keys_of_run(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "study").mkdir()
    (tmp_path / "study" / "study.toml").write_text(STUDY)
    (tmp_path / "study" / "beside_study.py").write_text(MODULE)
    rows = [f"c{row % 2},{row}.5,{row % 3 // 2}" for row in range(20)]
    (tmp_path / "rows.csv").write_text("\n".join(["who,size,label", *rows]) + "\n")
    monkeypatch.chdir(tmp_path)

    def call(*words):
        return CliRunner().invoke(cantons, words)

    for key in ("path", "data.path"):
        said = call("describe", "study/study.toml", "--set", f"{key}=rows.csv")
        assert said.exit_code == 0 and "rows: 2 clients" in said.output
    assert call("run", "study/study.toml", "--set", "data.path=rows.csv").exit_code == 0
    for name in ("./study/beside_study.py:method", "beside_study.py:method"):
        said = call("compare", "study/study.toml", "--algorithm", name, "--set", "data.path=rows.csv")
        assert said.exit_code == 1 and "write beside_study:method" in said.output
    monkeypatch.delitem(sys.modules, "beside_study")
