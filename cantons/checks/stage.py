"""An algorithm on an engine, with a clock that the checks dictate.

Who is there in which round is an argument of the compiled program, so that one program serves all checks. Clients are
watched: beside their state they keep the last message and the last upload, as they travelled.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cantons.checks.compare import blank
from cantons.data import Federation
from cantons.engine.client import as_arrays, sent_to
from cantons.engine.devices import floats
from cantons.engine.round import Arrays
from cantons.protocol import Algorithm, Clock, Engine, Plan, Problem, PyTree, Recipe, Snapshot, State
from cantons.study.resolve import parts_of

SCRIPT = 12  # rounds after which the script starts again
SEED = 3


class Watched(NamedTuple):
    """A client with a logbook."""

    state: PyTree
    sent: PyTree
    upload: PyTree


class Stage:
    """An algorithm on an engine: `start` is its first state, `play` goes on from any. States are on the host."""

    def __init__(self, problem: Problem, recipe: Recipe, algorithm: Algorithm, data: Federation, engine: Engine,
                 clock: Clock | None = None):
        self.population = data.population
        clock = scripted(self.population) if clock is None else clock
        self.parts = parts_of(problem, data, recipe, algorithm, clock, SEED)
        self.session: Any = engine.start([self.parts], lambda sentence: None)
        first = self.session.whole(self.session.begin())[0]
        self.start: State = first.state
        self.start_private: PyTree = first.start_private

    @property
    def everybody(self) -> tuple[int, ...]:
        return tuple(range(self.population))

    def restored(self, state: State) -> Any:
        """The session's own state, from one on the host."""
        return self.session.restore([Snapshot(state, self.start_private)])

    def advance(self, state: State, rounds: int) -> State:
        """Some more rounds of whatever clock there is, on a copy: a state may be gone on from twice."""
        return self.session.whole(self.session.advance(self.restored(state), int(state.round) + rounds))[0].state

    def play(self, state: State, *cohorts: Sequence[int], rounds: int = 1) -> State:
        """Some more rounds, with the next of the cohorts in each."""
        arrays = self.session.arrays
        placed = jax.tree.map(lambda new, old: jax.device_put(new, old.sharding), script(self.population, *cohorts),
                              arrays.clock)
        self.session.arrays = arrays._replace(clock=placed)
        return self.advance(state, rounds)


def script(population: int, *cohorts: Sequence[int]) -> Plan:
    """Round after round the next of the cohorts; the slots they leave are spare."""
    ids = np.full((SCRIPT, population), population, np.int32)
    for number in range(SCRIPT):
        cohort = cohorts[number % len(cohorts)]
        ids[number, : len(cohort)] = cohort
    there = ids < population
    return Plan(*map(jnp.asarray, (ids, there, there.astype(np.int32), there)))


def scripted(population: int) -> Clock:
    """A clock whose arrays say who takes part."""
    return Clock(population, False, script(population, range(population)), lambda arrays, key, round: jax.tree.map(
        lambda part: part[round % SCRIPT], arrays))


def watched(problem: Problem, algorithm: Algorithm, data: Federation) -> Algorithm:
    """The same algorithm, whose clients remember the last message and upload."""
    message, upload = travelling(problem, algorithm, data)
    diagnostics = algorithm.diagnostics
    probe = diagnostics.probe

    def client_update(key, message, client, data):
        upload, state = algorithm.client_update(key, message, client.state, data)
        return upload, Watched(state, message, upload)

    return algorithm._replace(
        init_client=lambda key, *parts: Watched(algorithm.init_client(key, *parts), blank(message), blank(upload)),
        adopt=lambda client: client._replace(state=algorithm.adopt(client.state)),
        receive=lambda message, receipt, client: client._replace(
            state=algorithm.receive(message, receipt, client.state)),
        request=lambda key, client, data: algorithm.request(key, client.state, data),
        client_update=client_update,
        model=lambda key, message, client, data: algorithm.model(key, message, client.state, data),
        diagnostics=diagnostics._replace(
            client=lambda message, client, *rest: diagnostics.client(message, client.state, *rest),
            probe=probe and probe._replace(client=lambda key, server, client, data: probe.client(
                key, server, client.state, data))),
    )


def travelling(problem: Problem, algorithm: Algorithm, data: Federation) -> tuple[PyTree, PyTree]:
    """The message to and the upload from one client in a round, as shapes."""

    def once(arrays: Arrays) -> tuple[PyTree, PyTree]:
        key, train = arrays.key, arrays.train
        parts = problem.init(key)
        client = algorithm.init_client(key, *parts)
        message = algorithm.broadcast(key, algorithm.init_server(key, *parts), arrays.datacenter(algorithm, key))
        sent = sent_to(algorithm, key, message, client, train.client(0))
        return sent, as_arrays(algorithm.client_update(key, sent, client, train.client(0))[0])

    return jax.eval_shape(once, as_shapes(floats(Arrays(data.train, data.central, (), jax.random.key(0)))))


def as_shapes(tree: PyTree) -> PyTree:
    """The shapes and types alone: a compiler knows no more of its arguments."""
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), tree)
