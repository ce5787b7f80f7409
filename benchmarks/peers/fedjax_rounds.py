"""FedAvg of FedJAX, with its default way to go through a cohort: one compiled client after another."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from contender import Windows, random_clients, workload

# Names that JAX has dropped since the last release of FedJAX.
for name in ("tree_map", "tree_leaves", "tree_flatten", "tree_unflatten", "tree_structure", "tree_reduce"):
    if name not in vars(jax):
        setattr(jax, name, getattr(jax.tree_util, name))

import fedjax  # noqa: E402

SHAPES = {"linear": [(100, 10)], "mlp": [(784, 200), (200, 200), (200, 62)],
          "cnn": [(3, 3, 3, 32), (3, 3, 32, 64), (14 * 14 * 64, 128), (128, 10)]}


def init(key, shapes):
    draw = jax.nn.initializers.glorot_uniform()
    keys = jax.random.split(key, len(shapes))
    return [(draw(key, shape), jnp.zeros(shape[-1])) for key, shape in zip(keys, shapes, strict=True)]


def apply(params, values):
    while params[0][0].ndim == 4:
        (kernel, bias), *params = params
        values = jax.nn.relu(bias + jax.lax.conv_general_dilated(
            values, kernel, (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")))
    if values.ndim == 4:
        values = values.reshape(-1, 14, 2, 14, 2, 64).max((2, 4)).reshape(len(values), -1)
    for weight, bias in params[:-1]:
        values = jax.nn.relu(values @ weight + bias)
    weight, bias = params[-1]
    return values @ weight + bias


def loss(params, batch, key):
    del key  # nothing is drawn at random
    likelihoods = jax.nn.log_softmax(apply(params, batch["x"]))
    return -jnp.mean(jnp.take_along_axis(likelihoods, batch["y"][:, None], 1))


def main() -> None:
    work = workload()
    windows = Windows(work.window, "fedjax", "jax", "jaxlib", "numpy")
    clients = {str(name).encode(): {"x": inputs, "y": labels}
               for name, (inputs, labels) in enumerate(random_clients(work))}
    algorithm = fedjax.algorithms.fed_avg.federated_averaging(
        jax.grad(loss), fedjax.optimizers.sgd(work.step_size), fedjax.optimizers.sgd(1.0),
        fedjax.ShuffleRepeatBatchHParams(batch_size=work.batch, num_epochs=1, seed=0))
    sampler = fedjax.client_samplers.UniformGetClientSampler(
        fedjax.InMemoryFederatedData(clients), num_clients=work.cohort, seed=0)
    state = algorithm.init(init(jax.random.PRNGKey(0), SHAPES[work.model]))
    for _ in range(work.window * work.windows):
        state, _ = algorithm.apply(state, sampler.sample())
        jax.block_until_ready(state.params)
        windows.round_over()


if __name__ == "__main__":
    main()
