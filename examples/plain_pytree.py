"""A model written as two functions of a plain pytree, with a private head on every client."""

import jax
import jax.numpy as jnp

import cantons as ct

data = ct.digits(clients=20, partition="dirichlet")


def init(key):
    body, head = jax.random.split(key)
    return {"body": 0.1 * jax.random.normal(body, (64, 32)), "head": 0.1 * jax.random.normal(head, (32, 10))}


def apply(params, images):
    return jnp.tanh(images.reshape(len(images), 64) @ params["body"]) @ params["head"]


problem = ct.from_functions(init, apply, loss="softmax", split="head")
result = ct.run(problem, data, ct.fedavg(step_size=0.1, epochs=1, batch_size=10), rounds=20, cohort=10)
print(result.final["test.personal.accuracy.mean"])
