"""One step of the online clock: hear, be scored, act, send; and whatever arrives meanwhile moves the server.

Everything on its way waits in rings inside the compiled program. Uploads that are to be added wait as sums, one for
each step to come, without a client's axis; those a rule wants to see one by one wait one by one.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from cantons.engine.fanout import Fanout, fan_out
from cantons.engine.round import Arrays, finite, keyed, where
from cantons.protocol import Algorithm, Array, Clock, Data, Key, Plan, Problem, PyTree, Receipt, Stack, State, Sum


class Transit(NamedTuple):
    """What is on its way at the beginning of a step; rings are indexed by time modulo their length."""

    messages: PyTree  # [down]: the server's last messages
    received: Array  # int32[down, clients]: how many uploads of each client the server had when it sent them
    uploads: PyTree  # [up]: sums of what arrives at each coming step; or [up, clients]: the last uploads
    due: Array  # int32[up, clients]: how many uploads arrive at each coming step; or when each of the last arrives
    arrived: Array  # int32[clients]: uploads the server has received so far
    latest: Array  # int32[clients]: when the last upload arrives; the next does not overtake it
    newest: Array  # int32[clients]: the step of the newest message each client holds
    known: Array  # int32[clients]: how many of its uploads a client knows to have arrived
    sent: Array  # int32[clients]: how many it has sent
    sent_at: Array  # int32[window, clients]: the step of each of its last uploads
    notes: PyTree  # [window, clients]: what it noted at each of the last steps
    met: Array  # int32[clients]: how often it has met new examples
    scores: dict[str, Array]  # [clients]: each metric, summed over the steps so far


def transit_at_rest(problem: Problem, algorithm: Algorithm, clock: Clock, arrays: Arrays, state: State) -> Transit:
    """Nothing is on its way, and every client holds the server's first message."""
    population, online = state.ledger.shape[0], clock.online
    assert online is not None
    upload, summand, note, scores = jax.eval_shape(lambda: _once(problem, algorithm, clock, arrays, state))
    first = algorithm.broadcast(arrays.key, state.server, None if arrays.central is None else arrays.central.client(0))
    up, down = online.longest_up + 1, online.longest_down + 1
    window = up + down
    stacked = not isinstance(algorithm.aggregate, Sum)

    def column():  # an array of its own each time: the state is donated, and no buffer can be given away twice
        return jnp.zeros(population, jnp.int32)

    return Transit(
        messages=jax.tree.map(lambda leaf: jnp.tile(leaf, (down, *[1] * jnp.ndim(leaf))), first),
        received=jnp.zeros((down, population), jnp.int32),
        uploads=_blank(upload, up, population) if stacked else _blank(summand, up),
        due=jnp.full((up, population), -1 if stacked else 0, jnp.int32),
        arrived=column(), latest=column(), newest=column(), known=column(), sent=column(),
        sent_at=jnp.zeros((window, population), jnp.int32),
        notes=_blank(note, window, population),
        met=column(),
        scores=_blank(scores, population),
    )


def held(transit: Transit) -> tuple[PyTree, Array]:
    """The messages that clients hold, and where in them each client's is."""
    return transit.messages, transit.newest % transit.received.shape[0]


class Slot(NamedTuple):
    """One client in one step."""

    id: Array
    acts: Array
    counts: Array
    new: Array
    told: Array  # of how many of its uploads this message tells it
    notes: Array  # [told]: the steps of its oldest open uploads, as places in the ring of notes
    place: Array  # of its message in the ring
    met: Array
    key: Key
    stream: Key
    client: PyTree


