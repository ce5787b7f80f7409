"""Studies with a [central] table: they run, resume, sweep, load and report like any other."""

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import cantons as ct
from cantons.cli.main import cantons
from cantons.study.read import read_study

STUDY = """
rounds = 4
cohort = 3
evaluate_every = 2

[data]
name = "digits"
clients = 8
partition = "iid"

[central]
name = "from_labels"
labels = [5, 6, 7, 8, 9]

[problem]
name = "logistic"
central_loss = "same"
weights = [0.6, 0.4]

[algorithm]
name = "two_way_transfer"
steps = 2
batch_size = 8
central_steps = 2
merge_step_size = 0.5
"""
OWN = """
import jax.numpy as jnp
from cantons.protocol import CentralLoss
from cantons.recipe import central_loss

@central_loss
def small(problem, *, strength: float = 1.0):
    return CentralLoss(lambda shared, private, batch: strength * sum(
        (leaf**2).sum() for leaf in shared["layer0"].values()), needs_data=False)

def unmarked(problem):
    return None
"""


def play(*words):
    return CliRunner().invoke(cantons, list(map(str, words)))


@pytest.fixture
def study(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "mixed.toml"
    path.write_text(STUDY)
    return path


def test_a_mixed_study_runs_loads_and_is_reported(study, tmp_path):
    assert play("run", study, "--out", "out").exit_code == 0
    there = json.loads((tmp_path / "out" / "study.json").read_text())
    assert there["data"]["central"] == {"name": "from_labels", "labels": [5, 6, 7, 8, 9]}
    assert there["problem"]["central_loss"] == {"name": "same"} and there["problem"]["weights"] == [0.6, 0.4]
    loaded = ct.load("out")
    assert loaded.problem.central.weights == (0.6, 0.4)
    assert set(loaded.data.sets) == {"federated", "central", "inference"}
    inputs = loaded.data.sets["inference"].inputs[:5]
    np.testing.assert_array_equal(loaded.outputs(inputs), read_study(study).run().outputs(inputs))
    report = play("report", "out", "--out", "page.html")
    assert report.exit_code == 0, report.output


def test_it_goes_on_to_the_same_bits(study, tmp_path):
    assert play("run", study, "--out", "whole").exit_code == 0
    assert play("run", study, "--out", "part", "--rounds", "2").exit_code == 0
    assert play("run", study, "--out", "part", "--resume").exit_code == 0
    whole, part = (json.loads((tmp_path / name / "metrics.jsonl").read_text().splitlines()[-1])
                   for name in ("whole", "part"))
    told = [key for key in whole if key.startswith(("inference.", "central.", "federated.", "server.", "test."))]
    assert told and {key: whole[key] for key in told} == {key: part[key] for key in told}


def test_a_sweep_and_a_comparison_of_it_run(study):
    swept = play("sweep", study, "--grid", "algorithm.merge_step_size=0.5,1.0", "--seeds", "1", "--out", "sweep")
    assert swept.exit_code == 0, swept.output
    compared = play("compare", study, "--algorithm", "fedavg", "--algorithm", "one_way_transfer", "--algorithm",
                    "only_central", "--seeds", "1", "--out", "compare")
    assert compared.exit_code == 0, compared.output
    assert "inference" in compared.output, "the shared model on everybody's test rows is shown"
    page = Path("compare/report.html").read_text()
    assert "Test sets" in page and "Inference: accuracy" in page


def test_another_datacenter_is_another_study(study):
    assert play("run", study, "--out", "out", "--rounds", "2").exit_code == 0
    study.write_text(STUDY.replace("[5, 6, 7, 8, 9]", "[6, 7, 8, 9]"))
    refused = play("run", study, "--out", "out", "--resume")
    assert refused.exit_code == 1 and "another study" in refused.output


def test_a_central_loss_of_one_s_own_is_named_and_asked_for_trust(study, tmp_path):
    (tmp_path / "penalties.py").write_text(OWN)
    study.write_text(STUDY.replace('central_loss = "same"', 'central_loss = {name = "penalties:small", strength = 0.1}')
                     .replace("[central]\nname = \"from_labels\"\nlabels = [5, 6, 7, 8, 9]\n", ""))
    assert play("run", study, "--out", "out").exit_code == 0
    there = json.loads((tmp_path / "out" / "study.json").read_text())
    assert "penalties" in there["source"]
    with pytest.raises(ct.InputError, match="penalties:small"):
        ct.load("out")
    assert ct.load("out", trust=True).problem.central.needs_data is False


@pytest.mark.parametrize(("old", "new", "words"), [
    ('central_loss = "same"', 'central_loss = "sam"', "Did you mean 'same'"),
    ('central_loss = "same"\n', "", "central_loss"),
    ('central_loss = "same"', 'central_loss = "os:system"', "not marked as a central_loss"),
    ("weights = [0.6, 0.4]", "weights = [0.6]", "two numbers"),
    ("weights = [0.6, 0.4]", "weights = [-0.6, 0.4]", "problem.weights[0] = -0.6"),
    ("labels = [5, 6, 7, 8, 9]", "labels = [11]", "numbered from 0"),
    ("labels = [5, 6, 7, 8, 9]", "label = [5]", "labels"),
    ('name = "from_labels"\nlabels = [5, 6, 7, 8, 9]', 'name = "synthetic"', "rows alike"),
    ("central_steps = 2", "central_batch_size = 5000", "draws batches of 5000"),
    ('[central]\nname = "from_labels"\nlabels = [5, 6, 7, 8, 9]\n', "", "[central]"),
])
def test_mistakes_are_said_in_a_sentence(study, old, new, words):
    assert old in STUDY
    study.write_text(STUDY.replace(old, new))
    refused = play("run", study)
    assert refused.exit_code == 1 and words in refused.output, refused.output


@pytest.mark.parametrize("name", ["3", "[1]", '{a = 1}', "true"])
def test_a_name_that_is_no_word_is_refused(study, name):
    study.write_text(STUDY.replace('name = "from_labels"', f"name = {name}"))
    refused = play("run", study)
    assert refused.exit_code == 1 and "central.name" in refused.output, refused.output
