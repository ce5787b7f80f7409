"""The local engine: a block of rounds is one compiled program, on this process's devices.

On a CPU each core is a device and works through its clients in turn, so that one client's weights stay in
its cache; on an accelerator a whole cohort is vectorised, as far as memory allows.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from cantons.engine.devices import floats, mesh_of, replicated
from cantons.engine.evaluate import scorer
from cantons.engine.init import initial_clients, initial_state, same_shapes, seed_keys
from cantons.engine.mapping import Fanout
from cantons.engine.online import begin_online, held_messages, online_step
from cantons.engine.round import Arrays, message_shapes, one_round
from cantons.errors import InputError, at_least, one_of, positive
from cantons.protocol import Algorithm, Array, Clock, Problem, PyTree, State

UNEVEN = 2.0  # longest client over the mean, above which vectorised clients are grouped by size
GROUPS = 8


@dataclass(frozen=True)
class Local:
    """Options of the local engine; every default is chosen from the hardware and the data.

    `mode` is "scan" (one client after another), "vmap" (together) or "auto"; `group` is how many clients are
    vectorised at a time; `devices` how many of this process's devices are used; `memory_gib` how much
    working memory a round may take before the groups are made smaller.
    """

    mode: str = "auto"
    group: int | None = None
    devices: int | None = None
    memory_gib: float | None = None

    def start(self, problem: Problem, algorithm: Algorithm, clock: Clock, data: Any, central: Any,
              seed: int) -> Session:
        """Place a federation (`clients`, `new`) and the datacenter's examples on the devices."""
        return Session(self, problem, algorithm, clock, data, central, seed)


