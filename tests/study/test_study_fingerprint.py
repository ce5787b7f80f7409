"""A result says what it is a result of: whatever differs is told, and nothing stale is shown or overwritten."""

import json
import shutil
import sys
from functools import partial
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from click.testing import CliRunner

import cantons as ct
from cantons.cli import demo
from cantons.cli.main import cantons
from cantons.errors import Notice
from cantons.reporting import write_report
from cantons.study import folder as folders
from cantons.study.fingerprint import DIGITS, RESULT, differences, fingerprint
from cantons.study.source import foreign_sources


@pytest.fixture(scope="module")
def problem(labels):
    return ct.logistic(labels)


@pytest.fixture(scope="module")
def play(labels, problem):
    """`play(out, ...)`: two rounds of FedAvg on one device."""

    def played(out, step_size=0.1, rounds=2, engine=None, data=labels, **options):
        return ct.run(problem, data, ct.fedavg(step_size=step_size), rounds=rounds, out=out, evaluate_every=2,
                      engine=engine or ct.Local(devices=1), **options)

    return played


@pytest.fixture(scope="module")
def finished(play, tmp_path_factory):
    path = tmp_path_factory.mktemp("finished") / "run"
    play(path)
    return path


@pytest.fixture
def run(finished, tmp_path):
    """A copy of a finished run."""
    return Path(shutil.copytree(finished, tmp_path / "run"))


def test_runs_that_are_one_program_are_told_from_runs_alone(finished):
    study, place = (json.loads((finished / f"{name}.json").read_text()) for name in ("study", "environment"))
    alone, together = fingerprint(study, place), fingerprint(study, place, together=2)
    assert differences(alone, together, DIGITS) and not differences(alone, together, RESULT)


def contents(folder):
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def rewrite(file, change):
    table = json.loads(file.read_text())
    change(table)
    file.write_text(json.dumps(table))


def other_jax(monkeypatch):
    known = folders.versions()
    monkeypatch.setattr(folders, "versions", lambda: {**known, "jax": "0.0.1"})


# What is compared

STUDY = {"name": "one", "seed": 0, "rounds": 2, "algorithm": {"name": "fedavg"}, "source": {"votes": "3f"},
         "data": {"checksum": "a", "made_by": {"name": "csv", "path": "/here"}},
         "engine": {"name": "local", "devices": None}}
PLACE = {"versions": {"jax": "1", "torch": None}, "devices": ["cpu", "cpu"], "platform": "cpu"}


@pytest.mark.parametrize("study, place, found", [
    ({"rounds": 9, "name": "two", "keep": 1, "evaluate_every": 3}, {}, []),
    ({"seed": 1}, {}, ["its seed is 0, here it is 1"]),
    ({"algorithm": {"name": "fedavg", "epochs": 2}}, {}, ["its algorithm.epochs is null, here it is 2"]),
    ({"data": {"checksum": "b", "made_by": {"name": "csv", "path": "/there"}}}, {},
     ['its data.checksum is "a", here it is "b"']),
    ({"data": {**STUDY["data"], "notes": ["other words"]}}, {}, []),
    ({"source": {"votes": "00"}}, {}, ["its source of votes is another text than here"]),
    ({"source": {}}, {}, ["it was made with the source of votes, which is not used here"]),
    ({}, {"versions": {"jax": "2", "torch": "1"}}, ['its jax is "1", here it is "2"']),
    ({}, {"devices": ["cpu"]}, ["its engine.devices is 2, here it is 1"]),
    ({"engine": {"name": "plain"}}, {}, ['its engine.name is "local", here it is "plain"',
                                         "its engine.devices is 2, here it is 1"]),
])
def test_what_differs_is_said(study, place, found):
    old, new = fingerprint(STUDY, PLACE), fingerprint({**STUDY, **study}, {**PLACE, **place})
    assert differences(old, new) == found
    assert differences(old, new, RESULT) + differences(old, new, DIGITS) == found


