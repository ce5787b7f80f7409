"""Streams become federations: each client's rows in order of time, and a trace of who has one when.

For the online clock, which finds that trace in the data unless it is given another, and whose order is "cycle".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np

from cantons.data.checks import as_array, as_float32, as_labels, check_numbers
from cantons.data.column import Column
from cantons.data.federation import Federation, Population
from cantons.data.provenance import recorded
from cantons.data.read.csv import read_csv
from cantons.data.read.files import reading
from cantons.data.read.npz import read_npz
from cantons.data.read.parquet import read_parquet
from cantons.data.split.holdout import mark_last_rows
from cantons.data.stream import Stream, as_stream, pack_by_client
from cantons.data.table import Table, with_labels
from cantons.errors import InputError, at_least, one_of
from cantons.ranges import Count, Held

READERS: dict[str, Callable[..., Table]] = {".csv": read_csv, ".parquet": read_parquet, ".npz": read_npz}


@recorded
def stream(path: str | Path, *, targets: str, client: str, time: str, inputs: str | list[str] | None = None,
           ignore: list[str] | None = None, regression: bool = False, step: Literal["row", "tick"] = "tick",
           ticks: Count | None = None, test: Held = 0.2) -> Federation:
    """Rows with time stamps, which the online clock plays in order of time.

    path: a .csv, .parquet or .npz file.
    targets: the column to predict.
    client: the column that says whose each row is.
    time: the column that says when each row came, in numbers or dates.
    inputs: the columns to learn from; all that are left if not given, or the array x of an archive.
    ignore: columns to leave alone, in a table.
    regression: targets are numbers; otherwise they are labels.
    step: "row" makes every row a step of its own, "tick" cuts the time into equal steps.
    ticks: how many such steps; as many as the client has rows who has most, if not given.
    test: the fraction of each client's rows, the last ones, to hold out for testing.
    """
    with reading(path):  # before its ending: a file that is not there has none to complain about
        read = READERS.get(Path(path).suffix)
    if read is None:
        raise InputError(f"cannot read a stream from {Path(path).name}; give a file that ends in {', '.join(READERS)}.")
    given: dict[str, Any] = {} if inputs is None else {"inputs": inputs}
    if ignore:
        if read is read_npz:
            raise InputError("ignore is for columns of tables, and an archive has one array of inputs; leave it out.")
        given["ignore"] = ignore
    rows = as_stream(read(path, targets=targets, client=client, time=time, regression=regression, **given))
    if step == "tick" and ticks is None:
        ticks = int(np.bincount(rows.client).max())
    return from_stream(rows, step=step, ticks=ticks, test=test, name=Path(path).stem)[0]


def from_stream(stream: Stream, *, step: str = "row", ticks: int | None = None, test: float = 0.0,
                name: str = "stream") -> tuple[Federation, np.ndarray]:
    """A federation that the online clock plays in order of time, and who is `active` in which step: [steps, clients].

    With step "row" every arrival is a step of its own: whoever has the k-th row of the stream is alone in step k. With
    "tick" the time from the first row to the last is cut into `ticks` equal bins, a step each. A client plays at most
    one row in a step; what comes in faster waits in a queue, first in, first out. Steps are added at the end until all
    queues are empty, so each row is played exactly once; `active[:ticks]` leaves out those that would come too late.
    The fraction `test` of each client's rows, the last ones, is not played but kept for testing.

    >>> stream = Stream(np.array([1, 0, 1]), np.array([0.0, 9, 9]), np.arange(3), np.arange(3.0), ("ann", "bob"))
    >>> data, active = from_stream(stream)
    >>> data.train.inputs, active.astype(int).tolist()
    (array([1, 0, 2]), [[0, 1], [1, 0], [0, 1]])
    >>> from_stream(stream, step="tick", ticks=2)[1].astype(int).tolist()
    [[0, 1], [1, 1]]
    """
    one_of("step", step, ("row", "tick"))
    if (step == "tick") != (ticks is not None):
        raise InputError(f"step is {step!r} and ticks is {ticks}; a step \"tick\" needs the number of ticks, a step "
                         "\"row\" has none.")
    if not len(stream.time):
        raise InputError("the stream has no rows, so nobody would ever play; give at least one example.")
    check_numbers("times", stream.time, _where)
    if stream.classes is not None:
        stream = stream._replace(targets=as_labels(stream.targets, stream.classes, _where))
    held = mark_last_rows(test, stream.client, len(stream.names))
    tested, stream = pack_by_client(_rows(stream, held))[0], _rows(stream, ~held)
    train, arrivals = pack_by_client(stream)
    if ticks is None:
        steps = np.arange(len(stream.time))
    else:
        at_least("ticks", ticks, 1)
        steps = _queue_rows(_bins(stream.time, ticks), stream.client, np.argsort(arrivals))
    active = np.zeros((max(int(steps.max()) + 1, ticks or 0), len(stream.names)), bool)
    active[steps, stream.client] = True
    test_set = (f"the last {test:.0%} of each client's rows" if test
                else "none: a stream is scored before it is learned from")
    return Federation(Population(train, tested, stream.names), classes=stream.classes, name=name, arrivals=active,
                      test_set=test_set, encoding=stream.encoding), active


def from_iterable(rows: Iterable[tuple], *, clients: int | str | None = None, regression: bool = False,
                  limit: int | None = None) -> Stream:
    """Rows (x, y) or (client, x, y), one after the other as `river` gives them, become a stream.

    x is an array, or a dict of numbers, whose keys become columns in sorted order; a key that a row lacks is 0 there.
    y is a label of any kind, numbered in sorted order, or a number with `regression`. `clients` says who has a row
    (x, y): with a number of clients they take turns, with a name that entry is taken out of each dict. Row k arrives at
    time k. At most `limit` rows are read.

    >>> stream = from_iterable([({"b": 1, "a": 2}, "no"), ({"a": 3}, "yes"), ({"b": 4}, "no")], clients=2)
    >>> stream.inputs.tolist(), stream.targets.tolist(), stream.client.tolist()
    ([[2.0, 1.0], [3.0, 0.0], [0.0, 4.0]], [0, 1, 0], [0, 1, 0])
    """
    if isinstance(clients, int):
        at_least("clients", clients, 1)
    owners, inputs, targets = [], [], []
    for number, row in enumerate(rows):
        if limit is not None and number >= limit:
            break
        owner, x, y = _unpack_row(number, row, clients)
        owners.append(owner)
        inputs.append(x)
        targets.append(y)
    if not owners:
        raise InputError("the iterable has no rows; give at least one example.")
    rows, columns = _matrix(inputs)
    table = Table(rows, as_array("y of the iterable", targets), None, as_array("clients of the iterable", owners),
                  times=np.arange(len(owners), dtype=float), columns=columns)
    return as_stream(with_labels(table, regression, "the iterable"))


def _rows(stream: Stream, chosen: np.ndarray) -> Stream:
    return stream._replace(client=stream.client[chosen], time=stream.time[chosen], inputs=stream.inputs[chosen],
                           targets=stream.targets[chosen])


def _where(row: int) -> str:
    return f"row {row} (from 0)"


def _bins(time: np.ndarray, ticks: int) -> np.ndarray:
    """The bin of each row; the last row is in the last one, and if all come at once, all are in the first."""
    length = time[-1] - time[0]
    if length == 0:
        return np.zeros(len(time), int)
    return np.minimum((time - time[0]) / length * ticks, ticks - 1).astype(int)


def _queue_rows(bins: np.ndarray, client: np.ndarray, packed: np.ndarray) -> np.ndarray:
    """The step in which each row is played: its bin, or the step after the client's row before, whichever is later."""
    steps = np.empty(len(bins), int)
    for rows in np.split(packed, np.flatnonzero(np.diff(client[packed])) + 1):
        places = np.arange(len(rows))
        steps[rows] = places + np.maximum.accumulate(bins[rows] - places)
    return steps


