"""One step of the online clock: be scored, act, send; what arrives meanwhile moves the server, whose message goes out.

Everything on its way waits in rings inside the compiled program. Uploads that are to be added wait as sums, one for
each step to come, without a client's axis; those a rule wants to see one by one wait one by one.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from cantons.engine.mapping import Each, Fanout, map_clients
from cantons.engine.round import Arrays, finite, keyed, where
from cantons.protocol import (
    Algorithm,
    Array,
    Clock,
    Data,
    Key,
    Online,
    Plan,
    Problem,
    PyTree,
    Receipt,
    Stack,
    State,
    Sum,
)


class InFlight(NamedTuple):
    """What is on its way between two steps, when all have heard what they will predict with next.

    Rings are indexed by the step modulo their length, those of messages by the message's number.
    """

    messages: PyTree  # [down]: the server's last messages
    received: Array  # int32[down, clients]: how many uploads of each client the server had when it sent them
    uploads: PyTree  # [up]: sums of what arrives at each coming step; or [up, clients]: the last uploads
    due: Array  # int32[up, clients]: how many uploads arrive at each coming step; or when each of the last arrives
    arrived: Array  # int32[clients]: uploads the server has received so far
    latest: Array  # int32[clients]: when the last upload arrives; the next does not overtake it
    number: Array  # int32: of the last message; messages are numbered from 0
    numbers: Array  # int32[down]: the number of the last message at each of the last steps
    newest: Array  # int32[clients]: the number of the newest message each client holds
    known: Array  # int32[clients]: how many of its uploads a client knows to have arrived
    sent: Array  # int32[clients]: how many it has sent
    sent_at: Array  # int32[window, clients]: the step of each of its last uploads
    notes: PyTree  # [window, clients]: what it noted at each of the last steps
    met: Array  # int32[clients]: how often it has met new examples, abstaining or not
    scores: dict[str, Array]  # [clients]: each metric, summed over the steps so far


def begin_online(problem: Problem, algorithm: Algorithm, clock: Clock, arrays: Arrays, state: State) -> State:
    """Nothing is on its way, and every client has heard the server's first message."""
    population, online = state.ledger.shape[0], clock.online
    assert online is not None
    upload, summand, note, scores = jax.eval_shape(lambda: _once(problem, algorithm, clock, arrays, state))
    first = algorithm.broadcast(arrays.key, state.server, _central(arrays))
    up, down = online.longest_up + 1, online.longest_down + 1
    window = up + down
    stacked = not isinstance(algorithm.aggregate, Sum)

    def column():  # an array of its own each time: the state is donated, and no buffer can be given away twice
        return jnp.zeros(population, jnp.int32)

    in_flight = InFlight(
        messages=jax.tree.map(lambda leaf: jnp.tile(leaf, (down, *[1] * jnp.ndim(leaf))), first),
        received=jnp.zeros((down, population), jnp.int32),
        uploads=_blank(upload, up, population) if stacked else _blank(summand, up),
        due=jnp.full((up, population), -1 if stacked else 0, jnp.int32),
        arrived=column(), latest=column(), number=jnp.zeros((), jnp.int32), numbers=jnp.zeros(down, jnp.int32),
        newest=column(), known=column(), sent=column(),
        sent_at=jnp.zeros((window, population), jnp.int32),
        notes=_blank(note, window, population),
        met=column(),
        scores=_blank(scores, population) | ({"global_loss": jnp.zeros(population)} if online.everyone else {}),
    )

    def hear(index, client):
        data = arrays.train.client(index)
        sent = algorithm.select(first, algorithm.request(client, data))
        noted = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), note)
        return algorithm.receive(sent, Receipt(jnp.asarray(True), jnp.asarray(False), noted), client)

    return state._replace(clients=jax.vmap(hear)(jnp.arange(population), state.clients), in_flight=in_flight)


