"""Whatever is wrong with what a user gives: one sentence, exit code 1, no traceback, whichever the command."""

import errno
import os
import subprocess
import sys

import numpy as np
import pytest
from click.testing import CliRunner

from cantons.cli.main import cantons

STUDY = """
rounds = 2
[data]
name = "csv"
path = "{}.csv"
client = "who"
targets = "label"
scale = "standard"
[problem]
name = "logistic"
[algorithm]
name = "fedavg"
batch_size = 4
"""
READER = """
import numpy as np
import cantons as ct
from cantons.data import recorded

@recorded
def reader():
    return ct.federation(np.zeros((4, 2)), np.array([0, 1, 2, 7]), np.array([0, 0, 1, 1]), classes=3)
"""
SPOILT = {  # the line that is not like the others
    "good": "c0,1.0,2.0,0", "nan": "c0,nan,2.0,0", "word": "c0,high,2.0,0", "short": "c0,1.0,0",
    "label": "c0,1.0,2.0,0.5",
}


def call(*words):
    return CliRunner().invoke(cantons, words)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Studies and rows with one mistake each, and a finished run of the good one in `ran`."""
    folder = tmp_path_factory.mktemp("mistakes")
    for name, line in SPOILT.items():
        rows = [f"c{row % 4},{row}.5,{-row % 5}.25,{row % 2}" for row in range(24)]
        (folder / f"{name}.csv").write_text("\n".join(["who,height,width,label", *rows, line]) + "\n")
    for name in (*SPOILT, "gone"):
        (folder / f"{name}.toml").write_text(STUDY.format(name))
    (folder / "mislabelled.py").write_text(READER)
    (folder / "mislabelled.toml").write_text(
        'rounds = 2\ndata = "mislabelled:reader"\nproblem = "logistic"\nalgorithm = "fedavg"\n')
    (folder / "bytes.toml").write_bytes(b"\xff\xfe")
    (folder / "bare.csv").write_text("1,2,3\n")
    (folder / "hole.csv").write_text("height,width\n1,nan\n")
    (folder / "renamed.csv").write_text("height,depth\n1,2\n")
    np.savez(folder / "wide.npz", x=np.zeros((3, 5)), y=np.zeros(2, int), user=np.arange(3))
    np.save(folder / "words.npy", np.array([["a", "b"]]))
    np.save(folder / "none.npy", np.zeros((0, 2)))
    (folder / "theirs").mkdir()
    (folder / "theirs" / "model.json").write_text("{}")
    (folder / "theirs" / "report.html").write_text("<html>all of my thesis</html>")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        done = call("run", "good.toml", "--out", "ran")
    assert done.exit_code == 0, done.output
    return folder


RUNS = (["run", "{}", "--out", "x"], ["compare", "{}", "--out", "x", "--seeds", "1"],
        ["sweep", "{}", "--grid", "algorithm.epochs=1,2", "--out", "x", "--seeds", "1"])
STUDIES = {
    "nowhere.toml": "cannot read the study nowhere.toml: No such file",
    "bytes.toml": "bytes.toml is not TOML",
    "gone.toml": "gone.toml: [data] cannot read gone.csv: No such file",
    "nan.toml": "nan.toml: [data] column 'height' in nan.csv has no value in line 26",
    "word.toml": "column 'height' in word.csv holds 'high'",
    "short.toml": "line 26 of short.csv has 3 values for 4 columns",
    "label.toml": "targets in label.csv hold 0.5, which is no label",
    "mislabelled.toml": "targets hold label 7",
}
CHANGES = {
    "algorithm.name=fedavgg": "Did you mean 'fedavg'?",
    "algorithm.name=3": "algorithm.name = 3; give a name",
    "algorithm.stepsize=1": "Did you mean 'step_size'?",
    "algorithm.step_size=big": "algorithm.step_size = 'big'; give a valid number",
    "algorithm.step_size=-1": "algorithm.step_size = -1; give a number above 0",
    "cohort=99": "cohort is 99 but there are only 4 clients",
    "cohort=two": "cohort = 'two'; give a valid integer",
    "rounds.x=1": "rounds is 2 and has no keys of its own",
    "data.client=whom": "Did you mean 'who'?",
    "data.scale=3": "data.scale = 3",
    "problem.model=mlp": "unknown option in [problem] 'model'",
    "problem.name=linear": "regression = true",
    "problem.name=os:path": "'os:path' is not a function",
}
OTHERS = {
    "compare good.toml --algorithm fedavgg": "Did you mean 'fedavg'?",
    "compare good.toml --algorithm fedavg --algorithm fedprox,mue=1": "Did you mean 'mu'?",
    "compare good.toml --algorithm fedavg --algorithm fedprox,mu=-1": "algorithm.mu = -1; give 0 or more",
    "compare good.toml --algorithm fedprox,mu": "as in fedprox,mu=0.1",
    "compare good.toml --algorithm fedavg --algorithm fedavg": "two of the methods are called 'fedavg'",
    "compare good.toml mislabelled.toml --algorithm fedavg": "give a single study",
    "compare good.toml mislabelled.toml": "mislabelled.toml has other data than good.toml",
    "compare good.toml --algorithm fedavg --algorithm fedsgd --reference fedsdg": "Did you mean 'fedsgd'?",
    "compare good.toml --reference zz": "unknown reference 'zz'",
    "compare good.toml --set seed=3": "say how many with --seeds",
    "compare good.toml --set data.test=0 --out x": "good.toml: good has no test rows to compare by; set some aside",
    "compare good.toml --algorithm fedavg --algorithm fedsgd --set data.test=0 --out x": "has no test rows",
    "sweep good.toml --grid seed=1,2": "say how many with --seeds",
    "sweep good.toml --grid algorithm.step_size=0.1 --out good.csv": "cannot write good.csv",
    "run good.toml --out ran": "already holds a run",
    "run good.toml --out good.csv/x": "cannot write good.csv/x: Not a directory",
    "run good.toml --out good.csv": "good.csv exists and is not a run folder",
    "run good.toml --set name=../../x": "the name '../../x' cannot be that of a folder: it holds '/'",
    "run good.toml --set name=/x": "the name '/x' cannot be that of a folder",
    "run good.toml --set name=..": "the name '..' cannot be that of a folder: it has no letters",
    'run good.toml --set name="a\\u0000b"': "give text without the character NUL",
    "compare good.toml --set name=../x --out x": "the name '../x' cannot be that of a folder",
    "sweep good.toml --grid algorithm.step_size=0.1,'0.1' --out x": "would share the folder step_size=0.1",
    "report nowhere": "nowhere is not a run folder",
    "report good.csv": "is not a run folder",
    "report ran --out good.csv/x.html": "cannot write good.csv: ",
    "report ran --out good.toml": "good.toml exists and was not written by this command",
    "report ran --out ran": "cannot write ran: it is a folder",
    "report ran --out /dev/null --overwrite": "cannot write /dev/null: it is not a plain file",
    "report ran --reference fedavgg": "Did you mean 'fedavg'?",
    "describe fedavgg": "Did you mean 'fedavg'?",
    "describe nan.toml": "nan.toml: [data] column 'height' in nan.csv has no value in line 26",
    "describe nowhere.toml": "cannot read the study nowhere.toml",
    "describe mislabelled.toml": "targets hold label 7",
    "describe digits --set clients=many": "data.clients = 'many'; give a valid integer",
    "describe csv --set path=good.csv": "data.targets is missing",
    "describe csv --set path=short.csv --set targets=label --set client=who": "has 3 values for 4 columns",
    "describe fedavg --set step_size=1": "--set and --plot are for data",
    "predict nowhere.csv --run ran": "cannot read nowhere.csv: No such file",
    "predict good.csv --run nowhere": "nowhere is not a run folder",
    "predict good.csv --run ran --client dee": "unknown client 'dee'",
    "predict good.csv --run ran --out good.csv/x.npy": "cannot write good.csv/x.npy: Not a directory",
    "predict good.csv --run ran --out good.csv": "good.csv exists and was not written by this command",
    "predict bare.csv --run ran": "bare.csv: the rows have shape (1, 3), and this model was trained on",
    "predict wide.npz --run ran": "wide.npz: the rows have shape (3, 5)",
    "predict wide.npz --run ran --array z": "unknown array in wide.npz: 'z'. Known: ",
    "predict hole.csv --run ran": "hole.csv: the rows hold nan in line 2",
    "predict word.csv --run ran": "word.csv: the column 'height' holds 'high' in line 26; give numbers",
    "predict short.csv --run ran": "has 3 values for 4 columns",
    "predict renamed.csv --run ran": "renamed.csv: the rows have no column 'width'; this model was",
    "predict words.npy --run ran": "give numbers",
    "predict none.npy --run ran": "none.npy: there are no rows",
    "predict mislabelled.py --run ran": "give a .npy, .npz or .csv file",
    "export --run nowhere": "nowhere is not a run folder",
    "export --run ran --out good.csv": "cannot write good.csv",
    "export --run ran --out theirs": "theirs/model.json exists and was not written by this command",
    "describe digits --plot good.csv": "good.csv exists and was not written by this command",
    "describe digits --plot nowhere/x.png": "cannot write nowhere/x.png: No such file",
    "demo --out theirs": "theirs/report.html exists and was not written by this command",
    "compare good.toml --out theirs": "theirs/report.html exists and was not written by this command",
}


@pytest.mark.parametrize("words, sentence", [
    *((" ".join(words).format(study), sentence) for study, sentence in STUDIES.items() for words in RUNS),
    *((" ".join([*words, "--set", change]).format("good.toml"), sentence)
      for change, sentence in CHANGES.items() for words in RUNS),
    *OTHERS.items(),
])
def test_a_mistake_is_one_sentence_and_exit_code_1(folder, monkeypatch, words, sentence):
    monkeypatch.chdir(folder)
    done = call(*words.split())
    assert isinstance(done.exception, SystemExit), repr(done.exception)
    assert sentence in done.output
    assert (done.exit_code, len(done.output.strip().splitlines())) == (1, 1), done.output
    assert not (folder / "x").exists(), "what is refused leaves nothing behind"
    assert (folder / "good.csv").read_text().startswith("who,height,width,label")


def test_what_a_command_wrote_it_replaces_and_the_rest_only_with_overwrite(folder, monkeypatch):
    monkeypatch.chdir(folder)
    for words in ("report ran", "export --run ran", "predict good.csv --run ran --out predicted",
                  "describe good.toml --plot labels.png"):
        for again in (False, True):
            done = call(*words.split())
            ours = not again or words.startswith(("report", "export"))
            assert done.exit_code == (0 if ours else 1), done.output
            assert ours or "--overwrite" in done.output
        assert call(*words.split(), "--overwrite").exit_code == 0
    assert np.load("predicted").shape == (25, 2), "the file that was asked for, without an ending added to it"
    assert not [path for path in folder.rglob("*.part")]


def test_whatever_the_system_says_is_one_sentence(folder, monkeypatch):
    monkeypatch.chdir(folder)

    def full(*paths):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("cantons.cli.show.parts", full)
    done = call("list")
    assert isinstance(done.exception, SystemExit)
    assert (done.exit_code, done.output) == (1, "Error: cannot read or write: No space left on device.\n")


def test_an_output_that_is_full_is_one_sentence():
    with open("/dev/full", "w") as full:
        done = subprocess.run([sys.executable, "-m", "cantons.cli.main", "list", "clock"], stdout=full,
                              stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == "Error: cannot read or write: No space left on device.\n"


@pytest.mark.parametrize("words", [["run", "study.toml", "a\nb"], ["a\nb"], ["run", "x", "--rounds", "a\nb"]])
def test_words_with_lines_of_their_own_are_told_in_one(words, folder, monkeypatch):
    monkeypatch.chdir(folder)
    done = call(*words)
    assert done.exit_code == 2 and "a\\nb" in done.output.splitlines()[-1]
