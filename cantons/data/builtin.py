"""Data that a study can name: the digits we always have, and two kinds of files. Every option is a plain TOML value."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from cantons.data.divide import Made, Partition, from_table
from cantons.data.federation import Federation
from cantons.data.readers import read_libsvm, read_npz
from cantons.data.recorded import recorded
from cantons.data.scaling import Scale
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
    return from_table(table, name="digits", partition=partition, clients=clients, alpha=alpha, test=test, new=new,
                      seed=seed)


@recorded
def npz(
    path: str | Path,
    *,
    inputs: str = "x",
    targets: str = "y",
    client: str | None = None,
    regression: bool = False,
    partition: Partition = "natural",
    clients: int | None = None,
    alpha: float = 0.3,
    min_examples: int = 1,
    test: float = 0.2,
    new: float = 0,
    scale: Scale = "none",
    seed: int = 0,
) -> Federation:
    """A NumPy archive, divided by its array of ids `client`, or into `clients` by another partition."""
    table = read_npz(path, inputs=inputs, targets=targets, client=client, regression=regression)
    return from_table(table, name=Path(path).stem, partition=partition, clients=clients, alpha=alpha,
                      min_examples=min_examples, test=test, new=new, scale=scale, seed=seed)


@recorded
def libsvm(
    path: str | Path,
    clients: int,
    *,
    regression: bool = False,
    partition: Made = "iid",
    alpha: float = 0.3,
    test: float = 0.2,
    new: float = 0,
    scale: Scale = "none",
    seed: int = 0,
) -> Federation:
    """A file in LIBSVM's format (also .gz and .bz2), divided into `clients`, the `new` ones among them."""
    table = read_libsvm(path, regression=regression)
    return from_table(table, name=Path(path).name, partition=partition, clients=clients, alpha=alpha, test=test,
                      new=new, scale=scale, seed=seed)
