"""A shard: some clients of a run, their examples and rows, in whatever process works on them.

The server is elsewhere. It sends a message and says who acts, and gets back their sum, or their uploads, and with each
the row that belongs to it: whoever holds the answers holds all that the shard knows.
"""

from __future__ import annotations

from functools import cached_property, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cantons.engine.aggregation import aggregation_of
from cantons.engine.client import Slot, Turn, keyed, take_turn
from cantons.engine.devices import floats, mesh_of
from cantons.engine.evaluate import score_clients
from cantons.engine.inspect import Probed, ask_clients, score_portions
from cantons.engine.mapping import Fanout
from cantons.engine.round import put, take, take_turns
from cantons.protocol import (
    Algorithm,
    Array,
    Data,
    Examples,
    Key,
    Message,
    Problem,
    PyTree,
    Stack,
    Upload,
    everything,
)


class Work(NamedTuple):
    """What all shards of a run do alike."""

    problem: Problem
    algorithm: Algorithm
    slots: int  # how many clients of a shard a round has room for
    actors_hear: bool
    always_acts: bool
    once: dict[str, bool]  # is the shared model the one that clients predict with? Of the "clients" and the "new" ones
    begins_common: bool  # before round 0 clients are scored with the model that all begin with
    double: bool  # float64, not float32
    random: str  # how keys draw


class Sent(NamedTuple):
    """What a round sends to every shard."""

    message: Message
    rule: PyTree


class Uploaded(NamedTuple):
    """What a job sends back."""

    upload: Upload
    sent: Message  # the part of the message that it answers, where that is not all of it


class Share(NamedTuple):
    """What one shard has of its own; all shares of a run have the same shapes."""

    sides: dict[str, dict[str, Examples]]  # whom there is to score, and on what: see `sides_of`
    sets: dict[str, Examples]  # portions of test sets
    rows: dict[str, PyTree]  # of the "clients" as they are now, and of the "new" ones as they begin
    scored: dict[str, Any]  # int32[...]: the places of those who are scored
    ids: dict[str, Any]  # int32[...]: and the numbers that their keys are made from
    round: int  # how many rounds the rows have behind them


class Question(NamedTuple):
    """What an evaluation sends to every shard."""

    message: Message
    shared: PyTree
    start: PyTree  # the private part that every client begins with
    key: Array  # as numbers
    server: PyTree = ()  # for a probe


class Answer(NamedTuple):
    """What a shard finds of its clients and portions."""

    scores: dict[str, PyTree]
    portions: dict[str, PyTree]
    probe: PyTree = ()


