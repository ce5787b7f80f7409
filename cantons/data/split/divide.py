"""Tables become federations: by the clients they name, or by a partition."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, NamedTuple, get_args

from cantons.data.build import federation
from cantons.data.federation import Federation
from cantons.data.prepare.columns import encode_columns
from cantons.data.prepare.scaling import Scale, ScaleOver, scale_inputs
from cantons.data.split.holdout import hold_out_clients
from cantons.data.split.partition import dirichlet, iid, shards
from cantons.data.split.tasks import task_protocol
from cantons.data.table import Missing, Table
from cantons.errors import InputError, one_of
from cantons.ranges import Count, DataSeed, Held, New, Positive

Made = Literal["tasks", "iid", "dirichlet", "shards"]  # partitions that make up their clients
Partition = Literal["natural", "tasks", "iid", "dirichlet", "shards"]


class Division(NamedTuple):
    """How a table is divided among clients, and what is held out of training.

    partition: "natural" takes the clients that the file names; the others make clients up.
    clients: how many clients to make up, the new ones among them; none for "natural".
    alpha: of the partition "dirichlet"; the smaller it is, the fewer classes a client has.
    min_examples: leave out clients with fewer rows.
    test: the fraction of each client's rows to hold out for testing; none takes the rows that the file marks as test
        and, where it marks none or clients are made up, 0.2.
    new: whole clients to hold out of training, a fraction of them or, from 1 on, a number.
    scale: "unit" divides each feature by its largest absolute value, "standard" gives it mean 0 and variance 1.
    scale_over: the training rows that scales are fitted to, those of "all" clients together or of each "client" itself.
    seed: of everything that is drawn at random here.
    """

    partition: Partition = "natural"
    clients: Count | None = None
    alpha: Positive = 0.3
    min_examples: Count = 1
    test: Held | None = None
    new: New = 0
    scale: Scale = "none"
    scale_over: ScaleOver = "all"
    seed: DataSeed = 0


class MadeDivision(NamedTuple):
    """How rows that belong to nobody are divided among clients that are made up.

    partition: how to divide the rows; all but "iid" go by label.
    alpha: of the partition "dirichlet"; the smaller it is, the fewer classes a client has.
    test: the fraction of each client's rows to hold out for testing.
    new: whole clients to hold out of training, a fraction of them or, from 1 on, a number.
    seed: of everything that is drawn at random here.
    """

    partition: Made = "iid"
    alpha: Positive = 0.3
    test: Held = 0.2
    new: New = 0
    seed: DataSeed = 0

    def among(self, clients: int, scale: Scale = "none") -> Division:
        """The same division, among so many clients and with inputs on one scale."""
        return Division(**self._asdict(), clients=clients, scale=scale)


class NaturalDivision(NamedTuple):
    """What is held out of training, where a file always names its clients and inputs may be no quantities.

    min_examples: leave out clients with fewer rows.
    test: the fraction of each client's rows to hold out for testing; none takes the rows that the file marks as test
        and, where it marks none, 0.2.
    new: whole clients to hold out of training, a fraction of them or, from 1 on, a number.
    seed: of everything that is drawn at random here.
    """

    min_examples: Count = 1
    test: Held | None = None
    new: New = 0
    seed: DataSeed = 0

    def with_scale(self, scale: Scale) -> Division:
        """The same division, with inputs on one scale."""
        return Division(**self._asdict(), scale=scale)


def from_table(table: Table, division: Division | NaturalDivision = Division(), *, name: str = "data",
               missing: Missing = "refuse") -> Federation:
    """Divide a table by its own clients, or into clients that a partition makes up; `missing` is of its raw columns.

    >>> import numpy as np
    >>> table = Table(np.zeros((10, 2)), np.arange(10.0), None, clients=np.repeat(["ann", "bob"], 5))
    >>> from_table(table, Division(test=0.4)).train.sizes.tolist()
    [3, 3]
    """
    division = Division(**division._asdict())
    one_of("partition", division.partition, get_args(Partition))
    if division.partition != "natural":
        if division.clients is None or table.clients is not None or division.min_examples != 1:
            raise InputError(f"partition {division.partition!r} makes up its clients: give clients, their number, and "
                             "neither client nor min_examples.")
        whole = _make_clients(table, division.clients, division, name)
    elif table.clients is None or division.clients is not None:
        raise InputError("partition 'natural' finds its clients in the file: give client, the name of their ids, and "
                         f"not clients; or choose another partition: {', '.join(get_args(Made))}. (A CSV file for "
                         "each client is a list, a folder or a pattern in path.)")
    else:
        marked = table.test if division.test is None else None
        whole = federation(table.inputs, table.targets, table.clients, classes=_classes(table), new=division.new,
                           test=fraction_held(division.test) if marked is None else marked, name=name,
                           min_examples=division.min_examples, seed=division.seed, where=table.where)
    whole = replace(whole, vocabulary=table.vocabulary, encoding=table.encoding) if table.raw is None else (
        encode_columns(whole, table, table.raw, missing))
    if division.partition == "tasks" and whole.encoding is not None:  # labels are 0 and 1 of each client's own task
        whole = replace(whole, encoding=replace(whole.encoding, classes=None))
    return scale_inputs(whole, division.scale, division.scale_over)


def fraction_held(test: float | None) -> float:
    """The fraction of each client's rows that is held out, where the file marks none."""
    return 0.2 if test is None else test


def _make_clients(table: Table, clients: int, division: Division, name: str) -> Federation:
    partition, seed, test = division.partition, division.seed, fraction_held(division.test)
    if partition == "iid":
        numbers = iid(len(table.targets), clients, seed=seed)
    elif table.classes is None:
        raise InputError(f"partition {partition!r} goes by label, and regression has none; choose 'iid'.")
    elif partition == "tasks":
        labels = table.classes[table.targets]
        whole = task_protocol(table.inputs, labels, clients, holdout=test, name=name, seed=seed)
        return hold_out_clients(whole, division.new, seed=seed)
    elif partition == "dirichlet":
        numbers = dirichlet(table.targets, clients, alpha=division.alpha, seed=seed)
    else:
        numbers = shards(table.targets, clients, seed=seed)
    return federation(table.inputs, table.targets, numbers, classes=_classes(table), test=test, new=division.new,
                      name=name, seed=seed, where=table.where)


def _classes(table: Table) -> int | None:
    return None if table.classes is None else len(table.classes)
