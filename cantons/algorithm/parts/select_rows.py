"""Federated select: a client is sent the rows of the tables that its examples look at, and sends the changes of these.

Charles et al., "Federated Select: A Primitive for Communication- and Memory-Efficient Federated Learning", 2022. The
server gathers the rows, and scatters the changes of all clients into one table. Rows that a client does not hold are
rows that it does not change, so the mean is that of whole tables: the sum divided by the weight of all clients.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cantons.aggregate import as_sum
from cantons.algorithm.parts.training import LocalOptimizer, Work, moves_without_gradient
from cantons.errors import InputError
from cantons.map_batches import MapBatches
from cantons.problem import paths
from cantons.protocol import (
    Algorithm,
    Array,
    Data,
    Datacenter,
    Examples,
    Key,
    Problem,
    PyTree,
    Sum,
    TableRows,
    Tables,
)
from cantons.ranges import Count


class Rows(NamedTuple):
    """What clients hold of the problem's tables.

    rows: how many rows of each table of the problem a client has room for; it is sent those its examples look at, and
        no others. With none, clients hold whole tables.
    """

    rows: Count | None = None


ALL_ROWS = Rows()


class RowUpload(NamedTuple):
    """An upload about some rows of the tables."""

    rows: Array  # int32[n]: their numbers, ascending; behind them that of no row, where there are fewer
    upload: PyTree  # as if the tables had these rows and no others


class Total(NamedTuple):
    """What all uploads sum up to."""

    aggregate: PyTree
    weight: Array | tuple[()] = ()  # of all clients, where it matters who lacks which row
    of_rows: Array | tuple[()] = ()  # [N]: of the clients that hold each row


class Absent(NamedTuple):
    """What clients would have done to the rows that they do not hold, where that is not nothing."""

    weight: Callable[[Any], Array]  # upload -> what the client counts for
    # (server, aggregate, [N]: the weight of the clients that lack each row, central) -> the aggregate with it
    complete: Callable[[Any, Any, Array, Datacenter], Any]


def select_rows(dense: Algorithm, problem: Problem, work: Work, optimizer: LocalOptimizer, rows: int | None,
                absent: Absent | None = None) -> Algorithm:
    """The same algorithm, whose clients hold `rows` rows of each table; with None, the algorithm as it is.

    A client asks for the rows of the batches that `work` will consist of, which follow from the key of the round. What
    looks like the shared part is cut to these rows in its message, and spread out again in its summand. Its state must
    hold nothing about the tables. Predictions are made with whole tables.
    """
    if rows is None:
        return dense
    if moves_without_gradient(optimizer):
        raise InputError("client_optimizer moves what has no gradient, as the weight decay of \"adamw\" and the first "
                         "averages of \"yogi\" do, and with rows a client cannot move those that it does not hold; "
                         "choose another, such as \"adam\", or leave rows out.")
    room, tables, (lift, finish) = rows, tables_of(problem), as_sum(dense.aggregate)
    whole = jax.eval_shape(lambda: problem.init(jax.random.key(0)))[0]
    held = map_tables(tables, lambda leaf: jax.ShapeDtypeStruct((room, *leaf.shape[1:]), leaf.dtype), whole)

    def request(key, client, data):
        return _distinct(tables, _numbers_met(tables, work, key, data), room)

    def select(message, ids):
        return _map_parts(whole, lambda part: map_tables(tables, lambda leaf: leaf.at[ids].get(
            mode="fill", fill_value=0), part), message)

    def client_update(key, message, client, data):
        numbers = _numbers_met(tables, work, key, data)
        ids = _distinct(tables, numbers, room)
        upload, client = dense.client_update(key, message, client, _renumbered(data, tables, ids))
        # A client with more rows than it has room for sends NaN, which is left out and counted as rejected.
        fits = ((numbers < 0) | (_places(ids, numbers) >= 0)).all()
        return RowUpload(ids, jax.tree.map(lambda leaf: jnp.where(fits, leaf, jnp.nan), upload)), client

    def lift_rows(upload, message):
        def scattered(leaf):
            return TableRows(upload.rows, leaf, tables.size)

        summand = _map_parts(held, lambda part: map_tables(tables, scattered, part), lift(upload.upload, message))
        if absent is None:
            return Total(summand)
        weight = absent.weight(upload.upload)
        return Total(summand, weight, scattered(jnp.broadcast_to(weight, (room,))))

    def finish_rows(key, total):
        return total._replace(aggregate=finish(key, total.aggregate))

    def server_update(key, server, total, central):
        aggregate = total.aggregate if absent is None else absent.complete(
            server, total.aggregate, total.weight - total.of_rows, central)
        return dense.server_update(key, server, aggregate, central)

    return dense._replace(
        request=request, select=select, client_update=client_update, aggregate=Sum(lift_rows, finish_rows),
        server_update=server_update, needs=dense.needs._replace(examples=_check_room(tables, work, room)))


def tables_of(problem: Problem) -> Tables:
    if problem.tables is None:
        raise InputError("rows is given, and this problem has no tables to hold rows of; leave rows out, or choose a "
                         "problem with tables, such as dual_encoder.")
    return problem.tables


def map_tables(tables: Tables, function: Callable[..., Any], part: PyTree, *others: PyTree) -> PyTree:
    """Something like the shared part with `function` of each of its tables; the other arrays stay."""
    names = jax.tree.unflatten(jax.tree.structure(part), paths(part))
    return jax.tree.map(lambda name, leaf, *more: function(leaf, *more) if name in tables.paths else leaf,
                        names, part, *others)


def _renumbered(data: Data, tables: Tables, ids: Array) -> Data:
    """A client's examples for tables that hold the rows `ids` alone."""
    return MapBatches(data, lambda batch: tables.renumber(batch, lambda numbers: _places(ids, numbers)))