def one_step(problem: Problem, algorithm: Algorithm, clock: Clock, fanout: Fanout, arrays: Arrays,
             state: State) -> State:
    """Advance `state` by one step."""
    online, rule, transit, now = clock.online, algorithm.aggregate, state.transit, state.round
    assert online is not None
    population = state.ledger.shape[0]
    key = jax.random.fold_in(arrays.key, now)
    plan_key, broadcast_key, client_key, aggregate_key, server_key = jax.random.split(key, 5)
    central = None if arrays.central is None else arrays.central.client(0)
    plan = clock.plan(arrays.clock, plan_key, now)
    assert plan.up is not None and plan.down is not None
    up_ring, down_ring = transit.due.shape[0], transit.received.shape[0]
    window = transit.sent_at.shape[0]
    everyone = jnp.arange(population)

    # Down: today's message joins the ring, and each client takes the newest that has reached it.
    messages = _put(transit.messages, now % down_ring, algorithm.broadcast(broadcast_key, state.server, central))
    received = transit.received.at[now % down_ring].set(transit.arrived)
    newest = jnp.maximum(transit.newest, now - plan.down)
    known = received[newest % down_ring, everyone]
    told = known - transit.known
    # A steady link tells of one upload at a time.
    steps = transit.known[:, None] + jnp.arange(1 if online.steady else window)
    steps = transit.sent_at[steps % window, everyone[:, None]] % window

    def each(common, slot):
        train, messages, notes = common
        message = jax.tree.map(lambda leaf: leaf[slot.place], messages)
        data = train.client(slot.id).at(slot.stream, slot.met, online.batch, online.order)
        sent = algorithm.select(message, algorithm.request(slot.client, data))

        def hear(number, client):
            noted = jax.tree.map(lambda leaf: leaf[slot.notes[number], slot.id], notes)
            return algorithm.receive(sent, Receipt(slot.new & (number == 0), number < slot.told, noted), client)

        client = hear(0, slot.client) if online.steady else jax.lax.fori_loop(
            0, jnp.maximum(slot.told, 1), hear, slot.client)
        scores = charged(problem, algorithm, slot.key, sent, client, data)
        note = algorithm.note(slot.key, sent, client, data)
        upload, moved = algorithm.client_update(slot.key, sent, client, data)
        usable = finite(upload)
        acts = slot.acts & (data.size > 0)
        client = where(acts & usable, moved, client)
        sends = acts & usable & (slot.counts > 0)
        carried = rule.lift(upload, sent) if isinstance(rule, Sum) else upload
        weight = slot.counts if isinstance(rule, Sum) else 1
        carried = jax.tree.map(lambda leaf: jnp.where(sends, jnp.asarray(weight, leaf.dtype) * leaf, 0), carried)
        scores = jax.tree.map(lambda value: jnp.where(acts, value, 0), scores)
        return (), (client, carried, note, scores, acts, sends, ~usable)

    slots = Slot(plan.ids, plan.acts, plan.counts, newest > transit.newest, told, steps, newest % down_ring,
                 transit.met, keyed(client_key, everyone), keyed(arrays.key, everyone), state.clients)
    common = arrays.train, messages, transit.notes
    _, rows = fan_out(fanout, each, common, _padded(slots, fanout, population))
    clients, carried, note, scores, acts, sends, lost = jax.tree.map(lambda leaf: leaf[:population], rows)

    # Up: what was sent now joins what is due when it arrives; nothing overtakes.
    arrival = jnp.maximum(transit.latest, now + plan.up)
    sent_at = transit.sent_at.at[transit.sent % window, everyone].set(jnp.where(
        sends, now, transit.sent_at[transit.sent % window, everyone]))
    if isinstance(rule, Sum):
        uploads = jax.tree.map(lambda ring, row: ring.at[arrival % up_ring].add(row), transit.uploads, carried)
        due = transit.due.at[arrival % up_ring, everyone].add(sends.astype(jnp.int32))
        arriving = due[now % up_ring]
        aggregate = rule.finish(aggregate_key, jax.tree.map(lambda ring: ring[now % up_ring], uploads))
        uploads = jax.tree.map(lambda ring: ring.at[now % up_ring].set(0), uploads)
        due = due.at[now % up_ring].set(0)
    else:
        uploads = _put(transit.uploads, now % up_ring, carried)
        due = transit.due.at[now % up_ring].set(jnp.where(sends, arrival, -1))
        aggregate, arriving = _all_at_once(rule, online.steady, aggregate_key, uploads, due, now, plan)
    moved = algorithm.server_update(server_key, state.server, aggregate, central)
    sent_up = acts & (plan.counts > 0)
    return State(
        server=where((arriving > 0).any(), moved, state.server),
        clients=clients,
        round=now + 1,
        skipped=state.skipped,  # a step in which nothing arrives is nothing special here
        ledger=state.ledger + jnp.stack([jnp.zeros_like(known), newest > transit.newest, sent_up, sent_up & lost],
                                        axis=1).astype(jnp.int32),
        transit=Transit(
            messages, received, uploads, due, transit.arrived + arriving, jnp.where(sends, arrival, transit.latest),
            newest, known, transit.sent + sends, sent_at, _put(transit.notes, now % window, note),
            transit.met + acts, jax.tree.map(jnp.add, transit.scores, scores)),
    )


