"""The commands, called as a user calls them."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.console import Console

from cantons.cli import show
from cantons.cli.main import cantons

STUDY = """
rounds = 3
cohort = 5
[data]
name = "digits"
clients = 12
[problem]
name = "classification"
model = { name = "mlp", hidden = [4] }
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


def test_a_changed_run_has_a_folder_of_its_own(call, tmp_path):
    assert call("run", "study.toml").exit_code == 0
    done = call("run", "study.toml", "--set", "algorithm.step_size=0.05", "--set", "data.clients=8", "--rounds", "2")
    assert "run folder: results/study,step_size=0.05,clients=8-0" in done.output
    assert (tmp_path / "results" / "study,step_size=0.05,clients=8-0" / "summary.json").exists()


@pytest.mark.parametrize("words, sentence", [
    (["run", "study.toml", "--set", "cohort"], "write key=value"),
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
        assert all(name in done.output for name in ("independent", "central", "fedavg", "fedres", "run folders"))


def test_help_does_not_wait_for_jax():
    code = "import sys; import cantons.cli.main; print([m for m in ('jax', 'rich', 'pydantic') if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_compare_makes_one_table_and_one_report_and_goes_on_when_called_again(call, tmp_path):
    (tmp_path / "other.toml").write_text(STUDY.replace("fedavg", "fedprox"))
    for _ in range(2):
        done = call("compare", "study.toml", "other.toml", "--seeds", "2")
        assert done.exit_code == 0, done.output
        assert "study" in done.output and "other" in done.output
    assert "<svg" in (tmp_path / "results" / "compare" / "report.html").read_text()
    (tmp_path / "third.toml").write_text(STUDY.replace("clients = 12", "clients = 13"))
    refused = call("compare", "study.toml", "third.toml")
    assert refused.exit_code == 1 and "has other data" in refused.output


def test_compare_runs_one_study_with_several_algorithms(call, tmp_path):
    words = ("compare", "study.toml", "--algorithm", "fedavg", "--algorithm", "fedprox,mu=0.25,steps=2",
             "--algorithm", "independent", "--seeds", "1", "--set", "algorithm.weighting=uniform")
    done = call(*words)
    assert done.exit_code == 0, done.output
    assert "independent has no weighting" in done.stderr
    assert "fedprox, mu=0.25, steps=2" in done.stdout
    folder = tmp_path / "results" / "compare" / "fedprox,mu=0.25,steps=2-0"
    algorithm = json.loads((folder / "study.json").read_text())["algorithm"]
    assert [algorithm[key] for key in ("name", "mu", "steps", "weighting")] == ["fedprox", 0.25, 2, "uniform"]
    again = call(*words, "--reference", "independent")
    assert again.exit_code == 0, again.output
    assert "fedavg against independent" in (tmp_path / "results" / "compare" / "report.html").read_text()


def test_the_table_fits_the_terminal_and_every_word_is_whole(call, monkeypatch):
    both = ["worst", "10%", "shared", "new", "clients", "KiB/", "client", "ms/", "round"]
    for width, titles, missing in (
            (120, both, ""), (80, both[:5], "KiB/client; ms/round; worst 10%; new clients"),
            (50, both[:2], "shared; new clients; KiB/client; ms/round; over 10 clients; p, clients; worst 10%")):
        monkeypatch.setattr(show, "_console", lambda *_, width=width: Console(width=width, highlight=False,
                                                                              markup=False))
        done = call("compare", "study.toml", "--algorithm", "fedavg", "--algorithm",
                    "fedavg_finetune,tune_step_size=0.125", "--seeds", "2", "--rounds", "2", "--set", "data.new=2")
        assert done.exit_code == 0, done.output
        assert all(len(line) <= width for line in done.stdout.splitlines())
        assert "…" not in done.stdout
        header = re.split(r"2\s+seeds", done.stdout, maxsplit=1)[1].partition("─")[0]  # the title may be two lines
        assert sorted(header.split()) == sorted(["method", "personal", *titles])
        told = re.search(r"too narrow here for: (.+?)\. ", " ".join(done.stdout.split()))
        assert (told[1] if told else "") == missing


def test_report_is_one_file_and_refuses_what_is_no_run(call, tmp_path):
    call("run", "study.toml", "--out", "there")
    done = call("report", "there")
    assert done.output.strip() == "there/report.html"
    refused = call("report", str(tmp_path))
    assert refused.exit_code == 1 and "is not a run folder" in refused.output


def test_sweep_prints_the_best_first_and_names_failures(call):
    done = call("sweep", "study.toml", "--grid", "algorithm.step_size=0.1,1.0,-2.0", "--seeds", "1", "--rounds", "2")
    assert done.exit_code == 0, done.output
    assert "best: --set algorithm.step_size=1.0" in done.output
    assert "algorithm.step_size = -2.0; give a number above 0" in done.output
    assert "write key=a,b,c" in call("sweep", "study.toml", "--grid", "cohort").output


def test_describe_tells_paper_options_and_what_leaves_the_client(call):
    done = call("describe", "scaffold")
    assert "Karimireddy" in done.output and "server_step_size" in done.output
    assert "up    control_change/layer0/weight" in done.output
    assert "layer1/" not in done.output, "the private layer never travels"
    assert "Did you mean 'scaffold'?" in call("describe", "scafold").output


def test_predict_and_export_read_a_finished_run(call, tmp_path):
    import numpy as np
    from safetensors.numpy import load_file

    call("run", "study.toml", "--out", "there", "--set", "problem.split=output")
    np.savetxt("rows.csv", np.ones((3, 64)), delimiter=",")
    np.savez("rows.npz", x=np.ones((3, 64), np.float32))
    stranger = call("predict", "rows.csv", "--run", "there").output
    assert stranger.splitlines()[0] == "label,probability" and len(stranger.splitlines()) == 4
    assert call("predict", "rows.npz", "--run", "there").output == stranger
    assert call("predict", "rows.csv", "--run", "there", "--client", "99").exit_code == 1
    assert "unknown array in rows.npz: 'z'" in call("predict", "rows.npz", "--run", "there", "--array", "z").output
    done = call("export", "--run", "there")
    assert done.exit_code == 0, done.output
    about = json.loads((tmp_path / "there" / "export" / "model.json").read_text())
    assert len(about["clients"]) == 12
    for part, shapes in about["parts"].items():
        arrays = load_file(tmp_path / "there" / "export" / f"{part}.safetensors")
        assert {name: list(array.shape) for name, array in arrays.items()} == shapes


def test_predict_takes_the_columns_and_the_scale_of_the_data_of_the_run(call):
    import numpy as np

    import cantons as ct

    inputs = np.random.default_rng(0).normal(size=(40, 2)) * [1, 1000] + [5, 0]
    lines = [f"p{row % 4},{tall},{wide},{int(tall > 5)}" for row, (tall, wide) in enumerate(inputs)]
    Path("people.csv").write_text("\n".join(["who,tall,wide,label", *lines]))
    Path("turned.csv").write_text("\n".join(["wide,tall", *(f"{wide},{tall}" for tall, wide in inputs)]))
    Path("bare.csv").write_text("\n".join(f"{tall},{wide}" for tall, wide in inputs))
    Path("people.toml").write_text("""
rounds = 20
data = { name = "csv", path = "people.csv", client = "who", targets = "label", scale = "standard" }
problem = "logistic"
algorithm = "fedavg"
""")
    assert call("run", "people.toml", "--out", "there").exit_code == 0
    predicted = call("predict", "people.csv", "--run", "there").output
    assert len(predicted.splitlines()) == 41
    for rows in ("turned.csv", "bare.csv"):
        assert call("predict", rows, "--run", "there").output == predicted
    with_more = call("predict", "people.csv", "--run", "there", "--keep", "who", "--keep", "label", "--each").output
    table = [line.split(",") for line in with_more.splitlines()]
    assert table[0] == ["who", "label", "predicted label", "probability of 0", "probability of 1"]
    model = ct.load("there").client(None)
    for line, kept, brief, chances in zip(table[1:], lines, predicted.splitlines()[1:], model.predict_proba(
            {"tall": inputs[:, 0], "wide": inputs[:, 1]}), strict=True):
        label, chance = brief.split(",")
        assert line[:3] == [kept.split(",")[0], kept.split(",")[-1], label] and chance in line[3:]
        np.testing.assert_allclose([float(each) for each in line[3:]], chances, atol=1e-4)
    assert "unknown column of people.csv 'whom'. Did you mean 'who'?" in call(
        "predict", "people.csv", "--run", "there", "--keep", "whom").output
    assert "its columns have no names" in call("predict", "bare.csv", "--run", "there", "--keep", "who").output
    assert call("predict", "people.csv", "--run", "there", "--raw", "--each").exit_code == 2
    raw, scaled = (ct.csv("people.csv", client="who", targets="label", scale=how) for how in ("none", "standard"))
    np.save("rows.npy", raw.test.inputs)
    assert call("predict", "rows.npy", "--run", "there", "--out", "predicted.npy").exit_code == 0
    np.testing.assert_allclose(np.load("predicted.npy"), ct.load("there").outputs(scaled.test.inputs, encoded=True),
                               rtol=1e-5)


def test_describe_shows_the_clients_of_data_and_draws_their_labels(call, tmp_path):
    done = call("describe", "digits", "--set", "clients=7", "--set", "partition=dirichlet", "--plot", "skew.png")
    assert done.exit_code == 0, done.output
    assert "7 clients" in done.output and "label skew: 0." in done.output
    assert (tmp_path / "skew.png").stat().st_size > 5000
    assert "12 clients" in call("describe", "study.toml").output
    assert "Did you mean 'clients'?" in call("describe", "digits", "--set", "client=7").output
    assert "required" in call("describe", "csv").output
    both = call("describe", "linear").output
    assert "model linear" in both and "problem linear" in both
    (tmp_path / "own.py").write_text("from cantons.data import recorded\n@recorded\n"
                                     "def reader(path: str): 'Reads my files.'\n")
    assert "Reads my files." in call("describe", "own:reader").output
    assert "'math:pi' is not a function" in call("describe", "math:pi").output


STREAM = """
rounds = 6
[data]
name = "stream"
path = "visits.csv"
client = "who"
time = "when"
targets = "y"
test = 0
[problem]
name = "logistic"
[algorithm]
name = "fedomd"
[clock]
name = "online"
"""


def test_a_stream_without_test_rows_is_run_compared_and_reported_by_what_it_was_charged(call, tmp_path):
    rows = [f"{'ann' if when % 3 else 'bob'},{when},{when % 5},{when % 2}" for when in range(18)]
    (tmp_path / "visits.csv").write_text("\n".join(["who,when,x,y", *rows]))
    (tmp_path / "stream.toml").write_text(STREAM)
    for words in (["run", "stream.toml"], ["report", "results/stream-0", "--out", "page.html"],
                  ["compare", "stream.toml", "--algorithm", "fedomd", "--algorithm", "fedavg", "--seeds", "2"],
                  ["sweep", "stream.toml", "--grid", "algorithm.step_size=0.1,0.2", "--seeds", "1"]):
        done = call(*words)
        assert done.exit_code == 0, (words, done.output)
        assert "nan" not in done.output
        if words[0] in ("run", "compare"):
            assert "accuracy of each example before it was learned from" in done.output and "online" in done.output
