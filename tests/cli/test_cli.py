"""The commands, called as a user calls them."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from cantons.cli.main import cantons

STUDY = """
rounds = 3
cohort = 5
[data]
name = "digits"
clients = 12
[problem]
name = "logistic"
[algorithm]
name = "fedavg"
"""


@pytest.fixture
def call(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "study.toml").write_text(STUDY)
    return lambda *words: CliRunner().invoke(cantons, words)


def test_run_prints_a_table_and_the_folder(call, tmp_path):
    done = call("run", "study.toml")
    assert done.exit_code == 0, done.output
    assert "accuracy on the test set: held-out rows" in done.output
    assert "run folder: results/study-0" in done.output
    assert (tmp_path / "results" / "study-0" / "summary.json").exists()


def test_run_takes_changes_rounds_and_seed_and_speaks_json(call):
    done = call("run", "study.toml", "--out", "there", "--rounds", "2", "--seed", "7", "--set",
                "algorithm.step_size=0.05", "--json")
    assert json.loads(done.stdout)["rounds"] == 2
    study = json.loads(Path("there/study.json").read_text())
    assert (study["seed"], study["algorithm"]["step_size"]) == (7, 0.05)


def test_a_second_run_needs_resume_and_resume_goes_on(call):
    assert call("run", "study.toml", "--out", "there").exit_code == 0
    again = call("run", "study.toml", "--out", "there")
    assert again.exit_code == 1
    assert "already holds a run" in again.output
    more = call("run", "study.toml", "--out", "there", "--resume", "--rounds", "5", "--json")
    assert json.loads(more.stdout)["rounds"] == 5


@pytest.mark.parametrize("words, sentence", [
    (["run", "none.toml"], "cannot read the study none.toml"),
    (["run", "study.toml", "--set", "algorithm.name=fedavgg"], "Did you mean 'fedavg'?"),
    (["run", "study.toml", "--set", "cohort"], "write key=value"),
    (["run", "study.toml", "--set", "cohort=50"], "only 12 clients"),
    (["list", "algorithms"], "Did you mean 'algorithm'?"),
])
def test_mistakes_are_one_sentence_and_exit_code_1(call, words, sentence):
    done = call(*words)
    assert done.exit_code == 1
    assert sentence in done.output
    assert "Traceback" not in done.output
    assert len(done.output.strip().splitlines()) == 1


def test_list_names_every_part(call):
    done = call("list")
    assert all(name in done.output for name in ("digits", "mlp", "logistic", "scaffold", "rounds", "local"))
    assert "digits" not in call("list", "algorithm").output


def test_demo_compares_the_methods_and_can_be_run_again(call):
    for _ in range(2):
        done = call("demo", "--rounds", "2")
        assert done.exit_code == 0, done.output
        assert all(name in done.output for name in ("independent", "central", "fedavg", "run folders"))


def test_help_does_not_wait_for_jax():
    code = "import sys; import cantons.cli.main; print([m for m in ('jax', 'rich', 'pydantic') if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
