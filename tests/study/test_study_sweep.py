"""Sweeps: every run of the one program is the run it would have been alone."""

import json
import shutil
from contextlib import ExitStack

import jax
import numpy as np
import pytest

import cantons as ct
from cantons.data import with_validation
from cantons.study.callbacks import Callback
from cantons.study.folder import Folder
from cantons.study.patience import Patience
from cantons.study.read import read_study
from cantons.study.resolve import resolve
from cantons.study.sweep import grouped, label, sweep
from cantons.study.together import _saving

STUDY = """
rounds = 4
cohort = 4
evaluate_every = 2
precision = "float64"

[data]
name = "digits"
clients = 10
new = 2

[problem]
name = "classification"
model = { name = "mlp", hidden = [3] }
split = "output"

[algorithm]
name = "fedprox"
batch_size = 8
"""
GRID = {"algorithm.step_size": [0.05, 0.2], "algorithm.epochs": [1, 2]}


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    path = tmp_path_factory.mktemp("sweep") / "study.toml"
    path.write_text(STUDY)
    return path


@pytest.fixture(scope="module")
def swept(study):
    out = study.parent / "out"
    by, metric, outcomes = sweep(study, GRID, 2, out, {}, Callback())
    assert by == "validation"
    return out, metric, outcomes


def test_a_run_of_the_sweep_is_the_run_alone(study, swept):
    out, _, _ = swept
    data = ct.digits(clients=10, new=2)
    problem = ct.classification(data, ct.mlp(hidden=(3,)), split="output")
    alone = ct.run(problem, data, ct.fedprox(step_size=0.2, epochs=2, batch_size=8), rounds=4, cohort=4, seed=1,
                   validation=0.2, precision="float64", evaluate_every=2)
    together = ct.load(out / "step_size=0.2,epochs=2-1")
    for one, other in zip(jax.tree.leaves(alone.model.state), jax.tree.leaves(together.state), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-12)
    rows = [json.loads(line) for line in (out / "step_size=0.2,epochs=2-1" / "metrics.jsonl").read_text().splitlines()]
    assert [row["round"] for row in rows] == [0, 2, 4]
    for row, expected in zip(rows, alone.history, strict=True):
        for key in ("validation.personal.loss.mean", "test.shared.loss.weighted", "new_test.personal.loss.mean"):
            assert row[key] == pytest.approx(expected[key], rel=1e-9)
        assert row["bytes_up"] == expected["bytes_up"]


def test_the_best_by_validation_comes_first(swept):
    out, metric, outcomes = swept
    assert metric == "accuracy"
    assert len(outcomes) == 4
    means = [outcome.score for outcome in outcomes]
    assert means == sorted(means, reverse=True)
    summaries = [json.loads((out / f"step_size=0.2,epochs=1-{seed}" / "summary.json").read_text()) for seed in (0, 1)]
    mean = np.mean([summary["final"]["validation.personal.accuracy.mean"] for summary in summaries])
    point = {"algorithm.step_size": 0.2, "algorithm.epochs": 1}
    found = next(outcome for outcome in outcomes if outcome.point == point)
    assert found.score == pytest.approx(mean)


def test_seeds_and_real_numbers_share_a_program_and_whole_numbers_do_not(study):
    from cantons.study.sweep import _runs

    runs = [run for size in (0.05, 0.2) for epochs in (1, 2)
            for run in _runs(study, {"algorithm.step_size": size, "algorithm.epochs": epochs}, 2, study.parent, {},
                             hold_back=True)]
    assert sorted(len(group) for group in grouped(runs)) == [4, 4]


def test_a_point_that_fails_is_named_and_ends_nothing(study, tmp_path):
    *_, outcomes = sweep(study, {"algorithm.step_size": [0.1, -1.0], "cohort": [4, 99]}, 1, tmp_path, {"rounds": 1},
                        Callback())
    assert [outcome.failure == "" for outcome in outcomes] == [True, False, False, False]
    failures = {tuple(outcome.point.values()): outcome.failure for outcome in outcomes}
    assert "only 8 clients" in failures[0.1, 99]
    assert "step_size = -1.0" in failures[-1.0, 4]


