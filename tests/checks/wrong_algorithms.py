"""Algorithms as a newcomer might write them, each with one mistake; `right` and `plain_numbers` have none.

`broken(mistake=...)` is a recipe. All are descents with a private head: the server steps along the mean gradient, a
client steps along its own private gradient.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cantons.aggregate import mean, mean_of_uploads
from cantons.protocol import Algorithm, Needs, PyTree
from cantons.recipe import algorithm

STEP = 0.1


class Server(NamedTuple):
    shared: PyTree


class NoShared(NamedTuple):
    model: PyTree


class Client(NamedTuple):
    private: PyTree
    visits: jax.Array


class Longer(NamedTuple):
    private: PyTree
    visits: jax.Array
    extra: jax.Array


def step(tree, gradient):
    return jax.tree.map(lambda leaf, towards: leaf - STEP * towards, tree, gradient)


def right(problem):
    def client_update(key, shared, client, data):
        up, own = jax.grad(problem.loss, argnums=(0, 1))(shared, client.private, data.full())
        return up, Client(step(client.private, own), client.visits + 1)

    def server_update(key, server, average, central):
        return Server(step(server.shared, average.value))

    def model(key, shared, client, data):
        def fit(_, private):
            return step(private, jax.grad(problem.loss, argnums=1)(shared, private, data.full()))

        return shared, jax.lax.cond(client.visits == 0, lambda: jax.lax.fori_loop(0, 5, fit, client.private),
                                    lambda: client.private)

    return Algorithm(
        init_server=lambda key, shared, private: Server(shared),
        init_client=lambda key, shared, private: Client(private, jnp.zeros((), jnp.int32)),
        broadcast=lambda key, server, central: server.shared,
        client_update=client_update,
        aggregate=mean_of_uploads(),
        server_update=server_update,
        model=model,
    )


def with_update(base, change):
    """`change(upload, client, data)` is what a client's round ends with."""

    def client_update(key, shared, client, data):
        return change(*base.client_update(key, shared, client, data), data)

    return base._replace(client_update=client_update)


def plain_numbers(base, problem):
    """No mistake: engines make arrays of plain numbers, and a size is either."""
    return with_update(base._replace(init_client=lambda key, shared, private: Client(private, 0)),
                       lambda upload, client, data: (upload, client._replace(visits=data.size)))


def unfitted(base, problem):
    return base._replace(model=lambda key, shared, client, data: (shared, client.private))


def badly_fitted(base, problem):
    def model(key, shared, client, data):
        away = jax.tree.map(lambda leaf: leaf + 3.0, client.private)
        return shared, jax.tree.map(lambda new, old: jnp.where(client.visits == 0, new, old), away, client.private)

    return base._replace(model=model)


def size_is_a_number(base, problem):
    return with_update(base, lambda upload, client, data: (upload, client._replace(
        visits=client.visits + data.size.astype(jnp.int32))))


def real_in_a_whole(base, problem):
    return with_update(base, lambda upload, client, data: (upload, client._replace(visits=client.visits + 0.5)))


def loops_over_its_size(base, problem):
    return with_update(base, lambda upload, client, data: (upload, client._replace(
        visits=client.visits + sum(1 for _ in range(data.size)))))


def other_structure(base, problem):
    return with_update(base, lambda upload, client, data: (upload, Longer(*client, jnp.zeros(2))))


def other_kind(base, problem):
    return with_update(base, lambda upload, client, data: (upload, client._asdict()))


def no_pair(base, problem):
    return with_update(base, lambda upload, client, data: upload)


def adopts_another(base, problem):
    return base._replace(adopt=lambda client: {"private": client.private})


def growing(base, problem):
    return with_update(base, lambda upload, client, data: (upload, client._replace(
        visits=jnp.zeros(3, jnp.int32))))


def no_shared(base, problem):
    return base._replace(init_server=lambda key, shared, private: NoShared(shared),
                         broadcast=lambda key, server, central: server.model,
                         server_update=lambda key, server, average, central: NoShared(
                             step(server.model, average.value)))


def shared_in_a_dict(base, problem):
    return base._replace(init_server=lambda key, shared, private: {"shared": shared},
                         broadcast=lambda key, server, central: server["shared"],
                         server_update=lambda key, server, average, central: {
                             "shared": step(server["shared"], average.value)})


