"""Files in LIBSVM's format: a line `label index:value ...` for each example."""

from __future__ import annotations

import bz2
import gzip
import io
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from cantons.data.checks import as_float32
from cantons.data.federation import Federation
from cantons.data.prepare.scaling import Scale
from cantons.data.provenance import recorded
from cantons.data.read.files import decoding, reading
from cantons.data.split.divide import MadeDivision, from_table
from cantons.data.table import Table, with_labels
from cantons.memory import available, require
from cantons.options import Flat
from cantons.ranges import Count

UNPACK = {".gz": gzip.open, ".bz2": bz2.open}
PARSED = 12  # bytes that a byte of text becomes, measured with lines "1 1:1", which are the densest
LABEL = 64  # bytes of a row beside its values while labels are numbered


@recorded
def libsvm(
    path: str | Path,
    clients: Count,
    *,
    regression: bool = False,
    division: Flat[MadeDivision] = MadeDivision(),
    scale: Scale = "none",
) -> Federation:
    """A file in LIBSVM's format (also .gz and .bz2), whose rows belong to nobody and are divided.

    path: the file.
    clients: how many clients to make up, the new ones among them.
    regression: targets are numbers; otherwise they are labels.
    scale: "unit" divides each feature by its largest absolute value, "standard" gives it mean 0 and variance 1.
    """
    table = read_libsvm(path, regression=regression)
    return from_table(table, division.among(clients, scale), name=Path(path).name)


def read_libsvm(path: str | Path, *, regression: bool = False) -> Table:
    """Read a file in LIBSVM's format, also gzipped (.gz) or bzipped (.bz2), into a dense float32 matrix."""
    from sklearn.datasets import load_svmlight_file  # slow to import, and only needed here

    with reading(path):
        with decoding(path, "whose lines should be 'label index:value ...'"), _open(path) as lines:
            rows, values = load_svmlight_file(lines)
        count, width = rows.shape
        require(count * (4 * width + LABEL), f"{path}, with {count} rows and indices up to {width},")
        rows.data = as_float32("inputs", rows.data, lambda place: (
            f"row {np.searchsorted(rows.indptr, place, 'right') - 1} (from 0)"))
        return with_labels(Table(rows.toarray(), values, None), regression, path)


def _open(path: str | Path) -> BinaryIO:
    unpack: Any = UNPACK.get(Path(path).suffix, open)
    return io.BufferedReader(_Limited(unpack(path, "rb"), path), 2**20)


class _Limited(io.RawIOBase):
    """A file that is refused as soon as what was read of it does not fit: a few bytes may unpack to a great many."""

    def __init__(self, file: BinaryIO, path: str | Path):
        self._file, self._path, self._there, self._read = file, path, available(), 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        found = self._file.readinto(buffer)  # type: ignore[attr-defined]
        self._read += found
        require(PARSED * self._read, f"what was read of {self._path} so far", self._there)
        return found

    def close(self) -> None:
        self._file.close()
        super().close()