class Session:
    """A study on its devices: `begin` a state, `advance` it, `evaluate` it."""

    def __init__(self, options: Local, problem: Problem, algorithm: Algorithm, clock: Clock, data: Any,
                 central: Any, seed: int):
        one_of("mode", options.mode, ("auto", "scan", "vmap"))
        self.problem, self.algorithm, self.clock = problem, algorithm, clock
        # Steps are short: devices would wait for each other longer than they work.
        self.mesh = mesh_of(1 if clock.online and options.devices is None else options.devices)
        self.population = data.clients.train.population
        self.group, self.budget = self._grouping(options, data.clients.train)
        self._start_key, run_key, self._score_key = seed_keys(seed)
        place = partial(replicated, self.mesh)
        self.arrays = place(floats(Arrays(data.clients.train, central, clock.arrays, run_key)))
        self._sides = {"clients": {"train": self.arrays.train, "test": place(floats(data.clients.test))}}
        if data.validation is not None:
            self._sides["clients"]["validation"] = place(floats(data.validation))
        if data.new is not None:
            self._sides["new"] = place(floats({"train": data.new.train, "test": data.new.test}))
        self.start_private: PyTree = None
        self._block: Any = None
        self._scorers: dict[str, Any] = {}

    def begin(self, initial: tuple[PyTree, PyTree] | None = None) -> State:
        """The state before round 0, from `problem.init` or from the given (shared, private)."""
        if initial is not None:
            same_shapes(initial, jax.eval_shape(self.problem.init, self._start_key))
        # Copied, because a run donates its state to the next block and must not eat the caller's arrays.
        parts = jax.jit(self.problem.init)(self._start_key) if initial is None else jax.tree.map(
            jnp.array, floats(jax.device_get(initial)))
        self._parts = parts
        self.start_private = replicated(self.mesh, parts[1])
        start = partial(initial_state, self.algorithm, population=self.population)
        state = jax.jit(start)(self._start_key, parts)
        if self.clock.online:
            state = begin_online(self.problem, self.algorithm, self.clock, self.arrays, state)
        return self.place(state)

    def place(self, state: State) -> State:
        """Put a state (a restored one, say) where the compiled programs expect it."""
        return replicated(self.mesh, state)

    def compile(self, state: State) -> None:
        """Compile the block of rounds, once."""
        if self._block is None:
            self._block = self._compiled(state)

    def advance(self, state: State, until: int) -> State:
        """Run rounds until `until` of them are done. `state` is used up."""
        self.compile(state)
        return self._block(self.arrays, state, np.int32(until))

    def evaluate(self, state: State, side: str = "clients") -> dict[str, dict[str, dict[str, np.ndarray]]]:
        """Per-client scores of the "clients" or of the held-out "new" ones, as NumPy arrays."""
        sets = self._sides[side]
        clients = state.clients if side == "clients" else self._strangers
        first = 0 if side == "clients" else self.population
        late = self.clock.online is not None and side == "clients"
        arguments = (sets, self.arrays.central, state.server, self.start_private, clients,
                     jax.random.fold_in(self._score_key, state.round), np.int32(first),
                     held_messages(state.in_flight) if late else None)
        if side not in self._scorers:
            one = jax.eval_shape(lambda rows: jax.tree.map(lambda leaf: leaf[0], rows), clients)
            common = state.server, self.start_private, one, sets["train"], self.arrays.central
            fanout = Fanout(self.mesh, min(self.group, -(-sets["train"].population // self.mesh.size)))
            scores = scorer(self.problem, self.algorithm, fanout, common, late)
            self._scorers[side] = jax.jit(scores).lower(*arguments).compile()
        return jax.device_get(self._scorers[side](*arguments))

    def message_and_upload(self, state: State) -> tuple[PyTree, PyTree]:
        """What travels to and from one client, as shapes."""
        return message_shapes(self.algorithm, self.arrays, state, self.clock.online.batch if self.clock.online else 1)

    @cached_property
    def _strangers(self) -> PyTree:
        """The new clients as they are on their first day: the server never met them."""
        ids = self.population + np.arange(self._sides["new"]["train"].population)
        make = jax.jit(partial(initial_clients, self.algorithm))
        return replicated(self.mesh, make(self._start_key, self._parts, ids))

    def _grouping(self, options: Local, train: Any) -> tuple[int, float]:
        """How many clients to vectorise at a time, and how many bytes a round may use."""
        device = self.mesh.devices.flat[0]
        on_cpu = device.platform == "cpu"
        share = -(-self.clock.slots // self.mesh.size)
        if options.memory_gib is not None:
            positive("memory_gib", options.memory_gib)
            budget = options.memory_gib * 2**30
        else:
            budget = float("inf") if on_cpu else 0.8 * (device.memory_stats() or {}).get("bytes_limit", float("inf"))
        if options.group is not None:
            at_least("group", options.group, 1)
            return min(options.group, share), budget
        if options.mode == "scan" or (options.mode == "auto" and on_cpu and not self.clock.online):
            return 1, budget
        uneven = train.longest > UNEVEN * float(np.mean(train.sizes))
        return -(-share // GROUPS) if uneven and not self.clock.online else share, budget

    def _compiled(self, state: State) -> Any:
        """Compile the block; halve the groups until its working memory fits the budget."""
        while True:
            fanout = Fanout(self.mesh, self.group)
            step = (partial(online_step, self.problem, self.algorithm, self.clock, fanout) if self.clock.online
                    else partial(one_round, self.algorithm, self.clock, fanout))

            def block(arrays: Arrays, state: State, until: Array, step=step) -> State:
                return jax.lax.while_loop(lambda state: state.round < until, partial(step, arrays), state)

            program = jax.jit(block, donate_argnums=1).lower(self.arrays, state, np.int32(0)).compile()
            needs = getattr(program.memory_analysis(), "temp_size_in_bytes", 0)
            if needs <= self.budget or self.group == 1:
                if needs > self.budget:
                    raise InputError(f"a round needs {needs / 2**30:.2f} GiB of working memory for a single client, "
                                     f"more than the {self.budget / 2**30:.2f} GiB allowed; raise memory_gib or "
                                     "lower batch_size.")
                return program
            self.group = -(-self.group // 2)
