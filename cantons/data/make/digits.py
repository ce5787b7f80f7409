"""The handwritten digits that scikit-learn brings along."""

from __future__ import annotations

import numpy as np

from cantons.data.federation import Federation
from cantons.data.provenance import recorded
from cantons.data.split.divide import Division, Made, from_table
from cantons.data.table import Table


@recorded
def digits(
    clients: int = 50,
    *,
    partition: Made = "tasks",
    alpha: float = 0.3,
    test: float = 0.2,
    new: float = 0,
    seed: int = 0,
) -> Federation:
    """1797 handwritten digits of 8 x 8 pixels, bundled with scikit-learn; pixels are in 0..1.

    `clients` counts the `new` ones too. `alpha` is for "dirichlet"; `test` is the fraction held out.
    """
    from sklearn.datasets import load_digits  # slow to import, and only needed here

    pixels, labels = load_digits(return_X_y=True)
    table = Table((pixels / 16).astype(np.float32), labels.astype(np.int32), np.arange(10))
    division = Division(partition, clients, alpha, test=test, new=new, seed=seed)
    return from_table(table, division, name="digits")
