"""The state before the first round."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp

from cantons.engine.aggregation import aggregation_of
from cantons.engine.client import keyed
from cantons.engine.devices import floats
from cantons.errors import InputError
from cantons.memory import require
from cantons.protocol import Algorithm, Array, Key, Problem, PyTree, Start, State, stateless


def seed_keys(seed: int) -> tuple[Key, Key, Key]:
    """Keys for the start, for the rounds, and for scoring."""
    start, rounds, scores = jax.random.split(jax.random.key(seed), 3)
    return start, rounds, scores


def starting_shapes(problem: Problem, key: Key, initial: Start | tuple[PyTree, PyTree] | None = None) -> Start:
    """What a run begins with, as shapes, with all that is refused of it; to draw it would compile a program."""
    shapes = jax.eval_shape(problem.init, key)
    require(bytes_of(shapes), "the model")
    if initial is not None:
        _as_wanted(Start(*initial)[:2], shapes)
    return Start(*shapes)


def starting_point(problem: Problem, key: Key, initial: Start | tuple[PyTree, PyTree] | None = None) -> Start:
    """What a run begins with: the problem's own, or a copy of what is given."""
    shapes = starting_shapes(problem, key)
    if initial is None:
        return Start(*jax.jit(problem.init)(key))
    initial = Start(*initial)
    shared, private = _as_wanted(initial[:2], shapes[:2])
    if initial.privates is not None:
        initial = initial._replace(privates=_in_places(initial.privates, shapes[1]))
    # Copied, because a run donates its state to the next block and must not eat the caller's arrays.
    return jax.tree.map(jnp.array, floats(jax.device_get(initial._replace(shared=shared, private=private))))


def bytes_of(tree: PyTree) -> int:
    """How much memory arrays of these shapes take."""
    return sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


def initial_clients(algorithm: Algorithm, key: Key, parts: Start | tuple[PyTree, PyTree], ids: Array) -> PyTree:
    """One row per client, from the common (shared, private) starting point or from private parts of their own."""
    shared, private, privates, own = Start(*parts)
    if privates is None:
        return jax.vmap(algorithm.init_client, in_axes=(0, None, None))(keyed(key, ids), shared, private)
    _check_rows(privates, private, len(ids))

    def begin(key, private, own):
        client = algorithm.init_client(key, shared, private)
        return jax.tree.map(lambda adopted, fresh: jnp.where(own, adopted, fresh), algorithm.adopt(client), client)

    return jax.vmap(begin)(keyed(key, ids), privates, jnp.ones(len(ids), bool) if own is None else own)


def keeps_private(algorithm: Algorithm, parts: tuple[PyTree, PyTree]) -> bool:
    """Does a client's state have anything of the private part that it begins with?"""
    return _keeps(algorithm, parts, len(jax.tree.leaves(parts[1])))


def keeps_model(algorithm: Algorithm, parts: tuple[PyTree, PyTree]) -> bool:
    """Does a client's state have anything of the model that it begins with, of its shared or its private part?"""
    return _keeps(algorithm, parts, len(jax.tree.leaves(parts)))


def _keeps(algorithm: Algorithm, parts: tuple[PyTree, PyTree], last: int) -> bool:
    """Is any of the `last` arrays of the model in a client's state?"""
    shared, private = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), parts)
    key = jax.eval_shape(lambda: jax.random.key(0))
    program = jax.make_jaxpr(algorithm.init_client)(key, shared, private).jaxpr
    given = program.invars[len(program.invars) - last:]
    used = [*program.outvars, *(value for step in program.eqns for value in step.invars)]
    return any(value is one for value in used for one in given)


def initial_state(algorithm: Algorithm, key: Key, parts: Start | tuple[PyTree, PyTree], population: int) -> State:
    """Before anything is sent; a rule that keeps a state gets it when an upload's shape is known."""
    reports = aggregation_of(algorithm.aggregate).reports
    return State(
        server=algorithm.init_server(key, *parts[:2]),
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


def _as_wanted(given: PyTree, wanted: PyTree) -> PyTree:
    """Refuse a starting point with other arrays than the problem's. Places without an array may be left out of it."""
    here, there = ({jax.tree_util.keystr(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}
                   for tree in (given, wanted))
    for path in sorted(here.keys() | there.keys()):
        shape, right = (jnp.shape(tree[path]) if path in tree else None for tree in (here, there))
        if shape != right:
            raise InputError(f"initial has shape {shape} at {path} where the problem has {right}; "
                             "give a pair (shared, private) like the one problem.init returns.")
    return _in_places(given, wanted)


def _in_places(given: PyTree, wanted: PyTree) -> PyTree:
    """The arrays of `given` as `wanted` has them, whatever stands in places without an array; as it is if any lacks."""
    here = {jax.tree_util.keystr(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(given)}
    there = [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(wanted)]
    return jax.tree.unflatten(jax.tree.structure(wanted), [here[path] for path in there]) if (
        set(here) == set(there)) else given


def _check_rows(privates: PyTree, private: PyTree, population: int) -> None:
    """Refuse private parts of other shapes than the common one, or of another number of clients."""
    given, each = ([(path, jnp.shape(leaf)) for path, leaf in jax.tree_util.tree_leaves_with_path(tree)]
                   for tree in (privates, private))
    wanted = [(path, (population, *shape)) for path, shape in each]
    if given != wanted:
        raise InputError(f"initial.privates has the shapes {_listed(given)}, where {population} clients with a private "
                         f"part each have {_listed(wanted)}.")


def _listed(shapes: list[tuple[Any, tuple[int, ...]]]) -> str:
    return ", ".join(f"{shape} at {jax.tree_util.keystr(path)}" for path, shape in shapes) or "of nothing"
