"""One federated round, written once for every algorithm, clock and device."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from cantons.engine.fanout import Fanout, fan_out
from cantons.protocol import Algorithm, Array, Clock, Key, Plan, PyTree, Receipt, State, Sum


class Arrays(NamedTuple):
    """Everything a round reads and never writes: arguments of the compiled program, not part of its text."""

    train: PyTree  # ragged examples: `train.client(id)` is a handle
    central: PyTree | None
    clock: PyTree
    key: Key


class Slot(NamedTuple):
    """One place in the cohort."""

    id: Array
    acts: Array
    counts: Array
    hears: Array
    heard: Array
    key: Key
    client: PyTree


def keyed(key: Key, ids: Array) -> Key:
    """One key per client id: the place in the cohort or on a worker never matters."""
    return jax.vmap(jax.random.fold_in, in_axes=(None, 0))(key, ids)


def where(condition: Array, yes: PyTree, no: PyTree) -> PyTree:
    return jax.tree.map(lambda left, right: jnp.where(condition, left, right), yes, no)


def finite(tree: PyTree) -> Array:
    leaves = [jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(tree) if jnp.issubdtype(leaf.dtype, jnp.inexact)]
    return jnp.stack(leaves).all() if leaves else jnp.ones((), bool)


def one_round(algorithm: Algorithm, clock: Clock, fanout: Fanout, arrays: Arrays, state: State) -> State:
    """Advance `state` by one round."""
    population = state.uploads.shape[0]
    key = jax.random.fold_in(arrays.key, state.round)
    plan_key, broadcast_key, client_key, aggregate_key, server_key = jax.random.split(key, 5)
    central = None if arrays.central is None else arrays.central.client(0)

    plan = _seated(clock.plan(arrays.clock, plan_key, state.round), clock, fanout, arrays, population)
    ids, acts, counts, hears = plan
    message = algorithm.broadcast(broadcast_key, state.server, central)
    rows = jax.tree.map(lambda leaf: leaf[ids], state.clients)
    slots = Slot(*plan, ~state.acknowledged[ids], keyed(client_key, ids), rows)
    rule = algorithm.aggregate

    def act(sent, slot, client, data):
        upload, moved = algorithm.client_update(slot.key, sent, client, data)
        usable = finite(upload)
        arrives = usable & (slot.counts > 0)
        # An upload that is lost leaves its client as it was: half of an exchange would never be mended.
        client = where(usable, moved, client)
        arrived = jnp.where(arrives, slot.counts, 0)
        if isinstance(rule, Sum):
            summand = jax.tree.map(lambda leaf: jnp.where(arrives, slot.counts.astype(leaf.dtype) * leaf, 0),
                                   rule.lift(upload))
            return (summand, arrived), (client, ~usable)
        return ((), arrived), (client, ~usable, upload)

    def each(common, slot):
        train, message = common
        data = train.client(jnp.minimum(slot.id, population - 1))
        sent = algorithm.select(message, algorithm.request(slot.client, data))
        receipt = Receipt(new=slot.hears, heard=slot.hears & slot.heard)
        client = where(slot.hears, algorithm.receive(sent, receipt, slot.client), slot.client)
        if clock.full and fanout.padded(clock.slots) == clock.slots:
            return act(sent, slot, client, data)
        shapes = jax.eval_shape(lambda: act(sent, slot, client, data))
        summand, (_, *row) = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
        return jax.lax.cond(slot.acts, lambda: act(sent, slot, client, data), lambda: (summand, (client, *row)))

    (total, arrived), (rows, lost, *uploads) = fan_out(fanout, each, (arrays.train, message), slots)

    if isinstance(rule, Sum):
        aggregate = rule.finish(aggregate_key, total)
    else:
        by_id = jnp.argsort(ids)
        aggregate = rule.reduce(aggregate_key, jax.tree.map(lambda leaf: leaf[by_id], uploads[0]), ids[by_id],
                                jnp.where(lost, 0, counts)[by_id])
    server = algorithm.server_update(server_key, state.server, aggregate, central)
    sent_up = acts & (counts > 0)
    return State(
        server=where(arrived > 0, server, state.server),
        clients=jax.tree.map(lambda leaf, new: leaf.at[ids].set(new, mode="drop"), state.clients, rows),
        round=state.round + 1,
        acknowledged=state.acknowledged.at[ids].set(
            (state.acknowledged[ids] | hears) & ~(sent_up & ~lost), mode="drop"),
        downloads=state.downloads.at[ids].add(hears.astype(jnp.int32), mode="drop"),
        uploads=state.uploads.at[ids].add(sent_up.astype(jnp.int32), mode="drop"),
        rejected=state.rejected.at[ids].add((sent_up & lost).astype(jnp.int32), mode="drop"),
        skipped=state.skipped + (arrived == 0).astype(jnp.int32),
    )


def _seated(plan: Plan, clock: Clock, fanout: Fanout, arrays: Arrays, population: int) -> Plan:
    """Fill the plan with spare slots to what the devices take, and seat clients of like size together."""
    spare = fanout.padded(clock.slots) - clock.slots
    empty = population, False, 0, False
    plan = Plan(*(jnp.pad(part, (0, spare), constant_values=value) for part, value in zip(plan, empty, strict=True)))
    if fanout.group > 1 and not arrays.train.uniform:
        # Vectorised clients wait for the longest among them.
        order = jnp.argsort(jnp.where(plan.ids < population, arrays.train.sizes[plan.ids], 0))
        plan = jax.tree.map(lambda part: part[order], plan)
    return plan
