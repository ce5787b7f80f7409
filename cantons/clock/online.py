"""The online clock: in every step each client meets new examples, and what is sent arrives late.

Agarwal, Langford and Wei, "Federated Residual Learning", 2020 (v1), section 2: at step t client i holds the message of
step t - beta_i, its downlink delay, and what it sends arrives alpha_i steps later, its uplink delay. The paper prints
equations (7) and (8) circularly at zero delay; here no delay means that an upload of step t is in the message of t + 1.
A link keeps its order: with random delays nothing overtakes what was sent before it.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cantons.clock.rounds import read_trace
from cantons.errors import InputError, Notice, amount, at_least
from cantons.memory import require
from cantons.protocol import Algorithm, Array, Clock, Key, Online, Plan, adds
from cantons.ranges import INT32, Count, Fraction, Keys, Range, Seed, Whole
from cantons.recipe import clock
from cantons.shuffle import permutation

Fixed = Whole | Sequence[Whole] | np.ndarray  # a delay
Delay = Fixed | Annotated[Mapping[str, Any], Keys(least=Fixed, most=Fixed)]
Sync = Count | Sequence[Count] | np.ndarray | Annotated[Mapping[str, Any], Keys(probability=Fraction, seed=Seed)]
Chance = Annotated[float, Range(0, 1, above=True)]
Active = np.ndarray | str | Annotated[Mapping[str, Any], Keys(probability=Chance | Sequence[Chance] | np.ndarray,
                                                              seed=Seed)]


class Arrays(NamedTuple):
    """Everything about the clock that may differ between runs of one program."""

    up: np.ndarray  # int32[2, population]: the smallest and the largest delay of each client
    down: np.ndarray
    active: np.ndarray | None  # bool[steps, population]: who has examples in which step
    arrival: np.ndarray | None  # [population]: the chance of having examples in a step
    weights: np.ndarray  # [population]: what an upload of each client weighs
    meets: np.ndarray | None  # bool[steps + 1]: an explicit list of synchronisations
    period: np.ndarray | None  # int32
    chance: np.ndarray | None  # of a synchronisation in each step


@clock
def online(population: int, arrivals: np.ndarray | None = None, *, uplink: Delay = 0, downlink: Delay = 0,
           batch: Count = 1, order: Literal["cycle", "shuffle", "sample"] = "cycle", active: Active | None = None,
           weights: Literal["equal", "inverse"] = "equal", sync: Sync = 1, counted: Count | None = None,
           score: Literal["own", "everyone"] = "own", label_delay: Whole = 0,
           max_delay: Whole | None = None) -> Clock:
    """Every client meets `batch` examples in each step and is scored on them before it learns from them.

    Server and clients exchange messages at synchronisations, and learn by themselves in between.

    uplink: steps from a client's upload to its arrival: a number, one number per client, or {"least": a, "most": b} to
        draw each step's delay uniformly from a to b (a and b may be lists too).
    downlink: steps from a broadcast to its arrival, given in the same ways.
    batch: examples that a client meets in a step.
    order: how a client meets its training examples: "cycle" goes through them as they are stored, over and over;
        "shuffle" goes through them in another order each time; "sample" draws with replacement.
    active: who has examples in which step, the others being silent: a trace as for `rounds`, or {"probability": p},
        one for all clients or one for each, drawn in each step from a `seed` of its own; none means everybody, always.
    weights: "equal", or "inverse": client i's uploads weigh T / N_i, where N_i of the trace's T steps are active (or
        1 / p_i), so that every client counts the same, however often it speaks.
    sync: when there is a synchronisation: every so many steps; before the steps listed (counted from 1, the first of
        which is 1); or {"probability": p}, drawn anew in each step from a `seed` of its own.
    counted: how many clients, drawn without replacement, upload at a synchronisation; none means all. Everybody hears.
    score: "own", or "everyone" to charge each client's model with everybody's examples too, as collective regret does.
    label_delay: a client is scored on examples as it meets them, and learns from them this many meetings later.
    max_delay: makes room for delays up to this many steps, so that runs with other delays are the same program.
    """
    recorded = active is None and arrivals is not None
    if active is None:
        active = arrivals  # the data says who has examples when
    up, down = _read_delays("uplink", uplink, population), _read_delays("downlink", downlink, population)
    arrival = _read_probabilities(active, population) if isinstance(active, Mapping) else None
    trace = None if active is None or isinstance(active, Mapping) else read_trace("active", active, population)
    if weights == "inverse" and active is None:
        raise InputError('weights = "inverse" weighs clients by how rarely they are active; give the trace, active.')
    if max_delay is not None:
        at_least("max_delay", max_delay, int(max(up.max(), down.max())))
    if counted is not None and counted > population:
        raise InputError(f"counted is {counted} but there are only {amount(population, 'client')}.")
    meets, period, chance, gap = _read_sync(sync)
    arrays = Arrays(up, down, trace, arrival, _client_weights(weights, trace, arrival, population), meets, period,
                    chance)
    ids = np.arange(population, dtype=np.int32)
    steady = bool((up[0] == up[1]).all() and (down[0] == down[1]).all())

    def plan(arrays: Arrays, key: Key, round: Array) -> Plan:
        acts = _draw_active(arrays, round, active, population)
        drawn = jnp.ones(population, bool)
        counts = drawn if counted is None else permutation(key, population)(jnp.asarray(ids)) < counted
        if gap != 1:  # what is sent in this step is for the synchronisation after it
            counts = counts & _is_sync(arrays, round + 1, sync)
        return Plan(jnp.asarray(ids), acts, jnp.where(counts, arrays.weights, 0), jnp.ones(population, bool),
                    _draw_delays(key, 0, arrays.up, steady), _draw_delays(key, 1, arrays.down, steady),
                    None if gap == 1 else _is_sync(arrays, round, sync))

    most_up, most_down = (int(delay.max()) if max_delay is None else max_delay for delay in (up, down))

    def check(algorithm: Algorithm, rounds: int) -> None:
        if recorded and trace is not None:
            _warn_of_repeats(len(trace), rounds, batch)
        if gap is not None and gap > max(rounds, 1):
            raise InputError(f"sync is {gap} but there are only {amount(rounds, 'step')}: clients would never meet.")
        if label_delay and algorithm.score is not None:
            raise InputError("the algorithm is scored by what it does in a step and learns from that at once; use "
                             "label_delay = 0.")
        if weights == "inverse" and not adds(algorithm.aggregate):
            raise InputError("uploads are looked at one by one here and cannot be weighed; use weights = \"equal\".")
        if weights == "inverse" and algorithm.idle_upload is not None:
            raise InputError("every client uploads at every synchronisation here, whether it has examples or not, so "
                             "all count alike already; use weights = \"equal\".")

    return Clock(population, active is None, arrays, plan, actors_hear=True,
                 online=Online(batch, order, most_up, most_down, steady, gap, score == "everyone",
                               None if counted == population else counted, label_delay),
                 expected=counted, check=check)


def _warn_of_repeats(steps: int, rounds: int, batch: int) -> None:
    """Tell that rows of a recorded stream will be met more than once, and that scores know them already."""
    if batch > 1:
        warnings.warn(f"a client has one row of the stream in a step, and batch = {batch} meets rows before their time "
                      "and again later; batch = 1 plays the stream as it was.", Notice, stacklevel=3)
    elif rounds > steps:
        warnings.warn(f"the stream ends with step {steps}: steps {steps + 1} to {rounds} play it again from its "
                      f"beginning, with rows that were learned from before; rounds = {steps} plays it once.", Notice,
                      stacklevel=3)


def _read_probabilities(active: Mapping[str, Any], population: int) -> np.ndarray:
    if not {"probability"} <= set(active) <= {"probability", "seed"}:
        raise InputError(f"active is {dict(active)}; random arrivals have the key probability, and may have seed.")
    values = np.asarray(active["probability"], np.float32)
    if values.shape not in ((), (population,)):
        raise InputError(f"active has {values.size} probabilities for {population} clients; give one, or one for each.")
    if not ((values > 0) & (values <= 1)).all():
        raise InputError(f"active has the probability {active['probability']}; give numbers above 0, and at most 1.")
    return np.broadcast_to(values, population)


def _draw_active(arrays: Arrays, round: Array, active: Active | None, population: int) -> Array:
    if arrays.active is not None:
        return jnp.asarray(arrays.active)[round % arrays.active.shape[0]]
    if arrays.arrival is None:
        return jnp.ones(population, bool)
    assert isinstance(active, Mapping)
    return _draw_uniform(active, "active", round, (population,)) < arrays.arrival


def _draw_uniform(given: Mapping[str, Any], what: str, round: Array, shape: tuple[int, ...]) -> Array:
    """Uniform numbers of this step; "sync" and "active" draw different ones, even from the same seed."""
    key = jax.random.fold_in(jax.random.key(given.get("seed", 0)), ("sync", "active").index(what))
    return jax.random.uniform(jax.random.fold_in(key, round), shape, jnp.float32)


def _read_sync(sync: Sync) -> tuple[np.ndarray | None, np.ndarray | None, np.ndarray | None, int | None]:
    """Read `sync` as a table, a period or a probability, the other two None; and the longest gap, if it is known."""
    if isinstance(sync, Mapping):
        if not {"probability"} <= set(sync) <= {"probability", "seed"}:
            raise InputError(f"sync is {dict(sync)}; a random one has the key probability, and may have seed.")
        return None, None, np.array(sync["probability"], np.float32), None
    if isinstance(sync, int | np.integer) and not isinstance(sync, bool):
        return None, np.array(sync, np.int32), None, int(sync)
    steps = np.asarray(sync)
    if steps.ndim != 1 or not steps.size or steps.dtype.kind not in "iu":
        raise InputError(f"sync is {sync}; give a period, or the steps of the synchronisations, counted from 1.")
    if steps[0] != 1 or (np.diff(steps) <= 0).any():
        raise InputError(f"sync lists the steps {steps[:5].tolist()}...; they begin with 1 and rise.")
    require(int(steps[-1]), f"a list of synchronisations up to step {steps[-1]}")
    table = np.zeros(int(steps[-1]) + 1, bool)
    table[steps - 1] = True
    return table, None, None, max(2, int(np.diff(steps, append=steps[-1]).max()))


def _is_sync(arrays: Arrays, round: Array, sync: Sync) -> Array:
    """Is there a synchronisation before this step, counted from 0?"""
    if arrays.meets is not None:
        return jnp.asarray(arrays.meets)[jnp.minimum(round, len(arrays.meets) - 1)]
    if arrays.period is not None:
        return round % arrays.period == 0
    assert arrays.chance is not None and isinstance(sync, Mapping)
    return _draw_uniform(sync, "sync", round, ()) < arrays.chance


def _draw_delays(key: Key, link: int, bounds: Array | np.ndarray, steady: bool) -> Array:
    if steady:
        return jnp.asarray(bounds[0])
    return jax.random.randint(jax.random.fold_in(key, link), bounds[0].shape, bounds[0], bounds[1] + 1, jnp.int32)


def _read_delays(name: str, delay: Delay, population: int) -> np.ndarray:
    """Read the smallest and the largest delay of each client: two rows, one column per client."""
    if isinstance(delay, Mapping):
        if set(delay) != {"least", "most"}:
            raise InputError(f"{name} is {dict(delay)}; a random delay has two keys, least and most.")
        least, most = delay["least"], delay["most"]
    else:
        least = most = delay
    rows = []
    for given in (least, most):
        values = np.asarray(given)
        if values.dtype.kind not in "iu":
            raise InputError(f"{name} is {given}; a delay is a whole number of steps, 0 or more.")
        if values.ndim > 1 or values.shape not in ((), (population,)):
            raise InputError(f"{name} has {values.size} delays for {population} clients; give one, or one for each.")
        if values.min() < 0 or values.max() > INT32:
            raise InputError(f"{name} is {given}; a delay is a whole number of steps, 0 or more and at most {INT32}.")
        rows.append(np.broadcast_to(values, population))
    if (rows[0] > rows[1]).any():
        raise InputError(f"{name} draws from {least} to {most}; least must not be above most.")
    return np.stack(rows).astype(np.int32)


def _client_weights(kind: str, trace: np.ndarray | None, arrival: np.ndarray | None, population: int) -> np.ndarray:
    if kind == "equal":
        return np.ones(population, np.float32)
    if arrival is not None:
        return (1 / arrival).astype(np.float32)
    assert trace is not None
    return (len(trace) / np.maximum(trace.sum(axis=0), 1)).astype(np.float32)