def _unpack_row(number: int, row: tuple, clients: int | str | None) -> tuple[Any, Any, Any]:
    """Whose row it is, its x and its y."""
    expected = 3 if clients is None else 2
    if not isinstance(row, tuple | list) or len(row) != expected:
        kind = "(client, x, y)" if clients is None else "(x, y)"
        raise InputError(f"row {number} (from 0) of the iterable is no {kind}; rows are (client, x, y), or (x, y) if "
                         "clients says how many clients take turns or which entry of x is the client.")
    if clients is None:
        return row[0], row[1], row[2]
    x, y = row
    if isinstance(clients, int):
        return number % clients, x, y
    if not isinstance(x, Mapping) or clients not in x:
        raise InputError(f"x of row {number} (from 0) of the iterable has no entry {clients!r}, which clients names.")
    return x[clients], {key: value for key, value in x.items() if key != clients}, y


def _matrix(inputs: list) -> tuple[np.ndarray, tuple[Column, ...] | None]:
    """One row of numbers for each x, and the columns, if they have names."""
    columns = None
    if isinstance(inputs[0], Mapping):
        if not all(isinstance(x, Mapping) for x in inputs):
            raise InputError("some x of the iterable are dicts and some are not; give all of them alike.")
        keys = sorted({key for x in inputs for key in x})
        columns = tuple(Column(str(key)) for key in keys)
        inputs = [[x.get(key, 0) for key in keys] for x in inputs]
    try:
        return as_float32("x of the iterable", np.asarray(inputs, np.float64), _where), columns
    except InputError:
        raise
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(f"x of the iterable cannot be made rows of numbers: {error}.") from error
