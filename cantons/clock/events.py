"""Which jobs ended when: what an asynchronous run leaves behind, for a replay, and what a replay reads.

An npz file has `client`, `job` and `version`, int[events, slots]: row t has the jobs that ended in event t, each with
its number among its client's and the number of events before it began; a client of `population` is a spare slot. Then
`elapsed`, float[events], the time since the event before; `under_way`, int[n, 3], client, job and version of the jobs
that had not ended; and `clients`, a digest of the clients they are of. Real clusters write such files too.
"""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cantons.errors import InputError
from cantons.protocol import Clock, Examples, Key, Population


class Events(NamedTuple):
    client: np.ndarray
    job: np.ndarray
    version: np.ndarray
    elapsed: np.ndarray
    under_way: np.ndarray

    @property
    def delays(self) -> np.ndarray:
        """How many events there were between the beginning of each job and its own."""
        return np.arange(len(self.version))[:, None] - self.version

    def jobs(self, population: int) -> np.ndarray:
        """Client, number and version of all jobs, int[jobs, 3]: those that ended, in turn, and those under way."""
        ended = np.stack([self.client, self.job, self.version], axis=-1).reshape(-1, 3)
        return np.concatenate([ended[ended[:, 0] < population], self.under_way])


def digest_of(clients: Population, held: Examples | None = None) -> str:
    """Of the clients that events are of: their names, and how many training examples each has, `held` back or not."""
    sizes = np.asarray(clients.train.sizes) + (0 if held is None else np.asarray(held.sizes))
    text = "\n".join(f"{name} {size}" for name, size in zip(clients.names, sizes, strict=True))
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def events_of(clock: Clock, key: Key, population: int, count: int) -> Events:
    """The first events of a run with this key: nothing is learned, for they do not depend on it."""
    assert clock.asynchronous is not None
    begin, following = clock.asynchronous.begin, clock.asynchronous.next

    @jax.jit
    def play(arrays, key):
        def step(jobs, round):
            event, jobs = following(arrays, key, jobs, round)
            return jobs, event._replace(place=(), free=())

        jobs, first = begin(arrays, key)
        return first, jax.lax.scan(step, jobs, jnp.arange(count, dtype=jnp.int32))[1]

    first, event = jax.device_get(play(clock.arrays, key))
    begun = np.concatenate([first, event.begins.ravel()])
    version = np.concatenate([np.zeros_like(first), np.repeat(np.arange(1, count + 1), event.begins.shape[1])])
    begun, version = begun[begun < population], version[begun < population]
    by_client = np.argsort(begun, kind="stable")
    _, starts, sizes = np.unique(begun[by_client], return_index=True, return_counts=True)
    number = np.empty_like(begun)
    number[by_client] = np.arange(len(begun)) - np.repeat(starts, sizes)
    ended = np.bincount(event.ids[event.ids < population], minlength=population)  # a client's jobs end in their order
    unended = number >= ended[begun]
    return Events(event.ids, event.job, event.version, event.elapsed,
                  np.stack([begun, number, version], axis=1)[unended].astype(np.int32))


def recorded_events(events: Sequence[Sequence], under_way: Sequence[Sequence[int]]) -> Events:
    """What an engine with real delays has written down: of each event (clients, jobs, versions, time since)."""
    client, job, version, elapsed = zip(*events, strict=True)
    return Events(np.array(client, np.int32), np.array(job, np.int32), np.array(version, np.int32),
                  np.array(elapsed, np.float32), np.array(under_way, np.int32).reshape(-1, 3))


def as_arrays(events: Events, clients: Population, held: Examples | None = None) -> Mapping[str, np.ndarray]:
    """What a file of these events holds."""
    return {**events._asdict(), "clients": np.array(digest_of(clients, held))}


def read_events(path: str, population: int, clients: Population | None) -> Events:
    """Read and check a file; `clients` are those it must be of, where they are known."""
    try:
        with np.load(path, allow_pickle=False) as file:
            found, digest = Events(*(file[name] for name in Events._fields)), str(file["clients"])
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise InputError(f"cannot read events from {path}: {error}.") from error
    if clients is not None and digest != digest_of(clients):
        raise InputError(f"{path} has the events of another study: its clients are not the {population} of this data, "
                         "by their names and numbers of examples.")
    wrong = _fault(found, population)
    if wrong:
        raise InputError(f"{path} has no events that can have happened: {wrong}.")
    return Events(*(part.astype(np.float32 if name == "elapsed" else np.int32)
                    for name, part in found._asdict().items()))


def _fault(events: Events, population: int) -> str:
    """What is wrong with events, if anything is."""
    client, job, version, elapsed, under_way = events
    if client.ndim != 2 or not client.size or not client.shape == job.shape == version.shape:
        return "client, job and version need one row for each event, all alike"
    if any(part.dtype.kind not in "iu" for part in (client, job, version, under_way)):
        return "clients, jobs and versions are whole numbers"
    if under_way.ndim != 2 or under_way.shape[1] != 3 or elapsed.shape != client.shape[:1]:
        return "under_way needs three columns, and elapsed one number for each event"
    if elapsed.dtype.kind not in "iuf" or not (np.isfinite(elapsed) & (elapsed >= 0)).all():
        return "elapsed needs times of 0 or more"
    real = client < population
    all_jobs = events.jobs(population)
    if (all_jobs < 0).any() or (client > population).any() or (under_way[:, 0] >= population).any() or (
            events.delays[real] < 0).any() or (under_way[:, 2] > len(client)).any():
        return "a number is out of range, or a job ends before it begins"
    slots = np.sort(client, axis=1)
    if ((slots[:, 1:] == slots[:, :-1]) & (slots[:, 1:] < population)).any() or not real.any(axis=1).all():
        return "every event has a job, and no two of one client"
    by_client = np.argsort(all_jobs[:, 0], kind="stable")
    ids, number = all_jobs[by_client, 0], all_jobs[by_client, 1]
    follows = np.concatenate([[False], ids[1:] == ids[:-1]])
    expected = np.where(follows, np.concatenate([[0], number[:-1] + 1]), 0)
    if (number != expected).any():
        return "the jobs of each client are numbered from 0 and end in that order"
    return ""
