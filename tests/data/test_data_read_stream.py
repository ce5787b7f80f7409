"""Streams as federations: who plays which row in which step."""

import warnings

import numpy as np
import pytest

import cantons as ct
from cantons.data import Stream, from_iterable, from_stream
from cantons.errors import InputError

# ann has rows at 0, 1, 1, 1 and 8; bob at 0 and 10.
STREAM = Stream(np.array([0, 1, 0, 0, 0, 0, 1], np.int32), np.array([0.0, 0, 1, 1, 1, 8, 10]),
                np.arange(7.0, dtype=np.float32)[:, None], np.arange(7.0, dtype=np.float32), ("ann", "bob"))


def test_by_row_the_kth_arrival_is_step_k():
    data, active = from_stream(STREAM)
    assert np.argwhere(active).tolist() == [[step, client] for step, client in enumerate(STREAM.client)]
    assert data.train.inputs[:, 0].tolist() == [0, 2, 3, 4, 5, 1, 6] and data.train.sizes.tolist() == [5, 2]
    assert data.clients.names == ("ann", "bob") and data.test.sizes.tolist() == [0, 0]


def test_by_tick_rows_wait_for_their_turn_first_in_first_out():
    data, active = from_stream(STREAM, step="tick", ticks=5)  # bins of length 2
    # ann's bins are 0, 0, 0, 0, 4: she plays four waiting rows in steps 0 to 3 and is ready again for the fifth.
    assert active.astype(int).tolist() == [[1, 1], [1, 0], [1, 0], [1, 0], [1, 1]]
    assert data.train.inputs[:, 0].tolist() == [0, 2, 3, 4, 5, 1, 6]


def test_a_queue_that_is_left_over_is_emptied_after_the_last_tick():
    _, active = from_stream(STREAM, step="tick", ticks=2)
    # ann's bins are 0, 0, 0, 0, 1, bob's 0 and 1.
    assert active.astype(int).tolist() == [[1, 1], [1, 1], [1, 0], [1, 0], [1, 0]]


def test_silent_ticks_stay_silent():
    _, active = from_stream(STREAM, step="tick", ticks=20)
    assert len(active) == 20 and np.flatnonzero(active[:, 0]).tolist() == [0, 2, 3, 4, 16]
    assert np.flatnonzero(active[:, 1]).tolist() == [0, 19]


def test_rows_of_one_moment_are_one_queue():
    _, active = from_stream(STREAM._replace(time=np.zeros(7)), step="tick", ticks=3)
    assert active.sum(axis=0).tolist() == [5, 2] and len(active) == 5 and active[:2].all()


def test_random_streams_play_every_row_once_never_early_and_one_by_one():
    random = np.random.default_rng(0)
    client, time = random.integers(0, 4, 300).astype(np.int32), np.sort(random.exponential(size=300).cumsum() % 17)
    stream = Stream(client, time, time[:, None], np.arange(300.0), tuple("abcd"))
    data, active = from_stream(stream, step="tick", ticks=50)
    np.testing.assert_array_equal(active.sum(axis=0), data.train.sizes)
    for number in range(4):
        queue, waiting = 0, []
        bins = np.minimum((time - time[0]) / (time[-1] - time[0]) * 50, 49).astype(int)[client == number]
        for step in range(len(active)):  # by hand: join the queue, then the first of it plays
            queue += np.count_nonzero(bins == step)
            waiting.append(queue > 0)
            queue -= queue > 0
        np.testing.assert_array_equal(active[:, number], waiting)


@pytest.mark.parametrize("options", [{}, {"step": "tick", "ticks": 5}])
def test_the_online_clock_charges_every_row_before_it_is_learned(options):
    data, active = from_stream(STREAM, **options)
    result = ct.run(ct.regression(data, ct.linear()), data, ct.online_independent(step_size=0.01), rounds=len(active),
                    clock=ct.online(active=active), precision="float64")
    charged = []
    for client in (0, 1):
        weight = bias = 0.0
        for x in STREAM.targets[STREAM.client == client].astype(float):  # inputs and targets are the same numbers
            error = weight * x + bias - x
            charged.append(error**2)
            weight, bias = weight - 0.02 * error * x, bias - 0.02 * error
    assert result.final["online.personal.loss.weighted"] == pytest.approx(np.mean(charged))


@pytest.mark.parametrize("changes, options, sentence", [
    ({}, {"step": "tick"}, "a step \"tick\" needs the number of ticks"),
    ({}, {"ticks": 3}, "a step \"row\" has none"),
    ({}, {"step": "day"}, "step"),
    ({}, {"step": "tick", "ticks": 0}, "ticks is 0"),
    ({"time": np.array([0.0, 0, 1, 1, 1, 8, np.inf])}, {}, r"times hold inf in row 6 \(from 0\)"),
    ({"names": ("ann", "bob", "eve")}, {}, "no training examples for 'eve'"),
    ({"classes": 3, "targets": np.arange(7)}, {}, "label"),
])
def test_streams_that_cannot_be_played_are_refused(changes, options, sentence):
    with pytest.raises(InputError, match=sentence):
        from_stream(STREAM._replace(**changes), **options)


def test_an_iterable_of_dicts_has_its_keys_in_order_and_zeros_for_what_is_not_there():
    stream = from_iterable(iter([({"b": 1, "a": True}, 0.5), ({"c": 2.5}, 1)]), clients=2, regression=True)
    assert stream.inputs.tolist() == [[1, 1, 0], [0, 0, 2.5]] and stream.targets.tolist() == [0.5, 1]
    assert stream.classes is None and stream.time.tolist() == [0, 1] and stream.names == ("0", "1")


