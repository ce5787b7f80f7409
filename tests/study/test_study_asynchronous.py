"""Studies whose clients work asynchronously: what is written down, several at once, and events played again."""

import numpy as np
import pytest

import cantons as ct
from cantons.clock.events import Events, digest_of, read_events
from cantons.errors import InputError
from cantons.reporting import write_report
from cantons.study.read import check_study

CLIENTS = 6
DATA = ct.synthetic(clients=CLIENTS, features=3, largest=12)
PROBLEM = ct.logistic(DATA, split="*bias")
FEDAVG = ct.fedavg(step_size=0.1, batch_size=4)
CLOCK = ct.asynchronous(concurrency=4, buffer=2, durations={"name": "log_normal", "jitter": 0.5},
                        staleness={"name": "polynomial", "a": 0.5})
TIMES = ("seconds", "seconds_per_round", "updates_per_second", "evaluation_seconds")


def rows(result):
    return [{name: value for name, value in row.items() if name not in TIMES} for row in result.history]


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    folder = tmp_path_factory.mktemp("asynchronous") / "run"
    return ct.run(PROBLEM, DATA, FEDAVG, rounds=8, evaluate_every=4, clock=CLOCK, out=folder, seed=3), folder


def test_what_is_written_down_follows_from_the_events(ran):
    result, folder = ran
    events = read_events(str(folder / "events.npz"), CLIENTS, DATA.clients)
    there, delays = events.client < CLIENTS, events.delays
    first, _, last = result.history
    assert first["clock.time"] == 0 and first["clock.delay.mean"] is None
    assert last["clock.delay.mean"] == delays[4:][there[4:]].mean() and last["clock.delay.max"] == delays[there].max()
    assert last["clock.time"] == pytest.approx(events.elapsed.sum(dtype=float), rel=2e-7)
    assert last["uploads"] == there.sum()
    jobs = np.bincount(events.client[there], minlength=CLIENTS)
    np.testing.assert_array_equal(np.asarray(result.clients["clock.jobs"]), jobs)
    # One message for each job that has begun, whether it has ended or not.
    begun = np.bincount(events.jobs(CLIENTS)[:, 0], minlength=CLIENTS)
    np.testing.assert_array_equal(result.model.state.downloads, begun)


def test_a_report_draws_scores_against_virtual_time_and_delays(ran, tmp_path):
    page = write_report([ran[1]], tmp_path / "report.html").read_text("utf-8")
    for words in ("<h2>Asynchronous clients</h2>", ">virtual time<", ">mean delay<", ">events<"):
        assert words in page


def test_a_replay_of_the_events_has_the_same_bits(ran, tmp_path):
    result, folder = ran
    clock = ct.replay(path=str(folder / "events.npz"), staleness={"name": "polynomial", "a": 0.5})
    again = ct.run(PROBLEM, DATA, FEDAVG, rounds=8, evaluate_every=4, clock=clock, out=tmp_path / "again", seed=3)
    assert rows(result) == rows(again)
    with np.load(folder / "events.npz") as one, np.load(tmp_path / "again" / "events.npz") as other:
        for name in set(one) - {"under_way"}:
            np.testing.assert_array_equal(one[name], other[name])
        # Jobs that begin together have no order of their own.
        np.testing.assert_array_equal(*(np.unique(file["under_way"], axis=0) for file in (one, other)))


def test_seeds_together_are_what_they_are_alone(ran):
    result, _ = ran
    together = ct.rollouts(PROBLEM, DATA, FEDAVG, rounds=8, evaluate_every=4, clock=CLOCK, seed=[3, 4])
    for mine, other in zip(result.history[1:], together[0], strict=True):
        assert all(mine[name] == other[name] for name in ("clock.time", "clock.delay.max", "uploads"))
        assert mine["train.personal.loss.mean"] == pytest.approx(other["train.personal.loss.mean"], rel=1e-5)
    assert together[1][-1]["clock.time"] != result.final["clock.time"]


def test_a_study_file_has_the_clock_and_its_replay(ran, tmp_path):
    clock = {"name": "asynchronous", "concurrency": 4, "next": "same", "durations": "log_normal", "staleness": "hinge"}
    raw = {"rounds": 4, "data": {"name": "synthetic", "clients": CLIENTS, "features": 3, "largest": 12},
           "problem": {"name": "logistic"}, "algorithm": "fedavg", "clock": clock}
    result = check_study(raw, "study").run(out=tmp_path / "one")
    again = check_study({**raw, "clock": {"name": "replay", "path": str(tmp_path / "one" / "events.npz"),
                                          "staleness": "hinge"}}, "study").run()
    assert rows(result)[-1] == rows(again)[-1]
    assert ct.load(tmp_path / "one").state.round == 4


def saved(path, **changes):
    """A file of three events in turn of the clients 0, 1, 0, while 1 is at work again."""
    events = {"client": np.array([[0], [1], [0]]), "job": np.array([[0], [0], [1]]),
              "version": np.array([[0], [0], [1]]), "elapsed": np.ones(3), "under_way": np.array([[1, 1, 2]]),
              "clients": np.array(digest_of(DATA.clients)), **changes}
    np.savez(path, **{name: value for name, value in events.items() if value is not None})
    return str(path)


def test_a_written_file_is_read_as_it_is(tmp_path):
    found = read_events(saved(tmp_path / "events.npz"), CLIENTS, DATA.clients)
    assert isinstance(found, Events) and found.delays.tolist() == [[0], [1], [1]]


@pytest.mark.parametrize(("changes", "words"), [
    ({"clients": np.array("0" * 32)}, "has the events of another study: its clients are not the 6 of this data"),
    ({"version": None}, "cannot read events from"),
    ({"job": np.array([[0], [0], [2]])}, "the jobs of each client are numbered from 0 and end in that order"),
    ({"version": np.array([[0], [2], [1]])}, "a job ends before it begins"),
    ({"client": np.array([[0], [-1], [0]])}, "out of range"),
    ({"client": np.array([[0.0], [1.0], [0.0]])}, "are whole numbers"),
    ({"client": np.array([[0], [9], [0]])}, "out of range"),
    ({"client": np.array([[0], [6], [0]])}, "every event has a job"),
    ({"elapsed": np.array([1.0, -1.0, 1.0])}, "elapsed needs times of 0 or more"),
    ({"elapsed": np.ones(2)}, "elapsed one number for each event"),
    ({"client": np.zeros((3, 2), int)}, "need one row for each event, all alike"),
    ({"client": np.array([[0, 0]]), "job": np.array([[0, 1]]), "version": np.array([[0, 0]]), "elapsed": np.ones(1),
      "under_way": np.zeros((0, 3), int)}, "no two of one client"),
])
def test_odd_event_files_are_refused(changes, words, tmp_path):
    with pytest.raises(InputError, match=words):
        ct.run(PROBLEM, DATA, FEDAVG, rounds=2, clock=ct.replay(path=saved(tmp_path / "events.npz", **changes)))


def test_more_rounds_than_events_are_refused(tmp_path):
    with pytest.raises(InputError, match="has 3 events and the study 4 rounds; give at most as many rounds"):
        ct.run(PROBLEM, DATA, FEDAVG, rounds=4, clock=ct.replay(path=saved(tmp_path / "events.npz")))
