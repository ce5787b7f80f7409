"""The plain engine: one client after another in a Python loop, to step through with a debugger.

It calls the same parts of a round as every other engine and leaves out all that makes them fast: no program spans a
round, nothing is vectorised or placed. What it computes is what the others are held against.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial, reduce
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from cantons.engine.aggregation import aggregation_of
from cantons.engine.client import Slot, Turn, take_turn
from cantons.engine.devices import floats, mesh_of
from cantons.engine.evaluate import begins_common, for_all, score_client, sides_of
from cantons.engine.init import initial_clients, seed_keys, starting_point
from cantons.engine.inspect import inspect, set_scores, sets_of
from cantons.engine.mapping import Fanout
from cantons.engine.round import Arrays, close_round, open_round, take, travelling
from cantons.engine.stepper import begin_run, progress_of
from cantons.engine.summands import add_to, dense
from cantons.protocol import Engine, Evaluation, Message, Parts, PyTree, Snapshot, Start, State, Upload


@dataclass(frozen=True)
class Plain:
    """Clients one by one in plain Python, loops and all: very slow, and open to a debugger at every line.

    compile: compile what one client does in a round, which is much faster and closes it to the debugger.
    """

    compile: bool = False

    name = "plain"

    def options(self) -> dict[str, Any]:
        return asdict(self)

    def refuses(self, run: Parts) -> str:
        if run.clock.online is not None or run.clock.asynchronous is not None:
            return "runs rounds, no online steps or asynchronous events; use the engine local."
        return ""

    def start(self, runs: Sequence[Parts], notice: Callable[[str], None] = lambda sentence: None) -> PlainSession:
        (run,) = runs
        return PlainSession(self, run)

    def together(self) -> Engine | None:
        return None


class PlainSession:
    """A run in this Python process."""

    def __init__(self, options: Plain, run: Parts):
        self.run, self.compile = run, options.compile
        self._start_key, run_key, self._score_key = seed_keys(run.seed)
        # One device holds everything: as NumPy arrays the data would be copied to it in every call.
        self.arrays = jax.tree.map(jnp.asarray, floats(Arrays(
            run.data.clients.train, run.central, run.clock.arrays, run_key)))
        self._sides = jax.tree.map(jnp.asarray, floats(sides_of(run.data)))
        maybe: Callable = jax.jit if options.compile else lambda function: function
        self._open = maybe(partial(open_round, run.algorithm, run.clock))
        self._turn = maybe(self._take_turn)
        self._close = maybe(partial(close_round, run.algorithm, run.clock))
        self._score = maybe(self._score_client)
        self._score_start = maybe(partial(self._score_client, common_start=True))
        self._sets = jax.tree.map(jnp.asarray, floats(sets_of(run.data)))
        self._inspect = maybe(partial(inspect, run.problem, run.algorithm, run.clock, Fanout(mesh_of(1), 1)))

    def begin(self, initial: Start | tuple[PyTree, PyTree] | None = None) -> State:
        start = starting_point(self.run.problem, self._start_key, initial)
        self._begins_common = begins_common(self.run.algorithm, start)
        self._parts = start._replace(privates=None)  # for new clients
        begin = partial(begin_run, self.run.problem, self.run.algorithm, self.run.clock, population=self.run.population)
        jax.eval_shape(lambda *given: begin(*given), self.arrays, self._start_key, start)  # does it fit?
        return begin(self.arrays, self._start_key, start)

    def restore(self, snapshots: Sequence[Snapshot]) -> State:
        (snapshot,) = snapshots
        return jax.tree.map(jnp.asarray, snapshot.state)

    def prepare(self, state: State) -> None:
        pass

    def advance(self, state: State, until: int) -> State:
        with jax.disable_jit(not self.compile):  # the loops inside a client's turn are Python's too
            while int(state.round) < until:
                state = self._round(state)
        return state

    def evaluate(self, state: State) -> list[Evaluation]:
        common_start = self._begins_common and int(state.round) == 0
        found = {side: self._scored(state, side, common_start and side == "clients") for side in self._sides}
        server, portions = jax.device_get(self._inspect(self.arrays, self._sets, self._parts[1], state))
        return [Evaluation(progress_of(state), {side: scores for side, (scores, _) in found.items()}, server,
                           {side: numbers for side, (_, numbers) in found.items()},
                           sets=set_scores(self.run.problem, self.run.data, portions),
                           common_start=common_start)]

    def whole(self, state: State) -> list[Snapshot]:
        return [jax.device_get(Snapshot(state, self._parts[1]))]

    def travel(self, state: State) -> tuple[Message, Upload]:
        return travelling(self.run.algorithm, self.arrays, state)

    def about(self) -> dict[str, Any]:
        return {"devices": 1, "clients_at_once": 1}

    def close(self) -> None:
        pass

    def _round(self, state: State) -> State:
        opening = self._open(self.arrays, state)
        summands, turns = [], []
        for place, index in enumerate(np.asarray(opening.slots.id).tolist()):
            slot: Slot = jax.tree.map(lambda leaf, place=place: leaf[place], opening.slots)
            client = jax.tree.map(lambda leaf: leaf[0], take(state.clients, slot.id[None]))
            data = min(index, self.run.population - 1)
            summand, turn = self._turn(self.arrays.train, state.rule, opening.message, slot, client, data)
            summands.append(summand)
            turns.append(turn)
        total = reduce(add_to, summands[1:], dense(summands[0]))
        stacked: Turn = jax.tree.map(lambda *leaves: jnp.stack(leaves), *turns)
        return self._close(self.arrays, state, opening, total, stacked)

    def _take_turn(self, train, rule, message, slot, client, index):
        algorithm, clock = self.run.algorithm, self.run.clock
        return take_turn(algorithm, aggregation_of(algorithm.aggregate), rule, message, slot, client,
                         train.client(index), actors_hear=clock.actors_hear, always_acts=clock.full)

    def _scored(self, state: State, side: str, common_start: bool) -> tuple[PyTree, PyTree]:
        sets, first = self._sides[side], 0 if side == "clients" else self.run.population
        population = sets["train"].population
        clients = state.clients if side == "clients" else initial_clients(
            self.run.algorithm, self._start_key, self._parts, first + jnp.arange(population))
        key = jax.random.fold_in(self._score_key, state.round)
        message = self.run.algorithm.broadcast(key, state.server, self.arrays.datacenter(self.run.algorithm, key))
        shared = state.server.shared, self._parts[1]
        chosen = self.run.scored.get(side)
        score = self._score_start if common_start else self._score
        rows = [score(jax.random.fold_in(key, first + index), message,
                      jax.tree.map(lambda leaf, index=index: leaf[index], clients), sets, index, shared)
                for index in (range(population) if chosen is None else chosen.tolist())]
        return for_all(jax.device_get(jax.tree.map(lambda *leaves: jnp.stack(leaves), *rows)), chosen, population)

    def _score_client(self, key, message, client, sets, index, shared, common_start=False):
        own = {name: examples.client(index) for name, examples in sets.items()}
        return score_client(self.run.problem, self.run.algorithm, key, message, client, own, shared, common_start)
