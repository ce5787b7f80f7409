"""An engine from outside the package: workers in threads, each with a part of the cohort, whose sums are added up.

It calls the four parts of a round and writes none of them: keys and opening, the clients' turns, and the close.
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass

import jax
import jax.numpy as jnp
import numpy as np

from cantons.engine.aggregation import aggregation_of
from cantons.engine.client import take_turn
from cantons.engine.plain import PlainSession
from cantons.engine.round import close_round, open_round, take
from cantons.protocol import adds


@dataclass(frozen=True)
class Threads:
    """Rounds on a few threads.

    workers: how many threads share the clients of a round.
    """

    workers: int = 2

    name = "threads_engine:Threads"
    compile = True  # for the session it inherits

    def options(self):
        return asdict(self)

    def refuses(self, run):
        if run.clock.online is not None:
            return "runs rounds only; use the engine local for online steps."
        if not adds(run.algorithm.aggregate):
            return "adds up what its workers send, and this rule wants to see every upload."
        return ""

    def start(self, runs, notice=print):
        (run,) = runs
        return ThreadsSession(self, run)

    def together(self):
        return None


class ThreadsSession(PlainSession):
    """The plain session, with its turns dealt out to threads."""

    def __init__(self, options, run):
        super().__init__(options, run)
        self.pool, self.workers = ThreadPoolExecutor(options.workers), options.workers
        self._share = jax.jit(self._turns)

    def about(self):
        return {"workers": self.workers}

    def close(self):
        self.pool.shutdown()

    def _round(self, state):
        algorithm, clock = self.run.algorithm, self.run.clock
        opening = open_round(algorithm, clock, self.arrays, state)
        precision = jax.config.jax_enable_x64  # a thread has settings of its own

        def work(places):
            with jax.enable_x64(precision):
                slots = jax.tree.map(lambda leaf: leaf[places], opening.slots)
                return self._share(self.arrays.train, state.rule, opening.message, slots, take(state.clients, slots.id))

        shares = [places for places in np.array_split(np.arange(clock.slots), self.workers) if len(places)]
        found = list(self.pool.map(work, shares))
        total = jax.tree.map(lambda *parts: sum(parts[1:], parts[0]), *(total for total, _ in found))
        turns = jax.tree.map(lambda *parts: jnp.concatenate(parts), *(turns for _, turns in found))
        return close_round(algorithm, clock, self.arrays, state, opening, total, turns)

    def _turns(self, train, rule, message, slots, rows):
        algorithm, clock = self.run.algorithm, self.run.clock

        def turn(slot, row):
            data = train.client(jnp.minimum(slot.id, self.run.population - 1))
            return take_turn(algorithm, aggregation_of(algorithm.aggregate), rule, message, slot, row, data,
                             actors_hear=clock.actors_hear, always_acts=clock.full)

        summands, turns = jax.vmap(turn)(slots, rows)
        return jax.tree.map(lambda leaf: leaf.sum(axis=0), summands), turns
