"""FedAvg rounds written by hand for one workload: the nearest thing to a ceiling that a library can be held to.

A CPU gets one XLA device per core, each of which works through its share of the cohort in turn; an
accelerator gets the whole cohort at once. Either way a block of rounds is one compiled program.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

CLIENTS, EXAMPLES, COHORT, BATCH, STEP_SIZE = 200, 50, 50, 10, 0.1
AXIS = "devices"

Params = list[tuple[jax.Array, jax.Array]]  # a weight and a bias per layer


class Network(NamedTuple):
    input_shape: tuple[int, ...]
    shapes: list[tuple[int, ...]]  # of the weights
    apply: Callable[[Params, jax.Array], jax.Array]

    @property
    def classes(self) -> int:
        return self.shapes[-1][-1]

    def init(self, key: jax.Array) -> Params:
        draw = jax.nn.initializers.glorot_uniform()
        keys = jax.random.split(key, len(self.shapes))
        return [(draw(key, shape), jnp.zeros(shape[-1])) for key, shape in zip(keys, self.shapes, strict=True)]


def dense(*widths: int) -> Network:
    def apply(params, values):
        for weight, bias in params[:-1]:
            values = jax.nn.relu(values @ weight + bias)
        weight, bias = params[-1]
        return values @ weight + bias

    return Network(widths[:1], list(pairwise(widths)), apply)


def pfl_cnn() -> Network:
    """The CNN of the pfl-research benchmarks on 32 x 32 colour images."""

    def conv(images, kernel, bias):
        height, width = images.shape[1] - 2, images.shape[2] - 2
        patches = [images[:, i : i + height, j : j + width] for i in range(3) for j in range(3)]
        return jax.nn.relu(jnp.concatenate(patches, -1) @ kernel.reshape(-1, kernel.shape[-1]) + bias)

    def apply(params, images):
        values = conv(conv(images, *params[0]), *params[1])
        values = values.reshape(-1, 14, 2, 14, 2, 64).max((2, 4))
        return dense().apply(params[2:], values.reshape(len(values), -1))

    return Network((32, 32, 3), [(3, 3, 3, 32), (3, 3, 32, 64), (14 * 14 * 64, 128), (128, 10)], apply)


NETWORKS = {"linear": dense(100, 10), "mlp": dense(784, 200, 200, 62), "cnn": pfl_cnn()}


def random_rows(network: Network, rows: int = CLIENTS * EXAMPLES) -> tuple[np.ndarray, np.ndarray]:
    """Inputs and labels drawn at random; the time of a round does not depend on what they say."""
    generator = np.random.default_rng(0)
    inputs = generator.standard_normal((rows, *network.input_shape), np.float32)
    return inputs, generator.integers(network.classes, size=rows, dtype=np.int32)


def one_device_per_core() -> None:
    """To be called before JAX computes anything; accelerators do not mind."""
    jax.config.update("jax_num_cpu_devices", len(os.sched_getaffinity(0)))


def block_of_rounds(network: Network, rounds: int) -> Callable[[Params, jax.Array], Params]:
    """Build `block(params, key)`: `rounds` rounds from `params`, compiled, with the data in place."""
    on_cpu = jax.default_backend() == "cpu"
    there = jax.local_devices() if on_cpu else jax.local_devices()[:1]
    equal_shares = max(count for count in range(1, len(there) + 1) if COHORT % count == 0)
    mesh = Mesh(np.array(there[:equal_shares]), (AXIS,))
    everywhere = NamedSharding(mesh, PartitionSpec())
    rows = jax.device_put(random_rows(network), everywhere)
    change = _in_turn(network, mesh) if on_cpu else _together(network)

    @partial(jax.jit, out_shardings=everywhere)
    def block(rows: Any, params: Params, key: jax.Array) -> Params:
        def one_round(params, key):
            cohort_key, client_key = jax.random.split(key)
            ids = jax.random.choice(cohort_key, CLIENTS, (COHORT,), replace=False)
            keys = jax.vmap(partial(jax.random.fold_in, client_key))(ids)
            total = change(rows, params, keys, ids)
            return jax.tree.map(lambda leaf, sum: leaf + sum / COHORT, params, total), None

        return jax.lax.scan(one_round, params, jax.random.split(key, rounds))[0]

    return lambda params, key: block(rows, *jax.device_put((params, key), everywhere))


def _client(network: Network, rows: Any, start: Params, key: jax.Array, index: jax.Array) -> Params:
    """How far one epoch takes the model."""

    def loss(params, inputs, labels):
        likelihoods = jax.nn.log_softmax(network.apply(params, inputs))
        return -jnp.mean(jnp.take_along_axis(likelihoods, labels[:, None], 1))

    def step(params, places):
        gradient = jax.grad(loss)(params, *jax.tree.map(lambda leaf: leaf[places], rows))
        return jax.tree.map(lambda leaf, part: leaf - STEP_SIZE * part, params, gradient), None

    shuffled = index * EXAMPLES + jax.random.permutation(key, EXAMPLES)
    trained, _ = jax.lax.scan(step, start, shuffled.reshape(-1, BATCH))
    return jax.tree.map(jnp.subtract, trained, start)


def _in_turn(network: Network, mesh: Mesh) -> Callable[..., Params]:
    """The sum of the cohort's changes; each device adds up its share, one client after another."""
    whole, part = PartitionSpec(), PartitionSpec(AXIS)

    @partial(jax.shard_map, mesh=mesh, in_specs=(whole, whole, part, part), out_specs=whole, check_vma=False)
    def change(rows, params, keys, ids):
        def add(total, client):
            return jax.tree.map(jnp.add, total, _client(network, rows, params, *client)), None

        return jax.lax.psum(jax.lax.scan(add, jax.tree.map(jnp.zeros_like, params), (keys, ids))[0], AXIS)

    return change


def _together(network: Network) -> Callable[..., Params]:
    """The sum of the cohort's changes, all clients vectorised."""

    def change(rows, params, keys, ids):
        changes = jax.vmap(partial(_client, network, rows, params))(keys, ids)
        return jax.tree.map(lambda leaf: leaf.sum(0), changes)

    return change
