"""The models that clients predict with, of a run that stands still."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp

from cantons.engine.client import keyed
from cantons.engine.devices import floats, mesh_of, replicated
from cantons.engine.in_flight import InFlight, held_messages
from cantons.engine.mapping import Fanout, map_clients
from cantons.engine.round import Arrays
from cantons.protocol import Algorithm, CentralExamples, Examples, Key, PyTree, State

AT_ONCE = 64  # clients that an accelerator works on together


def personal_models(algorithm: Algorithm, train: Examples, central: CentralExamples | None, state: State, key: Key,
                    pick: Callable[[PyTree, PyTree], PyTree]) -> PyTree:
    """One row for each client, on the host: what `pick` takes of the (shared, private) that it predicts with.

    `key` is that of an evaluation of this state: these are the models that were scored there.
    """
    mesh, population = mesh_of(None), train.population
    share = -(-population // mesh.size)
    fanout = Fanout(mesh, 1 if mesh.devices.flat[0].platform == "cpu" else min(AT_ONCE, share))
    flight = state.in_flight if isinstance(state.in_flight, InFlight) else None

    def each(common, slot):
        train, (messages, places), clients = common
        index, key = slot
        message = jax.tree.map(lambda leaf: leaf[places[index]], messages)
        client = jax.tree.map(lambda leaf: leaf[index], clients)
        return (), pick(*algorithm.personal_model(key, message, client, train.client(index)).parts)

    def rows(arrays, state, key):
        ids = jnp.minimum(jnp.arange(fanout.padded(population)), population - 1)
        if flight is None:
            message = algorithm.broadcast(key, state.server, arrays.datacenter(algorithm, key, fanout))
            held = jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], message), jnp.zeros(population, jnp.int32)
        else:
            held = held_messages(state.in_flight)
        _, found = map_clients(fanout, each, (arrays.train, held, state.clients), (ids, keyed(key, ids)))
        return jax.tree.map(lambda leaf: leaf[:population], found)

    arrays = replicated(mesh, floats(Arrays(train, central, (), key)))
    return jax.device_get(jax.jit(rows)(arrays, replicated(mesh, state), key))