def held_messages(in_flight: InFlight) -> tuple[PyTree, Array]:
    """The messages that clients hold, and where in them each client's is."""
    return in_flight.messages, in_flight.newest % in_flight.received.shape[0]


class Actor(NamedTuple):
    """One client about to act."""

    id: Array
    acts: Array
    counts: Array
    place: Array  # of its message in the ring
    met: Array
    key: Key
    stream: Key
    client: PyTree


class Listener(NamedTuple):
    """One client to whom the next message comes."""

    id: Array
    new: Array
    told: Array  # of how many of its uploads this message tells it
    notes: Array  # the places of what it noted with its oldest open uploads
    place: Array
    client: PyTree


def online_step(problem: Problem, algorithm: Algorithm, clock: Clock, fanout: Fanout, arrays: Arrays,
             state: State) -> State:
    """Advance `state` by one step: all act, what is due arrives, and the next message goes out."""
    return _next_message(algorithm, clock, fanout, arrays, _acted(problem, algorithm, clock, fanout, arrays, state))


def _acted(problem: Problem, algorithm: Algorithm, clock: Clock, fanout: Fanout, arrays: Arrays,
           state: State) -> State:
    """Every client meets its examples, is scored, learns and sends; what arrives now moves the server."""
    online, rule, in_flight, now = clock.online, algorithm.aggregate, state.in_flight, state.round
    assert online is not None
    plan_key, _, client_key, aggregate_key, server_key = step_keys(arrays, now)
    plan = clock.plan(arrays.clock, plan_key, now)
    assert plan.up is not None
    population, up_ring, window = state.ledger.shape[0], in_flight.due.shape[0], in_flight.sent_at.shape[0]
    everyone = jnp.arange(population)

    def each(common, actor):
        train, messages = common
        message = jax.tree.map(lambda leaf: leaf[actor.place], messages)
        data = train.client(actor.id).at(actor.stream, actor.met, online.batch, online.order)
        sent = algorithm.select(message, algorithm.request(actor.client, data))
        scores = progressive_scores(problem, algorithm, actor.key, sent, actor.client, data)
        told = data if not online.label_delay else train.client(actor.id).at(
            actor.stream, jnp.maximum(actor.met - online.label_delay, 0), online.batch, online.order)
        note = algorithm.note(actor.key, sent, actor.client, told)
        upload, moved = algorithm.client_update(actor.key, sent, actor.client, told)
        meets = actor.acts & (data.size > 0)
        acts = meets & finite((upload, scores))  # or it abstains
        learns = acts & (actor.met >= online.label_delay)  # until then no label has come
        sends = learns & (actor.counts > 0)
        carried = rule.lift(upload, sent) if isinstance(rule, Sum) else upload
        weight = actor.counts if isinstance(rule, Sum) else 1
        carried = jax.tree.map(lambda leaf: jnp.where(sends, jnp.asarray(weight, leaf.dtype) * leaf, 0), carried)
        scores = jax.tree.map(lambda value: jnp.where(acts, value, 0), scores)
        return (), (where(learns, moved, actor.client), carried, note, scores, acts, sends, meets & ~acts)

    messages, places = held_messages(in_flight)
    actors = Actor(plan.ids, plan.acts, plan.counts, places, in_flight.met, keyed(client_key, everyone),
                   keyed(arrays.key, everyone), state.clients)
    rows = _each_client(fanout, each, (arrays.train, messages), actors, population)
    clients, carried, note, scores, acts, sends, abstains = rows
    if online.everyone:
        scores |= _by_everyone(problem, algorithm, online, arrays.train, messages, actors, acts)

    # What was sent now joins what is due when it arrives; nothing overtakes.
    arrival = jnp.maximum(in_flight.latest, now + plan.up)
    last = in_flight.sent % window, everyone
    sent_at = in_flight.sent_at.at[last].set(jnp.where(sends, now, in_flight.sent_at[last]))
    if isinstance(rule, Sum):
        uploads = jax.tree.map(partial(_joined, arrival % up_ring), in_flight.uploads, carried)
        due = in_flight.due.at[arrival % up_ring, everyone].add(sends.astype(jnp.int32))
        arriving = due[now % up_ring]
        aggregate = rule.finish(aggregate_key, jax.tree.map(lambda ring: ring[now % up_ring], uploads))
        uploads = jax.tree.map(lambda ring: ring.at[now % up_ring].set(0), uploads)
        due = due.at[now % up_ring].set(0)
    else:
        uploads = _put(in_flight.uploads, now % up_ring, carried)
        due = in_flight.due.at[now % up_ring].set(jnp.where(sends, arrival, -1))
        aggregate, arriving = _all_at_once(rule, online.steady, aggregate_key, uploads, due, now, plan)
    moved = algorithm.server_update(server_key, state.server, aggregate, _central(arrays))
    sent_up = sends | (abstains & (plan.counts > 0))
    return state._replace(
        server=where((arriving > 0).any(), moved, state.server),
        clients=clients,
        round=now + 1,
        # A step in which nothing arrives is nothing special here, and not counted as skipped.
        ledger=state.ledger.at[:, 2:].add(jnp.stack([sent_up, abstains], axis=1).astype(jnp.int32)),
        in_flight=in_flight._replace(
            uploads=uploads, due=due, arrived=in_flight.arrived + arriving,
            latest=jnp.where(sends, arrival, in_flight.latest), sent=in_flight.sent + sends, sent_at=sent_at,
            notes=_put(in_flight.notes, now % window, note), met=in_flight.met + (acts | abstains),
            scores=jax.tree.map(jnp.add, in_flight.scores, scores)),
    )


