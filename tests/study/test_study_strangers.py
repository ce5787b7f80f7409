"""One file each, outside the package, adds an engine, a clock, a rule and an algorithm; a study names them.

The files are those that the pages "Write an engine", "Write a clock" and "Write an aggregation rule" show.
"""

import json
import re
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from click.testing import CliRunner

import cantons as ct
from cantons.cli.main import cantons

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r'^```python title="([^"]+)"\n(.*?)^```$', re.DOTALL | re.MULTILINE)
FILES = {title: text for page in ("engine", "clock", "rule")
         for title, text in BLOCK.findall((ROOT / "docs" / f"{page}.md").read_text())}
FILES["toy_algorithm.py"] = (ROOT / "tests" / "toy_algorithm.py").read_text()

STUDY = """
rounds = 6
evaluate_every = 2
{more}
[data]
name = "digits"
clients = 7
[problem]
name = "logistic"
split = "*/bias"
[algorithm]
name = "{algorithm}"
"""


@pytest.fixture
def run(tmp_path, monkeypatch):
    """`run(tables, algorithm)`: `cantons run` in a folder with the strangers' files, and the run folder."""
    for file, text in FILES.items():
        (tmp_path / file).write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))

    def play(tables="", algorithm="fedavg", out="run", *options, more=""):
        (tmp_path / "study.toml").write_text(STUDY.format(algorithm=algorithm, more=more) + tables)
        found = CliRunner().invoke(cantons, ["run", "study.toml", "--out", out, *options], catch_exceptions=False)
        return found, tmp_path / out

    yield play
    for file in FILES:
        sys.modules.pop(Path(file).stem, None)


def history(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_an_engine_of_a_strangers_runs_a_study_and_agrees_with_ours(run):
    found, folder = run('[engine]\nname = "threads_engine:Threads"\nworkers = 3\n', "scaffold")
    assert found.exit_code == 0, found.output
    ours, other = run("", "scaffold", "ours")
    assert ours.exit_code == 0
    for left, right in zip(history(folder), history(other), strict=True):
        for name in ("test.personal.loss.mean", "train.shared.loss.worst10", "bytes_up", "rejected_uploads"):
            assert left[name] == pytest.approx(right[name], rel=1e-5)
    assert json.loads((folder / "summary.json").read_text())["workers"] == 3
    assert json.loads((folder / "study.json").read_text())["engine"] == {"name": "threads_engine:Threads", "workers": 3}
    assert ct.load(folder).outputs(np.zeros((1, 64)), client=0).shape == (1, 2)


def test_a_strangers_engine_resumes_with_every_clients_row(run):
    """SCAFFOLD's clients keep controls: an engine whose rows are in no checkpoint would go on from zeros."""
    engine = '[engine]\nname = "threads_engine:Threads"\n'
    whole, folder = run(engine, "scaffold")
    assert whole.exit_code == 0
    half, begun = run(engine, "scaffold", "half", "--rounds", "4")
    assert half.exit_code == 0
    rest, _ = run(engine, "scaffold", "half", "--resume")
    assert rest.exit_code == 0, rest.output
    left, right = (ct.load(one).state for one in (folder, begun))
    for one, other in zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True):
        np.testing.assert_array_equal(one, other)


def test_an_engine_says_in_a_sentence_what_it_refuses(run):
    found, folder = run('[engine]\nname = "threads_engine:Threads"\n[aggregate]\nname = "median"\n')
    assert found.exit_code == 1
    assert "the engine threads_engine:Threads adds up what its workers send" in found.output
    assert not folder.exists()


def test_a_clock_of_a_strangers_decides_who_takes_part(run):
    found, folder = run('[clock]\nname = "shifts:shifts"\ngroups = 3\n')
    assert found.exit_code == 0, found.output
    uploads = ct.load(folder, trust=True).state.uploads
    np.testing.assert_array_equal(uploads, [2] * 7)


