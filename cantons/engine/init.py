"""The state before the first round."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from cantons.engine.round import keyed
from cantons.errors import InputError
from cantons.protocol import Algorithm, Array, Key, PyTree, State


def seed_keys(seed: int) -> tuple[Key, Key, Key]:
    """Keys for the start, for the rounds, and for scoring."""
    start, rounds, scores = jax.random.split(jax.random.key(seed), 3)
    return start, rounds, scores


def initial_clients(algorithm: Algorithm, key: Key, parts: tuple[PyTree, PyTree], ids: Array) -> PyTree:
    """One row per client, from the common (shared, private) starting point."""
    return jax.vmap(algorithm.init_client, in_axes=(0, None, None))(keyed(key, ids), *parts)


def initial_state(algorithm: Algorithm, key: Key, parts: tuple[PyTree, PyTree], population: int) -> State:
    return State(
        server=algorithm.init_server(key, *parts),
        clients=initial_clients(algorithm, key, parts, jnp.arange(population)),
        round=jnp.zeros((), jnp.int32),
        skipped=jnp.zeros((), jnp.int32),
        ledger=jnp.tile(jnp.array([1, 0, 0, 0], jnp.int32), (population, 1)),
    )


def same_shapes(given: PyTree, wanted: PyTree) -> None:
    """Refuse a starting point that is not the problem's in structure or in shape."""
    here, there = ({jax.tree_util.keystr(path): jnp.shape(leaf) for path, leaf in
                    jax.tree_util.tree_leaves_with_path(tree)} for tree in (given, wanted))
    for path in sorted(here.keys() | there.keys()):
        if here.get(path) != there.get(path):
            raise InputError(f"initial has shape {here.get(path)} at {path} where the problem has {there.get(path)}; "
                             "give a pair (shared, private) like the one problem.init returns.")
