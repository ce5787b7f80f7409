"""The asynchronous clock: the server moves whenever a client answers, and clients answer what they began with.

Mishchenko et al., "Partially Personalized Federated Learning: Breaking the Curse of Data Heterogeneity", Algorithm 3,
and with a `buffer` Nguyen et al., "Federated Learning with Buffered Asynchronous Aggregation", 2022. The former's text
lets the client that has answered begin again, its Algorithm 3 and Theorem 7 draw a new one: two methods, see `next`.
Time is virtual: it follows from the seed, and so does which job ends when.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cantons.clock.durations import Durations, durations_of
from cantons.clock.staleness import Staleness, staleness_of
from cantons.errors import InputError, amount
from cantons.protocol import Algorithm, Array, Asynchronous, Averages, Clock, Event, Job, Key, Plan, PyTree, keep
from cantons.ranges import INT32, Count
from cantons.recipe import clock
from cantons.shuffle import permutation

# Of the run's key; no round has such a number.
STREAM = 2**32 - 1
FIRST, DRAWS, JOBS, SPEEDS = range(4)
LANES = 64  # a multiple of what processors compute at once: the rest of a vector is rounded otherwise, so there is none


class Arrays(NamedTuple):
    durations: PyTree
    factors: Any = ()  # [population]: what each client's are multiplied by


class Jobs(NamedTuple):
    """All that are under way."""

    rows: Job  # [concurrency]
    used: Array  # int32[places]: how many of them began with the message that is kept there
    begun: Array  # int32[population]: how many jobs each client has begun


@clock
def asynchronous(population: int, *, concurrency: Count | None = None, buffer: Count = 1,
                 next: Literal["drawn", "same"] = "drawn", durations: Durations = "constant",
                 staleness: Staleness = "constant") -> Clock:
    """Clients work at their own speed; the server moves when `buffer` of them have answered.

    A round is then an event: an answer (or `buffer` of them) arrives and moves the server, which begins as many jobs
    with its new message. The delay of an answer is the number of events since its job began. A step size is for one
    event: where synchronous rounds of M clients have gamma, events of one answer that are to move the server as far per
    M gradients have gamma / M. A client works on one job at a time, in the order it got them.

    concurrency: jobs under way at a time; none means as many as there are clients. The first are of different clients,
        drawn by the seed.
    buffer: answers of different clients that the server waits for before it moves; those who answered wait too.
    next: who gets the jobs that begin: "drawn" draws clients uniformly from all, be they at work or not, as Theorem 7
        wants; "same" gives them to those who have just answered, and so counts the fast more often than the slow.
    durations: how long a job takes: "constant", all alike; {"name": "log_normal", "spread": s, "jitter": j}, where the
        logarithm has the standard deviation s between clients and j between jobs of one client; {"name": "trace",
        "path": ...} for an npz file with an array `durations`, one number for each client or a row of numbers, for its
        jobs in turn; in Python also that array.
    staleness: what an answer with the delay d is multiplied by: "constant", 1; {"name": "polynomial", "a": a}, which is
        (1 + d)^-a; {"name": "hinge", "a": a, "b": b}, 1 up to the delay b and 1 / (a (d - b) + 1) after it.
    """
    concurrency = population if concurrency is None else concurrency
    if concurrency > population:
        raise InputError(f"concurrency is {concurrency} but there are only {amount(population, 'client')}; "
                         f"give at most {population}.")
    if buffer > concurrency:
        raise InputError(f"buffer is {buffer} but only {concurrency} jobs are under way at a time; give at most "
                         f"{concurrency}.")
    measured, duration = durations_of(durations, population)
    places = concurrency - buffer + 1  # jobs that began with the same message share it

    def duration_of(arrays: Arrays, key: Key, client: Array, number: Array) -> Array:
        key = jax.random.fold_in(key, STREAM)
        own = jax.random.fold_in(jax.random.fold_in(key, SPEEDS), client)
        job = jax.random.fold_in(jax.random.fold_in(jax.random.fold_in(key, JOBS), client), number)
        time = duration(arrays.durations, own, job, client, number)
        return (time if isinstance(arrays.factors, tuple) else time * arrays.factors[client]).astype(jnp.float32)

    def begin(arrays: Arrays, key: Key) -> tuple[Jobs, Array]:
        drawn = permutation(jax.random.fold_in(jax.random.fold_in(key, STREAM), FIRST), population)
        ids = jnp.sort(drawn(jnp.arange(concurrency, dtype=jnp.int32)))
        filled = jnp.pad(ids, (0, -concurrency % LANES), mode="edge")
        left = jax.vmap(lambda client: duration_of(arrays, key, client, jnp.zeros((), jnp.int32)))(filled)[:concurrency]
        number, version, place = (jnp.zeros(concurrency, jnp.int32) for _ in range(3))
        return Jobs(Job(ids, number, version, place, left), jnp.zeros(places, jnp.int32).at[0].set(concurrency),
                    jnp.zeros(population, jnp.int32).at[ids].set(1)), ids

    def next_event(arrays: Arrays, key: Key, jobs: Jobs, round: Array) -> tuple[Event, Jobs]:
        ends = _first_to_end(jobs.rows, buffer, population)
        # Whoever answers first waits for the last; a job of one who waits may have ended meanwhile.
        elapsed = jnp.where(ends < concurrency, jobs.rows.left[ends], 0).max()
        return end_jobs(arrays, key, jobs, round, ends, elapsed)

    def end_jobs(arrays: Arrays, key: Key, jobs: Jobs, round: Array, ends: Array, elapsed: Array) -> tuple[Event, Jobs]:
        there = ends < concurrency
        ended: Job = jax.tree.map(lambda leaf: leaf[ends], jobs.rows)
        clients = jnp.where(there, ended.client, population)
        jobs = jobs._replace(
            rows=jobs.rows._replace(client=jobs.rows.client.at[ends].set(population, mode="drop"),
                                    left=jnp.maximum(jobs.rows.left - elapsed, 0)),
            used=jobs.used.at[ended.place].add(-there.astype(jnp.int32)))
        free, begins = jnp.argmin(jobs.used).astype(jnp.int32), clients
        if next == "drawn":
            draw = jax.random.fold_in(jax.random.fold_in(jax.random.fold_in(key, STREAM), DRAWS), round)
            begins = jnp.where(there, jax.random.randint(draw, (buffer,), 0, population, jnp.int32), population)

        def start(jobs: Jobs, one: tuple[Array, Array]) -> tuple[Jobs, None]:
            row, client = one
            # Read after it is written: the other way round, the compiler copies an array of all clients in every event.
            begun = jobs.begun.at[client].add(1, mode="drop")
            number = begun[client] - 1
            waits = jnp.where(jobs.rows.client == client, jobs.rows.left, 0).max() if next == "drawn" else 0
            new = Job(client, number, round + 1, free, waits + duration_of(arrays, key, client, number))
            return Jobs(jax.tree.map(lambda leaf, value: leaf.at[row].set(value, mode="drop"), jobs.rows, new),
                        jobs.used.at[free].add((row < concurrency).astype(jnp.int32)),
                        begun), None

        jobs, _ = jax.lax.scan(start, jobs, (ends, begins), unroll=buffer == 1)
        by_id = jnp.argsort(clients) if buffer > 1 else jnp.zeros(1, jnp.int32)
        return Event(clients[by_id], ended.number[by_id], ended.version[by_id], ended.place[by_id], free, begins,
                     elapsed), jobs

    def check(algorithm: Algorithm, rounds: int) -> None:
        check_events(algorithm, staleness)
        if next == "drawn" and algorithm.receive is not keep:
            raise InputError("its clients are told which of their uploads arrived, one at a time, and a client that is "
                             "drawn may have several under way; use next = \"same\".")

    events = Asynchronous(places, begin, next_event, staleness_of(staleness), slow=slow)
    if isinstance(durations, str) and durations == "constant":  # no times were asked for: they may be real ones
        events = events._replace(under_way=lambda jobs: jobs.rows, end=end_jobs)
    return Clock(buffer, buffer == 1 or next == "same", Arrays(measured), no_plan, actors_hear=True, check=check,
                 asynchronous=events, probed=anybody(population, buffer))


def slow(arrays: Arrays, factors: np.ndarray) -> Arrays:
    """The arrays of a clock on which clients are slower."""
    return arrays._replace(factors=factors)


def check_events(algorithm: Algorithm, staleness: Staleness) -> None:
    """Refuse algorithms that cannot do with one upload at a time, or whose uploads cannot be scaled."""
    if algorithm.needs.together:
        raise InputError(f"its uploads must come together, because {algorithm.needs.together}; use the clock rounds.")
    if staleness_of(staleness) is not None and not isinstance(algorithm.aggregate, Averages):
        raise InputError("its aggregation is its own, and what it does with an upload cannot be made smaller by a "
                         "factor; use staleness = \"constant\".")


def no_plan(arrays, key: Key, round: Array) -> Plan:
    """An engine that asks for one knows no events, and has not said so."""
    raise InputError("an asynchronous clock has events, no rounds with a cohort; use the engine local.")


def anybody(population: int, count: int) -> Callable[..., Plan]:
    """Whom a probe asks: some clients, drawn uniformly."""

    def plan(arrays, key: Key, round: Array) -> Plan:
        ids = jnp.sort(permutation(key, population)(jnp.arange(count, dtype=jnp.int32)))
        there = jnp.ones(count, bool)
        return Plan(ids, there, there.astype(jnp.int32), there)

    return plan


def _first_to_end(jobs: Job, count: int, population: int) -> Array:
    """The rows of the jobs of different clients that end first; ties go to the smaller id, then to the earlier job.

    Where there are not as many clients at work, the last rows are past the end.
    """

    def pop(taken: Array, _) -> tuple[Array, Array]:
        left = jnp.where(taken, jnp.inf, jobs.left)
        first = (left == left.min()) & ~taken
        client = jnp.where(first, jobs.client, population).min()
        row = jnp.argmin(jnp.where(first & (jobs.client == client), jobs.number, INT32)).astype(jnp.int32)
        return taken | (jobs.client == client), jnp.where(client < population, row, len(taken))

    return jax.lax.scan(pop, jobs.client == population, None, length=count, unroll=count == 1)[1]
