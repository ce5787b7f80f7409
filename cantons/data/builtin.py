"""Data that a study can name: the digits we always have, and files. Every option is a plain TOML value."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np

from cantons.data.build import federation
from cantons.data.federation import Federation, hold_out
from cantons.data.partition import dirichlet, iid, shards
from cantons.data.readers import Table, read_libsvm, read_npz
from cantons.data.recorded import recorded
from cantons.data.scaling import Scale, scaled
from cantons.data.tasks import task_protocol
from cantons.errors import InputError, one_of

Partition = Literal["tasks", "iid", "dirichlet", "shards"]


@recorded
def digits(
    clients: int = 50,
    *,
    partition: Partition = "tasks",
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
    return _divided(table, clients, partition, alpha, test, new, seed, "digits")


@recorded
def npz(
    path: str | Path,
    *,
    inputs: str = "x",
    targets: str = "y",
    client: str | None = None,
    regression: bool = False,
    partition: Partition | Literal["natural"] = "natural",
    clients: int | None = None,
    alpha: float = 0.3,
    min_examples: int = 1,
    test: float = 0.2,
    new: float = 0,
    scale: Scale = "none",
    seed: int = 0,
) -> Federation:
    """A NumPy archive, divided by its array of ids `client`, or into `clients` by another partition."""
    name = Path(path).stem
    table = read_npz(path, inputs=inputs, targets=targets, client=client, regression=regression)
    if partition != "natural":
        if clients is None or client is not None or min_examples != 1:
            raise InputError(f"partition {partition!r} makes up its clients: give clients, their number, and "
                             "neither client nor min_examples.")
        return scaled(_divided(table, clients, partition, alpha, test, new, seed, name), scale)
    if table.clients is None or clients is not None:
        raise InputError("partition 'natural' finds its clients in the file: give client, the array of their "
                         "ids, and not clients; or choose another partition.")
    whole = federation(table.inputs, table.targets, table.clients, classes=_classes(table), test=test,
                       new=new, min_examples=min_examples, name=name, seed=seed)
    return scaled(whole, scale)


@recorded
def libsvm(
    path: str | Path,
    clients: int,
    *,
    regression: bool = False,
    partition: Partition = "iid",
    alpha: float = 0.3,
    test: float = 0.2,
    new: float = 0,
    scale: Scale = "none",
    seed: int = 0,
) -> Federation:
    """A file in LIBSVM's format (also .gz and .bz2), divided into `clients`, the `new` ones among them."""
    table = read_libsvm(path, regression=regression)
    return scaled(_divided(table, clients, partition, alpha, test, new, seed, Path(path).name), scale)


def _divided(table: Table, clients: int, partition: str, alpha: float, test: float, new: float, seed: int,
             name: str) -> Federation:
    one_of("partition", partition, ("tasks", "iid", "dirichlet", "shards"))
    if partition == "iid":
        numbers = iid(len(table.targets), clients, seed=seed)
    elif table.classes is None:
        raise InputError(f"partition {partition!r} goes by label, and regression has none; choose 'iid'.")
    elif partition == "tasks":
        labels = table.classes[table.targets]
        whole = task_protocol(table.inputs, labels, clients, holdout=test, name=name, seed=seed)
        return hold_out(whole, new, seed=seed)
    elif partition == "dirichlet":
        numbers = dirichlet(table.targets, clients, alpha=alpha, seed=seed)
    else:
        numbers = shards(table.targets, clients, seed=seed)
    return federation(table.inputs, table.targets, numbers, classes=_classes(table), test=test, new=new,
                      name=name, seed=seed)


def _classes(table: Table) -> int | None:
    return None if table.classes is None else len(table.classes)