def server_loses_its_state(base, problem):
    return base._replace(server_update=lambda key, server, average, central: step(server.shared, average.value))


def rule_as_aggregate(base, problem):
    return base._replace(aggregate=mean)


def function_as_aggregate(base, problem):
    return base._replace(aggregate=lambda uploads: uploads)


def unbuilt_rule(base, problem):
    return base._replace(aggregate=base.aggregate._replace(rule=mean()))


def swapped_model(base, problem):
    return base._replace(model=lambda key, shared, client, data: (client.private, shared))


def if_on_a_value(base, problem):
    def client_update(key, shared, client, data):
        if client.visits > 3:  # the line that breaks
            shared = jax.tree.map(jnp.zeros_like, shared)
        return base.client_update(key, shared, client, data)

    return base._replace(client_update=client_update)


def wrong_shapes(base, problem):
    def server_update(key, server, average, central):
        return Server(jax.tree.map(lambda leaf, mean: leaf - mean[None, None, :7] @ leaf, server.shared, average.value))

    return base._replace(server_update=server_update)


def too_few_arguments(base, problem):
    def broadcast(key, server):
        return server.shared

    return base._replace(broadcast=broadcast)


def counts_calls(base, problem):
    calls = []

    def client_update(key, shared, client, data):
        calls.append(1)
        upload, client = base.client_update(key, shared, client, data)
        return jax.tree.map(lambda leaf: leaf * len(calls), upload), client

    return base._replace(client_update=client_update)


def draws_outside(base, problem):
    return with_update(base, lambda upload, client, data: (jax.tree.map(
        lambda leaf: leaf + np.random.default_rng().normal(size=leaf.shape), upload), client))


def changes_its_argument(base, problem):
    def client_update(key, shared, client, data):
        upload, moved = base.client_update(key, shared, Client(client["private"], client["visits"]), data)
        client["visits"] = moved.visits
        return upload, {"private": moved.private, "visits": moved.visits}

    return base._replace(
        init_client=lambda key, shared, private: {"private": private, "visits": jnp.zeros((), jnp.int32)},
        client_update=client_update,
        model=lambda key, shared, client, data: base.model(key, shared, Client(client["private"], client["visits"]),
                                                           data))


def asks_with_its_private_part(base, problem):
    def select(message, request):
        return jax.tree.map(lambda leaf: leaf + 0.0 * leaf + request, message)

    return base._replace(request=lambda key, client, data: jnp.mean(jax.tree.leaves(client.private)[0]), select=select)


def silent_clients_learn(base, problem):
    """Online; every message moves a private part."""

    def client_update(key, shared, client, data):
        up, own = jax.grad(problem.loss, argnums=(0, 1))(shared, client.private, data.now())
        return up, Client(step(client.private, own), client.visits + 1)

    return base._replace(
        client_update=client_update,
        receive=lambda shared, receipt, client: client._replace(
            private=jax.tree.map(lambda leaf: leaf + 0.1, client.private)),
        model=lambda key, shared, client, data: (shared, client.private), needs=Needs(stream=True))


def refuses_everything(base, problem):
    from cantons.errors import InputError

    raise InputError("this algorithm wants graphs; give it graphs.")


NO_MISTAKES = {"plain_numbers": plain_numbers}
MISTAKES = {function.__name__: function for function in (
    unfitted, badly_fitted, size_is_a_number, real_in_a_whole, loops_over_its_size, other_structure, other_kind,
    adopts_another, no_pair, growing, no_shared, shared_in_a_dict, server_loses_its_state, rule_as_aggregate,
    function_as_aggregate, unbuilt_rule, swapped_model, if_on_a_value, wrong_shapes, too_few_arguments, counts_calls,
    draws_outside, changes_its_argument, asks_with_its_private_part, silent_clients_learn,
    refuses_everything)}


@algorithm
def broken(problem, population, *, mistake: str = ""):
    """A descent with a mistake, or with none."""
    base = right(problem)
    return (MISTAKES | NO_MISTAKES)[mistake](base, problem) if mistake else base


@algorithm
def unbuildable(problem, population):
    """A builder that breaks."""
    return problem.lost


@algorithm
def returns_nothing(problem, population):
    """A builder whose last line is missing."""
    right(problem)
