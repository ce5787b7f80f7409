"""What is on its way between the steps of an online run: late messages, late uploads, and who has been told of which.

Everything waits in rings inside the compiled program. Uploads that are to be added wait as sums, one for each step to
come, without a client's axis; those a rule wants to see one by one wait one by one.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from cantons.engine.client import where
from cantons.protocol import Array, Message, Online, Plan, PyTree


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

    @property
    def population(self) -> int:
        return self.met.shape[0]


class Arrival(NamedTuple):
    """The uploads that reach the server in one step."""

    carried: PyTree  # their sum, or a stack of rows of which some did not arrive
    ids: Array  # of the rows
    counts: Array  # how often each row counts
    of_client: Array  # int32[clients]: how many of each client's there are


class Delivery(NamedTuple):
    """What the next message means to each client."""

    new: Array  # bool[clients]: does it hold a message it has not seen?
    told: Array  # int32[clients]: of how many of its uploads the message tells it
    notes: Array  # int32[clients, ...]: the places of what it noted with its oldest open uploads


def nothing_in_flight(online: Online, population: int, adds: bool, first: Message, carried: PyTree, note: PyTree,
                      scores: dict[str, Array]) -> InFlight:
    """Everybody holds the `first` message; of what is carried, noted and scored the shapes are given."""
    up, down = online.longest_up + 1, online.longest_down + 1
    window = up + down

    def column() -> Array:  # an array of its own each time: the state is donated, and no buffer can be given away twice
        return jnp.zeros(population, jnp.int32)

    return InFlight(
        messages=jax.tree.map(lambda leaf: jnp.tile(leaf, (down, *[1] * jnp.ndim(leaf))), first),
        received=jnp.zeros((down, population), jnp.int32),
        uploads=_zeros(carried, up) if adds else _zeros(carried, up, population),
        due=jnp.full((up, population), 0 if adds else -1, jnp.int32),
        arrived=column(), latest=column(), number=jnp.zeros((), jnp.int32), numbers=jnp.zeros(down, jnp.int32),
        newest=column(), known=column(), sent=column(),
        sent_at=jnp.zeros((window, population), jnp.int32),
        notes=_zeros(note, window, population),
        met=column(),
        scores=_zeros(scores, population) | ({"global_loss": jnp.zeros(population)} if online.cross_score else {}),
    )


def held_messages(flight: InFlight) -> tuple[PyTree, Array]:
    """The messages that clients hold, and where in them each client's is."""
    return flight.messages, flight.newest % flight.received.shape[0]


def post_uploads(flight: InFlight, adds: bool, now: Array, plan: Plan, sends: Array, carried: PyTree,
                 note: PyTree) -> InFlight:
    """What was sent now joins what is due when it arrives; nothing overtakes."""
    assert plan.up is not None
    everyone, ring, window = jnp.arange(flight.population), flight.due.shape[0], flight.sent_at.shape[0]
    arrival = jnp.maximum(flight.latest, now + plan.up)
    last = flight.sent % window, everyone
    if adds:
        uploads = jax.tree.map(partial(_join, arrival % ring), flight.uploads, carried)
        due = flight.due.at[arrival % ring, everyone].add(sends.astype(jnp.int32))
    else:
        uploads = _put(flight.uploads, now % ring, carried)
        due = flight.due.at[now % ring].set(jnp.where(sends, arrival, -1))
    return flight._replace(
        uploads=uploads, due=due, latest=jnp.where(sends, arrival, flight.latest), sent=flight.sent + sends,
        sent_at=flight.sent_at.at[last].set(jnp.where(sends, now, flight.sent_at[last])),
        notes=_put(flight.notes, now % window, note))


def collect_uploads(flight: InFlight, adds: bool, fixed_delays: bool, now: Array,
                    plan: Plan) -> tuple[Arrival, InFlight]:
    """What reaches the server now; it is in flight no longer."""
    ring = flight.due.shape[0]
    if adds:
        arriving = flight.due[now % ring]
        arrival = Arrival(jax.tree.map(lambda leaf: leaf[now % ring], flight.uploads), plan.ids, arriving, arriving)
        flight = flight._replace(uploads=jax.tree.map(lambda leaf: leaf.at[now % ring].set(0), flight.uploads),
                                 due=flight.due.at[now % ring].set(0))
    elif fixed_delays:  # one of each client at most, and it is known which
        assert plan.up is not None
        rows = (now - plan.up) % ring, plan.ids
        arriving = (flight.due[rows] == now).astype(jnp.int32)
        arrival = Arrival(jax.tree.map(lambda leaf: leaf[rows], flight.uploads), plan.ids, arriving, arriving)
    else:
        there = (flight.due == now).astype(jnp.int32)
        stack = jax.tree.map(lambda leaf: leaf.reshape(ring * flight.population, *leaf.shape[2:]), flight.uploads)
        arrival = Arrival(stack, jnp.tile(plan.ids, ring), there.reshape(-1), there.sum(axis=0, dtype=jnp.int32))
    return arrival, flight._replace(arrived=flight.arrived + arrival.of_client)


def post_message(flight: InFlight, fixed_delays: bool, now: Array, plan: Plan,
                 message: Message) -> tuple[Delivery, InFlight]:
    """The server's message joins the ring, if one goes out, and each client takes the newest that has reached it."""
    assert plan.down is not None
    everyone, ring, window = jnp.arange(flight.population), flight.received.shape[0], flight.sent_at.shape[0]
    sends = jnp.asarray(True) if plan.sends is None else plan.sends
    number = flight.number + sends
    rings = flight.messages, flight.received
    kept = jax.tree.map(lambda leaf: leaf[number % ring], rings)
    messages, received = _put(rings, number % ring, where(sends, (message, flight.arrived), kept))
    numbers = flight.numbers.at[now % ring].set(number)
    newest = jnp.maximum(flight.newest, numbers[jnp.maximum(now - plan.down, 0) % ring])
    known = received[newest % ring, everyone]
    # With fixed delays a message tells of one upload at a time.
    told_of = flight.known[:, None] + jnp.arange(1 if fixed_delays else window)
    notes = flight.sent_at[told_of % window, everyone[:, None]] % window
    delivery = Delivery(newest > flight.newest, known - flight.known, notes)
    return delivery, flight._replace(messages=messages, received=received, number=number, numbers=numbers,
                                     newest=newest, known=known)


def _zeros(shapes: PyTree, *leading: int) -> PyTree:
    return jax.tree.map(lambda leaf: jnp.zeros((*leading, *leaf.shape), leaf.dtype), shapes)


def _put(ring: PyTree, place: Array, row: PyTree) -> PyTree:
    return jax.tree.map(lambda leaf, new: leaf.at[place].set(new), ring, row)


def _join(places: Array, ring: Array, rows: Array) -> Array:
    """Add each row to its place in the ring. With a single place that is a sum, and no queue for it on a GPU."""
    return ring + rows.sum(axis=0) if ring.shape[0] == 1 else ring.at[places].add(rows)