def test_the_source_of_a_part_is_found_wherever_the_part_keeps_it(tmp_path, monkeypatch):
    (tmp_path / "helping.py").write_text("def double(x): return 2 * x\n")
    (tmp_path / "own_parts.py").write_text("import helping\n"
                                       "def apply(params, x): return helping.double(x @ params)\n"
                                       "class Model:\n    def predict(self, x): return apply(x, x)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    import own_parts

    by_function = ct.from_functions(lambda key: jnp.zeros((4, 3)), own_parts.apply)
    for part in (by_function, partial(own_parts.apply, 1), {"schedule": own_parts.apply}, [own_parts.Model()]):
        assert {"helping", "own_parts"} <= foreign_sources(part).keys()
    before = foreign_sources(own_parts.apply)
    (tmp_path / "helping.py").write_text("def double(x): return 3 * x\n")
    after = foreign_sources(own_parts.apply)
    assert before["own_parts"] == after["own_parts"] and before["helping"] != after["helping"]
    assert foreign_sources([ct.fedavg(), ct.Local(), np.mean, jnp.tanh, shutil.copytree]) == {}
    assert foreign_sources((), [{"name": "own_parts:apply"}]).keys() == {"own_parts"}
    for name in ("helping", "own_parts"):
        sys.modules.pop(name)


# Going on with a run


@pytest.mark.parametrize("options, words", [
    ({"seed": 1}, "its seed is 0, here it is 1"),
    ({"step_size": 0.2}, "its algorithm.step_size is 0.1, here it is 0.2"),
    ({"initial": ({"layer0": {"bias": np.ones(3), "weight": np.ones((4, 3))}}, ())}, "its initial is null"),
    ({"rounds": 1}, "has already run 2 rounds"),
    ({"engine": ct.Local(devices=2)}, "its engine.devices is 1, here it is 2.*--accept-changes"),
    ({"engine": ct.Plain()}, "--accept-changes"),
])
def test_another_run_is_refused_and_the_folder_left_alone(run, play, options, words):
    before = contents(run)
    with pytest.raises(ct.InputError, match=words):
        play(run, resume=True, **options)
    assert contents(run) == before


def test_other_data_are_refused(run, play, labels):
    from dataclasses import replace

    train = replace(labels.train, inputs=labels.train.inputs + 1)
    with pytest.raises(ct.InputError, match="holds another study: its data.checksum is"):
        play(run, resume=True, data=replace(labels, clients=replace(labels.clients, train=train)))


@pytest.mark.parametrize("clock, array", [
    (lambda path: ct.rounds(cohort=2, available=path), {"available": np.ones((3, 7), bool)}),
    (lambda path: ct.asynchronous(durations={"name": "trace", "path": path}), {"durations": np.arange(1.0, 8.0)}),
], ids=["available", "durations"])
def test_a_clocks_file_with_other_numbers_is_refused(labels, play, tmp_path, clock, array):
    path = str(tmp_path / "trace.npz")
    np.savez(path, **array)
    play(tmp_path / "run", clock=clock(path))
    play(tmp_path / "run", clock=clock(path), resume=True)
    np.savez(path, **{name: np.repeat(numbers, 2, axis=0)[:7] for name, numbers in array.items()})
    with pytest.raises(ct.InputError, match="holds another study: its clock_checksum is"):
        play(tmp_path / "run", clock=clock(path), resume=True)


def test_changes_are_accepted_when_asked_and_the_summary_says_from_which_round_on(run, play, monkeypatch):
    with monkeypatch.context() as patch:
        other_jax(patch)
        with pytest.raises(ct.InputError, match="its jax is .*, here it is \"0.0.1\".*--accept-changes"):
            play(run, resume=True, rounds=3)
        result = play(run, resume=True, rounds=3, accept_changes=True)
    (change,) = result.summary["changes"]
    assert change["after_round"] == 2 and "0.0.1" in change["changes"][0]
    with pytest.raises(ct.InputError, match="its jax is \"0.0.1\""):
        play(run, resume=True, rounds=3)
    again = play(run, resume=True, rounds=3, accept_changes=True)
    assert [change["after_round"] for change in again.summary["changes"]] == [2, 3]
    assert json.loads((run / "summary.json").read_text())["changes"] == again.summary["changes"]


def test_a_checkpoint_of_another_seeds_run_is_refused(run, play, tmp_path):
    play(tmp_path / "other", seed=1)
    shutil.rmtree(run / "checkpoints")
    shutil.copytree(tmp_path / "other" / "checkpoints", run / "checkpoints")
    with pytest.raises(ct.InputError, match="checkpoint .*holds another study: its seed is 1, here it is 0"):
        play(run, resume=True)
    with pytest.raises(ct.InputError, match="checkpoint .*holds another study: its seed is 1, here it is 0"):
        ct.load(run)


def test_rollouts_refuse_folders_of_other_rollouts(labels, problem, tmp_path):
    def roll(*sizes):
        return ct.rollouts(problem, labels, [ct.fedavg(step_size=size) for size in sizes], rounds=1, seed=[0, 0],
                           out=tmp_path)

    first = roll(0.1, 0.2)
    final = "test.personal.loss.mean"
    assert [history[-1][final] for history in roll(0.1, 0.2)] == [history[-1][final] for history in first]
    with pytest.raises(ct.InputError, match="its algorithm.step_size is 0.2, here it is 0.3"):
        roll(0.1, 0.3)


# Loading and reporting


def test_other_versions_are_told_by_load_and_on_the_command_line(run):
    rewrite(run / "environment.json", lambda place: place["versions"].update(jax="0.0.1"))
    with pytest.warns(Notice, match="its jax is \"0.0.1\", here it is"):
        ct.load(run)
    np.save(run / "rows.npy", np.zeros((1, 4), np.float32))
    done = CliRunner().invoke(cantons, ["predict", str(run / "rows.npy"), "--run", str(run)])
    assert done.exit_code == 0, done.output
    assert len(done.stderr.splitlines()) == 1 and "0.0.1" in done.stderr and "0.0.1" not in done.stdout


def test_a_report_says_if_its_runs_were_made_in_different_places(run, play, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(run, other)
    rewrite(other / "study.json", lambda study: study.update(seed=1))
    write_report([run, other], tmp_path / "page.html")  # without a word
    rewrite(other / "environment.json", lambda place: place["versions"].update(jax="0.0.1"))
    with pytest.warns(Notice, match="other was made elsewhere than .*run: its jax is \"0.0.1\", there it is"):
        write_report([run, other], tmp_path / "page.html")


def test_data_that_have_changed_are_not_used(run, labels, tmp_path, play):
    with pytest.raises(ct.InputError, match="the data are not those that"):
        ct.load(run, data=ct.from_clients({"a": (np.zeros((2, 4)), np.zeros(2, int))}, classes=3, test=0))
    assert ct.load(run, data=labels).outputs(np.zeros((1, 4)), client=0).shape == (1, 3)
    rows = {"x": np.random.default_rng(0).normal(size=(20, 4)), "y": np.arange(20) % 3, "who": np.arange(20) % 2}
    np.savez(tmp_path / "rows.npz", **rows)
    data = ct.npz(tmp_path / "rows.npz", client="who")
    play(tmp_path / "file", data=data)
    np.savez(tmp_path / "rows.npz", **{**rows, "x": rows["x"] + 1})
    with pytest.warns(Notice, match="the data are not those that .*Clients whose models are fitted"):
        trained = ct.load(tmp_path / "file")
    assert trained.outputs(np.zeros((1, 4))).shape == (1, 3)
    assert trained.data is None


# The commands

TOML = """
rounds = 1
[data]
name = "npz"
path = "rows.npz"
client = "who"
[problem]
name = "logistic"
[algorithm]
name = "own_method:method"
"""
METHOD = """
import cantons as ct
from cantons.recipe import algorithm

@algorithm
def method(problem, population, *, step_size: float = 0.1):
    return ct.fedavg(step_size=step_size).build(problem, population)
"""


@pytest.fixture
def call(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    rows = np.random.default_rng(0).normal(size=(20, 4))
    np.savez("rows.npz", x=rows, y=np.arange(20) % 2, who=np.arange(20) % 2)
    Path("study.toml").write_text(TOML)
    Path("own_method.py").write_text(METHOD)

    def called(words, sentence=""):
        done = CliRunner().invoke(cantons, words.split())
        assert done.exit_code == int(bool(sentence)), done.output
        assert sentence in done.output
        return done

    yield called
    sys.modules.pop("own_method", None)


def test_a_sweep_shows_no_table_of_another_sweep(call):
    words = "sweep study.toml --grid algorithm.step_size=0.1,0.5 --seeds 1 --out o"
    first = call(f"{words} --rounds 1")
    before = contents(Path("o"))
    assert call(f"{words} --rounds 1").stdout == first.stdout
    call(f"{words} --rounds 2", "holds this run with 1 rounds, here there are 2; ask for as many, or choose another")
    call(f"{words} --rounds 1 --set algorithm.name=fedprox", "its algorithm.name is \"own_method:method\", here it is")
    Path("own_method.py").write_text(METHOD + "# edited")
    call(f"{words} --rounds 1", "its source of own_method is another text than here")
    assert contents(Path("o")) == before


def test_compare_refuses_runs_of_an_edited_algorithm_before_anything_runs(call):
    words = "compare study.toml --algorithm fedsgd --algorithm own_method:method --seeds 1 --out o"
    call(words)
    shutil.rmtree("o/fedsgd-0")
    Path("own_method.py").write_text(METHOD + "# edited")
    call(words, "its source of own_method is another text than here")
    assert not Path("o/fedsgd-0").exists()


def test_compare_refuses_an_unknown_reference_before_anything_runs(call):
    call("compare study.toml --seeds 1 --out o --reference zz", "unknown reference 'zz'")
    assert not Path("o").exists()


def test_the_demo_leaves_a_run_alone_that_is_not_its_own(run, tmp_path):
    shutil.copytree(run, tmp_path / "m" / "independent-0")
    before = contents(tmp_path / "m")
    with pytest.raises(ct.InputError, match="holds another study"):
        demo.play(tmp_path / "m", 1, ct.Callback())
    assert contents(tmp_path / "m") == before
