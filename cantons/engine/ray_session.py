"""A run in rounds on a Ray cluster.

Each actor owns a shard: the examples of some clients, their rows, and the code compiled for them. A round sends one
message through the object store. What adds up is added on the actors, what does not is stacked here in ascending id.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, partial, reduce
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from cantons.engine.client import Slot, Turn
from cantons.engine.devices import floats, mesh_of
from cantons.engine.evaluate import begins_common, for_all, is_shared_model, sides_of
from cantons.engine.init import initial_clients, seed_keys, starting_point
from cantons.engine.inspect import Probed, finish_probe, probed_slots, set_scores, sets_of
from cantons.engine.mapping import Fanout
from cantons.engine.ray_actors import Actors
from cantons.engine.ray_cluster import Cluster
from cantons.engine.round import Arrays, Opening, close_round, open_round, travelling
from cantons.engine.shard import Answer, Question, Sent, Shard, Share, Work
from cantons.engine.shares import deal, scatter
from cantons.engine.stepper import begin_run, progress_of
from cantons.protocol import Evaluation, Message, Parts, PyTree, Snapshot, Start, State, Upload


class Options(Protocol):
    """What the engine was told."""

    @property
    def actors(self) -> int: ...

    @property
    def address(self) -> str | None: ...

    @property
    def gpus(self) -> float: ...


class RaySession:
    """A run whose clients are on actors. The server has every client's row too, as of the last round that was closed.

    Ray starts with `begin`, which the loop calls where it also sees to `close`.
    """

    def __init__(self, options: Options, run: Parts, notice: Callable[[str], None]):
        self.options, self.run, self.notice = options, run, notice
        self._start_key, run_key, self._score_key = seed_keys(run.seed)
        self._sides, self._sets = floats(sides_of(run.data)), floats(sets_of(run.data))
        self._all = floats(Arrays(run.data.clients.train, run.central, run.clock.arrays, run_key))
        # The server looks at clients' examples only where a reference pools them.
        needed: Any = self._all if run.algorithm.needs.pooled else self._all._replace(train=None)
        self.arrays = jax.tree.map(jnp.asarray, needed)
        self._deals = {side: deal(sets["train"].sizes, options.actors) for side, sets in self._sides.items()}
        self._portions = {name: deal(rows.sizes, options.actors) for name, rows in self._sets.items()}
        self._scored = {side: self.run.scored.get(side, np.arange(sets["train"].population))
                        for side, sets in self._sides.items()}
        self._cluster: Cluster | None = None
        self._actors: Actors | None = None

    def begin(self, initial: Start | tuple[PyTree, PyTree] | None = None) -> State:
        run = self.run
        start = starting_point(run.problem, self._start_key, initial)
        self._begins_common = begins_common(run.algorithm, start)
        self._parts = start._replace(privates=None)  # for new clients
        begin = partial(begin_run, run.problem, run.algorithm, run.clock, population=run.population)
        state = jax.jit(lambda arrays, key, parts: begin(arrays, key, parts))(self._all, self._start_key, start)
        if self._actors is None:
            self._cluster = Cluster(self.options.address, self.options.actors, self.options.gpus)
            self._actors = Actors(self._cluster, self.options.actors, self.options.gpus, Shard, self._work(state),
                                  self._share, self.notice)
        return self._use(state)

    def restore(self, snapshots: Sequence[Snapshot]) -> State:
        (snapshot,) = snapshots
        return self._use(snapshot.state)

    def prepare(self, state: State) -> None:
        self._play_round(state, dry=True)

    def advance(self, state: State, until: int) -> State:
        while self._done < until:
            state = self._play_round(state)
        return state

    def evaluate(self, state: State) -> list[Evaluation]:
        assert self._actors is not None
        server, question, probed = jax.device_get(self._question(self.arrays, bare(state), self._parts.private))
        seats = [() if probed is None else probed for _ in self._numbers]
        if probed is not None:
            seats = self._seated(probed, self._deals["clients"].members(probed.id))
        question = self._actors.put(question)
        found: list[Answer] = self._actors.ask("evaluate", [
            (self._done, question, seats[number], self._rows_to_score(number)) for number in self._numbers])
        scores = {side: for_all(scatter([one.scores[side] for one in found], self._deals[side].members(chosen),
                                        len(chosen)), self.run.scored.get(side), self._sides[side]["train"].population)
                  for side, chosen in self._scored.items()}
        portions = {name: scatter([one.portions[name] for one in found], dealt.ids, len(dealt.shard) - 1)
                    for name, dealt in self._portions.items()}
        if probed is not None:
            server |= jax.device_get(self._finish_probe(self.arrays, bare(state), [one.probe for one in found]))
        return [Evaluation(progress_of(state), {side: one for side, (one, _) in scores.items()}, server,
                           {side: numbers for side, (_, numbers) in scores.items()},
                           sets=set_scores(self.run.problem, self.run.data, portions),
                           common_start=self._begins_common and self._done == 0)]

    def whole(self, state: State) -> list[Snapshot]:
        rows = jax.tree.map(lambda leaf: leaf.copy(), state.clients)  # they will be written over
        return [jax.device_get(Snapshot(state._replace(clients=rows), self._parts.private))]

    def travel(self, state: State) -> tuple[Message, Upload]:
        return travelling(self.run.algorithm, self._all, state)

    def about(self) -> dict[str, Any]:
        return {"actors": self.options.actors, "actors_lost": 0 if self._actors is None else self._actors.lost}

    def close(self) -> None:
        for held in (self._actors, self._cluster):
            if held is not None:
                held.close()
        self._actors = self._cluster = None

    def _rows_to_score(self, number: int) -> PyTree:
        """None: actors score with the rows that they have."""
        return None

    @property
    def _numbers(self) -> range:
        return range(self.options.actors)

    def _use(self, state: State) -> State:
        """Go on from this state: rows on the host, to be written in place, and the rest on the server's device."""
        self._rows, self._done = jax.tree.map(_writable, jax.device_get(state.clients)), int(state.round)
        assert self._actors is not None
        self._actors.forget()
        return jax.tree.map(jnp.asarray, bare(state))._replace(clients=self._rows)

    def _play_round(self, state: State, dry: bool = False) -> State:
        """One round; a `dry` one compiles what a round needs, and changes nothing."""
        assert self._actors is not None
        opening, slots = self._open(self.arrays, bare(state))
        slots, sent = jax.device_get((slots, Sent(opening.message, state.rule)))
        members = self._deals["clients"].members(slots.id[:0] if dry else slots.id)
        sent = self._actors.put(sent)
        found = self._actors.ask("prepare" if dry else "turns", [
            (self._done, sent, seats) for seats in self._seated(slots, members)])
        turns = [turn for _, turn in found]
        stacked = scatter([turn._replace(row=()) for turn in turns], members, len(slots.id))
        state = self._close(self.arrays, bare(state), opening, [total for total, _ in found], stacked)
        if not dry:
            for own, turn in zip(members, turns, strict=True):
                jax.tree.map(partial(_write, slots.id[own]), self._rows, turn.row)
            self._done += 1
        return state._replace(clients=self._rows)

    def _seated(self, slots: Any, members: Sequence[np.ndarray]) -> list[Any]:
        """The slots of each shard, where a client's id is its place there."""
        slots = slots._replace(id=self._deals["clients"].place[slots.id])
        return [type(slots)(*(leaf[own] for leaf in slots)) for own in members]

    @cached_property
    def _open(self) -> Any:
        def open_with_numbers(arrays: Arrays, state: State) -> tuple[Opening, Slot]:
            opening = open_round(self.run.algorithm, self.run.clock, arrays, state)
            return opening, opening.slots._replace(key=jax.random.key_data(opening.slots.key))

        return jax.jit(open_with_numbers)

    @cached_property
    def _close(self) -> Any:
        def close_with(arrays: Arrays, state: State, opening: Opening, totals: list[PyTree], turns: Turn) -> State:
            return close_round(self.run.algorithm, self.run.clock, arrays, state, opening, _add(totals), turns)

        return jax.jit(close_with)

    @cached_property
    def _question(self) -> Any:
        algorithm = self.run.algorithm

        def question(arrays: Arrays, state: State, start: PyTree) -> tuple[dict, Question, Probed | None]:
            key = jax.random.fold_in(self._score_key, state.round)
            message = algorithm.broadcast(key, state.server, arrays.datacenter(algorithm, key))
            server, probed, asks = dict(algorithm.diagnostics.server(state.server)), None, ()
            if algorithm.diagnostics.probe is not None:
                asks = state.server
                probed = probed_slots(self.run.clock, Fanout(mesh_of(1), 1), arrays, state)
                probed = probed._replace(key=jax.random.key_data(probed.key))
            return server, Question(message, state.server.shared, start, jax.random.key_data(key), asks), probed

        return jax.jit(question)

    @cached_property
    def _finish_probe(self) -> Any:
        return jax.jit(lambda arrays, state, found: finish_probe(self.run.algorithm, arrays, state, _add(found)))

    @cached_property
    def _newcomers(self) -> PyTree:
        """The new clients as they are on their first day."""
        ids = self.run.population + np.arange(self._sides["new"]["train"].population)
        return jax.device_get(jax.jit(partial(initial_clients, self.run.algorithm))(
            self._start_key, self._parts, ids))

    def _work(self, state: State) -> Work:
        """What actors are told of the run."""
        run, clock, clients = self.run, self.run.clock, self._deals["clients"]
        client = jax.tree.map(lambda leaf: leaf[0], state.clients)
        once = {side: is_shared_model(run.algorithm, state.server, self._parts.private, client, sets["train"],
                                      self.arrays) for side, sets in self._sides.items()}
        everybody = clock.full and clock.slots == run.population == clients.room * self.options.actors
        return Work(run.problem, run.algorithm, min(clock.slots, clients.room), clock.actors_hear, everybody, once,
                    self._begins_common, jnp.zeros(0).dtype == np.float64, str(jax.random.key_impl(self._start_key)))

    def _share(self, number: int) -> Share:
        """What a shard is opened with now."""
        rows = {side: dealt.rows(number, self._rows if side == "clients" else self._newcomers)
                for side, dealt in self._deals.items()}
        sides = {side: {name: self._deals[side].examples(number, examples) for name, examples in sets.items()}
                 for side, sets in self._sides.items()}
        sets = {name: self._portions[name].examples(number, portions) for name, portions in self._sets.items()}
        places, ids = {}, {}
        for side, chosen in self._scored.items():
            dealt, first = self._deals[side], 0 if side == "clients" else self.run.population
            members = dealt.members(chosen)
            own = chosen[members[number]]
            spare = max(1, *(len(each) for each in members)) - len(own)
            places[side] = np.append(dealt.place[own], np.zeros(spare, np.int32)).astype(np.int32)
            ids[side] = np.append(first + own, np.zeros(spare, np.int32)).astype(np.int32)
        return Share(sides, sets, rows, places, ids, self._done)


def bare(state: State) -> State:
    """The state without the clients' rows: what the server computes with."""
    return state._replace(clients=())


def _add(totals: Sequence[PyTree]) -> PyTree:
    """The sum over shards, in their order."""
    return reduce(partial(jax.tree.map, jnp.add), totals)


def _writable(leaf: Any) -> Any:
    return np.array(leaf)


def _write(ids: np.ndarray, leaf: np.ndarray, rows: np.ndarray) -> None:
    leaf[ids] = rows
