"""The clock that plays recorded events again: of an asynchronous run, or of a real cluster."""

from __future__ import annotations

import heapq
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cantons.clock.asynchronous import anybody, check_events, no_plan
from cantons.clock.events import Events, read_events
from cantons.clock.staleness import Staleness, staleness_of
from cantons.errors import InputError
from cantons.protocol import Algorithm, Array, Asynchronous, Clock, Event, Key, Population
from cantons.recipe import clock


class Tables(NamedTuple):
    """What happens in each event, row by row."""

    ids: np.ndarray
    job: np.ndarray
    version: np.ndarray
    place: np.ndarray
    free: np.ndarray
    begins: np.ndarray
    elapsed: np.ndarray


@clock
def replay(population: int, clients: Population | None, *, path: str, staleness: Staleness = "constant") -> Clock:
    """Events as they were recorded: the same jobs end in the same order, each begun with the same version.

    path: an npz file of events, such as the `events.npz` in the folder of an asynchronous run.
    staleness: what an answer with the delay d is multiplied by, as for `asynchronous`.
    """
    events = read_events(path, population, clients)
    tables, first, places = _tables(events, population)

    def begin(arrays: Tables, key: Key) -> tuple[tuple, Array]:
        return (), jnp.asarray(first)

    def following(arrays: Tables, key: Key, jobs: tuple, round: Array) -> tuple[Event, tuple]:
        event = Event(*(jnp.asarray(part)[round] for part in arrays))
        return event._replace(elapsed=event.elapsed.astype(jnp.float32)), jobs

    def check(algorithm: Algorithm, rounds: int) -> None:
        check_events(algorithm, staleness)
        if rounds > len(events.client):
            raise InputError(f"{path} has {len(events.client)} events and the study {rounds} rounds; give at most as "
                             "many rounds.")

    slots = events.client.shape[1]
    return Clock(slots, bool((events.client < population).all()), tables, no_plan, actors_hear=True, check=check,
                 asynchronous=Asynchronous(places, begin, following, staleness_of(staleness)),
                 probed=anybody(population, slots))


def _tables(events: Events, population: int) -> tuple[Tables, np.ndarray, int]:
    """What to do in each event, whose jobs begin with the first message, and how many messages are kept at most."""
    order = np.argsort(events.client, axis=1, kind="stable")
    ids, job, version = (np.take_along_axis(part, order, axis=1) for part in events[:3])
    count, real = len(ids), ids < population
    last = np.full(count + 1, -1)  # the event in which each version is answered for the last time
    np.maximum.at(last, version[real], np.broadcast_to(np.arange(count)[:, None], ids.shape)[real])
    places, free = np.zeros(count + 1, np.int64), [0]
    leaves: dict[int, list[int]] = {}
    used = 1
    for number in range(count + 1):  # the version after `number` events
        for place in leaves.pop(number - 1, ()):
            heapq.heappush(free, place)
        if last[number] < 0:
            places[number] = -1  # nobody answers it
            continue
        if not free:
            free, used = [used], used + 1
        places[number] = heapq.heappop(free)
        leaves.setdefault(int(last[number]), []).append(int(places[number]))
    jobs = events.jobs(population)
    jobs = jobs[np.argsort(jobs[:, 2], kind="stable")]
    begun = np.bincount(jobs[:, 2], minlength=count + 1)
    begins = np.full((count + 1, max(1, int(begun[1:].max(initial=0)))), population, np.int32)
    within = np.arange(len(jobs)) - np.repeat(np.cumsum(begun) - begun, begun)
    later = jobs[:, 2] > 0
    begins[jobs[later, 2], within[later]] = jobs[later, 0]
    tables = Tables(ids, job, version, np.where(real, places[np.where(real, version, 0)], 0).astype(np.int32),
                    np.where(places[1:] < 0, used, places[1:]).astype(np.int32), begins[1:],
                    events.elapsed)
    return jax.tree.map(np.ascontiguousarray, tables), jobs[~later, 0].astype(np.int32), used
