"""Files in LIBSVM's format: a line `label index:value ...` for each example."""

from __future__ import annotations

from math import prod
from pathlib import Path

import numpy as np

from cantons.data.checks import as_float32
from cantons.data.federation import Federation
from cantons.data.prepare.scaling import Scale
from cantons.data.provenance import recorded
from cantons.data.read.files import decoding, reading
from cantons.data.split.divide import MadeDivision, from_table
from cantons.data.table import Table, with_labels
from cantons.memory import require
from cantons.options import Flat
from cantons.ranges import Count


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
        with decoding(path, "whose lines should be 'label index:value ...'"):
            rows, values = load_svmlight_file(str(path))
        require(4 * prod(rows.shape), f"{path}, with {rows.shape[0]} rows and indices up to {rows.shape[1]},")
        rows.data = as_float32("inputs", rows.data, lambda place: (
            f"row {np.searchsorted(rows.indptr, place, 'right') - 1} (from 0)"))
        return with_labels(Table(rows.toarray(), values, None), regression, path)