def _next_message(algorithm: Algorithm, clock: Clock, fanout: Fanout, arrays: Arrays, state: State) -> State:
    """The server's message joins the ring, and each client takes the newest that has reached it."""
    online, in_flight, now = clock.online, state.in_flight, state.round
    assert online is not None
    plan_key, broadcast_key, *_ = step_keys(arrays, now)
    plan = clock.plan(arrays.clock, plan_key, now)
    assert plan.down is not None
    population, ring, window = state.ledger.shape[0], in_flight.received.shape[0], in_flight.sent_at.shape[0]
    everyone = jnp.arange(population)
    sends = jnp.asarray(True) if plan.sends is None else plan.sends
    number = in_flight.number + sends
    rings = in_flight.messages, in_flight.received
    message = algorithm.broadcast(broadcast_key, state.server, _central(arrays)), in_flight.arrived
    kept = jax.tree.map(lambda leaf: leaf[number % ring], rings)
    messages, received = _put(rings, number % ring, where(sends, message, kept))
    sent_by = in_flight.numbers.at[now % ring].set(number)
    newest = jnp.maximum(in_flight.newest, sent_by[jnp.maximum(now - plan.down, 0) % ring])
    known = received[newest % ring, everyone]
    # A steady link tells of one upload at a time.
    numbers = in_flight.known[:, None] + jnp.arange(1 if online.steady else window)
    noted = in_flight.sent_at[numbers % window, everyone[:, None]] % window

    def each(common, listener):
        train, messages, notes = common
        message = jax.tree.map(lambda leaf: leaf[listener.place], messages)
        sent = algorithm.select(message, algorithm.request(listener.client, train.client(listener.id)))

        def hear(number, client):
            note = jax.tree.map(lambda leaf: leaf[listener.notes[number], listener.id], notes)
            return algorithm.receive(sent, Receipt(listener.new & (number == 0), number < listener.told, note), client)

        if online.steady:
            return (), hear(0, listener.client)
        return (), jax.lax.fori_loop(0, jnp.maximum(listener.told, 1), hear, listener.client)

    listeners = Listener(everyone, newest > in_flight.newest, known - in_flight.known, noted, newest % ring,
                         state.clients)

    def heard():
        return _each_client(fanout, each, (arrays.train, messages, in_flight.notes), listeners, population)

    # Where a message goes out before every step, a client is called in every step, be it new or not.
    clients = heard() if online.gap == 1 else jax.lax.cond(listeners.new.any(), heard, lambda: state.clients)
    return state._replace(
        clients=clients,
        ledger=state.ledger.at[:, 1].add((newest > in_flight.newest).astype(jnp.int32)),
        in_flight=in_flight._replace(messages=messages, received=received, number=number, numbers=sent_by,
                                 newest=newest, known=known))


