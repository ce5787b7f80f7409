"""Many variants of one study in one compiled program: other seeds, step sizes, data or delays, the same shapes.

On a CPU the variants are dealt out to the cores, and each core runs its variants one after another: nobody waits for
anybody. On an accelerator they are vectorised, clients and all. Online, where a step is short, a core too takes several
variants at a time, as many as its cache holds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from cantons.engine.devices import AXIS, divided, floats, mesh_of, replicated
from cantons.engine.evaluate import begins_common, for_all, scorer, sides_of
from cantons.engine.init import initial_clients, seed_keys, starting_point
from cantons.engine.inspect import inspect, set_scores, sets_of
from cantons.engine.mapping import Fanout, filled, map_sharded, with_filled
from cantons.engine.round import Arrays, travelling
from cantons.engine.stepper import begin_run, progress_of, stepper_of
from cantons.engine.varying import varying_options, with_reals
from cantons.errors import InputError
from cantons.phases import COMPILING, EVALUATING, FITTING, enter
from cantons.protocol import (
    Algorithm,
    Array,
    Averages,
    Engine,
    Evaluation,
    Key,
    Message,
    Parts,
    PyTree,
    Snapshot,
    Start,
    State,
    Upload,
)
from cantons.ranges import Count, Positive, check_fields

Options = dict[str, Array]  # numbers of an algorithm that differ between variants
CACHE = 1 << 16  # numbers in the clients' models that a core works on at a time


@dataclass(frozen=True)
class Batched:
    """Several runs as one program, for sweeps and rollouts. Runs must agree in everything but seed, data, delays, and
    the real numbers given to their algorithm.

    mode: "scan" (one client of a run after another), "vmap" (together) or "auto".
    group: how many clients of a run are vectorised at a time.
    devices: how many of this process's devices the runs are dealt out to.
    memory_gib: not for runs that are one program; give fewer runs at a time instead.
    """

    mode: Literal["auto", "scan", "vmap"] = "auto"
    group: Count | None = None
    devices: Count | None = None
    memory_gib: Positive | None = None

    name = "batched"

    def __post_init__(self) -> None:
        check_fields(self)

    def options(self) -> dict[str, Any]:
        return asdict(self)

    def refuses(self, run: Parts) -> str:
        if self.memory_gib is not None:
            return ("runs several runs as one program and cannot divide it by memory; leave memory_gib out, or run "
                    "them one by one.")
        return ""

    def start(self, runs: Sequence[Parts], notice: Callable[[str], None] = lambda sentence: None) -> BatchedSession:
        return BatchedSession(self, runs)

    def together(self) -> Engine:
        return self


class Variant(NamedTuple):
    """What is a variant's own; a field is None where all have the same."""

    options: Options
    start_key: Key
    run_key: Key
    score_key: Key
    sides: PyTree
    central: PyTree
    clock: PyTree
    sets: PyTree
    scored: Mapping[str, Array]  # who is scored, where not all are
    start: Start | None = None  # where it was told to begin


