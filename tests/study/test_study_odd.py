"""Studies that nobody would write, and parts that fail: one sentence each, and never a traceback."""

import pytest
from click.testing import CliRunner

import cantons as ct
from cantons import memory
from cantons.cli.changes import parsed, parsed_grid
from cantons.cli.main import cantons
from cantons.protocol import Progress
from cantons.study.client_names import index_of
from cantons.study.describe import describe_part
from cantons.study.log import Log
from cantons.study.read import read_study
from cantons.study.record import Seen

STUDY = """
rounds = 2
[data]
name = "restaurants"
examples = 5
[problem]
name = "linear"
[algorithm]
name = "fedavg"
"""
MODULE = """
import sys
import cantons as ct
from cantons.recipe import algorithm, problem
@problem
def fails(data):
    return {}["x"]
def helper(table):
    return table["y"]
@problem
def deeper(data):
    return helper({})
@problem
def leaves(data):
    sys.exit(3)
@problem
def nothing(data):
    return None
@problem
def strange(data, width: "Missing" = 3):
    return None
@algorithm
def method(problem, population, *, step_size: float = 0.1):
    raise ValueError("no such thing")
"""


@pytest.fixture
def study(tmp_path, monkeypatch):
    (tmp_path / "s.toml").write_text(STUDY)
    (tmp_path / "odd_parts.py").write_text(MODULE)
    (tmp_path / "odd_top.py").write_text("raise RuntimeError('at the top')\n")
    (tmp_path / "odd_syntax.py").write_text("def f(:\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path / "s.toml"


FILES = {
    "many digits": (b"rounds = " + b"9" * 5000, "is no study"),
    "deep lists": (b"rounds = " + b"[" * 3000, "is no study: its lists or tables are nested too deeply"),
    "nested lists": (b"rounds = " + b"[" * 100 + b"]" * 100, "rounds' is nested in more than 32 tables and lists"),
    "NUL": (STUDY.encode() + b'step_size = "a\\u0000"', "step_size = 'a.x00'; give text without the character NUL"),
    "bytes": (b"\xff\xfe", "is not UTF-8 text"),
    "large": (b"#" * (2**24 + 1), "larger than 16 MiB"),
}


@pytest.mark.parametrize(("text", "sentence"), FILES.values(), ids=list(FILES))
def test_a_file_that_is_no_study_is_refused(study, text, sentence):
    study.write_bytes(text)
    with pytest.raises(ct.InputError, match=rf"s.toml.*{sentence}"):
        read_study(study)


def test_a_folder_is_no_study_and_an_endless_file_neither(tmp_path):
    from pathlib import Path

    with pytest.raises(ct.InputError, match="cannot read the study .*: Is a directory"):
        read_study(tmp_path)
    with pytest.raises(ct.InputError, match="larger than 16 MiB"):
        read_study(Path("/dev/zero"))


@pytest.mark.parametrize(("change", "sentence"), {
    "problem=:": "':' is no name of a problem",
    "problem=json:": "'json:' is no name of a problem",
    "data.name=.x:y": "'.x:y' is no name of data",
    "data.name=..:..": "'..:..' is no name of data",
    "problem=math:pi": "'math:pi' is not a function",
    "problem=odd_top:x": "odd_top:x failed with RuntimeError: at the top",
    "problem=odd_syntax:x": "cannot find the problem 'odd_syntax:x': invalid syntax",
    "problem=odd_parts:fails": 'odd_parts.py, line 7: return {}["x"]',
    "problem=odd_parts:deeper": 'odd_parts.py, line 9: return table["y"]',
    "problem=odd_parts:leaves": "odd_parts:leaves failed with SystemExit: 3",
    "problem=odd_parts:nothing": "odd_parts:nothing returned a NoneType; return a Problem",
    "problem=odd_parts:strange": "cannot tell which options strange has",
    "algorithm.name=odd_parts:method": "method failed with ValueError: no such thing",
    "data={name='csv', targets='y', path='" + "a" * 300 + "'}": "File name too long",
    "problem={name='dual_encoder', vocabulary=9}": "dual_encoder got inputs of type float",
    "data.examples=" + "9" * 5000: "data.examples = '999",
    "data.examples=" + "9" * 4000: "data.examples = 999",
    "..=1": "unknown key ''",
    "algorithm..=3": "unknown option in [algorithm] ''",
    "a." * 3000 + "b=1": "nested in more than 32",
    "algorithm=[1]": "algorithm is [1]; give a name",
    "algorithm.step_size=2020-01-01": "algorithm.step_size = datetime.date(2020, 1, 1); give a valid number",
    "algorithm={name='fedadam', beta1=2}": "algorithm.beta1 = 2; give a number from 0 to below 1",
    "data.test=1e-320": "data.test = 1e-320; give a number from 0 to below 1, and 1e-37 at least unless it is 0",
}.items())
def test_an_odd_change_is_refused_in_a_sentence(study, change, sentence):
    with pytest.raises(ct.InputError) as error:
        read_study(study, parsed([change])).run()
    assert sentence in str(error.value) and len(str(error.value)) < 600


@pytest.mark.parametrize("name", ["fedres_erm", "fictitious_play"])
def test_several_targets_are_refused_where_one_is_predicted(study, name):
    rewards = {"name": "classification_bandit", "source": {"name": "digits", "clients": 2}}
    with pytest.raises(ct.InputError, match="predicts one number for each example, and these have targets of shape"):
        read_study(study, {"data": rewards, "problem": {"name": "residual"}, "algorithm": {"name": name},
                           "clock": {"name": "online"}}).run()


def test_a_change_nested_too_deeply_is_refused():
    with pytest.raises(ct.InputError, match="nested too deeply"):
        parsed(["problem=" + "[" * 3000])


def test_the_exception_of_a_users_part_is_the_cause(study):
    with pytest.raises(ct.InputError) as error:
        read_study(study, {"problem": "odd_parts:fails"}).run()
    causes, here = [], error.value
    while here is not None:
        causes.append(type(here))
        here = here.__cause__
    assert causes[-1] is KeyError


def test_a_grid_gives_every_value_once():
    with pytest.raises(ct.InputError, match="--grid got algorithm.step_size=0.1 twice"):
        parsed_grid(["algorithm.step_size=0.1,0.10"])


@pytest.mark.parametrize("name", ["math:pi", "builtins:print", ":", "a:", "json:loads", "math:sqrt", "", "\x00", "é",
                                  "numpy:ndarray", "typing:Any", "x" * 10_000])
def test_describing_an_odd_name_is_described_or_refused(name):
    try:
        describe_part(name)
    except ct.InputError as error:
        assert len(str(error)) < 1000


@pytest.mark.parametrize("name", ["²", "٣", "9" * 5000])
@pytest.mark.parametrize("names", [("0", "1"), ("north", "south", "east", "west")], ids=["numbers", "words"])
def test_a_client_is_numbered_in_plain_digits(name, names):
    with pytest.raises(ct.InputError, match="unknown client") as error:
        index_of(name, names)
    assert len(str(error.value)) < 1000


@pytest.mark.parametrize(("make", "sentence"), {
    "synthetic": (lambda: ct.synthetic(clients=2**31 - 1), "synthetic data of 2147483647 clients"),
    "features": (lambda: ct.synthetic(features=2**31 - 1), "needs .* GiB of memory, there are 1"),
    "mixture": (lambda: ct.synthetic_mixture(examples=2**31 - 1), "synthetic_mixture with 10 clients"),
    "least squares": (lambda: ct.synthetic_least_squares(rows=2**31 - 1), "synthetic_least_squares with 32 clients"),
    "targets": (lambda: ct.drifting_targets(dimensions=2**31 - 1), "drifting_targets with 20 clients"),
    "bandit": (lambda: ct.synthetic_bandit(contexts=2**31 - 1), "synthetic_bandit with 20 clients"),
    "restaurants": (lambda: ct.restaurants(examples=2**31 - 1), "restaurants with 2147483647 examples"),
    "digits": (lambda: ct.digits(clients=2**31 - 1), "there are not enough rows for the tasks of 2147483647 clients"),
    "dirichlet": (lambda: ct.digits(clients=2**31 - 1, partition="dirichlet"), "are too many"),
    "model": (lambda: run(ct.fedavg(), hidden=[2**31 - 1]), "the model needs .* GiB of memory"),
    "rings": (lambda: run(ct.fedomd(), clock=ct.online(max_delay=2**31 - 1)), "the state of 2 clients"),
    "sync": (lambda: run(ct.fedomd(), clock=ct.online(sync=[1, 2**31 - 1])), "a list of synchronisations up to step"),
}.values())
def test_what_does_not_fit_is_refused_before_it_is_taken(monkeypatch, make, sentence):
    monkeypatch.setattr(memory, "available", lambda: 2**30)
    with pytest.raises(ct.InputError, match=sentence):
        make()


def run(recipe, hidden=None, clock=None):
    data = ct.restaurants(examples=5)
    problem = ct.regression(data, ct.linear() if hidden is None else ct.mlp(hidden))
    return ct.run(problem, data, recipe, rounds=1, clock=clock)


def look_at(*losses):
    """What is said about training losses at the rounds 0, 1, ..."""
    from types import SimpleNamespace

    import numpy as np

    log = Log(SimpleNamespace(study={"name": "x"}, liars=None), None)
    log.online, log.seen = SimpleNamespace(why_not=""), Seen()
    said = []
    for round, loss in enumerate(losses):
        log.history.append({"round": round, "train.personal.loss.mean": loss})
        zeros = np.zeros(2, int)
        said += log.look_at(Progress(round, 0, zeros, zeros, zeros, None, {}, zeros, {}, 0))
    return said


def test_a_loss_that_grows_beyond_sense_is_told_once():
    assert look_at(2.0, 1e3, 3e29, 1e30) == [
        "at round 2 the training loss is 3e+29, and it was 2 at round 0; a smaller step_size may help."]
    assert look_at(1e9, 1e10) == look_at(1.0, 999.0) == []
    assert len(look_at(1.0, float("nan"), 1e30)) == len(look_at(2.4, 3924.0)) == 1
    assert "not a number" in look_at(1.0, float("inf"))[0]


def test_a_run_without_test_rows_ends_well(study):
    done = CliRunner().invoke(cantons, ["run", str(study), "--out", "ran", "--set", "data.test=0"])
    assert done.exit_code == 0
    assert "no table: ran has no test scores" in done.output and "run folder: ran" in done.output
