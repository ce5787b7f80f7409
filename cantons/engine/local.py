"""The local engine: a block of rounds is one compiled program, on this process's devices.

On a CPU each core is a device and works through its clients in turn, so that one client's weights stay in
its cache; on an accelerator a whole cohort is vectorised, as far as memory allows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from cantons.engine.batched import Batched
from cantons.engine.devices import floats, mesh_of, replicated
from cantons.engine.evaluate import begins_common, for_all, scorer, sides_of
from cantons.engine.init import initial_clients, seed_keys, starting_point
from cantons.engine.inspect import inspect, set_scores, sets_of
from cantons.engine.mapping import Fanout
from cantons.engine.round import Arrays, travelling
from cantons.engine.stepper import begin_run, progress_of, stepper_of
from cantons.errors import InputError
from cantons.memory import require
from cantons.phases import COMPILING, EVALUATING, FITTING, enter
from cantons.protocol import Array, Engine, Evaluation, Examples, Message, Parts, PyTree, Snapshot, Start, State, Upload
from cantons.ranges import Count, Positive, check_fields

UNEVEN = 2.0  # longest client over the mean, above which vectorised clients are grouped by size
GROUPS = 8

Sides = dict[str, dict[str, Any]]  # whom there is to score, and on what examples: see `sides_of`


@dataclass(frozen=True)
class Local:
    """This process's devices; every default is chosen from the hardware and the data.

    mode: "scan" (one client after another), "vmap" (together) or "auto".
    group: how many clients are vectorised at a time.
    devices: how many of this process's devices are used.
    memory_gib: how much working memory a round may take before the groups are made smaller.
    """

    mode: Literal["auto", "scan", "vmap"] = "auto"
    group: Count | None = None
    devices: Count | None = None
    memory_gib: Positive | None = None

    name = "local"

    def __post_init__(self) -> None:
        check_fields(self)

    def options(self) -> dict[str, Any]:
        return asdict(self)

    def refuses(self, run: Parts) -> str:
        return ""

    def start(self, runs: Sequence[Parts], notice: Callable[[str], None] = lambda sentence: None) -> LocalSession:
        """Place the federation and the datacenter's examples on the devices."""
        (run,) = runs
        return LocalSession(self, run)

    def together(self) -> Engine:
        return Batched(self.mode, self.group, self.devices, self.memory_gib)


