"""All that one client does, as a pure function of its row: hear, act, and either send and change, or neither."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from cantons.engine.aggregation import Aggregation
from cantons.engine.mapping import trace_once
from cantons.engine.summands import weigh
from cantons.protocol import Algorithm, Array, Client, Data, Key, Message, PyTree, Receipt, Upload


class Slot(NamedTuple):
    """One place in a cohort."""

    id: Array
    acts: Array
    counts: Array
    hears: Array
    heard: Array  # its last upload is in the message for the first time
    key: Key


class Turn(NamedTuple):
    """What a client's turn leaves behind."""

    row: Client
    lost: Array  # its upload was not finite: it counts as little as if it had never been sent
    upload: PyTree = ()  # what is carried of it, where uploads are stacked


def keyed(key: Key, ids: Array) -> Key:
    """One key per client id: the place in the cohort or on a worker never matters."""
    return jax.vmap(jax.random.fold_in, in_axes=(None, 0))(key, ids)


def where(condition: Array, yes: PyTree, no: PyTree) -> PyTree:
    return jax.tree.map(lambda left, right: jnp.where(condition, left, right), yes, no)


def finite(tree: PyTree) -> Array:
    """Is every number finite? Whoever receives uploads of clients that are not ours asks this again."""
    leaves = [leaf for leaf in jax.tree.leaves(tree) if jnp.issubdtype(leaf.dtype, jnp.inexact)]
    # 0 * x is 0 for a finite x and NaN otherwise; summed on a CPU this is faster than isfinite on each. A maximum would
    # not do: reduced in parallel, a CPU's maximum loses a NaN.
    return jnp.isfinite(sum([(0 * leaf).sum() for leaf in leaves], jnp.zeros(())))


def as_arrays(tree: PyTree) -> PyTree:
    """Every leaf of an upload as an array: `data.size` is a plain number in some federations and an array in others."""
    return jax.tree.map(jnp.asarray, tree)


def sent_to(algorithm: Algorithm, key: Key, message: Message, client: Client, data: Data) -> Message:
    """The part of a message that this client asks for; the key is the one that it will act with."""
    return algorithm.select(message, algorithm.request(key, client, data))


def take_turn(algorithm: Algorithm, aggregation: Aggregation, rule: PyTree, message: Message, slot: Slot,
              client: Client, data: Data, *, actors_hear: bool, always_acts: bool) -> tuple[PyTree, Turn]:
    """One client's round; its summand (empty where uploads are stacked), and what else its turn leaves behind."""
    sent = sent_to(algorithm, slot.key, message, client, data)
    receipt = Receipt(new=slot.hears, heard=slot.hears & slot.heard)
    client = where(slot.hears, algorithm.receive(sent, receipt, client), client)
    if not actors_hear:
        sent = where(slot.hears, sent, jax.tree.map(_unknown, sent))

    def act() -> tuple[PyTree, Turn]:
        upload, moved = algorithm.client_update(slot.key, sent, client, data)
        upload = as_arrays(upload)
        usable = finite(upload)
        # An upload that is lost leaves its client as it was: half of an exchange would never be mended.
        row = where(usable, moved, client)
        summand, carried = take_upload(aggregation, rule, slot, upload, sent, usable)
        return summand, Turn(row, ~usable, carried)

    if always_acts:
        return act()
    act, shapes = trace_once(act)
    summand, turn = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
    return jax.lax.cond(slot.acts, act, lambda: (summand, turn._replace(row=client)))


def take_upload(aggregation: Aggregation, rule: PyTree, slot: Slot, upload: Upload, sent: Message,
                usable: Array) -> tuple[PyTree, PyTree]:
    """What a rule gets of an upload: a summand, or what is stacked; the other is empty."""
    arrives = usable & (slot.counts > 0)
    carried = aggregation.carry(rule, upload, sent)
    if aggregation.adds:
        return weigh(arrives, slot.counts, carried), ()
    return (), where(arrives, carried, jax.tree.map(jnp.zeros_like, carried))


def _unknown(leaf: Array) -> Array:
    """What a client sees of a message it did not get."""
    return jnp.full_like(leaf, jnp.nan) if jnp.issubdtype(leaf.dtype, jnp.inexact) else jnp.zeros_like(leaf)
