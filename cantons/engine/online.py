"""One step of the online clock: be scored, act, send; what arrives now moves the server, and its message goes out."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from cantons.engine.aggregation import aggregation_of, keep_report
from cantons.engine.client import as_arrays, finite, keyed, sent_to, where
from cantons.engine.in_flight import (
    collect_uploads,
    held_messages,
    nothing_in_flight,
    post_message,
    post_uploads,
)
from cantons.engine.mapping import Each, Fanout, map_clients
from cantons.engine.round import Arrays, round_keys
from cantons.engine.summands import dense
from cantons.protocol import Algorithm, Array, Clock, Data, Examples, Key, Online, Problem, PyTree, Receipt, State


def begin_online(problem: Problem, algorithm: Algorithm, clock: Clock, arrays: Arrays, state: State) -> State:
    """Nothing is on its way, and every client has heard the server's first message."""
    population, online, aggregation = state.ledger.shape[0], clock.online, aggregation_of(algorithm.aggregate)
    assert online is not None
    carried, note, scores = jax.eval_shape(lambda: _once(problem, algorithm, online, arrays, state))
    first = algorithm.broadcast(arrays.key, state.server, arrays.datacenter(algorithm, arrays.key))

    def hear(index, key, client):
        sent = sent_to(algorithm, key, first, client, arrays.train.client(index))
        noted = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), note)
        return algorithm.receive(sent, Receipt(jnp.asarray(True), jnp.asarray(False), noted), client)

    everyone = jnp.arange(population)
    return state._replace(
        clients=jax.vmap(hear)(everyone, keyed(round_keys(arrays.key, state.round).client, everyone), state.clients),
        in_flight=nothing_in_flight(online, population, aggregation.adds, first, carried, note, scores))


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
    key: Key  # with which it will act next
    client: PyTree


class Acted(NamedTuple):
    """What one client's step leaves behind."""

    row: PyTree
    carried: PyTree
    note: PyTree
    scores: dict[str, Array]
    acts: Array  # it met its examples, and all was finite
    sends: Array
    abstains: Array


def online_step(problem: Problem, algorithm: Algorithm, clock: Clock, fanout: Fanout, arrays: Arrays,
                state: State) -> State:
    """Advance `state` by one step: all act, what is due arrives, and the next message goes out."""
    state = _act_and_aggregate(problem, algorithm, clock, fanout, arrays, state)
    return _send_message(algorithm, clock, fanout, arrays, state)


def _act_and_aggregate(problem: Problem, algorithm: Algorithm, clock: Clock, fanout: Fanout, arrays: Arrays,
                       state: State) -> State:
    """Every client meets its examples, is scored, learns and sends; what arrives now moves the server."""
    online, flight, now, aggregation = clock.online, state.in_flight, state.round, aggregation_of(algorithm.aggregate)
    assert online is not None
    keys = round_keys(arrays.key, now)
    plan = clock.plan(arrays.clock, keys.plan, now)
    everyone = jnp.arange(state.ledger.shape[0])

    def each(common, actor):
        train, messages, rule = common
        message = jax.tree.map(lambda leaf: leaf[actor.place], messages)
        data = _meeting(train, online, actor, actor.met)
        sent = sent_to(algorithm, actor.key, message, actor.client, data)
        scores = progressive_scores(problem, algorithm, actor.key, message, actor.client, data)
        learned = data if not online.label_delay else _meeting(
            train, online, actor, jnp.maximum(actor.met - online.label_delay, 0))
        note = algorithm.note(actor.key, sent, actor.client, learned)
        upload, moved = algorithm.client_update(actor.key, sent, actor.client, learned)
        upload = as_arrays(upload)
        meets = actor.acts & (data.size > 0)
        acts = meets & finite((upload, scores))  # or it abstains
        learns = acts & (actor.met >= online.label_delay)  # until then no label has come
        sends = learns & (actor.counts > 0)
        carried = dense(aggregation.carry(rule, upload, sent))
        if algorithm.idle_upload is not None and not clock.full:
            # Who has no examples now is not away: it sends what it stands for.
            idles = ~actor.acts & (actor.counts > 0)
            idle = dense(aggregation.carry(rule, as_arrays(algorithm.idle_upload(sent, actor.client)), sent))
            carried, sends = where(idles, idle, carried), sends | idles
        weight = actor.counts if aggregation.adds else 1
        carried = jax.tree.map(lambda leaf: jnp.where(sends, jnp.asarray(weight, leaf.dtype) * leaf, 0), carried)
        scores = jax.tree.map(lambda value: jnp.where(acts, value, 0), scores)
        return (), Acted(where(learns, moved, actor.client), carried, note, scores, acts, sends, meets & ~acts)

    messages, places = held_messages(flight)
    actors = Actor(plan.ids, plan.acts, plan.counts, places, flight.met, keyed(keys.client, everyone),
                   keyed(arrays.key, everyone), state.clients)
    found: Acted = _each_client(fanout, each, (arrays.train, messages, state.rule), actors, len(everyone))
    scores = found.scores
    if online.cross_score:
        scores = scores | _by_everyone(problem, algorithm, online, arrays.train, messages, actors, found.acts)

    flight = post_uploads(flight, aggregation.adds, now, plan, found.sends, found.carried, found.note)
    arrival, flight = collect_uploads(flight, aggregation.adds, online.fixed_delays, now, plan)
    aggregate, rule, report = aggregation.close(keys.aggregate, state.rule, arrival.carried, arrival.ids,
                                                arrival.counts, clock.cohort)
    moved = algorithm.server_update(keys.server, state.server, aggregate, arrays.datacenter(algorithm, keys.central))
    closed = jnp.ones((), bool) if aggregation.every_round else (arrival.of_client > 0).any()
    sent_up = found.sends | (found.abstains & (plan.counts > 0))
    state = state._replace(
        server=where(closed, moved, state.server),
        clients=found.row,
        round=now + 1,
        # A step in which nothing arrives is nothing special here, and not counted as skipped.
        ledger=state.ledger.at[:, 2:4].add(jnp.stack([sent_up, found.abstains], axis=1).astype(jnp.int32)),
        rule=where(closed, rule, state.rule),
        in_flight=flight._replace(met=flight.met + (found.acts | found.abstains),
                                  scores=jax.tree.map(jnp.add, flight.scores, scores)),
    )
    return keep_report(state, report, arrival.ids, closed)


