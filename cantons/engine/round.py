"""One federated round, written once for every algorithm, rule and engine: keys, open, the clients' turns, close."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from cantons.engine.aggregation import aggregation_of, keep_report
from cantons.engine.central import divide_batches
from cantons.engine.client import Slot, Turn, as_arrays, keyed, take_turn, where
from cantons.engine.mapping import Fanout, map_clients
from cantons.protocol import (
    Algorithm,
    Array,
    CentralExamples,
    Client,
    Clock,
    Datacenter,
    Examples,
    Key,
    Message,
    Plan,
    PyTree,
    State,
    Upload,
)


class Arrays(NamedTuple):
    """Everything a round reads and never writes: arguments of the compiled program, not part of its text."""

    train: Examples
    central: CentralExamples | None
    clock: PyTree
    key: Key

    def datacenter(self, algorithm: Algorithm, key: Key, fanout: Fanout | None = None) -> Datacenter:
        """What algorithms are given as `central`; a `fanout` says which devices share its batches."""
        examples = None if self.central is None else self.central.client(0)
        return Datacenter(examples if fanout is None else divide_batches(examples, fanout.mesh), key,
                          self.train.pooled() if algorithm.needs.pooled else None)


class Keys(NamedTuple):
    """The keys of one round: nothing but the seed and the round's number is in them."""

    plan: Key
    broadcast: Key
    client: Key
    aggregate: Key
    server: Key
    central: Key


class Opening(NamedTuple):
    """What is known before any client has acted."""

    keys: Keys
    message: Message
    slots: Slot  # one row for each place in the cohort


def round_keys(key: Key, round: Array) -> Keys:
    key = jax.random.fold_in(key, round)
    # The last one came later than the others, and leaves them what they were.
    return Keys._make([*jax.random.split(key, 5), jax.random.fold_in(key, 5)])


def open_round(algorithm: Algorithm, clock: Clock, arrays: Arrays, state: State,
               fanout: Fanout | None = None) -> Opening:
    """Who takes part, and what they are sent; a `fanout` says how work is dealt out to devices."""
    keys = round_keys(arrays.key, state.round)
    plan = clock.plan(arrays.clock, keys.plan, state.round)
    if fanout is not None:
        plan = balanced(plan, clock, fanout, arrays, state.ledger.shape[0])
    return Opening(keys, send(algorithm, arrays, state, fanout), seat(state, plan, keyed(keys.client, plan.ids)))


def send(algorithm: Algorithm, arrays: Arrays, state: State, fanout: Fanout | None = None) -> Message:
    """The server's message of now."""
    keys = round_keys(arrays.key, state.round)
    return algorithm.broadcast(keys.broadcast, state.server, arrays.datacenter(algorithm, keys.central, fanout))


def seat(state: State, plan: Plan, keys: Key) -> Slot:
    """The slots of a plan; `keys` are those its clients act with."""
    return Slot(*plan[:4], state.ledger[plan.ids, 0] == 0, keys)


def take(clients: PyTree, ids: Array) -> PyTree:
    """The rows of these clients; a spare slot gets some row, which nobody puts back."""
    return jax.tree.map(lambda leaf: leaf[jnp.minimum(ids, leaf.shape[0] - 1)], clients)


def put(clients: PyTree, ids: Array, rows: PyTree) -> PyTree:
    """Write rows back where they came from."""
    return jax.tree.map(lambda leaf, new: leaf.at[ids].set(new, mode="drop"), clients, rows)


