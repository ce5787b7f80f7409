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

    clients: how many clients to make up, the new ones among them.
    partition: how to divide the digits: by "tasks" each client tells one digit from a class that all have in common.
    alpha: of the partition "dirichlet"; the smaller it is, the fewer classes a client has.
    test: the fraction of each client's rows to hold out for testing.
    new: whole clients to hold out of training, a fraction of them or, from 1 on, a number.
    seed: of everything that is drawn at random here.
    """
    from sklearn.datasets import load_digits  # slow to import, and only needed here

    pixels, labels = load_digits(return_X_y=True)
    table = Table((pixels / 16).astype(np.float32), labels.astype(np.int32), np.arange(10))
    division = Division(partition, clients, alpha, test=test, new=new, seed=seed)
    return from_table(table, division, name="digits")
