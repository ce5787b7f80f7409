"""Parquet files, read with pyarrow: one of them, or a folder of parts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cantons.data.federation import Federation
from cantons.data.provenance import recorded
from cantons.data.read.columns import Columns, as_table
from cantons.data.read.files import decoding, reading
from cantons.data.read.frames import values_of
from cantons.data.read.nulls import no_nulls
from cantons.data.split.divide import Division, from_table
from cantons.data.table import Missing, Table
from cantons.errors import InputError
from cantons.memory import require
from cantons.optional import optional_import
from cantons.options import Flat


@recorded
def parquet(
    path: str | Path,
    *,
    targets: str,
    inputs: str | list[str] | None = None,
    ignore: list[str] | None = None,
    client: str | None = None,
    regression: bool = False,
    categorical: list[str] | None = None,
    missing: Missing = "refuse",
    division: Flat[Division] = Division(test=0.2),
) -> Federation:
    """A parquet file or a folder of them, divided by its column `client`, or into `clients` by another partition.

    path: the file or folder.
    targets: the column to predict.
    inputs: a column of numbers, of text or of lists of equal length, or several columns to put side by side; all that
        are not named elsewhere if not given.
    ignore: columns to leave alone.
    client: the column that says whose each row is.
    regression: targets are numbers; otherwise they are labels.
    categorical: columns of numbers to encode one-hot, as columns of text always are.
    missing: of an input without a value, "refuse" the file, or fill in the "mean" of all training rows and mark such
        rows in a feature of their own.
    """
    table = read_parquet(path, inputs=inputs, targets=targets, client=client, regression=regression, ignore=ignore,
                         categorical=categorical or (), missing=missing)
    return from_table(table, division, name=Path(path).stem, missing=missing)


def read_parquet(path: str | Path, *, targets: str, inputs: str | list[str] | None = None, client: str | None = None,
                 time: str | None = None, regression: bool = False, ignore: Sequence[str] | None = None,
                 categorical: Sequence[str] | None = None, missing: Missing = "refuse") -> Table:
    """Read the columns that are asked for, and no others; with `categorical` as `read_csv` does."""
    files = optional_import("pyarrow.parquet", "parquet", user="this data")
    with reading(path):
        with decoding(path, "which should be parquet"):
            file = files.ParquetDataset(path)
            names = file.schema.names
            chunks = [chunk for part in file.fragments for chunk in _chunks(part.metadata)]

        def read(name: str) -> np.ndarray:
            # A few bytes may say that a value comes many times.
            require(8 * sum(size for column, size in chunks if column == name or column.startswith(f"{name}.")),
                    f"column {name!r} in {path}")
            with decoding(path, "which should be parquet"):
                column = file.read(columns=[name])[name]
                if categorical is not None and name not in (targets, client, time) and _holds_single_values(column):
                    return values_of(column)
                return _array(column, f"column {name!r} in {path}")

        return as_table(Columns(path, names, read), inputs=inputs, targets=targets, client=client, time=time,
                        ignore=ignore or (), regression=regression, categorical=categorical, missing=missing)


def _chunks(part: Any) -> Iterator[tuple[str, int]]:
    """The path of every column chunk, and how many values it holds, those inside of lists included."""
    for group in map(part.row_group, range(part.num_row_groups)):
        for chunk in map(group.column, range(group.num_columns)):
            yield chunk.path_in_schema, chunk.num_values


def _holds_single_values(column: Any) -> bool:
    """Are its values numbers, truth values or words, of which some may be missing?"""
    from pyarrow import types

    kind = column.type.value_type if types.is_dictionary(column.type) else column.type
    return any(is_kind(kind) for is_kind in (types.is_integer, types.is_floating, types.is_boolean, types.is_string,
                                             types.is_large_string))


def _array(column: Any, which: str) -> np.ndarray:
    """A column of pyarrow as an array; lists, however deep, become further axes."""
    from pyarrow import compute, types

    no_nulls(column, which)
    if types.is_list(column.type) or types.is_large_list(column.type) or types.is_fixed_size_list(column.type):
        lengths = compute.list_value_length(column).to_numpy()
        if len(lengths) and (lengths != lengths[0]).any():
            row = int(np.argmax(lengths != lengths[0]))
            raise InputError(f"{which} has {lengths[0]} values in row 0 and {lengths[row]} in row {row}; "
                             "give every row as many.")
        inner = _array(compute.list_flatten(column), which)
        return inner.reshape(len(column), *lengths[:1], *inner.shape[1:])
    if types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    values = column.to_numpy()
    return np.array(values.tolist()) if values.dtype == object else values