def close_round(algorithm: Algorithm, clock: Clock, arrays: Arrays, state: State, opening: Opening, total: PyTree,
                turns: Turn, fanout: Fanout | None = None) -> State:
    """The aggregate moves the server, rows are put back, and the ledger is kept; `turns` has one row for each slot."""
    slots, lost, aggregation = opening.slots, turns.lost, aggregation_of(algorithm.aggregate)
    arrived = jnp.where(slots.acts & ~lost, slots.counts, 0)
    ids, counts, carried = slots.id, arrived, total
    if not aggregation.adds:
        by_id = jnp.argsort(slots.id)
        ids, counts = slots.id[by_id], arrived[by_id]
        carried = jax.tree.map(lambda leaf: leaf[by_id], turns.upload)
    aggregate, rule, report = aggregation.close(opening.keys.aggregate, state.rule, carried, ids, counts, clock.cohort)
    moved = algorithm.server_update(opening.keys.server, state.server, aggregate,
                                    arrays.datacenter(algorithm, opening.keys.central, fanout))
    closed = jnp.ones((), bool) if aggregation.every_round else arrived.any()
    acknowledged, downloads, uploaded, rejected, outvoted = state.ledger[slots.id].T
    sent_up = slots.acts & (slots.counts > 0)
    ledger = jnp.stack([((acknowledged > 0) | slots.hears) & ~(sent_up & ~lost), downloads + slots.hears,
                        uploaded + sent_up, rejected + (sent_up & lost), outvoted], axis=1).astype(jnp.int32)
    state = state._replace(
        server=where(closed, moved, state.server),
        clients=put(state.clients, slots.id, turns.row),
        round=state.round + 1,
        skipped=state.skipped + ~closed,
        ledger=state.ledger.at[slots.id].set(ledger, mode="drop"),
        rule=where(closed, rule, state.rule),
    )
    return keep_report(state, report, ids, closed)


def one_round(algorithm: Algorithm, clock: Clock, fanout: Fanout, arrays: Arrays, state: State) -> State:
    """Advance `state` by one round."""
    opening = open_round(algorithm, clock, arrays, state, fanout)
    total, turns = take_turns(algorithm, fanout, arrays.train, opening.message, state.rule, opening.slots,
                              take(state.clients, opening.slots.id), actors_hear=clock.actors_hear,
                              always_acts=clock.full and fanout.padded(clock.slots) == clock.slots)
    return close_round(algorithm, clock, arrays, state, opening, total, turns, fanout)


def take_turns(algorithm: Algorithm, fanout: Fanout, train: Examples, message: Message, rule: PyTree, slots: Slot,
               rows: Client, *, actors_hear: bool, always_acts: bool) -> tuple[PyTree, Turn]:
    """The turns of some clients: the sum of their summands, and what else each leaves behind.

    A slot's `id` says where in `train` its client's examples are, be these all clients or those of one worker.
    """
    aggregation, population = aggregation_of(algorithm.aggregate), train.population

    def each(common, seat):
        train, message, rule = common
        slot, client = seat
        data = train.client(jnp.minimum(slot.id, population - 1))
        return take_turn(algorithm, aggregation, rule, message, slot, client, data, actors_hear=actors_hear,
                         always_acts=always_acts)

    return map_clients(fanout, each, (train, message, rule), (slots, rows))


class Exchange(NamedTuple):
    """All that travels between the server and one client in a round."""

    request: PyTree  # what the client asks for
    message: Message
    upload: Upload


class Up(NamedTuple):
    """What goes up where clients ask for parts of the message."""

    request: PyTree
    upload: Upload


def exchange(algorithm: Algorithm, arrays: Arrays, state: State, batch: int = 1) -> Exchange:
    """What travels to and from one client, as shapes; online it meets `batch` examples in a step."""

    def once(arrays: Arrays, state: State) -> Exchange:
        client = jax.tree.map(lambda leaf: leaf[0], state.clients)
        data = arrays.train.client(0).at(arrays.key, jnp.zeros((), jnp.int32), batch, "cycle")
        message = algorithm.broadcast(arrays.key, state.server, arrays.datacenter(algorithm, arrays.key))
        request = algorithm.request(arrays.key, client, data)
        sent = algorithm.select(message, request)
        return Exchange(as_arrays(request), sent, as_arrays(algorithm.client_update(
            arrays.key, sent, client, data)[0]))

    return jax.eval_shape(once, arrays, state)


def travelling(algorithm: Algorithm, arrays: Arrays, state: State, batch: int = 1) -> tuple[PyTree, PyTree]:
    """What goes down to and up from one client, as shapes; what a client asks for goes up too."""
    aggregation, (request, message, upload) = aggregation_of(algorithm.aggregate), exchange(
        algorithm, arrays, state, batch)
    down = message
    if aggregation.on_client:  # the client lifts: it must know the rule's state, and sends a summand
        down, upload = (message, state.rule), jax.eval_shape(aggregation.carry, state.rule, upload, message)
    return down, Up(request, upload) if jax.tree.leaves(request) else upload


def balanced(plan: Plan, clock: Clock, fanout: Fanout, arrays: Arrays, population: int) -> Plan:
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
