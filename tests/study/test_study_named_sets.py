"""Comparisons and sweeps by test sets that are nobody's in particular."""

import pytest
from click.testing import CliRunner

import cantons as ct
from cantons.cli.main import cantons
from cantons.reporting.collect import collect, headline
from cantons.reporting.table import comparison_rows
from cantons.study.callbacks import Callback
from cantons.study.reading import read_evaluations
from cantons.study.sweep import sweep

STUDY = """
rounds = 2
cohort = 3
[data]
name = "synthetic"
clients = 8
features = 4
classes = 3
largest = 40
test = 0.0
[central]
name = "synthetic"
clients = 3
features = 4
classes = 3
largest = 40
seed = 1
[problem]
name = "logistic"
central_loss = "same"
[algorithm]
name = "parallel_training"
steps = 1
central_steps = 1
"""
CHOSEN = "inference.shared.accuracy"


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    path = tmp_path_factory.mktemp("sets") / "study.toml"
    path.write_text(STUDY)
    return path


def test_a_sweep_chooses_by_the_number_it_is_told(study):
    grid = {"algorithm.step_size": [1e-6, 0.3]}
    by, metric, outcomes = sweep(study, grid, 1, study.parent / "out", {}, Callback(), choose=CHOSEN)
    found = [read_evaluations(study.parent / "out" / f"step_size={size}-0")[-1] for size in grid["algorithm.step_size"]]
    assert (by, metric) == (CHOSEN, "accuracy")
    assert [outcome.score for outcome in outcomes] == sorted((row[CHOSEN] for row in found), reverse=True)
    assert "validation.personal.loss.mean" not in found[0]
    with pytest.raises(ct.InputError, match="unknown number to choose by 'inference.shared.acc'. Did you mean"):
        sweep(study, grid, 1, study.parent / "out", {}, Callback(), choose="inference.shared.acc")


def test_shared_models_are_compared_on_a_test_set_where_clients_have_none(study):
    done = CliRunner().invoke(cantons, ["compare", str(study), "--seeds", "2", "--out", str(study.parent / "compare")],
                              catch_exceptions=False)
    assert done.exit_code == 0 and "of the shared model on the test set: inference" in done.output
    groups = collect(sorted((study.parent / "compare").glob("study-*")))
    [row] = comparison_rows(groups)
    assert headline(groups) == CHOSEN and row["personal"] is None and row["spread"] is not None
    assert row["inference"] == pytest.approx(groups[0].final(CHOSEN).mean())
    page = (study.parent / "compare" / "report.html").read_text()
    assert "of the shared model on the test set “inference”" in page and "Clients</h2>" not in page
