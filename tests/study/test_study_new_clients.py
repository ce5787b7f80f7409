"""Clients who are held out of training have a table of their own: what each of them scores on its first day."""

import signal

import numpy as np
import pytest

import cantons as ct
from cantons.cli.changes import parsed_grid
from cantons.protocol import Evaluation
from cantons.study.reading import read_new_clients
from cantons.study.resolve import sample_clients
from cantons.study.sweep import sweep

DATA = ct.synthetic(clients=14, features=4, largest=40, seed=0, new=5)
NOBODY_NEW = ct.synthetic(clients=9, features=4, largest=40, seed=0)
PROBLEM = ct.logistic(DATA, split="*bias")
STUDY = """
rounds = 2
[data]
name = "synthetic"
clients = 14
features = 4
largest = 40
new = 5
[problem]
name = "logistic"
split = "*bias"
[algorithm]
name = "ffgg"
"""


class Stop(ct.Callback):
    """Ctrl-C in the first round."""

    def advanced(self, round, rounds):
        signal.raise_signal(signal.SIGINT)


def play(data=DATA, **options):
    return ct.run(PROBLEM, data, ct.ffgg(), **{"rounds": 2, "cohort": 3, "seed": 1, **options})


def same(left, right):
    assert left.keys() == right.keys()
    for name, column in left.items():
        np.testing.assert_array_equal(column, right[name], err_msg=name)


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    return play(out=tmp_path_factory.mktemp("new") / "run")


def test_the_table_has_every_new_client_and_its_means_are_those_of_the_evaluation(result):
    assert list(result.new_clients["client"]) == list(DATA.new.names)
    assert not set(DATA.new.names) & set(result.clients["client"])
    np.testing.assert_array_equal(result.new_clients["test_examples"], DATA.new.test.sizes)
    np.testing.assert_array_equal(result.new_clients["train_examples"], DATA.new.train.sizes)
    for name in (f"{rows}.{model}.{metric}" for rows in ("test", "train") for model in ("personal", "shared")
                 for metric in ("loss", "accuracy")):
        assert np.mean(result.new_clients[name]) == pytest.approx(result.final[f"new_{name}.mean"], rel=1e-6)


def test_the_file_holds_what_the_result_holds(result):
    written = read_new_clients(result.folder)
    assert written == {name: list(map(str, column)) for name, column in result.new_clients.items()}
    assert "clients, new_clients, frame()" in str(result)


def test_a_run_without_new_clients_has_no_such_table(tmp_path):
    without = play(NOBODY_NEW, out=tmp_path / "run")
    assert without.new_clients == {} and not (tmp_path / "run" / "new_clients.csv").exists()
    assert "clients, frame()" in str(without)


def test_of_a_sample_those_who_were_not_scored_have_nan(result):
    found, chosen = play(evaluate_clients=2), sample_clients(DATA, 1, 2)["new"]
    values = np.asarray(found.new_clients["test.personal.loss"])
    assert np.flatnonzero(np.isfinite(values)).tolist() == chosen.tolist()
    np.testing.assert_allclose(values[chosen], result.new_clients["test.personal.loss"][chosen], rtol=1e-5)
    assert (found.new_clients["test_examples"] > 0).all()


def test_a_finished_run_gives_its_tables_back_when_it_is_resumed(result):
    again = play(out=result.folder, resume=True)
    same(again.clients, result.clients)
    same(again.new_clients, result.new_clients)


