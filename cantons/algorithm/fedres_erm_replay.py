"""Federated Residual Learning by empirical risk minimisation, for any loss and any two models.

Agarwal, Langford and Wei, "Federated Residual Learning", 2020 (v1), Algorithms 1 and 2, and equations (5) and (6).
Clients and server keep the last examples in rings and fit them by gradient steps. The paper lets clients send their
private models; all that the server needs of one is what it says about the examples it knows, and this is sent here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp

from cantons.algorithm.parts.trees import zeros
from cantons.errors import InputError
from cantons.protocol import Algorithm, Array, Batch, Needs, PyTree, Residual, Stack
from cantons.ranges import Count, Positive
from cantons.solve.fista import minimise_for_steps


class Fit(NamedTuple):
    """How both sides are fitted to their examples.

    radius: the largest norm of the shared part; none leaves it free.
    private_radius: the largest norm of each private part; the same as `radius` unless given.
    ties: where several models fit equally well, as they do while there are fewer examples than parameters, take the
        one "nearest" to the last, or that of "minimum_norm".
    memory: examples kept of each client; matters only where models are not linear or the loss is not squared.
    solver_steps: accelerated gradient steps of each fit; matters only there too.
    """

    radius: Positive | None = None
    private_radius: Positive | None = None
    ties: Literal["nearest", "minimum_norm"] = "nearest"
    memory: Count = 500
    solver_steps: Count = 100

    def for_both(self) -> Fit:
        """The same with a radius for each side."""
        return self if self.private_radius is not None else self._replace(private_radius=self.radius)


class Server(NamedTuple):
    shared: PyTree
    features: PyTree  # [clients, memory]: the global features of the last examples
    outputs: Array  # what private models say about them
    targets: PyTree
    met: Array  # int32[clients]: examples so far


class Client(NamedTuple):
    private: PyTree
    inputs: PyTree  # [memory]
    outputs: Array  # what shared models say about them
    targets: PyTree
    met: Array


class Numbered(NamedTuple):
    """Some new examples of a client."""

    features: PyTree
    outputs: Array  # of the private model, for these; or, in ERM, for all that the client remembers
    targets: PyTree
    met: Array  # how many examples came before these


# The uploads, their clients' ids, and how often each counts: the server keeps a ring for every client.
signed_rows = Stack(lambda key, uploads, ids, counts: (uploads, ids, counts))


def erm_replay(joint: Residual, population: int, fit: Fit) -> Algorithm:
    """Algorithms 1 and 2: the newest model of the other side is applied to all examples kept."""

    def receive(shared, receipt, client):
        outputs = joint.shared(shared, joint.features(client.inputs))
        return _fit_private(joint, fit, client._replace(outputs=outputs))

    def client_update(key, shared, client, data):
        upload, client = _keep_examples(joint, shared, client, data.now())
        return upload._replace(outputs=joint.private(client.private, client.inputs)), client

    return _build(joint, population, fit, client_update, again=True)._replace(receive=receive)


def fictitious_play_replay(joint: Residual, population: int, fit: Fit) -> Algorithm:
    """Fictitious play: each example keeps what the other side said about it when it was new."""

    def client_update(key, shared, client, data):
        upload, client = _keep_examples(joint, shared, client, data.now())
        return upload, _fit_private(joint, fit, client)

    return _build(joint, population, fit, client_update, again=False)


def _build(joint: Residual, population: int, fit: Fit, client_update: Callable, again: bool) -> Algorithm:
    """Build everything but the client's work; `again`: uploads have new outputs for the old examples too."""
    if joint.empty_batch is None:
        raise InputError("anything but two linear models under the squared loss is fitted to examples kept from "
                         "earlier steps, and this problem does not say how large one is; make it with "
                         "residual(data, ...).")
    memory, empty_batch = fit.memory, joint.empty_batch

    def init_server(key, shared, private):
        rows = empty_batch(memory)
        row = joint.features(rows.inputs), joint.private(private, rows.inputs), rows.targets
        every = jax.tree.map(lambda leaf: jnp.zeros((population, *leaf.shape), leaf.dtype), row)
        return Server(shared, *every, jnp.zeros(population, jnp.int32))

    def init_client(key, shared, private):
        rows = empty_batch(memory)
        outputs = jnp.zeros_like(joint.shared(shared, joint.features(rows.inputs)))
        return Client(private, rows.inputs, outputs, rows.targets, jnp.zeros((), jnp.int32))

    def broadcast(key, server, central):
        return server.shared

    def server_update(key, server, arrived, central):
        server = _store(server, *arrived, memory, again)
        kept = jnp.arange(memory) < server.met[:, None]
        seen, outputs, targets, mask = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]),
                                                    (server.features, server.outputs, server.targets, kept))

        def loss(shared):
            return joint.loss(joint.shared(shared, seen) + outputs, targets, mask.astype(outputs.dtype))

        start = server.shared if fit.ties == "nearest" else zeros(server.shared)
        return server._replace(shared=minimise_for_steps(loss, start, fit.solver_steps, fit.radius))

    def model(key, shared, client, data):
        return shared, client.private

    return Algorithm(init_server, init_client, broadcast, client_update, signed_rows, server_update, model,
                     needs=Needs(shared=False, stream=True))


