"""The state before the first round."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp

from cantons.engine.aggregation import aggregation_of
from cantons.engine.client import keyed
from cantons.engine.devices import floats
from cantons.errors import InputError
from cantons.memory import require
from cantons.protocol import Algorithm, Array, Key, Problem, PyTree, State, stateless


def seed_keys(seed: int) -> tuple[Key, Key, Key]:
    """Keys for the start, for the rounds, and for scoring."""
    start, rounds, scores = jax.random.split(jax.random.key(seed), 3)
    return start, rounds, scores


def starting_point(problem: Problem, key: Key, initial: tuple[PyTree, PyTree] | None = None) -> tuple[PyTree, PyTree]:
    """The (shared, private) that a run begins with: the problem's own, or a copy of the given ones."""
    if initial is None:
        init = jax.jit(problem.init)
        require(bytes_of(jax.eval_shape(init, key)), "the model")
        return init(key)
    _check_shapes(initial, jax.eval_shape(problem.init, key))
    # Copied, because a run donates its state to the next block and must not eat the caller's arrays.
    return jax.tree.map(jnp.array, floats(jax.device_get(initial)))


def bytes_of(tree: PyTree) -> int:
    """How much memory arrays of these shapes take."""
    return sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


def initial_clients(algorithm: Algorithm, key: Key, parts: tuple[PyTree, PyTree], ids: Array) -> PyTree:
    """One row per client, from the common (shared, private) starting point."""
    return jax.vmap(algorithm.init_client, in_axes=(0, None, None))(keyed(key, ids), *parts)


def initial_state(algorithm: Algorithm, key: Key, parts: tuple[PyTree, PyTree], population: int) -> State:
    """Before anything is sent; a rule that keeps a state gets it when an upload's shape is known."""
    reports = aggregation_of(algorithm.aggregate).reports
    return State(
        server=algorithm.init_server(key, *parts),
        clients=initial_clients(algorithm, key, parts, jnp.arange(population)),
        round=jnp.zeros((), jnp.int32),
        skipped=jnp.zeros((), jnp.int32),
        ledger=jnp.tile(jnp.array([1, 0, 0, 0, 0], jnp.int32), (population, 1)),
        reports={name: jnp.zeros(()) for name in reports},
        reported=jnp.zeros((), jnp.int32) if reports else (),
    )


def with_rule(algorithm: Algorithm, state: State, upload: PyTree) -> State:
    """The same, with the state of the rule; `upload` is one in shapes."""
    init = aggregation_of(algorithm.aggregate).init
    if init is stateless:
        return state
    return state._replace(rule=init(jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), upload)))


def _check_shapes(given: PyTree, wanted: PyTree) -> None:
    """Refuse a starting point that is not the problem's in structure or in shape."""
    here, there = ({jax.tree_util.keystr(path): jnp.shape(leaf) for path, leaf in
                    jax.tree_util.tree_leaves_with_path(tree)} for tree in (given, wanted))
    for path in sorted(here.keys() | there.keys()):
        if here.get(path) != there.get(path):
            raise InputError(f"initial has shape {here.get(path)} at {path} where the problem has {there.get(path)}; "
                             "give a pair (shared, private) like the one problem.init returns.")
