"""A federation: clients, each with examples of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import numpy as np

from cantons.data.centres import Centres, kinds_of, map_kinds
from cantons.data.checks import first_names
from cantons.data.encoding import Encoding
from cantons.data.ragged import Ragged, from_sizes
from cantons.display import Displayed, Table
from cantons.errors import InputError, amount, listed
from cantons.protocol import Groups, PyTree


@dataclass(frozen=True, eq=False, repr=False)
class Population(Displayed):
    """Some clients: the examples each trains on, and those it is judged by (there may be none)."""

    train: Ragged
    test: Ragged
    names: tuple[str, ...]
    groups: Groups | None = None  # None: all are of one kind

    def __post_init__(self) -> None:
        sizes = self.train.population, self.test.population, len(self.names)
        if len(set(sizes)) > 1:
            raise InputError(f"train, test and names are of {sizes} clients; list the same clients in each.")
        empty = [self.names[client] for client in np.flatnonzero(np.asarray(self.train.sizes) == 0)]
        if empty:
            raise InputError(f"no training examples for {first_names(empty)}; leave such clients out or give them "
                             "some.")
        if self.groups is not None:
            for rows in ("train", "test"):
                object.__setattr__(self, rows, replace(getattr(self, rows), groups=self.groups.numbers))

    def _display(self) -> tuple[str, Table]:
        return _amounts(self), [["clients", listed(self.names)]]


@dataclass(frozen=True, eq=False, repr=False)
class Federation(Displayed):
    """The data of a study: clients that train, new ones that only come later, and the datacenter's own."""

    clients: Population
    new: Population | None = None
    central: Ragged | Centres | None = None
    validation: Ragged | None = None  # rows of the clients to choose step sizes and the like by
    arrivals: np.ndarray | None = None  # who has an example when, [steps, clients], for the online clock
    classes: int | None = None  # how many labels there are; None for regression
    actions: tuple[str, ...] | None = None  # where targets are the log of a bandit: what it could choose
    vocabulary: tuple[str, ...] | None = None  # where inputs are numbers of things: what 0, 1, ... stands for
    name: str = "data"
    test_set: str = "each client's own test examples"  # a phrase for reports
    notes: tuple[str, ...] = ()  # what was drawn or left out on the way here, a phrase each
    spec: Mapping[str, Any] | None = None  # the named parts that rebuild this; filled by the study reader
    central_spec: Mapping[str, Any] | None = None  # and those that rebuild its datacenter, if that came from elsewhere
    groups_spec: Mapping[str, Any] | None = None  # and its groups
    sets: Mapping[str, Ragged] = field(default_factory=dict)  # more test sets, for the shared model; each has one owner
    encoding: Encoding | None = field(default_factory=Encoding)  # from raw rows to inputs; None: it is not known

    def __post_init__(self) -> None:
        if self.encoding is not None:
            object.__setattr__(self, "encoding", self._complete(self.encoding))

    def _complete(self, encoding: Encoding) -> Encoding:
        """The encoding with what the rows say: their shape, and numbers for labels that have no names."""
        inputs = self.train.inputs
        if self.classes is not None and encoding.classes is None:
            encoding = replace(encoding, classes=tuple(range(self.classes)))
        if not hasattr(inputs, "shape"):
            return encoding
        return replace(encoding, shape=tuple(inputs.shape[1:]), dtype=encoding.dtype or str(inputs.dtype))

    @property
    def train(self) -> Ragged:
        return self.clients.train

    @property
    def test(self) -> Ragged:
        return self.clients.test

    @property
    def population(self) -> int:
        return self.train.population

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The shape of one example's inputs."""
        if not hasattr(self.train.inputs, "shape"):
            raise InputError(f"the inputs of {self.name!r} are several arrays, so they have no single shape; "
                             "tell the model the shape of each.")
        return self.train.inputs.shape[1:]

    @property
    def unlabelled(self) -> bool:
        """Are some targets, of several to an example, -1 for none?"""
        new = [] if self.new is None else [self.new.train, self.new.test]
        sets = [self.train, self.test, *new, *kinds_of(self.central).values(), *self.sets.values()]
        leaves = [leaf for rows in sets for leaf in jax.tree.leaves(rows.targets) if leaf.ndim > 1]
        return self.classes is not None and any(bool((leaf < 0).any()) for leaf in leaves)

    def describe(self) -> str:
        """A few lines for people."""
        sizes = self.train.sizes
        lines = [
            f"{self.name}: {_amounts(self.clients)}",
            f"training examples per client: {sizes.min()} to {sizes.max()}, median {np.median(sizes):g}",
            f"targets: {self._targets()}",
            f"test set: {self.test_set}",
        ]
        if self.arrivals is not None:
            active = np.asarray(self.arrivals, bool).mean()
            steps = amount(len(self.arrivals), "step")
            lines.append(f"stream: {steps}, in each {active:.0%} of the clients on average")
        if self.clients.groups is not None:
            names, numbers = self.clients.groups
            lines.append("groups: " + ", ".join(
                f"{name} ({amount(count, 'client')})" for name, count in zip(names, np.bincount(numbers), strict=True)))
        if self.new is not None:
            lines.append(f"new clients: {_amounts(self.new)}")
        if self.central is not None:
            lines += [f"datacenter{'' if name == 'central' else f', {name}'}: {amount(rows.longest, 'example')}"
                      for name, rows in kinds_of(self.central).items()]
        return "\n".join([*lines, *self.notes])

    def _targets(self) -> str:
        if self.actions is not None:
            return f"a log of {len(self.actions)} actions, and what they brought"
        return "numbers" if self.classes is None else f"{self.classes} classes"

    def _display(self) -> tuple[str, Table]:
        title, *lines = self.describe().splitlines()
        rows = [list(line.split(": ", 1)) if line not in self.notes else ["note", line] for line in lines]
        return title, [*rows, ["clients", listed(self.clients.names)]]