def _keep_examples(joint: Residual, shared: PyTree, client: Client, batch: Batch) -> tuple[Numbered, Client]:
    """Replace a client's oldest examples by new ones; return the upload of the new ones, and the client."""
    memory, new = client.outputs.shape[0], batch.mask.shape[0]
    if new > memory:
        raise InputError(f"memory is {memory}, and a client meets {new} examples in a step; give {new} or more.")
    if batch.targets.shape[1:] != client.targets.shape[1:]:
        raise InputError(f"one target of an example has shape {batch.targets.shape[1:]}, and examples are kept with "
                         "plain numbers or labels; use fedres_online_sgd.")
    places = (client.met + jnp.arange(new)) % memory
    seen = joint.features(batch.inputs)
    rows = batch.inputs, joint.shared(shared, seen), batch.targets
    upload = Numbered(seen, joint.private(client.private, batch.inputs), batch.targets, client.met)
    inputs, outputs, targets = jax.tree.map(lambda ring, row: ring.at[places].set(row), client[1:4], rows)
    return upload, Client(client.private, inputs, outputs, targets, client.met + new)


def _fit_private(joint: Residual, fit: Fit, client: Client) -> Client:
    """Fit the private model to what the shared models leave over."""
    mask = (jnp.arange(fit.memory) < client.met).astype(client.outputs.dtype)

    def loss(private):
        return joint.loss(client.outputs + joint.private(private, client.inputs), client.targets, mask)

    start = client.private if fit.ties == "nearest" else zeros(client.private)
    found = minimise_for_steps(loss, start, fit.solver_steps, fit.private_radius)
    return client._replace(private=jax.tree.map(
        lambda new, old: jnp.where(client.met > 0, new, old), found, client.private))


def _store(server: Server, uploads: Numbered, ids: Array, counts: Array, memory: int, again: bool) -> Server:
    """Write what arrived in this step into the server's rings; a client may have several uploads, in any order."""
    nobody, new = server.met.shape[0], jax.tree.leaves(uploads.targets)[0].shape[1]
    owners = jnp.where(counts > 0, ids, nobody)  # nobody's rows are dropped
    met = server.met.at[owners].max(uploads.met + new, mode="drop")
    numbers = uploads.met[:, None] + jnp.arange(new)
    # An example that a newer one pushes out must not be written after it.
    rows = jnp.where(numbers >= met[ids][:, None] - memory, owners[:, None], nobody), numbers % memory
    newest = jnp.where(uploads.met + new == met[ids], owners, nobody)

    def write(ring, row, where):
        return jax.tree.map(lambda ring, row: ring.at[where].set(row, mode="drop"), ring, row)

    return Server(server.shared, write(server.features, uploads.features, rows),
                  write(server.outputs, uploads.outputs, newest if again else rows),
                  write(server.targets, uploads.targets, rows), met)
