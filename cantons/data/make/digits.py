"""The handwritten digits that scikit-learn brings along."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np

from cantons.data.federation import Federation
from cantons.data.provenance import recorded
from cantons.data.split.divide import MadeDivision, from_table
from cantons.data.table import Table
from cantons.options import Flat
from cantons.ranges import Count


@recorded
def digits(
    clients: Count = 50,
    *,
    division: Flat[MadeDivision] = MadeDivision("tasks"),
) -> Federation:
    """1797 handwritten digits of 8 x 8 pixels, bundled with scikit-learn; pixels are in 0..1.

    clients: how many clients to make up, the new ones among them.
    partition: how to divide the digits: by "tasks" each client tells one digit from a class that all have in common.
    """
    rows = _rows()
    table = Table((rows[:, :-1] / 16).astype(np.float32), rows[:, -1].astype(np.int32), np.arange(10))
    return from_table(table, division.among(clients), name="digits")


def _rows() -> np.ndarray:
    """64 pixels and a label in a row. The file is read as it is: to import scikit-learn would take a second."""
    package = find_spec("sklearn")
    for place in (package and package.submodule_search_locations) or ():
        file = Path(place) / "datasets" / "data" / "digits.csv.gz"
        if file.is_file():
            return np.loadtxt(file, delimiter=",")
    from sklearn.datasets import load_digits  # it keeps the file elsewhere

    pixels, labels = load_digits(return_X_y=True)
    return np.column_stack([pixels, labels])
