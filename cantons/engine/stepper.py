"""How each kind of clock is run: the one place that asks a clock what kind it is."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import numpy as np

from cantons.engine.aggregation import aggregation_of
from cantons.engine.asynchronous import Jobs, begin_asynchronous, counts_of, one_event
from cantons.engine.devices import floats
from cantons.engine.in_flight import InFlight, held_messages
from cantons.engine.init import bytes_of, initial_state, seed_keys, starting_point, with_rule
from cantons.engine.mapping import Fanout
from cantons.engine.online import begin_online, online_step
from cantons.engine.round import Arrays, exchange, one_round, travelling
from cantons.errors import InputError
from cantons.memory import require
from cantons.protocol import (
    Algorithm,
    Array,
    CentralExamples,
    Clock,
    Examples,
    Key,
    Message,
    Problem,
    Progress,
    PyTree,
    Snapshot,
    Start,
    State,
    stateless,
)


class Stepper(NamedTuple):
    """One kind of clock, with the problem and the algorithm it moves."""

    begin: Callable[[Arrays, State], State]  # (arrays, the state before anything was sent) -> the state before round 0
    step: Callable[[Fanout, Arrays, State], State]  # one round, or one step
    batch: int = 1  # how many examples are behind an upload whose size depends on it
    short: bool = False  # so short that devices would wait for each other longer than they work
    held: Callable[[State], tuple[PyTree, Array]] | None = None  # messages that clients hold, and where each one's is


def stepper_of(problem: Problem, algorithm: Algorithm, clock: Clock) -> Stepper:
    """The stepper that a clock asks for."""
    if clock.asynchronous is not None:
        return Stepper(partial(begin_asynchronous, algorithm, clock), partial(one_event, algorithm, clock),
                       short=clock.slots == 1)
    if clock.online is None:
        return Stepper(lambda arrays, state: state, partial(one_round, algorithm, clock))
    return Stepper(partial(begin_online, problem, algorithm, clock), partial(online_step, problem, algorithm, clock),
                   clock.online.batch, short=True, held=lambda state: held_messages(state.in_flight))


def begin_run(problem: Problem, algorithm: Algorithm, clock: Clock, arrays: Arrays, key: Key,
              parts: Start | tuple[PyTree, PyTree], population: int, copies: int = 1) -> State:
    """The state before round 0, from where all clients begin; it will be kept in so many copies.

    While it is traced, which takes no memory, its size becomes known: what does not fit is refused then.
    """
    stepper = stepper_of(problem, algorithm, clock)
    state = initial_state(algorithm, key, parts, population)
    if aggregation_of(algorithm.aggregate).init is not stateless:
        state = with_rule(algorithm, state, exchange(algorithm, arrays, state, stepper.batch).upload)
    state = stepper.begin(arrays, state)
    times = f" in {copies} copies" if copies > 1 else ""
    require(copies * bytes_of(state), f"the state of {population} clients{times}")
    return state


def blank_snapshot(problem: Problem, algorithm: Algorithm, clock: Clock, population: int, seed: int,
                   train: Examples | None, central: CentralExamples | None) -> Snapshot:
    """A run that has not begun, for a checkpoint to be read into; some clocks and rules must see the data for that."""
    key, run_key, _ = seed_keys(seed)
    parts = starting_point(problem, key)
    if train is None:
        late = clock.online is not None or clock.asynchronous is not None
        if late or aggregation_of(algorithm.aggregate).init is not stateless:
            raise InputError("what is on its way in this run has the shape of its data, which is not there; give it: "
                             "load(folder, data=...).")
        state = jax.jit(partial(initial_state, algorithm, population=population))(key, parts)
    else:
        arrays = floats(Arrays(train, central, clock.arrays, run_key))
        begin = partial(begin_run, problem, algorithm, clock, population=population)
        state = jax.jit(lambda arrays, key, parts: begin(arrays, key, parts))(arrays, key, parts)
    return jax.device_get(Snapshot(state, parts[1]))


def shapes_that_travel(problem: Problem, algorithm: Algorithm, train: Examples,
                       central: CentralExamples | None = None) -> tuple[PyTree, PyTree]:
    """What goes down to and up from one client, as shapes; nothing is computed."""
    key = jax.eval_shape(lambda: jax.random.key(0))
    state = jax.eval_shape(lambda key: initial_state(algorithm, key, problem.init(key), train.population), key)
    return travelling(algorithm, Arrays(train, central, (), key), state)


def message_held(state: State, index: int) -> Message | None:
    """The message that one client holds; None where all predict with the server's message of now."""
    if not isinstance(state.in_flight, InFlight):
        return None
    messages, places = held_messages(state.in_flight)
    return jax.tree.map(lambda leaf: leaf[places[index]], messages)


def progress_of(state: State) -> Progress:
    """What is to be written down about a run, on the host."""
    flight = state.in_flight if isinstance(state.in_flight, InFlight) else None
    stream = (None, {}) if flight is None else (flight.met, flight.scores)
    jobs = state.in_flight._replace(clock=(), messages=()) if isinstance(state.in_flight, Jobs) else None
    round, skipped, ledger, (met, charged), reports, reported, jobs = jax.device_get(
        (state.round, state.skipped, state.ledger, stream, dict(state.reports), state.reported, jobs))
    _, downloads, uploads, rejected, outvoted = ledger.T
    return Progress(int(round), int(skipped), downloads, uploads, rejected, met, charged, outvoted,
                    {name: float(value) for name, value in reports.items()}, int(np.sum(reported, dtype=int)),
                    None if jobs is None else counts_of(jobs, uploads))