def _send_message(algorithm: Algorithm, clock: Clock, fanout: Fanout, arrays: Arrays, state: State) -> State:
    """The server's message goes out, and each client hears the newest that has reached it."""
    online, now, population = clock.online, state.round, state.ledger.shape[0]
    assert online is not None
    keys = round_keys(arrays.key, now)
    plan = clock.plan(arrays.clock, keys.plan, now)
    message = algorithm.broadcast(keys.broadcast, state.server, arrays.datacenter(algorithm, keys.central))
    delivery, flight = post_message(state.in_flight, online.fixed_delays, now, plan, message)
    messages, places = held_messages(flight)

    def each(common, listener):
        train, messages, notes = common
        message = jax.tree.map(lambda leaf: leaf[listener.place], messages)
        sent = sent_to(algorithm, listener.key, message, listener.client, train.client(listener.id))

        def hear(number, client):
            note = jax.tree.map(lambda leaf: leaf[listener.notes[number], listener.id], notes)
            return algorithm.receive(sent, Receipt(listener.new & (number == 0), number < listener.told, note), client)

        if online.fixed_delays:
            return (), hear(0, listener.client)
        return (), jax.lax.fori_loop(0, jnp.maximum(listener.told, 1), hear, listener.client)

    everyone = jnp.arange(population)
    listeners = Listener(everyone, *delivery, places, keyed(keys.client, everyone), state.clients)

    def heard():
        return _each_client(fanout, each, (arrays.train, messages, flight.notes), listeners, population)

    # Where a message goes out before every step, a client is called in every step, be it new or not.
    clients = heard() if online.max_gap == 1 else jax.lax.cond(delivery.new.any(), heard, lambda: state.clients)
    return state._replace(clients=clients, ledger=state.ledger.at[:, 1].add(delivery.new.astype(jnp.int32)),
                          in_flight=flight)


def _meeting(train: Examples, online: Online, actor: Actor, met: Array) -> Data:
    """The examples that a client meets for the `met`-th time."""
    return train.client(actor.id).at(actor.stream, met, online.batch, online.order)


def _by_everyone(problem: Problem, algorithm: Algorithm, online: Online, train: Examples, messages: PyTree,
                 actors: Actor, acts: Array) -> dict[str, Array]:
    """The mean loss of each client's model on the examples of all who act: l_t(x_i)."""

    def of_now(actor):
        message = jax.tree.map(lambda leaf: leaf[actor.place], messages)
        data = _meeting(train, online, actor, actor.met)
        return algorithm.personal_model(actor.key, message, actor.client, data.hidden()).parts, data.now()

    models, batches = jax.vmap(of_now)(actors)
    losses = jax.vmap(lambda parts: jax.vmap(lambda batch: problem.loss(parts[0], parts[1], batch))(batches))(models)
    mean = jnp.where(acts, losses, 0).sum(axis=1) / jnp.maximum(acts.sum(), 1)
    return {"global_loss": jnp.where(acts, mean, 0)}


def progressive_scores(problem: Problem, algorithm: Algorithm, key: Key, message: PyTree, client: PyTree,
                       data: Data) -> dict[str, Array]:
    """Progressive validation: what the examples of now cost a client that has not learned from them yet."""
    if algorithm.score is not None:
        return algorithm.score(key, message, client, data)
    batch = data.now()
    values = problem.score(*algorithm.personal_model(key, message, client, data.hidden()).parts, batch)
    return {name: (value * batch.mask).sum() / jnp.maximum(batch.mask.sum(), 1) for name, value in values.items()}


def _once(problem: Problem, algorithm: Algorithm, online: Online, arrays: Arrays, state: State) -> tuple:
    """What is carried of one client's upload, what it notes, and what it is charged in one step."""
    client = jax.tree.map(lambda leaf: leaf[0], state.clients)
    data = arrays.train.client(0).at(arrays.key, jnp.zeros((), jnp.int32), online.batch, online.order)
    message = algorithm.broadcast(arrays.key, state.server, arrays.datacenter(algorithm, arrays.key))
    sent = sent_to(algorithm, arrays.key, message, client, data)
    upload, _ = algorithm.client_update(arrays.key, sent, client, data)
    return (dense(aggregation_of(algorithm.aggregate).carry(state.rule, as_arrays(upload), sent)),
            algorithm.note(arrays.key, sent, client, data),
            progressive_scores(problem, algorithm, arrays.key, message, client, data))


def _each_client(fanout: Fanout, each: Each, common: PyTree, slots: PyTree, population: int) -> PyTree:
    """The rows of all clients. Idle places repeat the last client; what they do is cut off."""
    order = jnp.minimum(jnp.arange(fanout.padded(population)), population - 1)
    if len(order) > population:
        slots = jax.tree.map(lambda leaf: leaf[order], slots)
    return jax.tree.map(lambda leaf: leaf[:population], map_clients(fanout, each, common, slots)[1])
