"""An algorithm as liars run it, made from the honest one: neither algorithms nor engines know of attacks."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from cantons.errors import InputError
from cantons.map_batches import MapBatches
from cantons.protocol import (
    Algorithm,
    Array,
    Attack,
    Average,
    Averages,
    Batch,
    Clock,
    Key,
    PyTree,
    Rule,
    StackRule,
    SumRule,
)

LIE = 2**31 - 3  # folded into a key: far from the numbers that others fold into it


def corrupt(name: str, algorithm: Algorithm, attack: Attack, liars: np.ndarray, classes: int | None) -> Algorithm:
    """The algorithm with this attack in it; `data.liar` says who lies, and `liars` by client id."""
    if attack.targets is not None:
        algorithm = _learn_from(algorithm, functools.partial(attack.targets, classes))
    if attack.upload is None and attack.together is None:
        return algorithm
    averages = algorithm.aggregate
    if not isinstance(averages, Averages):
        raise InputError(f"the uploads of {name} are no averages, so it is not known what a lie would be; take the "
                         "attack label_flip or silence, or another algorithm.")
    if attack.upload is not None:
        return _send(algorithm, averages, attack.upload)
    assert attack.together is not None
    return algorithm._replace(aggregate=averages._replace(rule=_see_all(averages.rule, attack.together, liars)))


def mistimed(clock: Clock, attack: Attack, liars: np.ndarray) -> Clock:
    """The clock of a run with this attack in it."""
    events = clock.asynchronous
    if attack.together is not None and events is not None and clock.slots == 1:
        raise InputError("liars who look at the uploads of others see those of one event, and every event has one; "
                         "use a buffer of 2 or more, or another attack.")
    if attack.slower is not None:
        if events is None or events.slow is None:
            raise InputError("liars can be slow only where jobs take their time, and the server goes on; use the clock "
                             "asynchronous, or another attack.")
        # In virtual time only: an engine on which time is real cannot slow anybody down.
        clock = clock._replace(arrays=events.slow(clock.arrays, np.where(liars, attack.slower, 1.0)),
                               asynchronous=events._replace(under_way=None, end=None))
    return silenced(clock, liars) if attack.silent else clock


def silenced(clock: Clock, liars: np.ndarray) -> Clock:
    """The clock under which the uploads of liars never count."""
    events = clock.asynchronous

    def plan(given, key, round):
        arrays, liars = given
        found = clock.plan(arrays, key, round)
        return found._replace(counts=jnp.where(_lies(liars, found.ids), 0, found.counts))

    def unheard(following):
        def event(given, *rest):
            arrays, liars = given
            found, jobs = following(arrays, *rest)
            return found._replace(counts=1 - _lies(liars, found.ids).astype(jnp.int32)), jobs

        return event

    probed = clock.probed
    return clock._replace(
        arrays=(clock.arrays, liars), plan=plan,
        asynchronous=events and events._replace(begin=lambda given, key: events.begin(given[0], key),
                                                next=unheard(events.next), end=events.end and unheard(events.end)),
        probed=probed and (lambda given, key, round: probed(given[0], key, round)))


def _learn_from(algorithm: Algorithm, change: Callable[[PyTree], PyTree]) -> Algorithm:
    """A liar acts on its examples with other targets."""

    def client_update(key, message, client, data):
        def relabel(batch: Batch) -> Batch:
            return batch._replace(targets=_where(data.liar, change(batch.targets), batch.targets))

        return algorithm.client_update(key, message, client, MapBatches(data, relabel))

    return algorithm._replace(client_update=client_update)


def _send(algorithm: Algorithm, averages: Averages, lie: Callable[[Key, Average], Average]) -> Algorithm:
    """A liar sends something else. What travels is what a rule is shown: a value and its weight."""

    def shown(upload: Any) -> Average:
        return jax.tree.map(jnp.asarray, averages.read(upload))

    def client_update(key, message, client, data):
        upload, client = algorithm.client_update(key, message, client, data)
        honest = shown(upload)
        sent = lie(jax.random.fold_in(key, LIE), honest)
        _check_shapes(sent, honest)
        return _where(data.liar, sent, honest), client

    idle = algorithm.idle_upload
    return algorithm._replace(
        client_update=client_update, aggregate=averages._replace(read=lambda upload: upload),
        idle_upload=idle and (lambda message, client: shown(idle(message, client))))


def _see_all(rule: Rule, lie: Callable[[Key, PyTree, Array, Array], PyTree], liars: np.ndarray) -> StackRule:
    """The same rule on uploads of which those of liars are replaced, in the light of all others."""
    combine = _added_up(rule) if isinstance(rule, SumRule) else rule.reduce

    def reduce(key, state, uploads, ids, expected):
        there = uploads.weight > 0
        lies = _lies(jnp.asarray(liars), ids) & there
        sent = lie(jax.random.fold_in(key, LIE), uploads.value, there & ~lies, lies)
        one = jax.tree.map(lambda rows: rows[0], uploads.value)
        _check_shapes(sent, one)

        def replace(rows, value):
            return jnp.where(lies.reshape(-1, *[1] * value.ndim), value, rows)

        return combine(key, state, uploads._replace(value=jax.tree.map(replace, uploads.value, sent)), ids, expected)

    return StackRule(reduce, rule.init, rule.reports, rule.every_round,
                     rule.bears if isinstance(rule, StackRule) else None)


def _added_up(rule: SumRule) -> Callable[..., Any]:
    """A rule that adds, for uploads that are stacked because liars want to see them."""

    def reduce(key, state, uploads, ids, expected):
        summands = jax.vmap(lambda upload: rule.lift(state, upload))(uploads)
        there = uploads.weight > 0
        total = jax.tree.map(lambda rows: jnp.where(there.reshape(-1, *[1] * (rows.ndim - 1)), rows, 0).sum(axis=0),
                             summands)
        return rule.finish(key, state, total, expected)

    return reduce


def _where(lies: Array, lie: PyTree, truth: PyTree) -> PyTree:
    return jax.tree.map(lambda left, right: jnp.where(lies, left, right), lie, truth)


def _lies(liars: Array, ids: Array) -> Array:
    """Spare slots, whose id is beyond all, get some answer: nothing of them counts."""
    return liars[jnp.minimum(ids, len(liars) - 1)]


def _check_shapes(sent: PyTree, honest: PyTree) -> None:
    """Refuse a lie that is no upload of this algorithm."""
    lie, truth = (jax.tree.map(lambda leaf: f"{jnp.result_type(leaf)}{list(jnp.shape(leaf))}", tree)
                  for tree in (sent, honest))
    if lie != truth:
        raise InputError(f"the attack sends {lie}, where an honest upload is {truth}; send the same shapes and types.")
