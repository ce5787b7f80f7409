"""Streams: the order of arrival, for all and for each."""

import numpy as np
import pytest

from cantons.data import Stream, Table, as_stream, pack_by_client, read_csv
from cantons.errors import InputError

ROWS = 40
RANDOM = np.random.default_rng(0)
TABLE = Table(RANDOM.normal(size=(ROWS, 2)), RANDOM.integers(0, 3, ROWS), np.arange(3), RANDOM.integers(0, 5, ROWS),
              times=RANDOM.integers(0, 20, ROWS).astype(float))


def test_rows_are_in_the_order_of_their_times_and_ties_keep_their_places():
    stream = as_stream(TABLE)
    rows = sorted(range(ROWS), key=lambda row: (TABLE.times[row], row))
    np.testing.assert_array_equal(stream.inputs, TABLE.inputs[rows])
    np.testing.assert_array_equal(stream.targets, TABLE.targets[rows])
    np.testing.assert_array_equal(stream.client, TABLE.clients[rows])
    np.testing.assert_array_equal(stream.time, TABLE.times[rows])
    assert stream.names == ("0", "1", "2", "3", "4") and stream.classes == 3


def test_packed_rows_are_each_clients_own_in_order_and_arrive_as_in_the_stream():
    stream = as_stream(TABLE)
    packed, arrivals = pack_by_client(stream)
    for client in range(5):
        own = slice(packed.starts[client], packed.starts[client] + packed.sizes[client])
        np.testing.assert_array_equal(packed.inputs[own], stream.inputs[stream.client == client])
    np.testing.assert_array_equal(packed.inputs[arrivals], stream.inputs)
    np.testing.assert_array_equal(packed.targets[arrivals], stream.targets)


def test_a_file_with_times_is_a_stream(tmp_path):
    (tmp_path / "some.csv").write_text("x,y,who,day\n1,0,ann,2026-02-01\n2,1,bob,2026-01-01\n")
    stream = as_stream(read_csv(tmp_path / "some.csv", targets="y", client="who", time="day"))
    assert stream.inputs.tolist() == [[2], [1]] and stream.names == ("ann", "bob")
    assert stream.time[1] - stream.time[0] == 31 * 86400


@pytest.mark.parametrize("changes, sentence", [
    ({"times": None}, "a stream needs to know whose each row is and when it arrived"),
    ({"clients": None}, "a stream needs to know whose each row is"),
    ({"times": TABLE.times[:5]}, "there are 40 clients and 5 times for 40 rows"),
    ({"times": np.where(TABLE.times == 7, np.nan, TABLE.times)}, r"times hold nan in row \d+ \(from 0\)"),
    ({"inputs": TABLE.inputs * np.inf}, r"inputs hold -?inf in row 0 \(from 0\)"),
])
def test_bad_tables_are_refused(changes, sentence):
    with pytest.raises(InputError, match=sentence):
        as_stream(TABLE._replace(**changes))


@pytest.mark.parametrize("times", [[0.0, 2.0, 1.0], [0.0, float("nan"), 1.0]])
def test_a_stream_out_of_order_is_refused(times):
    stream = Stream(np.array([0, 1, 0]), np.array(times), np.zeros((3, 1)), np.zeros(3), ("ann", "bob"))
    with pytest.raises(InputError, match="time falls from .* of the stream; make streams with as_stream"):
        pack_by_client(stream)
