"""Many variants of one study in one compiled program: other seeds, step sizes, data or delays, the same shapes.

On a CPU the variants are dealt out to the cores, and each core runs its variants one after another: nobody waits for
anybody. On an accelerator they are vectorised, clients and all. Online, where a step is short, a core too takes several
variants at a time, as many as its cache holds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from cantons.engine.begin import initial_clients, initial_state, seed_keys
from cantons.engine.devices import AXIS, divided, floats, mesh_of, replicated
from cantons.engine.evaluate import scorer
from cantons.engine.fanout import Fanout, where_they_lie
from cantons.engine.round import Arrays, one_round, travel
from cantons.engine.step import at_rest, held, one_step
from cantons.errors import InputError
from cantons.protocol import Algorithm, Array, Clock, Key, Problem, PyTree, State

Options = dict[str, Array]  # numbers of an algorithm that differ between variants
CACHE = 1 << 16  # numbers in the clients' models that a core works on at a time


class Variant(NamedTuple):
    """What is a variant's own; a field is None where all have the same."""

    options: Options
    start_key: Key
    run_key: Key
    score_key: Key
    sides: PyTree
    central: PyTree
    clock: PyTree


class Many:
    """Like a session of the local engine, with a leading axis of variants on every state.

    `data` and `clock` are for all variants, or lists with one for each; their shapes must be the same.
    """

    def __init__(self, problem: Problem, build: Callable[[Options], Algorithm], clock: Clock | list[Clock],
                 data: Any, central: Any, options: dict[str, np.ndarray], seeds: np.ndarray):
        clocks = clock if isinstance(clock, list) else [clock]
        several = isinstance(data, list)
        first = data[0] if several else data
        self.problem, self.build, self.clock = problem, build, clocks[0]
        self.mesh = mesh_of(None)
        self.variants, self.population = len(seeds), first.population
        self.outer, self.inner = self._fanouts()
        # Idle places repeat the last variant; their results are cut off.
        order = np.minimum(np.arange(self.outer.padded(self.variants)), self.variants - 1)
        keys = jax.vmap(lambda seed: jnp.stack(seed_keys(seed)))(jnp.asarray(seeds)[order])
        sides = [_sides(one) for one in (data if several else [data])]
        self.own = divided(self.mesh, Variant(
            {name: jnp.asarray(values, float)[order] for name, values in options.items()},
            keys[:, 0], keys[:, 1], keys[:, 2],
            _stacked(sides, order) if several else None, _stacked(central, order) if several and central else None,
            _stacked([one.arrays for one in clocks], order) if len(clocks) > 1 else None))
        self.common = replicated(self.mesh, floats((
            None if several else sides[0], None if several else central,
            None if len(clocks) > 1 else clocks[0].arrays)))
        self._block: Any = None
        self._scorers: dict[str, Any] = {}

    def begin(self) -> State:
        """The states before round 0."""
        def start(common, variant: Variant) -> State:
            algorithm, arrays = self.build(variant.options), self._arrays(common, variant)
            state = initial_state(algorithm, variant.start_key, self.problem.init(variant.start_key), self.population)
            if self.clock.online:
                state = at_rest(self.problem, algorithm, self.clock, arrays, state)
            return state

        return divided(self.mesh, jax.jit(jax.vmap(start, in_axes=(None, 0)))(self.common, self.own))

    def place(self, states: State) -> State:
        """Put restored states where the compiled program expects them."""
        return divided(self.mesh, states)

    def start_private(self, index: int) -> PyTree:
        """The private part every client of one variant begins with."""
        return jax.device_get(jax.jit(lambda key: self.problem.init(key)[1])(self.own.start_key[index]))

    def message_and_upload(self, states: State) -> tuple[PyTree, PyTree]:
        """What travels to and from one client, as shapes."""
        first, state = jax.tree.map(lambda leaf: leaf[0], (self.own, states))
        return travel(self.build(first.options), self._arrays(self.common, first), state,
                      self.clock.online.batch if self.clock.online else 1)

    def advance(self, states: State, until: int) -> State:
        """Run every variant until `until` rounds are done. `states` are used up."""
        if self._block is None:
            self._block = jax.jit(self._rounds, donate_argnums=2).lower(
                self.common, self.own, states, np.int32(until)).compile()
        return self._block(self.common, self.own, states, np.int32(until))

    def _rounds(self, common: tuple, variants: Variant, states: State, until: Array) -> State:
        def each(given, slot):
            common, done, until = given
            variant, state = slot
            # All variants are at the same round: a common number, so that vectorised loops need no masks.
            algorithm, arrays = self.build(variant.options), self._arrays(common, variant)
            step = (partial(one_step, self.problem, algorithm, self.clock, self.inner, arrays) if self.clock.online
                    else partial(one_round, algorithm, self.clock, self.inner, arrays))
            ended = jax.lax.while_loop(lambda state: state.round < until, step, state._replace(round=done))
            return (), ended

        return where_they_lie(self.outer, each, (common, states.round[0], until), (variants, states))

    def evaluate(self, states: State, side: str = "clients") -> dict[str, dict[str, dict[str, np.ndarray]]]:
        """Scores per variant and client, as NumPy arrays."""
        if side not in self._scorers:
            self._scorers[side] = jax.jit(partial(self._scores, side)).lower(self.common, self.own, states).compile()
        found = jax.device_get(self._scorers[side](self.common, self.own, states))
        return jax.tree.map(lambda leaf: leaf[: self.variants], found)

    def _scores(self, side: str, common: tuple, variants: Variant, states: State) -> PyTree:
        late = self.clock.online is not None and side == "clients"

        def each(common, slot):
            variant, state = slot
            sides, central, _ = self._given(common, variant)
            sets = sides[side]
            ids = self.population + np.arange(sets["train"].population)
            algorithm, parts = self.build(variant.options), self.problem.init(variant.start_key)
            clients = (state.clients if side == "clients"
                       else initial_clients(algorithm, variant.start_key, parts, ids))
            client = jax.tree.map(lambda leaf: leaf[0], clients)
            fanout = Fanout(self.inner.mesh, min(self.inner.group, sets["train"].population))
            scores = scorer(self.problem, algorithm, fanout,
                            (state.server, parts[1], client, sets["train"], central), late)
            return (), scores(sets, central, state.server, parts[1], clients,
                              jax.random.fold_in(variant.score_key, state.round),
                              0 if side == "clients" else self.population, held(state.transit) if late else None)

        one_by_one = Fanout(self.outer.mesh, self.outer.group if self._accelerated else 1)
        return where_they_lie(one_by_one, each, common, (variants, states))

    def _given(self, common: tuple, variant: Variant) -> tuple:
        """The sides, the central data and the clock's arrays: the variant's own, or those of all."""
        own = variant.sides, variant.central, variant.clock
        return tuple(for_all if one is None else one for one, for_all in zip(own, common, strict=True))

    def _arrays(self, common: tuple, variant: Variant) -> Arrays:
        sides, central, clock = self._given(common, variant)
        return Arrays(sides["clients"]["train"], central, clock, variant.run_key)

    @property
    def _accelerated(self) -> bool:
        return self.mesh.devices.flat[0].platform != "cpu"

    def _fanouts(self) -> tuple[Fanout, Fanout]:
        """How many variants each device takes at a time, and how many of their clients."""
        one, share = Mesh(self.mesh.devices[:1], (AXIS,)), -(-self.variants // self.mesh.size)
        if self._accelerated:
            return Fanout(self.mesh, share), Fanout(one, self.clock.slots)
        if not self.clock.online:
            return Fanout(self.mesh, 1), Fanout(one, 1)
        parts = jax.eval_shape(self.problem.init, jax.random.key(0))
        numbers = self.population * sum(leaf.size for leaf in jax.tree.leaves(parts))
        return Fanout(self.mesh, int(np.clip(CACHE // max(numbers, 1), 1, share))), Fanout(one, self.clock.slots)


def _sides(data: Any) -> dict[str, dict[str, Any]]:
    """Whom there is to score, and on what; "train" of "clients" is what is learned from."""
    sides = {"clients": {"train": data.clients.train, "test": data.clients.test}}
    if data.validation is not None:
        sides["clients"]["validation"] = data.validation
    if data.new is not None:
        sides["new"] = {"train": data.new.train, "test": data.new.test}
    return sides


def _stacked(trees: Sequence[PyTree], order: np.ndarray) -> PyTree:
    """Each variant's own arrays, in one with a leading axis."""
    shapes = {str(jax.tree.map(np.shape, tree)) for tree in trees}
    if len(shapes) > 1:
        raise InputError("the variants' data or clocks differ in shape, and one program cannot run them; give "
                         "clients of the same sizes (see cantons.data.pad_to_same_shape) and delays with the same room "
                         "(longest).")
    trees = [floats(tree) for tree in trees]
    return jax.tree.map(lambda *leaves: np.stack([leaves[place] for place in order]), *trees)
