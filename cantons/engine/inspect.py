"""What an evaluation tells of the server: its diagnostics, a probe of a cohort, the shared model on test sets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cantons.engine.client import keyed
from cantons.engine.evaluate import BATCH, mean_scores
from cantons.engine.mapping import Fanout, map_clients
from cantons.engine.round import Arrays, round_keys, take
from cantons.protocol import (
    Algorithm,
    Array,
    Client,
    Clock,
    Examples,
    Federated,
    Key,
    Probe,
    Problem,
    PyTree,
    Server,
    State,
)

Sets = Mapping[str, Examples]


def sets_of(data: Federated) -> dict[str, Examples]:
    """The test sets of nobody in particular, in portions that devices can share."""
    return {name: rows.divided(BATCH) for name, rows in data.sets.items()}


def inspect(problem: Problem, algorithm: Algorithm, clock: Clock, fanout: Fanout, arrays: Arrays, sets: Sets,
            start: PyTree, state: State) -> tuple[dict[str, Array], dict[str, PyTree]]:
    """Numbers of the server, and what `set_scores` makes the scores of test sets from."""
    numbers = dict(algorithm.diagnostics.server(state.server))
    probe = algorithm.diagnostics.probe
    if probe is not None:
        slots = probed_slots(clock, fanout, arrays, state)
        found = ask_clients(probe, fanout, arrays.train, state.server, slots, take(state.clients, slots.id))
        numbers |= finish_probe(algorithm, arrays, state, found, fanout)
    return numbers, {name: score_portions(problem, fanout, rows, state.server.shared, start)
                     for name, rows in sets.items()}


def set_scores(problem: Problem, data: Federated, found: Mapping[str, PyTree]) -> dict[str, dict[str, float]]:
    """The metrics of each test set, on the host."""
    return {name: _finish(problem, np.asarray(data.sets[name].divided(BATCH).sizes), *parts)
            for name, parts in found.items()}


class Probed(NamedTuple):
    """One client that a probe asks."""

    id: Array
    key: Key
    counts: Array  # how often its answer counts; 0: not at all


def probed_slots(clock: Clock, fanout: Fanout, arrays: Arrays, state: State) -> Probed:
    """Those who would take part in the next round, or whom the clock names."""
    keys = round_keys(arrays.key, state.round)
    plan = (clock.probed or clock.plan)(arrays.clock, keys.plan, state.round)
    spare = fanout.padded(clock.slots) - clock.slots
    ids = jnp.pad(plan.ids, (0, spare), constant_values=state.ledger.shape[0])
    counts = jnp.pad(jnp.where(plan.acts, plan.counts, 0), (0, spare))
    return Probed(ids, keyed(keys.client, ids), counts.astype(float))


def ask_clients(probe: Probe, fanout: Fanout, train: Examples, server: Server, slots: Probed,
                rows: Client) -> tuple[PyTree, Array]:
    """The sum of what a probe finds, and of how often each answer counts; an `id` is a place in `train`."""

    def each(common, seat):
        train, server = common
        (index, key, count), client = seat
        data = train.client(jnp.minimum(index, train.population - 1))
        found = probe.client(key, server, client, data)
        return jax.tree.map(lambda leaf: jnp.where(count > 0, count * leaf, 0), (found, jnp.ones(()))), ()

    return map_clients(fanout, each, (train, server), (slots, rows))[0]


def finish_probe(algorithm: Algorithm, arrays: Arrays, state: State, found: tuple[PyTree, Array],
                 fanout: Fanout | None = None) -> dict[str, Array]:
    """The numbers that a probe makes of the sum of its answers."""
    probe, (total, weight) = algorithm.diagnostics.probe, found
    assert probe is not None
    mean = jax.tree.map(lambda leaf: leaf / weight, total)
    keys = round_keys(arrays.key, state.round)
    return dict(probe.finish(state.server, mean, arrays.datacenter(algorithm, keys.central, fanout)))


def score_portions(problem: Problem, fanout: Fanout, rows: Examples, shared: PyTree, start: PyTree) -> Any:
    """For each portion the means of its scores, and of each example what the metrics of whole sets want to know."""

    def each(common, index):
        rows, shared, start = common
        data = rows.client(jnp.minimum(index, rows.population - 1))
        collected = {name: metric.collect(shared, start, data.full()) for name, metric in problem.set_metrics.items()}
        return (), (mean_scores(problem, shared, start, data), collected)

    fanout = Fanout(fanout.mesh, min(fanout.group, -(-rows.population // fanout.mesh.size)))
    portions = jnp.arange(fanout.padded(rows.population))
    return map_clients(fanout, each, (rows, shared, start), portions)[1]


def _finish(problem: Problem, sizes: np.ndarray, means: Mapping[str, Any], collected: PyTree) -> dict[str, float]:
    portions = len(sizes)
    found = {name: float(np.average(np.asarray(values)[:portions].astype(np.float64), weights=sizes))
             for name, values in means.items()}
    real = np.arange(sizes.max()) < sizes[:, None]
    for name, metric in problem.set_metrics.items():
        rows = jax.tree.map(lambda leaf: np.asarray(leaf)[:portions][real], collected[name])
        found[name] = float(metric.finish(rows))
    return found