def charged(problem: Problem, algorithm: Algorithm, key: Key, message: PyTree, client: PyTree,
            data: Data) -> dict[str, Array]:
    """What the examples of now cost a client that has not learned from them yet."""
    if algorithm.score is not None:
        return algorithm.score(key, message, client, data)
    batch = data.now()
    values = problem.score(*algorithm.model(key, message, client, data), batch)
    return {name: (value * batch.mask).sum() / jnp.maximum(batch.mask.sum(), 1) for name, value in values.items()}


def _once(problem: Problem, algorithm: Algorithm, clock: Clock, arrays: Arrays, state: State) -> tuple:
    """What one client gets and gives in one step."""
    assert clock.online is not None
    central = None if arrays.central is None else arrays.central.client(0)
    client = jax.tree.map(lambda leaf: leaf[0], state.clients)
    data = arrays.train.client(0).at(arrays.key, jnp.zeros((), jnp.int32), clock.online.batch, clock.online.order)
    message = algorithm.broadcast(arrays.key, state.server, central)
    sent = algorithm.select(message, algorithm.request(client, data))
    upload, _ = algorithm.client_update(arrays.key, sent, client, data)
    summand = algorithm.aggregate.lift(upload, sent) if isinstance(algorithm.aggregate, Sum) else ()
    return (upload, summand, algorithm.note(arrays.key, sent, client, data),
            charged(problem, algorithm, arrays.key, sent, client, data))


def _all_at_once(rule: Stack, steady: bool, key: Key, uploads: PyTree, due: Array, now: Array,
                 plan: Plan) -> tuple[PyTree, Array]:
    """Hand the uploads that arrive now to a rule that wants to see each, and say how many of each client there are."""
    ring, population = due.shape
    assert plan.up is not None
    if steady:  # one of each client at most, and it is known which
        rows = (now - plan.up) % ring, plan.ids
        arriving = (due[rows] == now).astype(jnp.int32)
        uploads = jax.tree.map(lambda leaf: leaf[rows], uploads)
        ids, counts = plan.ids, arriving
    else:
        there = (due == now).astype(jnp.int32)
        uploads = jax.tree.map(lambda leaf: leaf.reshape(ring * population, *leaf.shape[2:]), uploads)
        ids, counts, arriving = jnp.tile(plan.ids, ring), there.reshape(-1), there.sum(axis=0, dtype=jnp.int32)
    return rule.reduce(key, uploads, ids, counts), arriving


def _blank(shapes: PyTree, *leading: int) -> PyTree:
    return jax.tree.map(lambda leaf: jnp.zeros((*leading, *leaf.shape), leaf.dtype), shapes)


def _put(ring: PyTree, place: Array, row: PyTree) -> PyTree:
    return jax.tree.map(lambda leaf, new: leaf.at[place].set(new), ring, row)


def _padded(slots: Slot, fanout: Fanout, population: int) -> Slot:
    """Idle places repeat the last client; what they do is cut off."""
    order = jnp.minimum(jnp.arange(fanout.padded(population)), population - 1)
    return slots if len(order) == population else jax.tree.map(lambda leaf: leaf[order], slots)
