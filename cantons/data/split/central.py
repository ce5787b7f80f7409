"""The datacenter's examples: data of its own, or taken from the clients. They come pooled: nobody owns them.

Its test rows, and the clients' test rows pooled, become test sets of the shared model: "federated", "central", and
"inference", which is both together.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from cantons.data.centres import Centres
from cantons.data.federation import Federation, Population, gather, pooled, rows_of, select_clients
from cantons.data.names import TAKEN
from cantons.data.ragged import Ragged, from_sizes
from cantons.data.seeds import generator
from cantons.errors import InputError, amount
from cantons.protocol import PyTree
from cantons.ranges import DataSeed, Fraction, Whole, checked


def with_central(data: Federation, central: Federation) -> Federation:
    """The federation with a datacenter: it has the training rows of `central`, and is tested on its test rows."""
    _check_alike(data, central)
    return _with_rows(data, pooled(central.train), pooled(central.test), central.spec)


def with_centres(data: Federation,
                 centres: Mapping[str, Federation | Callable[[Federation], Federation]]) -> Federation:
    """The federation with a datacenter that has examples of several kinds, by name.

    Each is data of its own, or a function that takes rows from the clients, such as a partial `from_labels`. Each
    kind's test rows are a test set under its name; "inference" is all of them together with the clients'.
    """
    if len(centres) < 2 or any(not name.strip() or "." in name or name in TAKEN for name in centres):
        raise InputError(f"the kinds of the datacenter's examples are {list(centres)}; name two or more, without dots, "
                         f"and none of them {', '.join(TAKEN)}.")
    rows: dict[str, Ragged] = {}
    tests, specs, before = {}, {}, dict(data.sets)
    for name, made in centres.items():
        data = with_central(data, made) if isinstance(made, Federation) else made(data)
        assert isinstance(data.central, Ragged)
        rows[name], tests[name], specs[name] = data.central, data.sets.get("central"), data.central_spec
    federated = pooled(data.test)
    there = {"federated": federated, **{name: test for name, test in tests.items() if test is not None}}
    whole = functools.reduce(_joined, there.values())
    return replace(data, central=Centres(rows), central_spec=None if None in specs.values() else specs, sets={
        **before, **{name: test for name, test in {**there, "inference": whole}.items() if test.longest}})


@checked
def from_clients(data: Federation, *, fraction: Fraction, seed: DataSeed = 0) -> Federation:
    """Some clients hand over what they have: their training and test rows become the datacenter's, and they leave.

    fraction: of the clients, drawn at random.
    seed: of the draw.
    """
    count = round(fraction * data.population)
    if not 0 < count < data.population:
        raise InputError(f"fraction is {fraction}, which is {count} of {data.population} clients; leave at least one "
                         "on either side.")
    chosen = generator(seed, "central").permutation(data.population) < count
    given, rest = select_clients(data.clients, chosen), select_clients(data.clients, ~chosen)
    whole = replace(data, clients=rest, notes=(*data.notes, f"{amount(count, 'client')} became the datacenter"))
    return _with_rows(whole, pooled(given.train), pooled(given.test),
                      {"name": "from_clients", "fraction": fraction, "seed": seed})


@checked
def from_labels(data: Federation, *, labels: Sequence[Whole]) -> Federation:
    """The rows of some labels are the datacenter's: clients keep the others, and one that has no others leaves.

    So do their test rows: what comes at inference is both sets together.

    labels: numbers of classes, from 0.
    """
    wanted = sorted(set(labels))
    if data.classes is None or not wanted or wanted[-1] >= data.classes or len(wanted) == data.classes:
        raise InputError(f"labels is {list(labels)}; give some of the labels of {data.name}, and not all: there are "
                         f"{data.classes or 'none'}, numbered from 0.")
    if getattr(data.train.targets, "ndim", 0) != 1:
        raise InputError(f"from_labels sorts rows by their label, and those of {data.name} have several; give data "
                         "with one label for each.")
    (train, central), (test, central_test) = (_divided(rows, wanted) for rows in (data.train, data.test))
    if not len(jax.tree.leaves(central.targets)[0]) or not np.sum(train.sizes):
        raise InputError(f"labels is {list(labels)}, and one side would have no rows; choose others.")
    kept = np.asarray(train.sizes) > 0
    names = tuple(name for name, stays in zip(data.clients.names, kept, strict=True) if stays)
    rest = Population(rows_of(train, kept), rows_of(test, kept), names)
    gone = np.count_nonzero(~kept)
    notes = [f"rows labelled {', '.join(map(str, wanted))} are the datacenter's"]
    notes += [f"left out: {amount(gone, 'client')} with no other rows"] if gone else []
    return _with_rows(replace(data, clients=rest, notes=(*data.notes, *notes)), central, central_test,
                      {"name": "from_labels", "labels": wanted})


# The ways to take a datacenter's rows from the clients; any other name of a [central] table is data of its own.
CENTRAL: dict[str, Callable[..., Federation]] = {"from_clients": from_clients, "from_labels": from_labels}


def _with_rows(data: Federation, train: Ragged, test: Ragged, spec: Mapping[str, Any] | None) -> Federation:
    federated = pooled(data.test)
    sets = {"federated": federated, "central": test, "inference": _joined(federated, test)}
    return replace(data, central=train, central_spec=spec,
                   sets={**data.sets, **{name: rows for name, rows in sets.items() if rows.longest}})


def _divided(rows: Ragged, labels: Sequence[int]) -> tuple[Ragged, Ragged]:
    """The rows with other labels, by client, and those with these, in one heap."""
    theirs = np.isin(np.asarray(rows.targets), labels)
    owners = np.repeat(np.arange(rows.population), np.asarray(rows.sizes))
    kept = gather(rows.inputs, rows.targets, ~theirs, np.bincount(owners[~theirs], minlength=rows.population))
    return kept, gather(rows.inputs, rows.targets, theirs, np.array([theirs.sum()]))


def _joined(one: Ragged, other: Ragged) -> Ragged:
    def join(left: PyTree, right: PyTree) -> PyTree:
        return jax.tree.map(lambda *leaves: np.concatenate(leaves), left, right)

    return from_sizes(join(one.inputs, other.inputs), join(one.targets, other.targets),
                      np.array([one.longest + other.longest]))


def _check_alike(data: Federation, central: Federation) -> None:
    """Rows of another shape would fail deep inside a compiled program."""
    for what in ("inputs", "targets"):
        here, there = (jax.tree.map(lambda leaf: (leaf.shape[1:], leaf.dtype.kind), getattr(some.train, what))
                       for some in (data, central))
        if here != there:
            raise InputError(f"the {what} of the datacenter ({central.name}) are {_words(central, what)} a row, and "
                             f"those of the clients ({data.name}) {_words(data, what)}; give rows alike.")
    if central.classes != data.classes or central.vocabulary != data.vocabulary:
        raise InputError(f"the datacenter's data ({central.name}) have {central.classes or 'no'} classes and the "
                         f"clients' ({data.name}) {data.classes or 'none'}, or their words are numbered otherwise; "
                         "give data of the same task.")


def _words(data: Federation, what: str) -> str:
    return ", ".join(f"{leaf.dtype} {leaf.shape[1:]}" for leaf in jax.tree.leaves(getattr(data.train, what)))