class Shard:
    """Some clients of a run."""

    def __init__(self, work: Work, share: Share):
        self._work, self._round = work, share.round
        # One client after another on a core, all at once on an accelerator.
        mesh = mesh_of(1)
        self._fanout = Fanout(mesh, 1 if mesh.devices.flat[0].platform == "cpu" else work.slots)
        with self._precision:
            # A round gives its rows away to be written over, so they must not lie in memory that others read.
            self._rows = jax.tree.map(jnp.array, share.rows["clients"])
            self._share = jax.tree.map(jnp.asarray, floats(share._replace(rows={**share.rows, "clients": ()})))

    @property
    def _precision(self) -> Any:
        return jax.enable_x64(self._work.double)

    def prepare(self, round: int, sent: Sent, slots: Slot) -> tuple[PyTree, Turn]:
        """Compile a round by one in which nobody acts: there are no `slots`."""
        total, turns = self.turns(round, sent, slots)
        self._round -= 1
        return total, turns

    def turns(self, round: int, sent: Sent, slots: Slot) -> tuple[PyTree, Turn]:
        """The turns of some clients in one round; a slot's id is a place in this shard, its key is numbers."""
        self._check(round)
        with self._precision:
            total, turns, self._rows = self._take_turns(
                self._share.sides["clients"]["train"], *sent, self._filled(slots), self._rows)
            self._round += 1
            total, turns = jax.device_get((total, turns))
            return total, jax.tree.map(lambda leaf: leaf[:len(slots.id)], turns)  # on the host: JAX would compile this

    def job(self, message: Message, slot: Slot, row: PyTree) -> Turn:
        """One client's turn with this row, by itself; the upload is as it was sent, with the message it answers."""
        with self._precision:
            return jax.device_get(self._take_job(self._share.sides["clients"]["train"], message, slot, row))

    def evaluate(self, round: int, question: Question, probed: Probed | tuple[()], rows: PyTree = None) -> Answer:
        """Score the clients and the portions of test sets, and ask those whom a probe asks; with these rows, if given.
        """
        if rows is None:
            self._check(round)
            rows = self._rows
        with self._precision:
            return jax.device_get(self._answer(
                self._share, rows, question, self._filled(probed) if probed else (),
                self._work.begins_common and round == 0))

    def _check(self, round: int) -> None:
        """Jobs are numbered: none is done twice, and none from rows that lag behind the server or run ahead of it."""
        if round != self._round:
            raise RuntimeError(f"asked for round {round}, and its rows have {self._round} rounds behind them")

    def _filled(self, slots: Any) -> Any:
        """As many slots as there is room for, so that one program serves every cohort; the spare ones are nobody's."""
        spare = self._work.slots - len(slots.id)
        filled = [np.concatenate([leaf, np.zeros((spare, *leaf.shape[1:]), leaf.dtype)]) for leaf in slots]
        filled[0][len(slots.id):] = self._share.sides["clients"]["train"].population
        return type(slots)(*filled)

    @cached_property
    def _take_turns(self) -> Any:
        work = self._work

        def run(train: Examples, message: Message, rule: PyTree, slots: Slot, rows: PyTree) -> tuple:
            slots = slots._replace(key=jax.random.wrap_key_data(slots.key, impl=work.random))
            total, turns = take_turns(work.algorithm, self._fanout, train, message, rule, slots, take(rows, slots.id),
                                      actors_hear=work.actors_hear, always_acts=work.always_acts)
            return total, turns, put(rows, slots.id, turns.row)

        return jax.jit(run, donate_argnums=4)

    @cached_property
    def _take_job(self) -> Any:
        algorithm = self._work.algorithm

        def update(key: Key, sent: Message, client: PyTree, data: Data) -> tuple[PyTree, PyTree]:
            upload, client = algorithm.client_update(key, sent, client, data)
            # The server has the message, unless each client gets a part of its own.
            return Uploaded(upload, () if algorithm.select is everything else sent), client

        def run(train: Examples, message: Message, slot: Slot, row: PyTree) -> Turn:
            slot = slot._replace(key=jax.random.wrap_key_data(slot.key, impl=self._work.random))
            # Stacked, an upload stays as it is: only the server knows how late it comes.
            raw = aggregation_of(Stack(lambda key, uploads, ids, counts: uploads))
            return take_turn(algorithm._replace(client_update=update), raw, (), message, slot, row,
                             train.client(slot.id), actors_hear=True, always_acts=True)[1]

        return jax.jit(run)

    @cached_property
    def _answer(self) -> Any:
        problem, algorithm, work, wrap = self._work.problem, self._work.algorithm, self._work, partial(
            jax.random.wrap_key_data, impl=self._work.random)

        def answer(share: Share, rows: PyTree, question: Question, probed: Probed | tuple[()],
                   common_start: bool) -> Answer:
            def score(side: str, sets: dict[str, Examples]) -> PyTree:
                held = jax.tree.map(lambda leaf: leaf[None], question.message), jnp.zeros(
                    sets["train"].population, jnp.int32)
                own = rows if side == "clients" else share.rows[side]
                places = share.scored[side]
                fanout = Fanout(self._fanout.mesh, 1 if self._fanout.group == 1 else len(places))
                return score_clients(problem, algorithm, fanout, work.once[side],
                                     (sets, held, question.shared, question.start, own), places,
                                     keyed(wrap(question.key), share.ids[side]), common_start and side == "clients")

            found: PyTree = ()
            if isinstance(probed, Probed) and algorithm.diagnostics.probe is not None:
                found = ask_clients(algorithm.diagnostics.probe, self._fanout, share.sides["clients"]["train"],
                                    question.server, probed._replace(key=wrap(probed.key)), take(rows, probed.id))
            return Answer({side: score(side, sets) for side, sets in share.sides.items()},
                          {name: score_portions(problem, self._fanout, portions, question.shared, question.start)
                           for name, portions in share.sets.items()}, found)

        return jax.jit(answer, static_argnums=4)
