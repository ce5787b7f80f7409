"""One event of an asynchronous clock: a round whose clients answer the messages that they began with.

Clients work when their job ends: with the message that was kept for it, this is the same as when it begins, because
jobs of one client end one after another. So all that is in flight is the messages, and what the clock knows of jobs.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cantons.engine.aggregation import aggregation_of
from cantons.engine.client import Turn, take_turn
from cantons.engine.mapping import Fanout, map_clients
from cantons.engine.round import Arrays, Opening, balanced, close_round, round_keys, seat, send, take
from cantons.protocol import (
    Aggregator,
    Algorithm,
    Array,
    Average,
    Averages,
    Clock,
    Event,
    EventCounts,
    Key,
    Plan,
    PyTree,
    State,
)

LIMB = 20  # bits: a count that may need more than 32 is kept in two numbers


class Jobs(NamedTuple):
    """What is in flight between two events, and what is counted."""

    clock: PyTree  # what the clock knows of the jobs under way
    messages: PyTree  # [places]: those that jobs under way began with
    time: Array  # float32[2]: virtual time, and what rounding has added to it (Kahan): one would stop in a long run
    delays: Array  # int32[2]: the sum of all delays so far, as multiples of 2^LIMB and the rest
    longest: Array  # int32: the longest delay so far


def begin_asynchronous(algorithm: Algorithm, clock: Clock, arrays: Arrays, state: State) -> State:
    """Those who begin have the first message."""
    assert clock.asynchronous is not None
    jobs, ids = clock.asynchronous.begin(arrays.clock, arrays.key)
    first, places = send(algorithm, arrays, state), clock.asynchronous.places
    return state._replace(
        ledger=state.ledger.at[ids, 1].add(1, mode="drop"),
        in_flight=Jobs(jobs, jax.tree.map(lambda leaf: jnp.tile(leaf, (places, *[1] * jnp.ndim(leaf))), first),
                       jnp.zeros(2, jnp.float32), jnp.zeros(2, jnp.int32), jnp.zeros((), jnp.int32)))


def one_event(algorithm: Algorithm, clock: Clock, fanout: Fanout, arrays: Arrays, state: State) -> State:
    """Advance `state` by one event: some jobs end, the server moves, and as many jobs begin with its new message."""
    jobs, population, asynchronous = state.in_flight, state.ledger.shape[0], clock.asynchronous
    assert asynchronous is not None
    event, known = asynchronous.next(arrays.clock, arrays.key, jobs.clock, state.round)
    opening, row, delay = open_event(clock, arrays, state, event, fanout)

    def each(common, seat):
        train, rule = common
        slot, client, message, delay = seat
        data = train.client(jnp.minimum(slot.id, population - 1))
        return take_turn(algorithm, aggregation_of(late(algorithm, clock, delay)), rule, message, slot, client, data,
                         actors_hear=True, always_acts=clock.full and fanout.padded(clock.slots) == clock.slots)

    messages = jax.tree.map(lambda leaf: leaf[event.place[row]], jobs.messages)
    # There always is somebody, which the compiler does not know. So it reads rows here and once: were they read again
    # where they are written, it would copy those of all clients in every event.
    rows = jax.lax.cond(event.ids[0] < population, lambda: take(state.clients, opening.slots.id), lambda: jax.tree.map(
        lambda leaf: jnp.zeros((len(row), *leaf.shape[1:]), leaf.dtype), state.clients))
    seats = opening.slots, rows, messages, delay[row]
    total, turns = map_clients(fanout, each, (arrays.train, state.rule), seats)
    return close_event(algorithm, clock, arrays, state, event, known, opening, delay, total, turns, fanout)


def open_event(clock: Clock, arrays: Arrays, state: State, event: Event,
               fanout: Fanout | None = None) -> tuple[Opening, Array, Array]:
    """The slots of those whose jobs end, which row of the event each is, and the delay of each of these rows."""
    population = state.ledger.shape[0]
    there = event.ids < population
    counts = jnp.where(there, 1 if event.counts is None else event.counts, 0).astype(jnp.int32)
    plan = Plan(event.ids, there, counts, there)
    if fanout is not None:
        plan = balanced(plan, clock, fanout, arrays, population)
    row = jnp.minimum(jnp.searchsorted(event.ids, plan.ids), len(event.ids) - 1).astype(jnp.int32)
    opening = Opening(round_keys(arrays.key, state.round), (), seat(state, plan, job_keys(
        arrays.key, event.job[row], plan.ids)))
    return opening, row, jnp.where(counts > 0, state.round - event.version, 0)


def job_keys(key: Key, numbers: Array, clients: Array) -> Key:
    """A job has the keys of the round with its number: all jobs of one number, begun together, are that round."""
    return jax.vmap(lambda job, index: jax.random.fold_in(round_keys(key, job).client, index))(numbers, clients)


def close_event(algorithm: Algorithm, clock: Clock, arrays: Arrays, state: State, event: Event, known: PyTree,
                opening: Opening, delay: Array, total: PyTree, turns: Turn, fanout: Fanout | None = None) -> State:
    """The server moves as after a round, the time passes, and its new message is kept for the jobs that begin."""
    jobs = state.in_flight
    state = close_round(algorithm, clock, arrays, state, opening, total, turns, fanout)
    # A message is counted when a job begins with it, and `close_round` counts it when the job ends.
    ledger = state.ledger.at[event.ids, 1].add(-1, mode="drop").at[event.begins, 1].add(1, mode="drop")
    elapsed = event.elapsed - jobs.time[1]
    time = jobs.time[0] + elapsed
    delays = jobs.delays.at[1].add(delay.sum(dtype=jnp.int32))
    return state._replace(ledger=ledger, in_flight=Jobs(
        known,
        jax.tree.map(lambda leaf, new: leaf.at[event.free].set(new, mode="drop"), jobs.messages,
                     send(algorithm, arrays, state, fanout)),
        jnp.stack([time, (time - jobs.time[0]) - elapsed]),
        jnp.stack([delays[0] + (delays[1] >> LIMB), delays[1] & ((1 << LIMB) - 1)]),
        jnp.maximum(jobs.longest, delay.max())))


def late(algorithm: Algorithm, clock: Clock, delay: Array) -> Aggregator:
    """The algorithm's aggregation, in which an upload with this delay is worth what the clock says."""
    assert clock.asynchronous is not None
    staleness = clock.asynchronous.staleness
    return algorithm.aggregate if staleness is None else scaled(algorithm.aggregate, staleness(delay))


def scaled(aggregate: Aggregator, factor: Array) -> Averages:
    """The same aggregation, where one upload's value, but not its weight, is multiplied by a factor."""
    assert isinstance(aggregate, Averages)
    read = aggregate.read

    def read_scaled(upload: PyTree) -> Average:
        value, weight = read(upload)
        return Average(jax.tree.map(lambda leaf: factor.astype(leaf.dtype) * leaf, value), weight)

    return aggregate._replace(read=read_scaled)


def counts_of(jobs: Jobs, uploads: np.ndarray) -> EventCounts:
    """What was counted so far, on the host; `uploads` are those of each client."""
    high, low = (int(part) for part in jobs.delays)
    return EventCounts(float(jobs.time[0]) - float(jobs.time[1]), int(uploads.sum()), (high << LIMB) + low,
                       int(jobs.longest))
