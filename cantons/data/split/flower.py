"""The partitioners of flwr-datasets, to divide our data or a Hugging Face dataset."""

from __future__ import annotations

from typing import Any

import numpy as np

from cantons.data.table import Table
from cantons.errors import InputError
from cantons.optional import optional_import

ROW = "cantons_row"


def flower_clients(partitioner: Any, data: Any) -> np.ndarray:
    """The client number of every row, -1 where the partitioner leaves a row out.

    `partitioner` is a fresh one from `flwr_datasets.partitioner`; `data` is a `datasets.Dataset`, or a table, whose
    labels are then the column "label" and whose clients are "client".
    """
    datasets = optional_import("datasets", "flwr-datasets", user="this data")
    if isinstance(data, Table):
        columns = {"label": data.targets} if data.clients is None else {"label": data.targets, "client": data.clients}
        data = datasets.Dataset.from_dict(columns)
    if not isinstance(data, datasets.Dataset):
        raise InputError(f"flower_clients got a {type(data).__name__}; give a datasets.Dataset (one split) or a table.")
    try:
        partitioner.dataset = data.add_column(ROW, np.arange(len(data)))
        parts = [partitioner.load_partition(number) for number in range(partitioner.num_partitions)]
    except (ValueError, KeyError, TypeError) as error:
        reason = " ".join(str(error).split()).rstrip(".")
        raise InputError(f"the partitioner cannot divide this data: {reason}.") from error
    numbers = np.full(len(data), -1)
    for number, part in enumerate(parts):
        rows = part.select_columns([ROW]).with_format("numpy")[:][ROW]
        shared = rows[numbers[rows] >= 0]
        if len(shared):
            raise InputError(f"the partitioner gives row {shared[0]} to clients {numbers[shared[0]]} and {number}; "
                             "choose one that gives every row to one client.")
        numbers[rows] = number
    return numbers