def test_called_again_it_makes_only_what_is_missing(study, swept):
    out, _, outcomes = swept
    kept = out / "step_size=0.05,epochs=1-0" / "metrics.jsonl"
    lost = out / "step_size=0.2,epochs=1-1"
    before, stamp = (lost / "metrics.jsonl").read_text(), kept.stat().st_mtime_ns
    shutil.rmtree(lost)
    *_, again = sweep(study, GRID, 2, out, {}, Callback())
    assert kept.stat().st_mtime_ns == stamp
    timed = ("seconds", "seconds_per_round", "updates_per_second", "evaluation_seconds")
    for line, expected in zip((lost / "metrics.jsonl").read_text().splitlines(), before.splitlines(), strict=True):
        old, new = json.loads(expected), json.loads(line)
        for key in old.keys() - set(timed):
            assert new[key] == (pytest.approx(old[key], rel=1e-9) if isinstance(old[key], float) else old[key])
    assert [outcome.point for outcome in again] == [outcome.point for outcome in outcomes]


def test_stopped_by_ctrl_c_it_goes_on_to_the_same_end(study, swept, tmp_path):
    class Stop(Callback):
        def evaluated(self, record):
            if record["round"] == 2:
                import signal

                signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        sweep(study, {"algorithm.step_size": [0.05, 0.2]}, 2, tmp_path, {"algorithm.epochs": 1}, Stop())
    assert not (tmp_path / "step_size=0.2-1" / "summary.json").exists()
    sweep(study, {"algorithm.step_size": [0.05, 0.2]}, 2, tmp_path, {"algorithm.epochs": 1}, Callback())
    for size in (0.05, 0.2):
        one, other = ct.load(tmp_path / f"step_size={size}-1"), ct.load(swept[0] / f"step_size={size},epochs=1-1")
        for left, right in zip(jax.tree.leaves(one.state), jax.tree.leaves(other.state), strict=True):
            np.testing.assert_array_equal(left, right)


def test_a_group_that_was_begun_whole_is_played_whole(study, tmp_path, monkeypatch):
    """One run of it alone would be another program, and end in other bits."""
    write, written = Folder.summary, []

    def write_one(folder, summary):
        if written:
            raise KeyboardInterrupt
        written.append(write(folder, summary))

    call = study, {"algorithm.step_size": [0.05, 0.2]}, 1, tmp_path, {"algorithm.epochs": 1}, Callback()
    monkeypatch.setattr(Folder, "summary", write_one)
    with pytest.raises(KeyboardInterrupt):
        sweep(*call)
    monkeypatch.undo()
    sweep(*call)
    assert [json.loads(file.read_text())["runs_together"] for file in tmp_path.glob("*/summary.json")] == [2, 2]


def test_runs_with_other_companions_have_another_checkpoint(tmp_path):
    data = ct.digits(clients=6)
    run = resolve(ct.logistic(data), data, ct.fedavg(), rounds=2, engine=ct.Local())
    stores = set()
    for names in (["a", "b"], ["a", "c"], ["a", "b", "c"]):
        with ExitStack() as opened:
            stores.add(_saving([run] * len(names), tmp_path, names, False, opened).checkpoints._folder)
    assert len(stores) == 3


def test_an_odd_number_of_variants_fills_the_devices_and_is_cut_off_again():
    data = ct.digits(clients=6)
    problem = ct.logistic(data)
    first = resolve(problem, data, ct.fedavg(step_size=0.1), rounds=2, engine=ct.Local()).parts
    runs = [first._replace(recipe=ct.fedavg(step_size=size)) for size in (0.1, 0.2, 0.3)]
    session = ct.Local().together().start(runs)
    found = session.evaluate(session.advance(session.begin(), 2))
    assert [one.scores["clients"]["test"]["shared"]["loss"].shape for one in found] == [(6,)] * 3