def test_a_run_that_was_stopped_ends_with_the_same_tables(result, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        play(out=tmp_path / "run", callbacks=[Stop()])
    again = play(out=tmp_path / "run", resume=True)
    same(again.new_clients, result.new_clients)
    assert read_new_clients(tmp_path / "run") == read_new_clients(result.folder)


def test_a_table_that_is_lost_is_made_again(tmp_path):
    play(out=tmp_path / "run")
    table = tmp_path / "run" / "new_clients.csv"
    sound = table.read_bytes()
    table.unlink()
    play(out=tmp_path / "run", resume=True)
    assert table.read_bytes() == sound


def test_a_run_that_ends_earlier_than_it_was_scored_has_the_tables_of_its_end(tmp_path):
    """It was to go on, and was stopped behind the evaluation that is not asked for now."""
    class Stopped(ct.Callback):
        def evaluated(self, row):
            if row["round"] == 3:
                raise KeyboardInterrupt

    sound = play(out=tmp_path / "run", evaluate_every=1)
    with pytest.raises(KeyboardInterrupt):
        play(out=tmp_path / "run", rounds=6, evaluate_every=1, callbacks=[Stopped()], resume=True)
    again = play(out=tmp_path / "run", evaluate_every=1, resume=True)
    assert again.final["round"] == 2
    same(again.clients, sound.clients)
    same(again.new_clients, sound.new_clients)


def test_a_run_that_takes_the_place_of_another_leaves_none_of_its_tables(tmp_path):
    play(out=tmp_path / "run")
    play(NOBODY_NEW, out=tmp_path / "run", overwrite=True)
    assert not (tmp_path / "run" / "new_clients.csv").exists()


def test_every_stage_has_its_table_and_gives_it_back(tmp_path):
    stages = {name: {"rounds": rounds} for name, rounds in (("first", 1), ("second", 2))}
    found, again = (ct.run_stages(DATA, stages, problem=PROBLEM, algorithm=ct.ffgg(), out=tmp_path / "run",
                                  resume=resume) for resume in (False, True))
    first = found.before["first"]
    for folder, stage in ((tmp_path / "run", found), (tmp_path / "run" / "stages" / "1-first", first)):
        assert read_new_clients(folder)["test.personal.loss"] == list(map(str, stage.new_clients["test.personal.loss"]))
    assert list(first.new_clients["test.personal.loss"]) != list(found.new_clients["test.personal.loss"])
    same(again.new_clients, found.new_clients)
    same(again.before["first"].new_clients, first.new_clients)


def test_every_run_of_a_sweep_has_its_table(tmp_path):
    (tmp_path / "study.toml").write_text(STUDY)
    sweep(tmp_path / "study.toml", parsed_grid(["algorithm.step_size=0.1,0.2"]), 1, tmp_path / "out", {}, ct.Callback())
    for size in (0.1, 0.2):
        folder = tmp_path / "out" / f"step_size={size}-0"
        alone = ct.run(PROBLEM, DATA, ct.ffgg(step_size=size), rounds=2, validation=0.2)
        found = [float(value) for value in read_new_clients(folder)["test.personal.loss"]]
        np.testing.assert_allclose(found, alone.new_clients["test.personal.loss"], rtol=1e-5)


def test_new_clients_have_their_groups():
    data = ct.at_random(DATA, names=["low", "high"], seed=0)
    found, means = play(data, rounds=1), {}
    for group, loss in zip(found.new_clients["group"], found.new_clients["test.shared.loss"], strict=True):
        means.setdefault(group, []).append(loss)
    for group, losses in means.items():
        assert found.final[f"{group}.new_test.shared.loss"] == pytest.approx(np.mean(losses), rel=1e-6)
    assert means.keys() <= {"low", "high"}


def test_a_folder_with_the_table_loads(result):
    np.testing.assert_array_equal(ct.load(result.folder).outputs(DATA.test.inputs[:3], encoded=True),
                                  result.outputs(DATA.test.inputs[:3], encoded=True))


class NoDiagnostics(ct.Plain):
    """An engine of somebody's own whose evaluations are scores and nothing else."""

    def start(self, runs, notice=print):
        session = super().start(runs, notice)
        evaluate = session.evaluate
        session.evaluate = lambda state: [Evaluation(found.progress, found.scores) for found in evaluate(state)]
        return session


def test_an_engine_need_not_give_diagnostics_of_clients():
    result = ct.run(PROBLEM, DATA, ct.ffgg(), rounds=1, engine=NoDiagnostics(compile=True))
    full = ct.run(PROBLEM, DATA, ct.ffgg(), rounds=1, engine=ct.Plain(compile=True))
    for bare, rich in ((result.clients, full.clients), (result.new_clients, full.new_clients)):
        assert not any(name.startswith("clients.") for name in bare)
        np.testing.assert_array_equal(bare["test.personal.loss"], rich["test.personal.loss"])