def _numbers_met(tables: Tables, work: Work, key: Key, data: Data) -> Array:
    """The numbers of all rows that the batches of this work look at, and -1 for none."""
    if work.steps is None or work.batch_size is None:
        return tables.rows(data.full()).ravel()
    return jax.vmap(lambda step: tables.rows(work.draw(key, data, step)))(jnp.arange(work.steps)).ravel()


def _distinct(tables: Tables, numbers: Array, room: int) -> Array:
    """Each number once, ascending; behind them the number of no row."""
    return jnp.unique(jnp.where(numbers < 0, tables.size, numbers), size=room, fill_value=tables.size).astype(jnp.int32)


def _places(ids: Array, numbers: Array) -> Array:
    """Where each number is in `ids`, which ascend; -1 where it is not."""
    places = jnp.minimum(jnp.searchsorted(ids, numbers), len(ids) - 1).astype(numbers.dtype)
    return jnp.where(ids[places] == numbers, places, -1)


def _map_parts(like: PyTree, function: Callable[[PyTree], PyTree], tree: PyTree) -> PyTree:
    """The tree with `function` of every part of it that has the structure and the shapes of `like`."""
    def look(node: PyTree) -> tuple[Any, list[tuple[int, ...]]]:
        return jax.tree.structure(node), [jnp.shape(leaf) for leaf in jax.tree.leaves(node)]

    wanted = look(like)

    def fits(node: PyTree) -> bool:
        return look(node) == wanted

    return jax.tree.map(lambda node: function(node) if fits(node) else node, tree, is_leaf=fits)


def _check_room(tables: Tables, work: Work, room: int) -> Callable[[Examples], None]:
    """Refuse clients whose examples of one round may look at more rows than there is room for."""

    def check(train: Examples) -> None:
        numbers = np.asarray(tables.rows(train.pooled().full()))
        owner = np.repeat(np.arange(train.population), np.asarray(train.sizes))
        pairs = np.unique((owner[:, None] * np.int64(tables.size) + numbers)[numbers >= 0])
        most = int(np.bincount(pairs // tables.size, minlength=1).max())
        if work.steps is not None and work.batch_size is not None:
            most = min(most, work.steps * work.batch_size * numbers.shape[1])
        if most > room:
            raise InputError(f"rows is {room}, and a client may look at {most} different rows in a round; give rows = "
                             f"{most} or more, or clients with fewer examples.")

    return check