def _by_everyone(problem: Problem, algorithm: Algorithm, online: Online, train: PyTree, messages: PyTree,
                 actors: Actor, acts: Array) -> dict[str, Array]:
    """The mean loss of each client's model on the examples of all who act: l_t(x_i)."""

    def of_now(actor):
        message = jax.tree.map(lambda leaf: leaf[actor.place], messages)
        data = train.client(actor.id).at(actor.stream, actor.met, online.batch, online.order)
        sent = algorithm.select(message, algorithm.request(actor.client, data))
        return algorithm.model(actor.key, sent, actor.client, data.hidden()), data.now()

    models, batches = jax.vmap(of_now)(actors)
    losses = jax.vmap(lambda parts: jax.vmap(lambda batch: problem.loss(parts[0], parts[1], batch))(batches))(models)
    mean = jnp.where(acts, losses, 0).sum(axis=1) / jnp.maximum(acts.sum(), 1)
    return {"global_loss": jnp.where(acts, mean, 0)}


def progressive_scores(problem: Problem, algorithm: Algorithm, key: Key, message: PyTree, client: PyTree,
            data: Data) -> dict[str, Array]:
    """What the examples of now cost a client that has not learned from them yet."""
    if algorithm.score is not None:
        return algorithm.score(key, message, client, data)
    batch = data.now()
    values = problem.score(*algorithm.model(key, message, client, data.hidden()), batch)
    return {name: (value * batch.mask).sum() / jnp.maximum(batch.mask.sum(), 1) for name, value in values.items()}


def _once(problem: Problem, algorithm: Algorithm, clock: Clock, arrays: Arrays, state: State) -> tuple:
    """What one client gets and gives in one step."""
    assert clock.online is not None
    client = jax.tree.map(lambda leaf: leaf[0], state.clients)
    data = arrays.train.client(0).at(arrays.key, jnp.zeros((), jnp.int32), clock.online.batch, clock.online.order)
    message = algorithm.broadcast(arrays.key, state.server, _central(arrays))
    sent = algorithm.select(message, algorithm.request(client, data))
    upload, _ = algorithm.client_update(arrays.key, sent, client, data)
    summand = algorithm.aggregate.lift(upload, sent) if isinstance(algorithm.aggregate, Sum) else ()
    return (upload, summand, algorithm.note(arrays.key, sent, client, data),
            progressive_scores(problem, algorithm, arrays.key, sent, client, data))


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


def _joined(places: Array, ring: Array, rows: Array) -> Array:
    """Add each row to its place in the ring. With a single place that is a sum, and no queue for it on a GPU."""
    return ring + rows.sum(axis=0) if ring.shape[0] == 1 else ring.at[places].add(rows)


def step_keys(arrays: Arrays, now: Array) -> Key:
    """For the plan, the broadcast, the clients, the aggregate and the server of a step."""
    return jax.random.split(jax.random.fold_in(arrays.key, now), 5)


def _central(arrays: Arrays) -> Data | None:
    return None if arrays.central is None else arrays.central.client(0)


def _each_client(fanout: Fanout, each: Each, common: PyTree, slots: PyTree, population: int) -> PyTree:
    """The rows of all clients. Idle places repeat the last client; what they do is cut off."""
    order = jnp.minimum(jnp.arange(fanout.padded(population)), population - 1)
    if len(order) > population:
        slots = jax.tree.map(lambda leaf: leaf[order], slots)
    return jax.tree.map(lambda leaf: leaf[:population], map_clients(fanout, each, common, slots)[1])
