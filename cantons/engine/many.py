"""Many variants of one study in one compiled program: other seeds, other step sizes, the same shapes.

On a CPU the variants are dealt out to the cores, and each core runs its variants one after another: nobody waits for
anybody. On an accelerator they are vectorised, clients and all.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from cantons.engine.begin import initial_clients, initial_state, seed_keys
from cantons.engine.devices import AXIS, floats, mesh_of, replicated
from cantons.engine.evaluate import scorer
from cantons.engine.fanout import Fanout, fan_out
from cantons.engine.round import Arrays, one_round, travel
from cantons.protocol import Algorithm, Array, Clock, Problem, PyTree, State

Options = dict[str, Array]  # numbers of an algorithm that differ between variants


class Many:
    """Like a session of the local engine, with a leading axis of variants on every state."""

    def __init__(self, problem: Problem, build: Callable[[Options], Algorithm], clock: Clock, data: Any, central: Any,
                 options: dict[str, np.ndarray], seeds: np.ndarray):
        self.problem, self.build, self.clock = problem, build, clock
        self.mesh = mesh_of(None)
        on_cpu = self.mesh.devices.flat[0].platform == "cpu"
        self.variants = len(seeds)
        self.outer = Fanout(self.mesh, 1 if on_cpu else -(-self.variants // self.mesh.size))
        one = Mesh(self.mesh.devices[:1], (AXIS,))
        self.inner = Fanout(one, 1 if on_cpu else clock.slots)
        place = partial(replicated, self.mesh)
        # Idle places repeat the last variant; their results are cut off.
        order = np.minimum(np.arange(self.outer.padded(self.variants)), self.variants - 1)
        keys = jax.vmap(lambda seed: jnp.stack(seed_keys(seed)))(jnp.asarray(seeds)[order])
        self.start_keys, self.run_keys, self.score_keys = place((keys[:, 0], keys[:, 1], keys[:, 2]))
        self.options = place({name: jnp.asarray(values, float)[order] for name, values in options.items()})
        self.arrays = place(floats(Arrays(data.clients.train, central, clock.arrays, keys[0, 1])))
        self.population = data.population
        sides = {"clients": {"train": data.clients.train, "test": data.clients.test}}
        if data.validation is not None:
            sides["clients"]["validation"] = data.validation
        if data.new is not None:
            sides["new"] = {"train": data.new.train, "test": data.new.test}
        self.sides = place(floats(sides))
        self._block: Any = None
        self._scorers: dict[str, Any] = {}

    def begin(self) -> State:
        """The states before round 0."""
        def start(options: Options, key):
            return initial_state(self.build(options), key, self.problem.init(key), population=self.population)

        return replicated(self.mesh, jax.jit(jax.vmap(start))(self.options, self.start_keys))

    def place(self, states: State) -> State:
        """Put restored states where the compiled program expects them."""
        return replicated(self.mesh, states)

    def start_private(self, index: int) -> PyTree:
        """The private part every client of one variant begins with."""
        return jax.device_get(jax.jit(lambda key: self.problem.init(key)[1])(self.start_keys[index]))

    def message_and_upload(self, states: State) -> tuple[PyTree, PyTree]:
        """What travels to and from one client, as shapes."""
        first = jax.tree.map(lambda leaf: leaf[0], self.options)
        return travel(self.build(first), self.arrays, jax.tree.map(lambda leaf: leaf[0], states))

    def advance(self, states: State, until: int) -> State:
        """Run every variant until `until` rounds are done. `states` are used up."""
        if self._block is None:
            self._block = jax.jit(self._rounds, donate_argnums=1).lower(
                (self.arrays, self.options, self.run_keys), states, np.int32(until)).compile()
        return self._block((self.arrays, self.options, self.run_keys), states, np.int32(until))

    def _rounds(self, given: tuple, states: State, until: Array) -> State:
        arrays, options, keys = given

        def each(common, slot):
            arrays, done, until = common
            options, key, state = slot
            # All variants are at the same round: a common number, so that vectorised loops need no masks.
            step = partial(one_round, self.build(options), self.clock, self.inner, arrays._replace(key=key))
            ended = jax.lax.while_loop(lambda state: state.round < until, step, state._replace(round=done))
            return (), ended

        return fan_out(self.outer, each, (arrays, states.round[0], until), (options, keys, states))[1]

    def evaluate(self, states: State, side: str = "clients") -> dict[str, dict[str, dict[str, np.ndarray]]]:
        """Scores per variant and client, as NumPy arrays."""
        arguments = (self.sides[side], self.arrays.central), (self.options, self.start_keys, self.score_keys, states)
        if side not in self._scorers:
            self._scorers[side] = jax.jit(partial(self._scores, side)).lower(*arguments).compile()
        found = jax.device_get(self._scorers[side](*arguments))
        return jax.tree.map(lambda leaf: leaf[: self.variants], found)

    def _scores(self, side: str, common: tuple, slots: tuple) -> PyTree:
        sets = common[0]
        ids = self.population + np.arange(sets["train"].population)

        def each(common, slot):
            sets, central = common
            options, start_key, score_key, state = slot
            algorithm, parts = self.build(options), self.problem.init(start_key)
            clients = state.clients if side == "clients" else initial_clients(algorithm, start_key, parts, ids)
            client = jax.tree.map(lambda leaf: leaf[0], clients)
            fanout = Fanout(self.inner.mesh, min(self.inner.group, sets["train"].population))
            scores = scorer(self.problem, algorithm, fanout, (state.server, parts[1], client, sets["train"], central))
            return (), scores(sets, central, state.server, parts[1], clients,
                              jax.random.fold_in(score_key, state.round), 0 if side == "clients" else self.population)

        return fan_out(self.outer, each, common, slots)[1]
