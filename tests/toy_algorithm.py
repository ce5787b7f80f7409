"""Three algorithms and a clock in one file, written against the protocol alone: what a newcomer's file looks like.

`sign_vote` is signSGD with majority vote (Bernstein et al., 2018): an upload of one byte per number.
`median_descent` steps along the coordinate-wise median of the gradients: a rule that needs all uploads at once.
`gradient_table` is the incremental aggregated gradient method (Blatt, Hero and Gauchman, 2007): a client sends
what has changed since the server last heard of its gradient, which breaks for good unless it commits on `heard`.
`some_count` lets all clients act and hear, and counts a few of them.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from cantons.protocol import Algorithm, Array, Clock, Plan, Problem, PyTree, Stack, Sum
from cantons.recipe import algorithm, clock
from cantons.shuffle import permutation


class Server(NamedTuple):
    shared: PyTree


@algorithm
def sign_vote(problem: Problem, population: int, *, step_size: float = 0.1) -> Algorithm:
    def client_update(key, shared, private, data):
        gradient = jax.grad(problem.loss)(shared, private, data.full())
        return jax.tree.map(lambda leaf: jnp.sign(leaf).astype(jnp.int8), gradient), private

    def server_update(key, server, votes, central):
        return Server(jax.tree.map(lambda leaf, vote: leaf - step_size * jnp.sign(vote), server.shared, votes))

    count = Sum(lift=lambda signs, message: jax.tree.map(lambda leaf: leaf.astype(float), signs),
                finish=lambda key, votes: votes)
    return Algorithm(
        init_server=lambda key, shared, private: Server(shared),
        init_client=lambda key, shared, private: private,
        broadcast=lambda key, server, central: server.shared,
        client_update=client_update,
        aggregate=count,
        server_update=server_update,
        model=lambda key, shared, private, data: (shared, private),
    )


@algorithm
def median_descent(problem: Problem, population: int, *, step_size: float = 0.1) -> Algorithm:
    def client_update(key, shared, private, data):
        return jax.grad(problem.loss)(shared, private, data.full()), private

    def server_update(key, server, gradient, central):
        return Server(jax.tree.map(lambda leaf, part: leaf - step_size * part, server.shared, gradient))

    def median(key, uploads, ids, counts):
        def middle(rows):
            arrived = (counts > 0).reshape(-1, *[1] * (rows.ndim - 1))
            return jnp.nanmedian(jnp.where(arrived, rows, jnp.nan), axis=0)

        return jax.tree.map(middle, uploads)

    return Algorithm(
        init_server=lambda key, shared, private: Server(shared),
        init_client=lambda key, shared, private: private,
        broadcast=lambda key, server, central: server.shared,
        client_update=client_update,
        aggregate=Stack(median),
        server_update=server_update,
        model=lambda key, shared, private, data: (shared, private),
    )


class Table(NamedTuple):
    shared: PyTree
    total: PyTree  # the sum of the last gradient heard of each client


class Row(NamedTuple):
    private: PyTree
    told: PyTree  # the gradient of this client that is in the server's total
    pending: PyTree  # the one it last sent


@algorithm
def gradient_table(problem: Problem, population: int, *, step_size: float = 0.1) -> Algorithm:
    def zeros(tree):
        return jax.tree.map(jnp.zeros_like, tree)

    def receive(shared, receipt, row):
        return row._replace(told=jax.tree.map(
            lambda pending, told: jnp.where(receipt.heard, pending, told), row.pending, row.told))

    def client_update(key, shared, row, data):
        gradient = jax.grad(problem.loss)(shared, row.private, data.full())
        return jax.tree.map(jnp.subtract, gradient, row.told), row._replace(pending=gradient)

    def server_update(key, server, changes, central):
        total = jax.tree.map(jnp.add, server.total, changes)
        shared = jax.tree.map(lambda leaf, part: leaf - step_size / population * part, server.shared, total)
        return Table(shared, total)

    return Algorithm(
        init_server=lambda key, shared, private: Table(shared, zeros(shared)),
        init_client=lambda key, shared, private: Row(private, zeros(shared), zeros(shared)),
        broadcast=lambda key, server, central: server.shared,
        client_update=client_update,
        aggregate=Sum(lift=lambda change, message: change, finish=lambda key, changes: changes),
        server_update=server_update,
        model=lambda key, shared, row, data: (shared, row.private),
        receive=receive,
    )


@clock
def some_count(population: int, *, counted: int) -> Clock:
    def plan(arrays, key, round: Array) -> Plan:
        ids = jnp.arange(population, dtype=jnp.int32)
        everybody = jnp.ones(population, bool)
        return Plan(ids, everybody, (permutation(key, population)(ids) < counted).astype(jnp.int32), everybody)

    return Clock(population, True, (), plan)