class BatchedSession:
    """Like a session of the local engine, with a leading axis of variants on every state."""

    def __init__(self, options: Batched, runs: Sequence[Parts]):
        first = runs[0]
        self.runs, self.problem, self.clock, self.population = runs, first.problem, first.clock, first.population
        self.stepper = stepper_of(first.problem, first.algorithm, first.clock)
        self.mesh = mesh_of(options.devices)
        self.outer, self.inner = self._fanouts(options)
        # Idle places repeat the last variant; their results are cut off.
        order = np.minimum(np.arange(self.outer.padded(len(runs))), len(runs) - 1)
        keys = jax.vmap(lambda seed: jnp.stack(seed_keys(seed)))(np.array([run.seed for run in runs], np.uint32)[order])
        several = any(run.data is not first.data for run in runs)
        clocks = any(run.clock is not first.clock for run in runs)
        self.own = divided(self.mesh, Variant(
            {name: jnp.asarray(values, float)[order] for name, values in varying_options(runs).items()},
            keys[:, 0], keys[:, 1], keys[:, 2],
            _stacked([sides_of(run.data) for run in runs], order) if several else None,
            _stacked([run.central for run in runs], order) if several and first.central is not None else None,
            _stacked([run.clock.arrays for run in runs], order) if clocks else None,
            _stacked([sets_of(run.data) for run in runs], order) if several else None,
            {side: jnp.stack([run.scored[side] for run in runs])[order] for side in first.scored}))
        self.common = replicated(self.mesh, floats((
            None if several else sides_of(first.data), None if several else first.central,
            None if clocks else first.clock.arrays, None if several else sets_of(first.data))))
        self._block: Any = None
        self._scorers: dict[tuple[str, bool], Any] = {}

    def begin(self, initial: Start | tuple[PyTree, PyTree] | list[Start] | None = None) -> State:
        """As sessions do; a list has a place to begin with for each run."""
        privates = None
        starts: list[Any] = initial if isinstance(initial, list) else [initial] * len(self.runs)
        begun = Start(*jax.eval_shape(self.problem.init, self.own.start_key[0]))
        self._begins_common = begins_common(self.runs[0].algorithm, begun._replace(privates=next(
            (start.privates for start in starts if isinstance(start, Start)), None)))
        if initial is not None:
            given = [starting_point(self.problem, self.own.start_key[0], start) for start in starts]
            privates = divided(self.mesh, self._for_each([start.privates for start in given]))
            self.own = self.own._replace(start=divided(self.mesh, self._for_each(
                [start._replace(privates=None) for start in given])))

        def start(common, variant: Variant, privates: PyTree) -> State:
            algorithm, arrays = self._algorithm(variant), self._arrays(common, variant)
            parts = self._start(variant)._replace(privates=privates)
            return begin_run(self.problem, algorithm, self.clock, arrays, variant.start_key, parts, self.population,
                             copies=self.outer.padded(len(self.runs)))

        return divided(self.mesh, jax.jit(jax.vmap(start, in_axes=(None, 0, 0)))(self.common, self.own, privates))

    def restore(self, snapshots: Sequence[Snapshot]) -> State:
        return divided(self.mesh, self._for_each([one.state for one in snapshots]))

    def prepare(self, states: State) -> None:
        if self._block is None:
            shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), states)

            def block(common: tuple, variants: Variant, arrays: list[Array], until: Array) -> list[Array]:
                empty = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype) if not leaf.size else leaf, shapes)
                return filled(self._rounds(common, variants, with_filled(empty, arrays), until))

            self._block = jax.jit(block, donate_argnums=2).lower(
                self.common, self.own, filled(states), np.int32(0)).compile()

    def advance(self, states: State, until: int) -> State:
        self.prepare(states)
        arrays = self._block(self.common, self.own, filled(states), np.int32(until))
        return jax.block_until_ready(with_filled(states, arrays))

    def evaluate(self, states: State) -> list[Evaluation]:
        common_start = self._begins_common and int(states.round[0]) == 0
        found = {side: self._scored(states, side, common_start and side == "clients")
                 for side in sides_of(self.runs[0].data)}
        (server, portions), here = jax.device_get((self._inspect(self.common, self.own, states), states._replace(
            server=(), clients=(), rule=())))
        return [Evaluation(progress_of(_one(here, index)),
                           {side: _one(scores, index) for side, (scores, _) in found.items()},
                           _one(server, index), {side: _one(numbers, index) for side, (_, numbers) in found.items()},
                           sets=set_scores(self.problem, self.runs[index].data, _one(portions, index)),
                           common_start=common_start)
                for index in range(len(self.runs))]

    def whole(self, states: State) -> list[Snapshot]:
        here = jax.device_get(states)
        return [Snapshot(*_one((here, self._start_private), index)) for index in range(len(self.runs))]

    def travel(self, states: State) -> tuple[Message, Upload]:
        first, state = _one((self.own, states), 0)
        return travelling(self._algorithm(first), self._arrays(self.common, first), state, self.stepper.batch)

    def about(self) -> dict[str, Any]:
        return {"devices": self.mesh.size, "runs_together": len(self.runs)}

    def close(self) -> None:
        pass

    def _rounds(self, common: tuple, variants: Variant, states: State, until: Array) -> State:
        def each(given, slot):
            common, done, until = given
            variant, state = slot
            # All variants are at the same round: a common number, so that vectorised loops need no masks.
            stepper = stepper_of(self.problem, self._algorithm(variant), self.clock)
            step = partial(stepper.step, self.inner, self._arrays(common, variant))
            ended = jax.lax.while_loop(lambda state: state.round < until, step, state._replace(round=done))
            return (), ended

        return map_sharded(self.outer, each, (common, states.round[0], until), (variants, states))

    def _scored(self, states: State, side: str, common_start: bool) -> PyTree:
        if (side, common_start) not in self._scorers:
            enter(COMPILING)
            self._scorers[side, common_start] = jax.jit(partial(self._scores, side, common_start)).lower(
                self.common, self.own, states).compile()
        enter(FITTING if side == "new" else EVALUATING)
        found = jax.device_get(self._scorers[side, common_start](self.common, self.own, states))
        if side not in self.runs[0].scored:
            return found
        population = sides_of(self.runs[0].data)[side]["train"].population
        return jax.tree.map(lambda *rows: np.stack(rows), *(
            for_all(_one(found, index), run.scored[side], population) for index, run in enumerate(self.runs)))

    def _scores(self, side: str, common_start: bool, common: tuple, variants: Variant, states: State) -> PyTree:
        late = self.stepper.held is not None and side == "clients"

        def each(common, slot):
            variant, state = slot
            (sides, *_), arrays = self._given(common, variant), self._arrays(common, variant)
            sets = sides[side]
            ids = self.population + np.arange(sets["train"].population)
            algorithm, parts = self._algorithm(variant), self._start(variant)
            clients = (state.clients if side == "clients"
                       else initial_clients(algorithm, variant.start_key, parts, ids))
            client = jax.tree.map(lambda leaf: leaf[0], clients)
            chosen = variant.scored.get(side)
            count = sets["train"].population if chosen is None else len(chosen)
            fanout = Fanout(self.inner.mesh, min(self.inner.group, count))
            scores = scorer(self.problem, algorithm, fanout,
                            (state.server, parts[1], client, sets["train"], arrays), late, common_start)
            held = self.stepper.held(state) if late and self.stepper.held is not None else None
            return (), scores(sets, arrays, state.server, parts[1], clients,
                              jax.random.fold_in(variant.score_key, state.round),
                              0 if side == "clients" else self.population, held, chosen)

        one_by_one = Fanout(self.outer.mesh, self.outer.group if self._accelerated else 1)
        return map_sharded(one_by_one, each, common, (variants, states))

    @cached_property
    def _start_private(self) -> PyTree:
        return jax.device_get(jax.jit(jax.vmap(lambda own: self._start(own).private))(self.own))

    @cached_property
    def _inspect(self) -> Any:
        def inspect_all(common, variants, states):
            def each(common, slot):
                variant, state = slot
                return (), inspect(self.problem, self._algorithm(variant), self.clock, self.inner, self._arrays(
                    common, variant), self._given(common, variant)[3], self._start(variant).private, state)

            one_by_one = Fanout(self.outer.mesh, self.outer.group if self._accelerated else 1)
            return map_sharded(one_by_one, each, common, (variants, states))

        return jax.jit(inspect_all)

    def _start(self, variant: Variant) -> Start:
        """Where a variant begins: where it was told to, or where its problem does."""
        return Start(*self.problem.init(variant.start_key)) if variant.start is None else variant.start

    def _for_each(self, trees: Sequence[PyTree]) -> PyTree:
        """What each run has, in one array with a row for each place."""
        order = np.minimum(np.arange(self.outer.padded(len(self.runs))), len(self.runs) - 1)
        return jax.tree.map(lambda *leaves: np.stack([leaves[place] for place in order]), *trees)

    def _algorithm(self, variant: Variant) -> Algorithm:
        """The algorithm with this variant's own numbers, and the rule that was chosen for all."""
        first = self.runs[0]
        if not variant.options:
            return first.algorithm
        assert first.recipe.again is not None
        built = first.recipe.again(**with_reals(first.recipe.options, variant.options)).build(
            self.problem, self.population)
        if isinstance(built.aggregate, Averages) and isinstance(first.algorithm.aggregate, Averages):
            built = built._replace(aggregate=built.aggregate._replace(rule=first.algorithm.aggregate.rule))
        return built

    def _given(self, common: tuple, variant: Variant) -> tuple:
        """The sides, the central data, the clock's arrays and test sets: the variant's own, or those of all."""
        own = variant.sides, variant.central, variant.clock, variant.sets
        return tuple(for_all if one is None else one for one, for_all in zip(own, common, strict=True))

    def _arrays(self, common: tuple, variant: Variant) -> Arrays:
        sides, central, clock, _ = self._given(common, variant)
        return Arrays(sides["clients"]["train"], central, clock, variant.run_key)

    @property
    def _accelerated(self) -> bool:
        return self.mesh.devices.flat[0].platform != "cpu"

    def _fanouts(self, options: Batched) -> tuple[Fanout, Fanout]:
        """How many variants each device takes at a time, and how many of their clients."""
        one, share = Mesh(self.mesh.devices[:1], (AXIS,)), -(-len(self.runs) // self.mesh.size)
        inner = Fanout(one, self._clients_at_once(options))
        if self._accelerated:
            return Fanout(self.mesh, share), inner
        if not self.stepper.short:
            return Fanout(self.mesh, 1), inner
        parts = jax.eval_shape(self.problem.init, jax.random.key(0))
        numbers = self.population * sum(leaf.size for leaf in jax.tree.leaves(parts))
        return Fanout(self.mesh, int(np.clip(CACHE // max(numbers, 1), 1, share))), inner

    def _clients_at_once(self, options: Batched) -> int:
        if options.group is not None:
            return min(options.group, self.clock.slots)
        if options.mode == "auto":
            return self.clock.slots if self._accelerated or self.stepper.short else 1
        return self.clock.slots if options.mode == "vmap" else 1


def _one(tree: PyTree, index: int) -> PyTree:
    """The part of one run in what is stacked over runs."""
    return jax.tree.map(lambda leaf: leaf[index], tree)


def _stacked(trees: Sequence[PyTree], order: np.ndarray) -> PyTree:
    """Each variant's own arrays, in one with a leading axis."""
    shapes = {str(jax.tree.map(np.shape, tree)) for tree in trees}
    if len(shapes) > 1:
        raise InputError("the variants' data or clocks differ in shape, and one program cannot run them; give "
                         "clients of the same sizes (see cantons.data.pad_to_same_shape) and delays with the same room "
                         "(max_delay).")
    trees = [floats(tree) for tree in trees]
    return jax.tree.map(lambda *leaves: np.stack([leaves[place] for place in order]), *trees)
