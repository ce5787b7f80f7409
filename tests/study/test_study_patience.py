"""Early stopping: a run with patience is the run without it, up to where its validation score has not improved."""

import math

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import cantons as ct
from cantons.study import loop
from cantons.study.patience import Patience

NAME = "validation.personal.accuracy.mean"
TIMED = ("seconds", "seconds_per_round", "updates_per_second", "evaluation_seconds")
DATA = ct.digits(clients=6)
PROBLEM = ct.logistic(DATA)
OPTIONS = {"rounds": 30, "cohort": 3, "evaluate_every": 2, "validation": 0.25, "progress": None}


def play(**options):
    return ct.run(PROBLEM, DATA, ct.fedavg(step_size=0.5, batch_size=8), **{**OPTIONS, **options})


def untimed(history):
    return [{key: value for key, value in row.items() if key not in TIMED} for row in history]


def same_state(one, other):
    jax.tree.map(np.testing.assert_array_equal, one.model.state, other.model.state)


@given(st.lists(st.sampled_from([None, math.nan, 0.0, 0.25, 0.5, 0.75, 1.0]), min_size=1, max_size=12),
       st.integers(1, 5), st.booleans())
def test_it_is_over_when_the_last_evaluations_brought_nothing_better(scores, evaluations, accuracy):
    """Said another way: the best of all is no better than the best of those before the last `evaluations`."""
    name = NAME if accuracy else NAME.replace("accuracy", "loss")
    history = [{"round": place, name: value} for place, value in enumerate(scores)]
    worst = -math.inf if accuracy else math.inf
    known = [worst if value is None or math.isnan(value) else value for value in scores]
    before, best = known[:-evaluations], max if accuracy else min
    expected = bool(before) and best(known) == best(before)
    assert Patience(evaluations, PROBLEM).is_over(history) is expected


@pytest.fixture(scope="module")
def whole():
    return play()


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    return play(patience=3, out=tmp_path_factory.mktemp("patience") / "run")


def test_it_is_the_run_without_patience_up_to_its_end(whole, stopped):
    scores = [row[NAME] for row in whole.history]
    end = next(place for place in range(3, len(scores)) if max(scores[:place + 1]) == max(scores[:place - 2]))
    assert end < len(scores) - 1
    assert untimed(stopped.history) == untimed(whole.history[:end + 1])
    assert stopped.summary["stopped_early"] and stopped.summary["rounds"] == 2 * end
    assert scores[stopped.summary["best_round"] // 2] == max(scores[:end + 1])
    assert stopped.summary["best_round"] == 2 * (end - 3)
    assert int(stopped.model.state.round) == 2 * end


def test_a_run_that_was_killed_stops_where_it_would_have(stopped, tmp_path, monkeypatch):
    monkeypatch.setattr(loop, "CHECKPOINT_SECONDS", 0.0)

    def die(row):
        if row["round"] == stopped.summary["rounds"] - 2:
            raise RuntimeError

    with pytest.raises(RuntimeError):
        play(patience=3, out=tmp_path / "run", callbacks=[die])
    again = play(patience=3, out=tmp_path / "run", resume=True)
    assert untimed(again.history) == untimed(stopped.history)
    same_state(again, stopped)


def test_a_run_that_has_stopped_stays_so_until_it_is_given_more_patience(whole, stopped):
    """Even with more rounds; its folder can be loaded, and more patience leads where it would have led at once."""
    again = play(patience=3, out=stopped.folder, resume=True, rounds=40)
    assert untimed(again.history) == untimed(stopped.history)
    jax.tree.map(np.testing.assert_array_equal, ct.load(stopped.folder).state, stopped.model.state)
    longer = play(patience=99, out=stopped.folder, resume=True)
    assert untimed(longer.history) == untimed(whole.history) and not longer.summary["stopped_early"]
    same_state(longer, whole)


def test_rows_are_held_back_and_what_cannot_be_stopped_is_refused(tmp_path):
    assert play(validation=None, patience=1, rounds=1).model.data.validation is not None
    with pytest.raises(ct.InputError, match="a stream has none"):
        ct.run(PROBLEM, DATA, ct.online_independent(), rounds=2, clock=ct.online(), patience=1)
    with pytest.raises(ct.InputError, match="leave patience out"):
        ct.sweep(ct.Study(PROBLEM, DATA, ct.fedavg(), rounds=2, patience=1), {"algorithm.step_size": [0.1, 0.2]},
                 out=tmp_path / "sweep")
    with pytest.raises(ct.InputError, match="patience is 0; give"):
        play(patience=0)


def test_each_stage_has_patience_and_all_hold_back_the_same_rows():
    stage = {"problem": PROBLEM, "algorithm": ct.fedavg(step_size=0.5, batch_size=8), "rounds": 30, "evaluate_every": 2}
    result = ct.run_stages(DATA, {"first": {**stage, "patience": 1}, "second": {**stage, "rounds": 2}}, progress=None)
    first = result.before["first"]
    assert first.summary["stopped_early"] and first.final["round"] < 30 and result.final["round"] == 2
    np.testing.assert_array_equal(first.model.data.validation.inputs, result.model.data.validation.inputs)