def test_clients_are_named_by_the_row_or_by_an_entry_of_it():
    rows = [("bob", [1.0, 2], True), ("ann", [3.0, 4], False), ("bob", [5.0, 6], False)]
    stream = from_iterable(rows)
    assert stream.names == ("ann", "bob") and stream.client.tolist() == [1, 0, 1]
    assert stream.inputs.tolist() == [[1, 2], [3, 4], [5, 6]]
    assert stream.targets.tolist() == [1, 0, 0] and stream.classes == 2
    dicts = [({"who": who, "first": x[0], "second": x[1]}, y) for who, x, y in rows]
    named = from_iterable(dicts, clients="who")
    assert named.encoding.column_names == ("first", "second") and stream.encoding.column_names is None
    for one, other in zip(named._replace(encoding=None), stream._replace(encoding=None), strict=True):
        np.testing.assert_array_equal(one, other)


def test_an_endless_iterable_is_read_up_to_the_limit():
    def endless():
        number = 0
        while True:
            yield np.array([number]), number % 3
            number += 1

    assert from_iterable(endless(), clients=4, limit=6).client.tolist() == [0, 1, 2, 3, 0, 1]


@pytest.mark.parametrize("rows, clients, sentence", [
    ([], 2, "has no rows"),
    ([([1.0], 0)], None, r"row 0 \(from 0\) of the iterable is no \(client, x, y\)"),
    ([("ann", [1.0], 0)], 2, r"is no \(x, y\)"),
    ([({"a": 1}, 0)], "who", "has no entry 'who'"),
    ([({"a": 1}, 0), ([1.0], 1)], 2, "some x of the iterable are dicts and some are not"),
    ([({"a": "red"}, 0), ({"a": "blue"}, 1)], 2, "cannot be made rows of numbers"),
    ([([1.0], 0.5), ([2.0], 1)], 2, "which is no label"),
])
def test_bad_iterables_are_refused(rows, clients, sentence):
    with pytest.raises(InputError, match=sentence):
        from_iterable(rows, clients=clients)


# Files


@pytest.fixture
def file(tmp_path):
    """STREAM in another order, as a CSV file."""
    path = tmp_path / "visits.csv"
    rows = [f"{STREAM.names[who]},{when},{x},{y}" for who, when, [x], y in
            zip(STREAM.client, STREAM.time, STREAM.inputs, STREAM.targets, strict=True)]
    path.write_text("\n".join(["who,when,x,y", *rows[3:], *rows[:3]]) + "\n")
    return path


COLUMNS = {"client": "who", "time": "when", "targets": "y", "regression": True}


def test_a_file_is_the_stream_that_it_holds(file):
    expected, active = from_stream(STREAM, step="tick", ticks=5)
    data = ct.stream(file, ticks=5, test=0, **COLUMNS)
    # Rows of one moment keep the places they have in the file, where ann's second comes last.
    assert sorted(data.train.inputs[:5, 0]) == sorted(expected.train.inputs[:5, 0])
    np.testing.assert_array_equal(data.arrivals, active)
    assert f"stream: {len(active)} steps, in each {active.mean():.0%} of the clients" in data.describe()


def test_the_last_rows_of_each_client_are_for_testing_and_one_is_left(file):
    data = ct.stream(file, test=0.5, **COLUMNS)
    assert data.train.sizes.tolist() == [3, 1] and data.test.inputs[:, 0].tolist()[-2:] == [5, 6]
    assert data.arrivals.sum(axis=0).tolist() == [3, 1]
    assert ct.stream(file, test=0.99, **COLUMNS).train.sizes.tolist() == [1, 1]


def test_the_online_clock_plays_what_the_data_says_unless_told_otherwise(file, tmp_path):
    data = ct.stream(file, ticks=5, **COLUMNS)
    problem, recipe = ct.regression(data, ct.linear()), ct.fedomd(step_size=0.01)
    clocks = ct.online(), ct.online(active=data.arrivals), ct.online(active=np.ones((1, 2), bool))
    finals = [ct.run(problem, data, recipe, rounds=5, clock=clock, out=tmp_path / str(number)).final
              for number, clock in enumerate(clocks)]
    met = [final["online.personal.loss.weighted"] for final in finals]
    assert met[0] == met[1] != met[2]
    assert ct.load(tmp_path / "0").outputs(data.test.inputs).shape == (1,)


def test_what_a_stream_cannot_do_is_said(file, tmp_path):
    with pytest.raises(InputError, match="ends in .csv, .parquet, .npz"):
        ct.stream(file.rename(tmp_path / "visits.txt"), **COLUMNS)
    file = (tmp_path / "visits.txt").rename(file)
    with pytest.raises(InputError, match="test is 1"):
        ct.stream(file, test=1, **COLUMNS)
    with pytest.raises(InputError, match="no rows to set aside"):
        ct.with_validation(ct.stream(file, **COLUMNS), 0.2)


@pytest.mark.parametrize("step", [{"step": "row"}, {"step": "tick", "ticks": 2}])
def test_a_recorded_stream_that_is_met_again_is_told(step):
    data, active = from_stream(STREAM, **step)

    def told(rounds, arrivals=data.arrivals, **options):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            ct.online(**options).build(data.population, arrivals, None, None).check(None, rounds)
        return " ".join(str(each.message) for each in caught)

    steps = len(active)
    assert told(steps) == told(steps + 1, arrivals=None) == told(3 * steps, active=active) == ""
    assert f"the stream ends with step {steps}: steps {steps + 1} to {steps + 2} play it again" in told(steps + 2)
    assert "batch = 2 meets rows before their time" in told(1, batch=2) and told(1, arrivals=None, batch=2) == ""