class LocalSession:
    """A run on its devices: `begin` a state, `advance` it, `evaluate` it."""

    def __init__(self, options: Local, run: Parts):
        self.problem, self.algorithm, self.clock = run.problem, run.algorithm, run.clock
        self.population = run.population
        self.stepper = stepper_of(run.problem, run.algorithm, run.clock)
        self.mesh = mesh_of(1 if self.stepper.short and options.devices is None else options.devices)
        self.group, self.budget = self._grouping(options, run.data.clients.train)
        self._start_key, run_key, self._score_key = seed_keys(run.seed)
        place = partial(replicated, self.mesh)
        self.arrays = place(floats(Arrays(run.data.clients.train, run.central, run.clock.arrays, run_key)))
        self.sides = sides_of(run.data)
        self.sides["clients"].pop("train")
        self.sides = place(floats(self.sides))
        self.sides["clients"]["train"] = self.arrays.train
        self.data, self.sets, self.scored = run.data, place(floats(sets_of(run.data))), run.scored
        self._block: Any = None
        self._scorers: dict[tuple[str, bool], Any] = {}

    def begin(self, initial: Start | tuple[PyTree, PyTree] | None = None) -> State:
        start = starting_point(self.problem, self._start_key, initial)
        self._begins_common = begins_common(self.algorithm, start)
        self._parts = start._replace(privates=None)  # for new clients
        self.start_private = replicated(self.mesh, self._parts[1])
        begin = partial(begin_run, self.problem, self.algorithm, self.clock, population=self.population,
                        copies=self.mesh.size)
        state = jax.jit(lambda arrays, key, parts: begin(arrays, key, parts))(
            self.arrays, self._start_key, start)
        return replicated(self.mesh, state)

    def restore(self, snapshots: Sequence[Snapshot]) -> State:
        (snapshot,) = snapshots
        if self.clock.asynchronous is not None and snapshot.outside is not None:
            raise InputError("this run was begun with real delays, which this engine does not have; go on with the "
                             "engine it began with.")
        return replicated(self.mesh, jax.tree.map(_copied, snapshot.state))

    def prepare(self, state: State) -> None:
        """Compile the block of rounds, once."""
        if self._block is None:
            self._block = self._compiled(state)

    def advance(self, state: State, until: int) -> State:
        self.prepare(state)
        return jax.block_until_ready(self._block(self.arrays, state, np.int32(until)))

    def evaluate(self, state: State, sides: Sides | None = None) -> list[Evaluation]:
        """Score everybody, or a sample, on `self.sides` or on others of the same shapes."""
        common_start = self._begins_common and int(state.round) == 0
        found = {side: self._scored(state, side, sets, common_start and side == "clients")
                 for side, sets in (sides or self.sides).items()}
        server, portions = jax.device_get(self._inspect(self.arrays, self.sets, self.start_private, state))
        return [Evaluation(progress_of(state), {side: scores for side, (scores, _) in found.items()}, server,
                           {side: numbers for side, (_, numbers) in found.items()},
                           sets=set_scores(self.problem, self.data, portions),
                           common_start=common_start)]

    def whole(self, state: State) -> list[Snapshot]:
        return [jax.device_get(Snapshot(state, self.start_private))]

    def travel(self, state: State) -> tuple[Message, Upload]:
        return travelling(self.algorithm, self.arrays, state, self.stepper.batch)

    def about(self) -> dict[str, Any]:
        return {"devices": self.mesh.size, "clients_at_once": self.group}

    def close(self) -> None:
        pass

    def _scored(self, state: State, side: str, sets: dict[str, Any], common_start: bool) -> tuple[PyTree, PyTree]:
        clients = state.clients if side == "clients" else self._newcomers
        first = 0 if side == "clients" else self.population
        held = self.stepper.held(state) if self.stepper.held is not None and side == "clients" else None
        population, chosen = sets["train"].population, self.scored.get(side)
        arguments = (sets, self.arrays, state.server, self.start_private, clients,
                     jax.random.fold_in(self._score_key, state.round), np.int32(first), held, chosen)
        if (side, common_start) not in self._scorers:
            enter(COMPILING)
            one = jax.eval_shape(lambda rows: jax.tree.map(lambda leaf: leaf[0], rows), clients)
            common = state.server, self.start_private, one, sets["train"], self.arrays
            count = population if chosen is None else len(chosen)
            fanout = Fanout(self.mesh, min(self.group, -(-count // self.mesh.size)))
            scores = scorer(self.problem, self.algorithm, fanout, common, held is not None, common_start)
            self._scorers[side, common_start] = jax.jit(scores).lower(*arguments).compile()
        enter(FITTING if side == "new" else EVALUATING)
        return for_all(jax.device_get(self._scorers[side, common_start](*arguments)), chosen, population)

    @cached_property
    def _inspect(self) -> Any:
        return jax.jit(partial(inspect, self.problem, self.algorithm, self.clock, Fanout(self.mesh, self.group)))

    @cached_property
    def _newcomers(self) -> PyTree:
        """The new clients as they are on their first day: the server never met them."""
        ids = self.population + np.arange(self.sides["new"]["train"].population)
        make = jax.jit(partial(initial_clients, self.algorithm))
        return replicated(self.mesh, make(self._start_key, self._parts, ids))

    def _grouping(self, options: Local, train: Examples) -> tuple[int, float]:
        """How many clients to vectorise at a time, and how many bytes a round may use."""
        device = self.mesh.devices.flat[0]
        on_cpu = device.platform == "cpu"
        share = -(-self.clock.slots // self.mesh.size)
        if options.memory_gib is not None:
            budget = options.memory_gib * 2**30
        else:
            budget = float("inf") if on_cpu else 0.8 * (device.memory_stats() or {}).get("bytes_limit", float("inf"))
        if options.group is not None:
            return min(options.group, share), budget
        if options.mode == "scan" or (options.mode == "auto" and on_cpu and not self.stepper.short):
            return 1, budget
        uneven = train.longest > UNEVEN * float(np.mean(train.sizes))
        return -(-share // GROUPS) if uneven and not self.stepper.short else share, budget

    def _compiled(self, state: State) -> Any:
        """Compile the block; halve the groups until its working memory fits the budget."""
        while True:
            step = partial(self.stepper.step, Fanout(self.mesh, self.group))

            def block(arrays: Arrays, state: State, until: Array, step=step) -> State:
                return jax.lax.while_loop(lambda state: state.round < until, partial(step, arrays), state)

            program = jax.jit(block, donate_argnums=1).lower(self.arrays, state, np.int32(0)).compile()
            needs = getattr(program.memory_analysis(), "temp_size_in_bytes", 0)
            if self.mesh.devices.flat[0].platform == "cpu":
                require(needs, "a round")
            if needs <= self.budget or self.group == 1:
                if needs > self.budget:
                    raise InputError(f"a round needs {needs / 2**30:.2f} GiB of working memory for a single client, "
                                     f"more than the {self.budget / 2**30:.2f} GiB allowed; raise memory_gib or "
                                     "lower batch_size.")
                return program
            self.group = -(-self.group // 2)


def _copied(leaf: Any) -> Any:
    """A restored leaf as an array of our own: a read-only one cannot be donated."""
    return jnp.array(leaf) if isinstance(leaf, jax.Array) else np.array(leaf)
