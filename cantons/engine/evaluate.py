"""Score every client's model, shared and personalised, on its own examples: one compiled program."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from cantons.engine.client import keyed
from cantons.engine.init import keeps_model
from cantons.engine.mapping import Fanout, map_clients
from cantons.engine.round import Arrays
from cantons.protocol import (
    Algorithm,
    Array,
    Batch,
    Client,
    Data,
    Examples,
    Federated,
    Key,
    Message,
    Problem,
    PyTree,
    Start,
)

BATCH = 128  # examples scored at once


def sides_of(data: Federated) -> dict[str, dict[str, Any]]:
    """Whom there is to score, and on what; "train" of "clients" is what is learned from."""
    sides = {"clients": {"train": data.clients.train, "test": data.clients.test}}
    if data.validation is not None:
        sides["clients"]["validation"] = data.validation
    if data.new is not None:
        sides["new"] = {"train": data.new.train, "test": data.new.test}
    return sides


def begins_common(algorithm: Algorithm, start: Start) -> bool:
    """Are clients scored before round 0 with the model that all begin with, as `Evaluation.common_start` says?

    Those of a method that keeps nothing are fitted then as ever, and so are those that begin with a part of their own.
    """
    return start.privates is None and keeps_model(algorithm, start[:2])


def scorer(problem: Problem, algorithm: Algorithm, fanout: Fanout, common: PyTree,
           late: bool = False, common_start: bool = False) -> Callable[..., PyTree]:
    """Build `scores(sets, arrays, server, start, clients, key, first_id, held, chosen)`.

    `sets` are ragged examples by name, "train" among them. It returns {set: {"shared" | "personal": {metric: one
    mean per client}}}, and the diagnostics of each client. `start` is the private part every client begins with: the
    shared model predicts with it. `common` is (server, start, client, train, arrays) as shapes, to see whether the
    two models are one and the same. Clients predict with the server's message of now; `late` ones with those they have
    got: `held` is a ring of messages, and where in it each client's is. With `chosen`, rows of some clients, there are
    numbers of these alone; they are the ones that all would have. With `common_start` nobody has a model of its own.
    """
    once = not late and is_shared_model(algorithm, *common)

    def scores(sets, arrays, server, start, clients, key, first_id, held=None, chosen=None):
        population = sets["train"].population
        count = population if chosen is None else len(chosen)
        ids = jnp.minimum(jnp.arange(fanout.padded(count)), count - 1)
        if chosen is not None:
            ids = chosen[ids]
        if held is None:
            message = algorithm.broadcast(key, server, arrays.datacenter(algorithm, key, fanout))
            held = jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], message), jnp.zeros(population, jnp.int32)
        found = score_clients(problem, algorithm, fanout, once, (sets, held, server.shared, start, clients),
                              ids, keyed(key, first_id + ids), common_start)
        return jax.tree.map(lambda leaf: leaf[:count], found)

    return scores


def score_clients(problem: Problem, algorithm: Algorithm, fanout: Fanout, once: bool, common: PyTree, places: Array,
                  keys: Key, common_start: bool = False) -> PyTree:
    """The scores and diagnostics of the clients in these places, each with its key.

    `common` is (sets, (messages, which of them each client holds), the shared part, the private part every client
    began with, the clients' rows); with `once` the shared model is the one that clients predict with.
    """

    def each(common, slot):
        sets, (messages, held), shared, start, clients = common
        index, key = slot
        message = jax.tree.map(lambda leaf: leaf[held[index]], messages)
        client = jax.tree.map(lambda leaf: leaf[index], clients)
        own = {name: examples.client(index) for name, examples in sets.items()}
        return (), score_client(problem, algorithm, key, message, client, own, None if once else (shared, start),
                                common_start)

    return map_clients(fanout, each, common, (places, keys))[1]


def for_all(found: PyTree, chosen: np.ndarray | None, population: int) -> PyTree:
    """What was found of the clients in `chosen`, on the host, with a number for every client: NaN for the others."""
    if chosen is None:
        return found

    def fill(leaf: np.ndarray) -> np.ndarray:
        filled = np.full((population, *leaf.shape[1:]), np.nan, np.result_type(leaf.dtype, np.float32))
        filled[chosen] = leaf
        return filled

    return jax.tree.map(fill, found)


def score_client(problem: Problem, algorithm: Algorithm, key: Key, message: Message, client: Client,
                 sets: Mapping[str, Data], shared: tuple[PyTree, PyTree] | None,
                 common_start: bool = False) -> tuple[PyTree, PyTree]:
    """One client's scores and diagnostics; `shared` is the model for nobody in particular, None if it is this one too.
    With `common_start` it is everybody's.

    The personalised model may look at the client's training examples, never at the others. It is made from the whole
    message, whatever part of it the client asks for to train with: a test example may look at any row of a table.
    """
    train = sets["train"]
    if common_start and shared is not None:
        unasked = jax.eval_shape(lambda: algorithm.personal_model(key, message, client, train).numbers)
        personal, numbers, shared = shared, jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), unasked), None
    else:
        model = algorithm.personal_model(key, message, client, train)
        personal, numbers = model.parts, model.numbers
    found = {name: {"personal": mean_scores(problem, *personal, data)} for name, data in sets.items()}
    for name, data in sets.items():
        found[name]["shared"] = found[name]["personal"] if shared is None else mean_scores(problem, *shared, data)
    return found, {**algorithm.diagnostics.client(message, client, personal, train), **numbers}


def mean_scores(problem: Problem, shared: PyTree, private: PyTree, data: Data) -> dict[str, Array]:
    """Each metric's mean over all of one client's examples; NaN if it has none."""

    def add(totals, batch: Batch):
        values = problem.score(shared, private, batch)
        return jax.tree.map(lambda total, value: total + (value * batch.mask).sum(), totals, values)

    shapes = jax.eval_shape(lambda: problem.score(shared, private, data.full()))
    totals = data.fold(BATCH, add, jax.tree.map(lambda leaf: jnp.zeros((), leaf.dtype), shapes))
    return jax.tree.map(lambda total: total / jnp.asarray(data.size, total.dtype), totals)


def is_shared_model(algorithm: Algorithm, server: PyTree, start: PyTree, client: PyTree, train: Examples,
                     arrays: Arrays) -> bool:
    """Does `model` hand back the server's shared part untouched, with no private part? Then score it once."""
    same = []

    def trace(key: Key, server, client, train, arrays):
        message = algorithm.broadcast(key, server, arrays.datacenter(algorithm, key))
        shared, private = algorithm.personal_model(key, message, client, train.client(0)).parts
        served, kept = jax.tree.leaves(shared), jax.tree.leaves(server.shared)
        same.append(not jax.tree.leaves((private, start)) and len(served) == len(kept)
                    and all(left is right for left, right in zip(served, kept, strict=True)))
        return 0

    jax.eval_shape(trace, jax.random.key(0), server, client, train, arrays)
    return same[0]
