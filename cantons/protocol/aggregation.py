"""How uploads become one: an algorithm's own way, or a rule that the user chooses; and what liars send."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax

from cantons.protocol.types import Aggregate, Array, Key, Message, PyTree, Upload


@partial(jax.tree_util.register_dataclass, data_fields=["ids", "values"], meta_fields=["size"])
@dataclass(frozen=True)
class TableRows:
    """In a summand: some rows of a table whose other rows are zero. The sum has a table of `size` rows in its place.

    Engines scatter the rows of all clients into one table; a client's own is never made.
    """

    ids: Array  # int[n]: one that comes twice counts twice, and one that is `size` or more does not count
    values: Array  # [n, ...]
    size: int


class Sum(NamedTuple):
    """An algorithm's own aggregation by adding: can be chunked, reduced on workers, made secret or private."""

    # (upload, the message it answers, as it was sent) -> summand, on the receiving side; arrays, or `TableRows`
    lift: Callable[[Upload, Message], PyTree]
    finish: Callable[[Key, PyTree], Aggregate]  # (key, sum) -> aggregate


class Stack(NamedTuple):
    """An algorithm's own aggregation of all uploads at once. Rows with `counts` 0 did not arrive."""

    reduce: Callable[[Key, PyTree, Array, Array], Aggregate]  # (key, uploads, ids, counts) -> aggregate


class Average(NamedTuple):
    """A value and the weight behind it: one upload's, or that of all of them together."""

    value: PyTree
    weight: Array


class Report(NamedTuple):
    """What a rule has to say about one round."""

    numbers: Mapping[str, Array] = {}  # written down as "rule.NAME", as means over the rounds between two evaluations
    rejected: Array | None = None  # bool, one for each row of a stack: whose upload was set aside


def stateless(value: PyTree) -> PyTree:
    """The default `init` of a rule: it remembers nothing."""
    return ()


class SumRule(NamedTuple):
    """A rule that adds: `expected` is the size of a full cohort, for those that divide by it whoever comes."""

    lift: Callable[[PyTree, Average], PyTree]  # (state, one upload) -> summand
    finish: Callable[[Key, PyTree, PyTree, float], tuple[Average, PyTree, Report]]  # (key, state, sum, expected)
    init: Callable[[PyTree], PyTree] = stateless  # a value, all zeros -> the rule's state
    reports: tuple[str, ...] = ()  # the names of the numbers it reports
    every_round: bool = False  # finish also where nothing arrived
    on_client: bool = False  # lift before sending: the summand is what travels, and the state travels down


class StackRule(NamedTuple):
    """A rule that must see every upload: medians, Krum, bucketing. A row with weight 0 did not arrive."""

    # (key, state, uploads stacked in ascending id, ids, expected) -> (the average, state, report)
    reduce: Callable[[Key, PyTree, Average, Array, float], tuple[Average, PyTree, Report]]
    init: Callable[[PyTree], PyTree] = stateless
    reports: tuple[str, ...] = ()
    every_round: bool = False
    # (the size of a full cohort) -> how many liars it bears there; refuses a cohort that does not suit it
    bears: Callable[[float], int] | None = None


Rule = SumRule | StackRule


class Averages(NamedTuple):
    """Aggregation of uploads that are averages: the rule is the user's choice, and the server gets an `Average`."""

    read: Callable[[Upload], Average]  # what the rule is shown of an upload
    rule: Rule  # unless the user chooses another
    only: str = ""  # why no other rule will do; empty where any may be chosen


Aggregator = Sum | Stack | Averages


class Attack(NamedTuple):
    """What liars do in place of what the algorithm asks of them; an attack has one of these."""

    upload: Callable[[Key, Average], Average] | None = None  # (key, its honest upload) -> what it sends
    # (key, the values of all uploads, stacked; which are honest, and which are liars') -> the value every liar sends
    together: Callable[[Key, PyTree, Array, Array], PyTree] | None = None
    targets: Callable[[int | None, PyTree], PyTree] | None = None  # (how many labels, targets) -> what it learns from
    silent: bool = False  # it sends nothing
    slower: float | None = None  # its jobs take so many times as long: for clocks on which they take their time


def adds(aggregator: Aggregator) -> bool:
    """Is a sum of uploads enough for it? An engine that can only sum refuses the others."""
    return isinstance(aggregator, Sum) or (isinstance(aggregator, Averages) and isinstance(aggregator.rule, SumRule))
