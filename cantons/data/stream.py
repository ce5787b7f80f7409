"""Streams: rows in the order in which they arrived."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cantons.data.checks import as_rows, check_numbers
from cantons.data.encoding import Encoding
from cantons.data.ragged import Ragged, from_sizes
from cantons.data.split.partition import natural
from cantons.data.table import Table
from cantons.errors import InputError


class Stream(NamedTuple):
    """One entry per row in every array, in the order of arrival; each client's own rows are in that order too."""

    client: np.ndarray  # int32: whose row it is
    time: np.ndarray  # float64, never falling
    inputs: np.ndarray
    targets: np.ndarray
    names: tuple[str, ...]  # of client 0, 1, ...
    classes: int | None = None  # how many labels there are; None for regression
    encoding: Encoding | None = Encoding()  # of the table it was made of


def as_stream(table: Table) -> Stream:
    """Order a table by its times; rows of the same time keep their places.

    >>> table = Table(np.arange(3), np.arange(3), None, np.array(["bob", "ann", "bob"]), times=np.array([2.0, 1, 0]))
    >>> as_stream(table).client, as_stream(table).inputs
    (array([1, 0, 1], dtype=int32), array([2, 1, 0]))
    """
    if table.clients is None or table.times is None:
        raise InputError("a stream needs to know whose each row is and when it arrived; give the names of client and "
                         "time to the reader.")
    inputs, targets, rows = as_rows(table.inputs, table.targets)
    numbers, names = natural(table.clients)
    if {len(numbers), len(table.times)} != {rows}:
        raise InputError(f"there are {len(numbers)} clients and {len(table.times)} times for {rows} rows; "
                         "give one of each per row.")

    def where(row: int) -> str:
        return f"row {row} (from 0)"

    for what, values in (("times", table.times), ("inputs", inputs), ("targets", targets)):
        check_numbers(what, values, where)
    order = np.argsort(table.times, kind="stable")
    classes = None if table.classes is None else len(table.classes)
    return Stream(numbers[order].astype(np.int32), np.asarray(table.times, np.float64)[order], inputs[order],
                  targets[order], names, classes, table.encoding)


def pack_by_client(stream: Stream) -> tuple[Ragged, np.ndarray]:
    """The rows packed by client, each client's in order of time, and the packed row that arrives first, second, ...

    >>> stream = Stream(np.array([1, 0, 1]), np.array([0.0, 1, 2]), np.arange(3), np.arange(3), ("ann", "bob"))
    >>> packed, arrivals = pack_by_client(stream)
    >>> packed.inputs, packed.sizes, arrivals
    (array([1, 0, 2]), array([1, 2], dtype=int32), array([1, 0, 2], dtype=int32))
    """
    falls = np.flatnonzero(~(np.diff(stream.time) >= 0))
    if falls.size:
        row = int(falls[0])
        raise InputError(f"time falls from {stream.time[row]} to {stream.time[row + 1]} at row {row + 1} (from 0) of "
                         "the stream; make streams with as_stream, which puts them in order.")
    packed = np.argsort(stream.client, kind="stable")
    sizes = np.bincount(stream.client, minlength=len(stream.names))
    return from_sizes(stream.inputs[packed], stream.targets[packed], sizes), np.argsort(packed).astype(np.int32)
