"""Score every client's model, shared and personalised, on its own examples: one compiled program."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp

from cantons.engine.mapping import Fanout, map_clients
from cantons.engine.round import keyed
from cantons.protocol import Algorithm, Array, Batch, Data, Key, Problem, PyTree

BATCH = 128  # examples scored at once


def scorer(problem: Problem, algorithm: Algorithm, fanout: Fanout, common: PyTree,
           late: bool = False) -> Callable[..., PyTree]:
    """Build `scores(sets, central, server, start, clients, key, first_id, held)`.

    `sets` are ragged examples by name, "train" among them. It returns {set: {"shared" | "personal": {metric: one
    mean per client}}}. `start` is the private part every client begins with: the shared model predicts with it.
    The personalised model may look at a client's training examples, never at the others. `common` is (server,
    start, client, train, central) as shapes, to see whether the two models are one and the same. Clients predict with
    the server's message of now; `late` ones with those they have got: `held` is a ring of messages, and where in it
    each client's is.
    """
    impersonal = not late and _is_shared_model(algorithm, *common)

    def scores(sets, central, server, start, clients, key, first_id, held=None):
        population = sets["train"].population
        ids = jnp.minimum(jnp.arange(fanout.padded(population)), population - 1)
        if held is None:
            message = algorithm.broadcast(key, server, None if central is None else central.client(0))
            held = jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], message), jnp.zeros(population, jnp.int32)

        def each(common, slot):
            sets, (messages, places), shared, start, clients = common
            index, key = slot
            message = jax.tree.map(lambda leaf: leaf[places[index]], messages)
            client, own = jax.tree.map(lambda leaf: leaf[index], clients), sets["train"].client(index)
            sent = algorithm.select(message, algorithm.request(client, own))
            parts = {"personal": algorithm.model(key, sent, client, own)}
            if not impersonal:
                parts["shared"] = shared, start
            found = {name: {which: mean_scores(problem, *pair, examples.client(index)) for which, pair in parts.items()}
                     for name, examples in sets.items()}
            if impersonal:
                found = {name: which | {"shared": which["personal"]} for name, which in found.items()}
            return (), found

        common = sets, held, server.shared, start, clients
        _, found = map_clients(fanout, each, common, (ids, keyed(key, first_id + ids)))
        return jax.tree.map(lambda leaf: leaf[:population], found)

    return scores


def mean_scores(problem: Problem, shared: PyTree, private: PyTree, data: Data) -> dict[str, Array]:
    """Each metric's mean over all of one client's examples; NaN if it has none."""

    def add(totals, batch: Batch):
        values = problem.score(shared, private, batch)
        return jax.tree.map(lambda total, value: total + (value * batch.mask).sum(), totals, values)

    shapes = jax.eval_shape(lambda: problem.score(shared, private, data.full()))
    totals = data.fold(BATCH, add, jax.tree.map(lambda leaf: jnp.zeros((), leaf.dtype), shapes))
    return jax.tree.map(lambda total: total / jnp.asarray(data.size, total.dtype), totals)


def _is_shared_model(algorithm: Algorithm, server: PyTree, start: PyTree, client: PyTree, train: PyTree,
                     central: PyTree | None) -> bool:
    """Does `model` hand back the server's shared part untouched, with no private part? Then score it once."""
    same = []

    def trace(key: Key, server, client, train, central):
        message = algorithm.broadcast(key, server, None if central is None else central.client(0))
        shared, private = algorithm.model(key, message, client, train.client(0))
        served, kept = jax.tree.leaves(shared), jax.tree.leaves(server.shared)
        same.append(not jax.tree.leaves((private, start)) and len(served) == len(kept)
                    and all(left is right for left, right in zip(served, kept, strict=True)))
        return 0

    jax.eval_shape(trace, jax.random.key(0), server, client, train, central)
    return same[0]