def pooled(ragged: Ragged) -> Ragged:
    """The same rows, all owned by one client. Nothing is copied."""
    rows = len(jax.tree.leaves(ragged.inputs)[0])
    return from_sizes(ragged.inputs, ragged.targets, np.array([rows]))


def map_rows(federation: Federation, change: Callable[[Ragged], Ragged]) -> Federation:
    """Change the rows of everybody: of the clients, of the new ones and of the datacenter; also those to choose by."""

    def population(clients: Population) -> Population:
        return replace(clients, train=change(clients.train), test=change(clients.test))

    return replace(
        federation,
        clients=population(federation.clients),
        new=federation.new and population(federation.new),
        central=map_kinds(change, federation.central),
        validation=federation.validation and change(federation.validation),
        sets={name: change(rows) for name, rows in federation.sets.items()},
    )


def with_keys(federation: Federation, keys: bool) -> Federation:
    """The same examples, whose batches to train with have keys or have none."""
    return federation if keys == federation.train.keys else map_rows(federation, lambda rows: replace(rows, keys=keys))


def with_liars(federation: Federation, liars: np.ndarray) -> Federation:
    """The same examples, whose handles say who lies."""
    clients = replace(federation.clients, train=replace(federation.train, liars=liars))
    return replace(federation, clients=clients)


def select_clients(clients: Population, chosen: np.ndarray) -> Population:
    """The clients for which the boolean `chosen` is true."""

    names = tuple(name for name, wanted in zip(clients.names, chosen, strict=True) if wanted)
    groups = clients.groups and clients.groups._replace(numbers=clients.groups.numbers[chosen])
    return Population(rows_of(clients.train, chosen), rows_of(clients.test, chosen), names, groups)


def rows_of(ragged: Ragged, chosen: np.ndarray) -> Ragged:
    """The rows of the clients for which the boolean `chosen` is true."""
    sizes = np.asarray(ragged.sizes)
    return gather(ragged.inputs, ragged.targets, np.repeat(chosen, sizes), sizes[chosen])


def gather(inputs: PyTree, targets: PyTree, rows: np.ndarray, sizes: np.ndarray) -> Ragged:
    """Copy `rows`, which name one client's rows after the other's, `sizes` of them each."""
    inputs, targets = jax.tree.map(lambda leaf: leaf[rows], (inputs, targets))
    return from_sizes(inputs, targets, sizes)


def _amounts(clients: Population) -> str:
    train, test = clients.train.sizes.sum(), clients.test.sizes.sum()
    return f"{amount(len(clients.names), 'client')}, {train} training and {test} test examples"
