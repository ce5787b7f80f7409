"""One federated round, written once for every algorithm, clock and device."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from cantons.engine.mapping import Fanout, map_clients
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


def keyed(key: Key, ids: Array) -> Key:
    """One key per client id: the place in the cohort or on a worker never matters."""
    return jax.vmap(jax.random.fold_in, in_axes=(None, 0))(key, ids)


def where(condition: Array, yes: PyTree, no: PyTree) -> PyTree:
    return jax.tree.map(lambda left, right: jnp.where(condition, left, right), yes, no)


def finite(tree: PyTree) -> Array:
    leaves = [leaf for leaf in jax.tree.leaves(tree) if jnp.issubdtype(leaf.dtype, jnp.inexact)]
    # 0 times a number is 0, and NaN if it is none; on a CPU this is faster than asking each. The largest of them
    # would not do: reduced in parallel, a CPU's maximum loses a NaN.
    return jnp.isfinite(sum([(0 * leaf).sum() for leaf in leaves], jnp.zeros(())))


def one_round(algorithm: Algorithm, clock: Clock, fanout: Fanout, arrays: Arrays, state: State) -> State:
    """Advance `state` by one round."""
    population = state.ledger.shape[0]
    key = jax.random.fold_in(arrays.key, state.round)
    plan_key, broadcast_key, client_key, aggregate_key, server_key = jax.random.split(key, 5)
    central = None if arrays.central is None else arrays.central.client(0)

    plan = _balanced(clock.plan(arrays.clock, plan_key, state.round), clock, fanout, arrays, population)
    ids, acts, counts, hears = plan[:4]
    message = algorithm.broadcast(broadcast_key, state.server, central)
    acknowledged, downloads, uploaded, rejected = state.ledger[ids].T
    slots = Slot(*plan[:4], acknowledged == 0, keyed(client_key, ids))
    rule = algorithm.aggregate

    def act(sent, slot, client, data):
        upload, moved = algorithm.client_update(slot.key, sent, client, data)
        usable = finite(upload)
        arrives = usable & (slot.counts > 0)
        # An upload that is lost leaves its client as it was: half of an exchange would never be mended.
        client = where(usable, moved, client)
        if isinstance(rule, Sum):
            summand = jax.tree.map(lambda leaf: jnp.where(arrives, slot.counts.astype(leaf.dtype) * leaf, 0),
                                   rule.lift(upload, sent))
            return summand, (client, ~usable)
        return (), (client, ~usable, where(arrives, upload, jax.tree.map(jnp.zeros_like, upload)))

    def each(common, slot):
        train, message, clients = common
        index = jnp.minimum(slot.id, population - 1)
        data, client = train.client(index), jax.tree.map(lambda leaf: leaf[index], clients)
        sent = algorithm.select(message, algorithm.request(client, data))
        receipt = Receipt(new=slot.hears, heard=slot.hears & slot.heard)
        client = where(slot.hears, algorithm.receive(sent, receipt, client), client)
        if not clock.actors_hear:
            sent = where(slot.hears, sent, jax.tree.map(_unknown, sent))
        if clock.full and fanout.padded(clock.slots) == clock.slots:
            return act(sent, slot, client, data)
        shapes = jax.eval_shape(lambda: act(sent, slot, client, data))
        summand, (_, *row) = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
        return jax.lax.cond(slot.acts, lambda: act(sent, slot, client, data), lambda: (summand, (client, *row)))

    total, (rows, lost, *uploads) = map_clients(fanout, each, (arrays.train, message, state.clients), slots)

    arrived = jnp.where(acts & ~lost, counts, 0)
    if isinstance(rule, Sum):
        aggregate = rule.finish(aggregate_key, total)
    else:
        by_id = jnp.argsort(ids)
        aggregate = rule.reduce(aggregate_key, jax.tree.map(lambda leaf: leaf[by_id], uploads[0]), ids[by_id],
                                arrived[by_id])
    server = algorithm.server_update(server_key, state.server, aggregate, central)
    sent_up = acts & (counts > 0)
    return State(
        server=where(arrived.any(), server, state.server),
        clients=jax.tree.map(lambda leaf, new: leaf.at[ids].set(new, mode="drop"), state.clients, rows),
        round=state.round + 1,
        skipped=state.skipped + ~arrived.any(),
        ledger=state.ledger.at[ids].set(jnp.stack([
            ((acknowledged > 0) | hears) & ~(sent_up & ~lost), downloads + hears, uploaded + sent_up,
            rejected + (sent_up & lost)], axis=1).astype(jnp.int32), mode="drop"),
    )


def message_shapes(algorithm: Algorithm, arrays: Arrays, state: State, batch: int = 1) -> tuple[PyTree, PyTree]:
    """The message to and the upload from one client, as shapes; online it meets `batch` examples in a step."""

    def once(arrays: Arrays, state: State) -> tuple[PyTree, PyTree]:
        central = None if arrays.central is None else arrays.central.client(0)
        client = jax.tree.map(lambda leaf: leaf[0], state.clients)
        data = arrays.train.client(0).at(arrays.key, jnp.zeros((), jnp.int32), batch, "cycle")
        message = algorithm.broadcast(arrays.key, state.server, central)
        sent = algorithm.select(message, algorithm.request(client, data))
        return sent, algorithm.client_update(arrays.key, sent, client, data)[0]

    return jax.eval_shape(once, arrays, state)


def _unknown(leaf: Array) -> Array:
    """What a client sees of a message it did not get."""
    return jnp.full_like(leaf, jnp.nan) if jnp.issubdtype(leaf.dtype, jnp.inexact) else jnp.zeros_like(leaf)


def _balanced(plan: Plan, clock: Clock, fanout: Fanout, arrays: Arrays, population: int) -> Plan:
    """Fill the plan with spare slots to what the devices take; seat clients of like size together, and deal
    these groups out so that every device gets its share of the work."""
    spare = fanout.padded(clock.slots) - clock.slots
    empty = population, False, 0, False
    pairs = zip(plan[:4], empty, strict=True)
    plan = Plan(*(jnp.pad(part, (0, spare), constant_values=value) for part, value in pairs))
    if fanout.multiple > 1 and not arrays.train.uniform:
        # Vectorised clients wait for the longest among them, devices for the busiest.
        order = jnp.argsort(jnp.where(plan.ids < population, arrays.train.sizes[plan.ids], 0))
        deals = order.reshape(-1, fanout.mesh.size, fanout.group)
        # There and back, or the last device always gets the most. Not by .at[1::2].set(deals[1::2, ::-1]): XLA 0.11
        # on a CPU writes that over what it still has to read.
        backwards = (jnp.arange(len(deals)) % 2 == 1)[:, None, None]
        deals = jnp.where(backwards, deals[:, ::-1], deals)
        plan = jax.tree.map(lambda part: part[deals.swapaxes(0, 1).reshape(-1)], plan)
    return plan
