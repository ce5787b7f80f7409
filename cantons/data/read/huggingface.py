"""Hugging Face datasets: as objects, or from the folders that `save_to_disk` writes. Nothing is downloaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from cantons.data.federation import Federation
from cantons.data.provenance import recorded
from cantons.data.read.columns import Columns, as_table
from cantons.data.read.files import decoding, reading
from cantons.data.read.nulls import no_nulls
from cantons.data.split.divide import Division, from_table
from cantons.data.table import Table
from cantons.errors import InputError, unknown
from cantons.optional import optional_import
from cantons.options import Flat


@recorded
def huggingface(
    path: str | Path,
    *,
    inputs: str | list[str],
    targets: str,
    client: str | None = None,
    regression: bool = False,
    division: Flat[Division] = Division(),
) -> Federation:
    """A folder written by `save_to_disk`, divided by its column `client`, or into `clients` by another partition.

    The split "test" is what the file marks as test.

    path: the folder.
    inputs: a column of numbers, arrays or pictures, or several to put side by side.
    targets: the column to predict.
    client: the column that says whose each row is.
    regression: targets are numbers; otherwise they are labels.
    """
    table = read_huggingface(path, inputs=inputs, targets=targets, client=client, regression=regression)
    return from_table(table, division, name=Path(path).stem)


def read_huggingface(source: Any, *, inputs: str | list[str], targets: str, client: str | None = None,
                     regression: bool = False) -> Table:
    """Read a Dataset, a DatasetDict with a split "train" and perhaps "test", or the folder of either."""
    datasets = optional_import("datasets", "hf", user="this data")
    where = "the dataset"
    if isinstance(source, str | Path):
        where, source = str(source), _from_disk(datasets, source)
    if isinstance(source, datasets.DatasetDict):
        whole, test = _join_splits(datasets, source, where)
    elif isinstance(source, datasets.Dataset):
        whole, test = source, None
    else:
        raise InputError(f"read_huggingface got a {type(source).__name__}; give a Dataset, a DatasetDict or a folder.")

    def read(name: str) -> np.ndarray:
        with decoding(where, "which should be a sound dataset"):
            return _array(whole, name, f"column {name!r} in {where}")

    columns = Columns(where, whole.column_names, read)
    table = as_table(columns, inputs=inputs, targets=targets, client=client, regression=regression)
    return table._replace(test=test)


def _join_splits(datasets: Any, splits: Any, where: str) -> tuple[Any, np.ndarray | None]:
    """The splits train and test as one, and which rows are test; other splits are left out."""
    if "train" not in splits:
        raise unknown(f"split of {where}:", "train", splits)
    if "test" not in splits:
        return splits["train"], None
    try:
        whole = datasets.concatenate_datasets([splits["train"], splits["test"]])
    except ValueError as error:
        raise InputError(f"the splits train and test of {where} differ in their columns; make them alike.") from error
    return whole, np.arange(len(whole)) >= len(splits["train"])


def _from_disk(datasets: Any, path: str | Path) -> Any:
    with reading(path):
        try:
            with decoding(path, "which should be a dataset"):
                found = datasets.load_from_disk(str(path))
                for part in found.values() if isinstance(found, datasets.DatasetDict) else [found]:
                    part.data.table.validate(full=True)  # a damaged offset would be followed out of the file
                return found
        except (InputError, FileNotFoundError) as error:
            raise InputError(f"cannot read {path}: it is not a whole folder as save_to_disk writes it; "
                             "files of other kinds have readers of their own, such as parquet.") from error


def _array(dataset: Any, name: str, which: str) -> np.ndarray:
    column = dataset.select_columns([name])
    no_nulls(column.with_format("arrow")[:][name], which)
    values = np.asarray(column.with_format("numpy")[:][name])
    if values.dtype != object:
        return values
    shapes = [np.shape(value) for value in values]
    odd = next((row for row, shape in enumerate(shapes) if shape != shapes[0]), None)
    if odd is not None:
        raise InputError(f"{which} has shape {shapes[0]} in row 0 and {shapes[odd]} in row {odd}; all rows must agree.")
    return np.array(values.tolist())
