"""An asynchronous run on a Ray cluster: the delays are real, and the server moves on whatever arrives.

A job takes its client's row along and brings it back with the upload, so an actor that dies loses work and nothing
else. The order of arrivals cannot be repeated: it is written down as events, which the clock `replay` plays again.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from cantons.engine.aggregation import aggregation_of
from cantons.engine.asynchronous import close_event, job_keys, late, open_event
from cantons.engine.client import Slot, Turn, take_upload
from cantons.engine.devices import mesh_of
from cantons.engine.mapping import Fanout, map_clients
from cantons.engine.ray_session import RaySession, bare
from cantons.engine.round import Arrays
from cantons.engine.shard import Uploaded
from cantons.errors import InputError
from cantons.protocol import Array, Asynchronous, Event, Job, PyTree, Snapshot, State, everything


class RayEvents(RaySession):
    """Jobs on actors. A client works on one at a time; rows are those of the answers that have moved the server."""

    _events: list[tuple]  # of each: clients, jobs, versions, and the seconds since the one before
    _since: float  # when the last one was

    @property
    def _clock(self) -> Asynchronous:
        assert self.run.clock.asynchronous is not None
        return self.run.clock.asynchronous

    def restore(self, snapshots: Sequence[Snapshot]) -> State:
        (snapshot,) = snapshots
        if snapshot.outside is None:
            raise InputError("this run was begun in virtual time, and on the engine ray time is real; go on with the "
                             "engine it began with.")
        state = super().restore(snapshots)
        self._events = [tuple(event) for event in snapshot.outside["events"]]
        return state

    def prepare(self, state: State) -> None:
        assert self._actors is not None
        jobs, slots = jax.device_get(self._table(self.arrays, bare(state)))
        message = self._actors.put(self._message(state, 0))
        slot = Slot(*(leaf[0] for leaf in slots))._replace(id=self._deals["clients"].place[0])
        turn, *_ = self._actors.ask("job", [(message, slot, self._row(0))] * self.options.actors)
        self._move(state, jobs, np.zeros(1, int), [turn], np.float32(0))  # compiled, and forgotten
        self._since = time.monotonic()  # to compile is no client's delay

    def advance(self, state: State, until: int) -> State:
        assert self._actors is not None
        while self._done < until:
            jobs, slots = jax.device_get(self._table(self.arrays, bare(state)))
            ends = self._await(state, jobs, slots)
            turns = [self._arrived.pop(place) for place in ends]
            clients = jobs.client[ends]
            now = time.monotonic()
            elapsed, self._since = np.float32(now - self._since), now
            state, event = self._move(state, jobs, ends, turns, elapsed)
            for client, turn in zip(clients.tolist(), turns, strict=True):
                jax.tree.map(lambda leaf, row, client=client: leaf.__setitem__(client, row), self._rows, turn.row)
                if not any(jobs.client[place] == client for place in self._arrived):
                    del self._ahead[client]
            self._events.append(tuple(np.asarray(part).tolist() for part in (
                event.ids, event.job, event.version, elapsed)))
            self._done += 1
            state = state._replace(clients=self._rows)
        return state

    def _move(self, state: State, jobs: Job, ends: np.ndarray, turns: Sequence[Turn],
              elapsed: np.float32) -> tuple[State, Event]:
        """The server's move on the jobs in these places of the table."""
        spare = self.run.clock.slots - len(ends)
        return self._apply(
            self.arrays, bare(state), np.append(ends, [len(jobs.client)] * spare).astype(np.int32), elapsed,
            *_stack([(turn.lost, turn.upload) for turn in turns], spare))

    def whole(self, state: State) -> list[Snapshot]:
        (snapshot,) = super().whole(state)
        jobs = jax.device_get(self._under_way(state.in_flight.clock))
        under_way = np.stack([jobs.client, jobs.number, jobs.version], axis=1)[np.argsort(jobs.number, kind="stable")]
        under_way = under_way[under_way[:, 0] < self.run.population]  # the jobs of one client in their order
        return [snapshot._replace(outside={"events": list(self._events), "under_way": under_way.tolist()})]

    def _use(self, state: State) -> State:
        self._running: dict[int, int] = {}  # {call: the place of its job in the clock's table}
        self._arrived: dict[int, Turn] = {}  # {place: what came back}, in order, until the server moves on it
        self._ahead: dict[int, PyTree] = {}  # {client: its row after the last job of it that arrived}
        self._sent: dict[int, tuple[int, Any]] = {}  # {place of a message: (its version, where it is stored)}
        self._events = []
        self._since = time.monotonic()
        return super()._use(state)

    def _rows_to_score(self, number: int) -> PyTree:
        return self._deals["clients"].rows(number, self._rows)

    def _row(self, client: int) -> PyTree:
        """A client's row, after its last job that arrived."""
        return self._ahead[client] if client in self._ahead else jax.tree.map(lambda leaf: leaf[client], self._rows)

    def _message(self, state: State, place: int) -> PyTree:
        return jax.device_get(jax.tree.map(lambda leaf: leaf[place], state.in_flight.messages))

    def _await(self, state: State, jobs: Job, slots: Slot) -> np.ndarray:
        """The places of the jobs that end in the next event: the first to arrive, of different clients, by ids."""
        assert self._actors is not None
        clients = set(jobs.client[jobs.client < self.run.population].tolist())
        wanted = min(self.run.clock.slots, len(clients))
        while True:
            self._send_jobs(state, jobs, slots)
            first: dict[int, int] = {}
            for place in self._arrived:
                first.setdefault(int(jobs.client[place]), place)
            if len(first) >= wanted:
                return np.array([first[client] for client in sorted(list(first)[:wanted])])
            for ticket, turn in self._actors.receive(self._running):
                place = self._running.pop(ticket)
                self._arrived[place] = turn
                self._ahead[int(jobs.client[place])] = turn.row

    def _send_jobs(self, state: State, jobs: Job, slots: Slot) -> None:
        """Begin what can begin: a client does its jobs one after another."""
        assert self._actors is not None
        busy = {int(jobs.client[place]) for place in self._running.values()}
        under_way = {*self._running.values(), *self._arrived}
        for place in np.argsort(jobs.number, kind="stable").tolist():
            client = int(jobs.client[place])
            if place in under_way or client in busy or client == self.run.population:
                continue
            busy.add(client)
            version, kept = int(jobs.version[place]), int(jobs.place[place])
            if self._sent.get(kept, (-1, None))[0] != version:
                self._sent[kept] = version, self._actors.put(self._message(state, kept))
            dealt = self._deals["clients"]
            slot = Slot(*(leaf[place] for leaf in slots))._replace(id=dealt.place[client])
            self._running[self._actors.send(
                int(dealt.shard[client]), "job", (self._sent[kept][1], slot, self._row(client)))] = place

    @cached_property
    def _under_way(self) -> Any:
        assert self._clock.under_way is not None
        return jax.jit(self._clock.under_way)

    @cached_property
    def _table(self) -> Any:
        """The jobs under way, and a slot for each."""

        def table(arrays: Arrays, state: State) -> tuple[Job, Slot]:
            assert self._clock.under_way is not None
            jobs = self._clock.under_way(state.in_flight.clock)
            there, heard = jnp.ones(jobs.client.shape, bool), state.ledger[jobs.client, 0] == 0
            keys = jax.random.key_data(job_keys(arrays.key, jobs.number, jobs.client))
            return jobs, Slot(jobs.client, there, there.astype(jnp.int32), there, heard, keys)

        return jax.jit(table)

    @cached_property
    def _apply(self) -> Any:
        algorithm, clock, one = self.run.algorithm, self.run.clock, Fanout(mesh_of(1), 1)

        def apply(arrays: Arrays, state: State, ends: Array, elapsed: Array, lost: Array,
                  uploaded: Uploaded) -> tuple[State, Event]:
            assert self._clock.end is not None
            event, known = self._clock.end(arrays.clock, arrays.key, state.in_flight.clock, state.round, ends, elapsed)
            opening, _, delay = open_event(clock, arrays, state, event)
            messages = jax.tree.map(lambda leaf: leaf[event.place], state.in_flight.messages)

            def each(rule, seat):
                slot, message, delay, lost, (upload, sent) = seat
                return take_upload(aggregation_of(late(algorithm, clock, delay)), rule, slot, upload,
                                   message if algorithm.select is everything else sent, ~lost)

            total, carried = map_clients(one, each, state.rule, (opening.slots, messages, delay, lost, uploaded))
            return close_event(algorithm, clock, arrays, state, event, known, opening, delay, total,
                               Turn((), lost, carried)), event

        return jax.jit(apply)


def _stack(trees: Sequence[PyTree], spare: int) -> PyTree:
    """One array for each leaf, with a row for each tree, and empty ones for spare slots."""
    return jax.tree.map(lambda *leaves: np.stack([*leaves, *[np.zeros_like(leaves[0])] * spare]), *trees)
