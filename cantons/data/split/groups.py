"""Several populations in one federation: every client is of one named group.

Groups have cohorts, losses and scores of their own; what a client has stays what it is. Make them last: they are of the
clients that are there then, the new ones too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from cantons.data.federation import Federation, Population
from cantons.data.names import TAKEN
from cantons.data.seeds import generator
from cantons.errors import InputError
from cantons.protocol import Groups
from cantons.ranges import DataSeed, Whole, checked


@checked
def by_label(data: Federation, *, labels: Mapping[str, Sequence[Whole]]) -> Federation:
    """A client is of the group whose labels most of its training rows have; of two such, of the first.

    labels: the numbers of the classes of each group, from 0, such as {"even": [0, 2], "odd": [1, 3]}.
    """
    targets = np.asarray(jax.tree.leaves(data.train.targets)[0])
    if data.classes is None or targets.ndim != 1:
        raise InputError(f"by_label looks at the label of each row, and those of {data.name} have none, or several; "
                         "use by_size, by_name or at_random.")
    names = _check_names(labels)

    def numbers(clients: Population) -> np.ndarray:
        sizes, targets = np.asarray(clients.train.sizes), np.asarray(clients.train.targets)
        owner = np.repeat(np.arange(len(sizes)), sizes)
        counts = [np.bincount(owner, np.isin(targets, list(labels[name])), len(sizes)) for name in names]
        return np.argmax(counts, axis=0)

    return _with_groups(data, names, numbers, {"name": "by_label", "labels": {
        name: list(map(int, labels[name])) for name in names}})


@checked
def by_size(data: Federation, *, names: Sequence[str]) -> Federation:
    """Those with the fewest training rows are of the first group, those with the most of the last.

    names: of the groups, which have about as many clients each.
    """
    _check_names(names)
    bounds = np.quantile(np.asarray(data.train.sizes), np.arange(1, len(names)) / len(names))
    return _with_groups(data, names, lambda clients: np.searchsorted(bounds, np.asarray(clients.train.sizes)),
                        {"name": "by_size", "names": list(names)})


@checked
def by_name(data: Federation, *, clients: Mapping[str, Sequence[str]]) -> Federation:
    """Each client is named in one group.

    clients: the names of each group's clients, such as {"phones": ["ann", "bob"], "cars": ["cy"]}.
    """
    names = _check_names(clients)
    where = {str(client): number for number, name in enumerate(names) for client in clients[name]}

    def numbers(population: Population) -> np.ndarray:
        lost = [name for name in population.names if name not in where]
        if lost or len(where) != sum(map(len, clients.values())):
            raise InputError(f"clients names {lost[0]!r} in no group; name each client once." if lost else
                             "clients names somebody twice; name each client once.")
        return np.array([where[name] for name in population.names])

    return _with_groups(data, names, numbers, {"name": "by_name", "clients": {
        name: list(map(str, clients[name])) for name in names}})


@checked
def at_random(data: Federation, *, names: Sequence[str], seed: DataSeed = 0) -> Federation:
    """Clients are dealt out at random, about as many to each group: what groups that mean nothing do.

    names: of the groups.
    seed: of the draw.
    """
    _check_names(names)

    def numbers(clients: Population) -> np.ndarray:
        return generator(seed, "groups", *clients.names[:1]).permutation(len(clients.names)) % len(names)

    return _with_groups(data, names, numbers, {"name": "at_random", "names": list(names), "seed": seed})


# The ways to make groups that a study can name in its [groups] table.
GROUPINGS: dict[str, Callable[..., Federation]] = {
    "at_random": at_random, "by_label": by_label, "by_name": by_name, "by_size": by_size}


def _with_groups(data: Federation, names: Sequence[str], numbers: Callable[[Population], np.ndarray],
                 spec: Mapping[str, Any]) -> Federation:
    def grouped(clients: Population) -> Population:
        return replace(clients, groups=Groups(tuple(names), numbers(clients).astype(np.int32)))

    clients = grouped(data.clients)
    assert clients.groups is not None
    empty = [name for number, name in enumerate(names) if number not in clients.groups.numbers]
    if empty:
        raise InputError(f"no client of {data.name} is of the group {empty[0]!r}; choose the groups otherwise.")
    return replace(data, clients=clients, new=data.new and grouped(data.new), groups_spec=spec)


def _check_names(names: Sequence[str] | Mapping[str, Any]) -> tuple[str, ...]:
    found = tuple(names)
    odd = [name for name in found if not isinstance(name, str) or not name.strip() or "." in name or name in TAKEN]
    if odd:
        raise InputError(f"a group cannot be called {odd[0]!r}; give it a name without dots that is none of "
                         f"{', '.join(TAKEN)}.")
    if len(set(found)) != len(found) or len(found) < 2:
        raise InputError(f"the groups are {list(found)}; name two or more, each once.")
    return found