def test_validation_rows_leave_training_and_touch_no_other_set():
    data = ct.digits(clients=10, new=2)
    held = with_validation(data, 0.25)
    assert (held.train.sizes + held.validation.sizes == data.train.sizes).all()
    assert (4 * held.validation.sizes == data.train.sizes).all()
    np.testing.assert_array_equal(held.test.inputs, data.test.inputs)
    for client in range(data.population):
        rows = [np.asarray(part.inputs)[part.starts[client]:][:part.sizes[client]]
                for part in (held.train, held.validation, data.train)]
        together = np.concatenate(rows[:2])
        assert sorted(map(bytes, together)) == sorted(map(bytes, rows[2]))
    with pytest.raises(ct.InputError, match="validation is 1.5"):
        with_validation(data, 1.5)


def test_a_client_with_one_row_keeps_it_for_training():
    data = ct.federation(np.zeros((3, 2)), np.zeros(3, int), ["a", "b", "b"], classes=2, test=0.0)
    assert (with_validation(data, 0.9).train.sizes == 1).all()


STREAM = """
rounds = 30
precision = "float64"

[data]
name = "drifting_targets"
clients = 4
steps = 30
test = 5

[problem]
name = "target"

[algorithm]
name = "fedomd"
within = { name = "box", low = -3, high = 3 }

[clock]
name = "online"
sync = 3
score = "everyone"
"""


def test_a_stream_is_chosen_by_what_it_cost_and_has_its_regret(tmp_path):
    path = tmp_path / "stream.toml"
    path.write_text(STREAM)
    grid = {"algorithm.step_size": [0.001, 0.2, 0.05]}
    by, metric, outcomes = sweep(path, grid, 1, tmp_path / "out", {}, Callback())
    assert (by, metric) == ("online", "loss")
    assert outcomes == sorted(outcomes, key=lambda outcome: outcome.score)
    alone = read_study(path, outcomes[0].point).run().final
    found = json.loads((tmp_path / "out" / f"{label(outcomes[0].point)}-0" / "summary.json").read_text())["final"]
    for key in ("online.personal.loss.mean", "online.collective_regret", "online.dynamic_regret",
                "test.personal.loss.mean"):
        assert found[key] == pytest.approx(alone[key], rel=1e-9), key


def test_the_study_says_how_much_to_set_aside(study, tmp_path):
    path = study.with_name("half.toml")
    path.write_text("validation = 0.5\n" + study.read_text())
    sweep(path, {"algorithm.step_size": [0.1]}, 1, tmp_path, {"rounds": 1}, Callback())
    assert json.loads((tmp_path / "step_size=0.1-0" / "study.json").read_text())["validation"] == 0.5


def test_a_bandit_is_chosen_and_stopped_by_its_reward(tmp_path):
    """Larger is better there, and a model that predicts rewards better need not choose better actions."""
    data = ct.classification_log({"name": "digits", "clients": 4})
    study = ct.Study(ct.logged_bandit(data, ct.linear()), data, ct.fedavg(batch_size=None), rounds=20, seed=1)
    found = ct.sweep(study, {"algorithm.step_size": [1e-6, 0.1, 0.5]}, seeds=1, out=tmp_path / "sweep")
    frame = found.frame()
    assert found.metric == "reward" and found.by == "validation"
    assert frame["validation"].is_monotonic_decreasing and frame["validation"].iloc[0] > frame["validation"].iloc[-1]
    patience = Patience(1, study.problem)
    numbers = [{f"validation.personal.{metric}.mean": value for metric, value in (("loss", loss), ("reward", reward))}
               for loss, reward in ((0.1, 0.2), (0.3, 0.9), (0.2, 0.5))]
    assert patience.number(numbers[0]) == "validation.personal.reward.mean" and patience.best(numbers) == 1
