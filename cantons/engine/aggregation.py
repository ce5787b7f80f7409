"""How uploads become one, in the form that engines run: what is carried of each, and how a round closes on it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from cantons.protocol import (
    Aggregate,
    Aggregator,
    Array,
    Average,
    Averages,
    Key,
    Message,
    PyTree,
    Report,
    Stack,
    State,
    Sum,
    SumRule,
    Upload,
    stateless,
)


class Aggregation(NamedTuple):
    """An aggregator as an engine runs it."""

    adds: bool  # what is carried is added up; otherwise it is stacked in ascending id
    carry: Callable[[PyTree, Upload, Message], PyTree]  # (the rule's state, upload, message) -> summand or row
    # (key, the rule's state, sum or stack, ids, how often each row counts, expected) -> (aggregate, state, report)
    close: Callable[[Key, PyTree, PyTree, Array, Array, float], tuple[Aggregate, PyTree, Report]]
    init: Callable[[PyTree], PyTree] = stateless  # (an upload, all zeros) -> the rule's state
    reports: tuple[str, ...] = ()
    every_round: bool = False
    on_client: bool = False


def aggregation_of(aggregator: Aggregator) -> Aggregation:
    """The one form of the three kinds."""
    if isinstance(aggregator, Sum):
        return Aggregation(True, lambda state, upload, message: aggregator.lift(upload, message),
                           lambda key, state, total, *_: (aggregator.finish(key, total), state, Report()))
    if isinstance(aggregator, Stack):
        return Aggregation(False, lambda state, upload, message: upload,
                           lambda key, state, uploads, ids, counts, _: (
                               aggregator.reduce(key, uploads, ids, counts), state, Report()))
    return _of_averages(aggregator)


def _of_averages(averages: Averages) -> Aggregation:
    rule, read = averages.rule, averages.read
    init = stateless if rule.init is stateless else lambda upload: rule.init(read(upload).value)
    if isinstance(rule, SumRule):
        return Aggregation(True, lambda state, upload, message: rule.lift(state, read(upload)),
                           lambda key, state, total, ids, counts, expected: rule.finish(key, state, total, expected),
                           init, rule.reports, rule.every_round, rule.on_client)

    def close(key, state, uploads, ids, counts, expected):
        weighed = Average(uploads.value, uploads.weight * counts.astype(uploads.weight.dtype))
        return rule.reduce(key, state, weighed, ids, expected)

    return Aggregation(False, lambda state, upload, message: read(upload), close, init, rule.reports, rule.every_round)


def keep_report(state: State, report: Report, ids: Array, closed: Array) -> State:
    """Add a round's report to the means, and its rejections to the ledger, if the round was `closed` at all."""
    if report.rejected is not None:
        outvoted = (report.rejected & closed).astype(jnp.int32)
        state = state._replace(ledger=state.ledger.at[ids, 4].add(outvoted, mode="drop"))
    if not state.reports:
        return state
    count = state.reported + closed
    share = jnp.where(closed, 1 / jnp.maximum(count, 1), 0)  # a running mean: a sum would lose its last digits
    reports = jax.tree.map(lambda mean, new: mean + share.astype(mean.dtype) * (jnp.asarray(new, mean.dtype) - mean),
                           dict(state.reports), {name: report.numbers[name] for name in state.reports})
    return state._replace(reports=reports, reported=count)
