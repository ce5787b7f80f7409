"""Columns of pyarrow may lack values; ours may not."""

from __future__ import annotations

from typing import Any

from cantons.errors import InputError


def no_nulls(column: Any, which: str) -> None:
    """Refuse a column of pyarrow with an empty place."""
    if column.null_count:
        row = column.is_null().to_numpy(zero_copy_only=False).argmax()
        raise InputError(f"{which} has no value in row {row} (from 0); remove such rows or fill in a value.")
