"""The one loop: the same columns whoever plays, and every kind of run goes on after an interruption."""

import jax
import numpy as np
import pytest

import cantons as ct
from cantons.study import loop
from cantons.study.loop import evaluation_rounds
from cantons.study.plain import plain

TIMES = ("seconds", "seconds_per_round", "updates_per_second", "evaluation_seconds")


def untimed(row):
    """A row as JSON has it, which knows no NaN, without its times."""
    return {name: value for name, value in plain(row).items() if name not in TIMES}


def test_evaluations_come_before_the_first_round_and_after_the_last():
    assert list(evaluation_rounds(7, 3)) == [0, 3, 6]  # and after the last round, 7
    assert len(evaluation_rounds(2**31 - 1, 1)) == 2**31 - 1  # which takes no memory


def problems(numbers):
    joint = ct.residual(numbers, shared_features=[0, 1], private_features=[1, 2])
    return {
        "rounds": (joint, ct.fedavg(), None),
        "online": (joint, ct.fedres_online_sgd(step_size=0.02), ct.online(uplink=1)),
    }


@pytest.mark.parametrize("kind", ["rounds", "online"])
def test_a_run_and_a_rollout_record_the_same_columns(kind, numbers):
    problem, recipe, clock = problems(numbers)[kind]
    alone = ct.run(problem, numbers, recipe, rounds=6, evaluate_every=3, clock=clock)
    together = ct.rollouts(problem, numbers, recipe, rounds=6, evaluate_every=3, clock=clock, seed=[0, 1])
    for row in together[0]:
        assert row.keys() == alone.final.keys()
    assert ("online.regret" in alone.final) is (kind == "online")
    for left, right in zip(alone.history[1:], together[0], strict=True):  # a rollout is not scored before round 0
        expected = untimed(right)
        for name, value in untimed(left).items():
            assert value == (pytest.approx(expected[name], rel=1e-5) if isinstance(value, float) else expected[name])


@pytest.mark.parametrize("kind", ["rounds", "online"])
def test_rollouts_with_folders_go_on_to_the_same_bits(kind, numbers, tmp_path, monkeypatch):
    monkeypatch.setattr(loop, "CHECKPOINT_SECONDS", 0.0)
    problem, recipe, clock = problems(numbers)[kind]
    options = {"rounds": 8, "evaluate_every": 2, "clock": clock, "seed": [3, 4, 5], "at_once": 2}
    whole = ct.rollouts(problem, numbers, recipe, out=tmp_path / "whole", **options)

    def stop(done, total):
        if done >= 10:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ct.rollouts(problem, numbers, recipe, out=tmp_path / "half", watch=stop, **options)
    half = ct.rollouts(problem, numbers, recipe, out=tmp_path / "half", **options)
    for left, right in zip(whole, half, strict=True):
        assert [untimed(row) for row in left] == [untimed(row) for row in right]
    for place in range(3):
        states = [ct.load(tmp_path / folder / str(place), problem=problem, data=numbers).state
                  for folder in ("whole", "half")]
        jax.tree.map(np.testing.assert_array_equal, *states)


def test_what_is_rejected_is_told_once_also_after_a_resume(numbers, tmp_path):
    """Steps far too long: what the first sitting told, the second does not repeat."""
    problem = ct.regression(numbers, ct.linear())
    huge = ct.fedavg(step_size=1e30)
    told = []

    class Heard(ct.Callback):
        def noticed(self, sentence):
            told.append(sentence)

    for rounds, resume in ((4, False), (6, True)):
        ct.run(problem, numbers, huge, rounds=rounds, evaluate_every=2, out=tmp_path / "run", resume=resume,
               callbacks=[Heard()])
    counts = [int(word.split(": ")[1].split(" ")[0]) for word in told if "left out, NaN" in word]
    final = ct.load(tmp_path / "run", problem=problem, data=numbers).state
    assert sum(counts) == final.rejected.sum() > 0
