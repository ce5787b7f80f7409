"""Real delays: what arrived when is written down, and the local engine replays it to the same state."""

import os
import time

import jax
import numpy as np
import pytest

import cantons as ct
from cantons.engine.ray_worker import Worker

CLOCKS = {"on arrival": ct.asynchronous(concurrency=5), "same": ct.asynchronous(next="same"),
          "buffered": ct.asynchronous(concurrency=5, buffer=3, staleness={"name": "polynomial", "a": 0.5})}


@pytest.fixture(scope="module")
def data():
    return ct.digits(clients=7)


@pytest.fixture
def uneven(monkeypatch):
    """Clients that take their time, some longer than others: jobs end in another order than they began."""

    class Uneven(Worker):
        def call(self, shard, asked, *arguments):
            if asked == "job":
                time.sleep(0.01 * (int(arguments[1].id) % 4))
            return super().call(shard, asked, *arguments)

    monkeypatch.setattr("cantons.engine.ray_cluster.Worker", Uneven)


def play(data, clock, engine, **options):
    problem = ct.classification(data, ct.mlp(hidden=(4,)), split="output")
    return ct.run(problem, data, ct.fedrep(batch_size=8), clock=clock, engine=engine,
                  **{"rounds": 40, "evaluate_every": 20, "precision": "float64", **options})


def same_as_replay(result, data, **options):
    """The replay of a run's events ends where the run did, with the same evaluations."""
    clock = ct.replay(path=str(result.folder / "events.npz"), **options)
    again = play(data, clock, ct.Local(devices=1), rounds=int(result.model.state.round),
                 evaluate_every=result.history[1]["round"])
    for one, other in zip(jax.tree.leaves(result.model.state._replace(in_flight=())),
                          jax.tree.leaves(again.model.state._replace(in_flight=())), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)
    for left, right in zip(result.history, again.history, strict=True):
        for key in left:
            if "second" not in key and isinstance(left[key], float):
                assert left[key] == pytest.approx(right[key], rel=1e-10, abs=1e-12), key
    return again


def counts_once(folder, jobs):
    """So many jobs ended, and none of them twice."""
    events = np.load(folder / "events.npz")
    there = events["client"] < 7
    assert len(set(zip(events["client"][there], events["job"][there], strict=True))) == there.sum() == jobs


@pytest.mark.parametrize("name", CLOCKS)
def test_the_local_engine_replays_the_events_to_the_same_state(data, connected, uneven, tmp_path, name):
    result = play(data, CLOCKS[name], ct.Ray(actors=2), out=tmp_path / "run")
    again = same_as_replay(result, data, **({"staleness": {"name": "polynomial", "a": 0.5}} if name == "buffered"
                                            else {}))
    assert result.final["clock.delay.max"] == again.final["clock.delay.max"] > 0
    assert result.final["clock.time"] > 0.1  # seconds
    counts_once(tmp_path / "run", result.model.state.uploads.sum())


@pytest.mark.parametrize("moment", ["before", "after"])
def test_an_actor_that_dies_loses_work_and_nothing_else(data, connected, monkeypatch, tmp_path, moment):
    class Mortal(Worker):
        def call(self, shard, asked, *arguments):
            self.count = getattr(self, "count", 0) + (asked == "job")
            dies = shard == 1 and self.count == 8 and not (tmp_path / "died").exists()
            if dies and moment == "before":
                (tmp_path / "died").touch()
                os._exit(1)
            reply = super().call(shard, asked, *arguments)
            if dies:
                (tmp_path / "died").touch()
                os._exit(1)
            return reply

    monkeypatch.setattr("cantons.engine.ray_cluster.Worker", Mortal)
    result = play(data, CLOCKS["on arrival"], ct.Ray(actors=2), out=tmp_path / "run", rounds=60, evaluate_every=30)
    assert result.summary["actors_lost"] == 1
    same_as_replay(result, data)
    counts_once(tmp_path / "run", 60)


def test_a_run_that_is_stopped_goes_on_from_its_jobs_under_way(data, connected, tmp_path):
    options = {"out": tmp_path / "run", "evaluate_every": 10, "checkpoint_every": 10}
    play(data, CLOCKS["buffered"], ct.Ray(actors=2), rounds=30, **options)
    result = play(data, CLOCKS["buffered"], ct.Ray(actors=2), resume=True, **options)
    same_as_replay(result, data, staleness={"name": "polynomial", "a": 0.5})
    with pytest.raises(ct.InputError, match="begun with real delays"):
        play(data, CLOCKS["buffered"], ct.Local(devices=1), rounds=50, resume=True, accept_changes=True, **options)
    play(data, CLOCKS["same"], ct.Local(devices=1), rounds=10, out=tmp_path / "virtual")
    with pytest.raises(ct.InputError, match="begun in virtual time"):
        play(data, CLOCKS["same"], ct.Ray(actors=2), out=tmp_path / "virtual", resume=True, accept_changes=True)


def test_durations_are_virtual_and_refused(data):
    with pytest.raises(ct.InputError, match="takes as long as it takes; use the clock asynchronous without durations"):
        play(data, ct.asynchronous(durations={"name": "log_normal"}), ct.Ray())