def test_a_rule_of_a_strangers_keeps_a_state_reports_and_names_whom_it_rejects(run):
    found, folder = run('[aggregate]\nname = "nearest:nearest"\naside = 2\n')
    assert found.exit_code == 0, found.output
    rows = history(folder)
    assert [row.get("rule.rejected_uploads") for row in rows] == [None, 4, 8, 12]
    assert all(row["rule.furthest"] > 0 for row in rows[1:])
    state = ct.load(folder, trust=True).state
    assert state.outvoted.sum() == 12 and state.reported == 6
    report = CliRunner().invoke(cantons, ["report", str(folder), "--out", str(folder / "page.html")])
    assert report.exit_code == 0, report.output
    assert "Rule furthest" in (folder / "page.html").read_text()


def test_a_rules_state_and_reports_survive_a_resume(run):
    rule = '[aggregate]\nname = "nearest:nearest"\n'
    run(rule)
    run(rule, "fedavg", "half", "--rounds", "3")  # between two evaluations
    run(rule, "fedavg", "half", "--resume")
    whole, half = (history(Path(name)) for name in ("run", "half"))
    reported = [{row["round"]: row["rule.furthest"] for row in rows} for rows in (whole, half)]
    assert reported[0][2] == reported[1][2] and reported[0][6] == reported[1][6]
    # Three rounds ended with an evaluation of their own, so that the next one's mean is over a single round.
    assert 2 * reported[0][4] == pytest.approx(reported[1][3] + reported[1][4], rel=1e-5)
    states = [ct.load(folder, trust=True).state for folder in ("run", "half")]
    for one, other in zip(*map(jax.tree.leaves, states), strict=True):
        np.testing.assert_array_equal(one, other)


def test_an_algorithm_of_a_strangers_runs_too(run):
    found, folder = run("", "toy_algorithm:sign_vote")
    assert found.exit_code == 0, found.output
    assert history(folder)[-1]["round"] == 6


@pytest.mark.parametrize("table, sentence", [
    ('[clock]\nname = "nearest:nearest"\n', "nearest:nearest is for [aggregate], not for [clock]"),
    ('[aggregate]\nname = "shifts:shifts"\n', "shifts:shifts is for [clock], not for [aggregate]"),
    ('[engine]\nname = "json:JSONDecoder"\n', "json:JSONDecoder is no engine: it lacks name, options, refuses"),
    ('[aggregate]\nname = "medain"\n', "unknown aggregate 'medain'. Did you mean 'median'?"),
])
def test_a_part_of_another_kind_is_refused_in_a_sentence(table, sentence, run):
    found, folder = run(table)
    assert found.exit_code == 1 and sentence in found.output
    assert not folder.exists()


def test_strangers_parts_are_described_as_what_they_are(run):
    run()
    for name, words in (("nearest:nearest", "how many uploads are set aside"), ("shifts:shifts", "how many shifts")):
        found = CliRunner().invoke(cantons, ["describe", name])
        assert found.exit_code == 0 and words in found.output, found.output


# What a sweep does with [engine]


def sweep(*options):
    return CliRunner().invoke(cantons, ["sweep", "study.toml", "--grid", "algorithm.step_size=0.1,0.3", "--seeds", "1",
                                        "--out", "swept", *options])


@pytest.mark.parametrize("engine", ['mode = "vmap"\ndevices = 1\ngroup = 2\n', 'name = "plain"\ncompile = true\n'],
                         ids=["local", "plain"])
def test_a_sweep_honours_the_engine_of_its_study(engine, run):
    run("[engine]\n" + engine, "fedavg", "run", "--rounds", "1")
    found = sweep("--rounds", "2")
    assert found.exit_code == 0, found.output
    summary = json.loads(Path("swept/step_size=0.1-0/summary.json").read_text())
    assert summary["devices"] == 1
    assert ("runs_together" in summary) is ("plain" not in engine)
    assert {"updates_per_second", "evaluation_seconds"} <= summary["final"].keys()


def test_a_sweep_refuses_what_its_engine_cannot_do_for_several_runs(run):
    run("[engine]\nmemory_gib = 1.0\n", "fedavg", "run", "--rounds", "1")
    found = sweep("--rounds", "2")
    assert found.exit_code == 1
    assert "runs several runs as one program and cannot divide it by memory; leave memory_gib out" in found.output
