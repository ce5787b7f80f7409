"""Tables become federations: by the clients they name, or by a partition."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, get_args

from cantons.data.build import federation
from cantons.data.federation import Federation
from cantons.data.prepare.scaling import Scale, scale_inputs
from cantons.data.split.holdout import hold_out_clients
from cantons.data.split.partition import dirichlet, iid, shards
from cantons.data.split.tasks import task_protocol
from cantons.data.table import Table
from cantons.errors import InputError, one_of

Made = Literal["tasks", "iid", "dirichlet", "shards"]  # partitions that make up their clients
Partition = Literal["natural", "tasks", "iid", "dirichlet", "shards"]


def from_table(
    table: Table,
    *,
    name: str = "data",
    partition: Partition = "natural",
    clients: int | None = None,
    alpha: float = 0.3,
    min_examples: int = 1,
    test: float | None = None,
    new: float = 0,
    scale: Scale = "none",
    seed: int = 0,
) -> Federation:
    """Divide a table by its own clients, or into `clients` by another partition.

    With its own clients and no `test`, the rows that the table marks as test are the test set. Otherwise all
    rows are pooled, and `test` is the fraction held out of each client's, 0.2 if not given.
    """
    one_of("partition", partition, get_args(Partition))
    drawn = 0.2 if test is None else test
    if partition != "natural":
        if clients is None or table.clients is not None or min_examples != 1:
            raise InputError(f"partition {partition!r} makes up its clients: give clients, their number, and "
                             "neither client nor min_examples.")
        whole = _make_clients(table, clients, partition, alpha, drawn, new, seed, name)
    elif table.clients is None or clients is not None:
        raise InputError("partition 'natural' finds its clients in the file: give client, the name of their "
                         "ids, and not clients; or choose another partition.")
    else:
        whole = federation(table.inputs, table.targets, table.clients, classes=_classes(table), new=new, name=name,
                           test=table.test if test is None and table.test is not None else drawn,
                           min_examples=min_examples, seed=seed)
    return scale_inputs(replace(whole, vocabulary=table.vocabulary), scale)


def _make_clients(table: Table, clients: int, partition: str, alpha: float, test: float, new: float, seed: int,
             name: str) -> Federation:
    if partition == "iid":
        numbers = iid(len(table.targets), clients, seed=seed)
    elif table.classes is None:
        raise InputError(f"partition {partition!r} goes by label, and regression has none; choose 'iid'.")
    elif partition == "tasks":
        labels = table.classes[table.targets]
        whole = task_protocol(table.inputs, labels, clients, holdout=test, name=name, seed=seed)
        return hold_out_clients(whole, new, seed=seed)
    elif partition == "dirichlet":
        numbers = dirichlet(table.targets, clients, alpha=alpha, seed=seed)
    else:
        numbers = shards(table.targets, clients, seed=seed)
    return federation(table.inputs, table.targets, numbers, classes=_classes(table), test=test, new=new,
                      name=name, seed=seed)


def _classes(table: Table) -> int | None:
    return None if table.classes is None else len(table.classes)
