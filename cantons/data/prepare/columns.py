"""Columns of numbers and of text become inputs; what is learned of them, such as a vocabulary, is of training rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from cantons.data.checks import check_numbers
from cantons.data.column import Column, is_missing
from cantons.data.encoding import Encoding
from cantons.data.federation import Federation, map_rows
from cantons.data.table import Missing, RawColumn, Table, as_row
from cantons.errors import InputError, amount


def encode_columns(federation: Federation, table: Table, raw: Sequence[RawColumn], missing: Missing) -> Federation:
    """The federation, whose inputs are the numbers of rows of the table so far, with the columns of these rows."""
    train = np.asarray(federation.train.inputs)
    columns = tuple(_fit(column, train, missing, table) for column in raw)
    inputs = np.concatenate([column.encode(own.values) for column, own in zip(columns, raw, strict=True)], axis=1)
    check_numbers("inputs", inputs, table.where or as_row)
    if not inputs.shape[1]:
        raise InputError("no column of the inputs has a value in any training row; choose others.")
    notes = _notes(columns, raw, train, federation)
    encoded = map_rows(federation, lambda rows: replace(rows, inputs=inputs[np.asarray(rows.inputs)]))
    encoding: Encoding = replace(table.encoding, columns=columns)
    return replace(encoded, encoding=encoding, notes=(*federation.notes, *notes))


def _fit(column: RawColumn, train: np.ndarray, missing: Missing, table: Table) -> Column:
    """How a column is encoded, from what training rows have there."""
    absent = is_missing(column.values)
    if absent.any() and missing == "refuse":
        where = (table.where or as_row)(int(absent.argmax()))
        raise InputError(f"{column.words} has no value in {where}; remove such rows or fill one in, or give missing = "
                         "\"mean\".")
    known = column.values[train][~absent[train]]
    indicator = bool(absent[train].any())
    if column.values.dtype.kind == "U":
        return Column(column.name, tuple(np.unique(known).tolist()), None if missing == "refuse" else 0.0, indicator)
    if missing == "refuse":
        return Column(column.name)
    if not len(known):
        raise InputError(f"{column.words} has no value in any training row; leave it out by ignore.")
    return Column(column.name, fill=float(known.mean(dtype=np.float64)), indicator=indicator)


def _notes(columns: Sequence[Column], raw: Sequence[RawColumn], train: np.ndarray, federation: Federation) -> list[str]:
    """What was done to columns, a phrase each."""
    pairs = list(zip(columns, raw, strict=True))
    text = [f"{column.name} ({amount(len(column.values), 'value')})" for column, _ in pairs
            if column.values is not None]
    filled = [(column.name, int(is_missing(own.values).sum())) for column, own in pairs]
    gaps = [f"{name} ({amount(count, 'row')})" for name, count in filled if count]
    notes = [f"one-hot: {', '.join(text)}"] if text else []
    notes += [f"missing values filled in: {', '.join(gaps)}"] if gaps else []
    others = {"test rows": federation.test.inputs}
    if federation.new is not None:
        others["rows of new clients"] = np.concatenate([federation.new.train.inputs, federation.new.test.inputs])
    for column, own in pairs:
        counts = {words: int(column.unseen(own.values[np.asarray(rows)]).sum()) for words, rows in others.items()}
        said = [f"{count} {words}" for words, count in counts.items() if count]
        notes += [f"values of {column.name} that no training row has: {' and '.join(said)}"] if said else []
    return notes
