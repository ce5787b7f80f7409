"""Federated Residual Learning in rounds: a shared model and a private one predict together.

Wei, Agarwal and Langford, "Federated Residual Learning", the version with FedResSGD and FedResAvg (arXiv 2003.12880),
Algorithms 2 to 4. In the paper w is `shared`, theta_i `private`, eta `step_size`, lambda `private_step_size`,
K `steps`, alpha `server_scale`, c `control` and c_i `own_control`. Clients count alike, however many examples they
have. The paper lets all of them take part; under sampling the means are over the cohort, and c moves by |S|/N times the
mean change of the c_i, so that it stays the mean of them all, as in SCAFFOLD. Algorithm 4 forgets to send c down, and
its option II sums over i where it means k.
"""

from __future__ import annotations

from typing import Literal

import jax

from cantons.algorithm.fedres_common import Client, FedResWork, Message, Rates, Upload, build_fedres, preset_rates
from cantons.algorithm.parts.training import Loss, Work
from cantons.algorithm.parts.trees import add, descend, scale, subtract, zeros
from cantons.options import Flat
from cantons.protocol import Algorithm, Data, Key, Problem, PyTree
from cantons.ranges import Positive
from cantons.recipe import algorithm


@algorithm
def fedres_naive(problem: Problem, population: int, *, order: Literal["printed", "simultaneous"] = "printed",
                 local: Flat[FedResWork]) -> Algorithm:
    """Both parts of the model descend together, and the shared copies are averaged.

    FedResNaive, Algorithm 2 of "Federated Residual Learning", the warm-up that the other two improve on: private parts
    are fitted to copies w_i of the shared part, which the average then overwrites.

    order: in each step, on one batch, the private part moves at the new value of the copy, "printed", or both parts
        move from the same point, as the text says, "simultaneous".
    """
    work = local.work

    def client_update(key, message, client, data):
        def step(parts, batch):
            shared, private = parts
            moved = descend(shared, message.step_size, jax.grad(problem.loss)(shared, private, batch))
            seen = moved if order == "printed" else shared
            gradient = jax.grad(problem.loss, argnums=1)(seen, private, batch)
            return moved, descend(private, message.private_step_size, gradient)

        shared, private = work.fold(key, data, step, (message.shared, client.private))
        return Upload(subtract(shared, message.shared), ()), Client(private, (), client.visits + 1)

    return build_fedres(problem, population, local, Rates(local.step_size, local.private_step_size), client_update)


@algorithm
def fedres_sgd(problem: Problem, population: int, *, preset: Literal["theorem1"] | None = None,
               local: Flat[FedResWork]) -> Algorithm:
    """The private part takes its steps under the shared model, then the shared part takes one large step.

    FedResSGD, Algorithm 3 of "Federated Residual Learning". First K steps of lambda on theta_i while w stands still;
    then one gradient for w at the new theta_i, on a fresh batch of K times `batch_size` examples, and a step of K times
    eta, which the theory wants below 1 / (K smoothness).

    preset: "theorem1" is lambda = eta/N for N clients; with K = 1 that is block gradient descent on the mean loss.
    """
    rates = preset_rates(population, local, preset)
    work = local.work
    steps, size = local.steps, local.batch_size
    large = Work(steps=1, batch_size=None if size is None else steps * size)

    def client_update(key, message, client, data):
        private_key, shared_key = jax.random.split(key)
        private = fit_private(problem.loss, work, private_key, message, client.private, data)

        def step(shared, batch):
            gradient = jax.grad(problem.loss)(shared, private, batch)
            return descend(shared, steps * message.step_size, gradient)

        shared = large.fold(shared_key, data, step, message.shared)
        return Upload(subtract(shared, message.shared), ()), Client(private, (), client.visits + 1)

    return build_fedres(problem, population, local, rates, client_update)


@algorithm
def fedres_avg(problem: Problem, population: int, *, option: Literal["I", "II"] = "II",
               server_scale: Positive | None = None, preset: Literal["theorem1", "theorem2"] | None = None,
               local: Flat[FedResWork]) -> Algorithm:
    """The private part takes its steps under the shared model, then the shared part takes as many.

    FedResAvg, Algorithm 4 of "Federated Residual Learning". First K steps of lambda on theta_i while w stands still;
    then K steps of eta on w_i along g - c_i + c, on fresh batches, while theta_i stands still. Sampling with
    replacement would break the controls of option II and is refused.

    option: "II" corrects the drift: c_i is the mean of a client's K gradients g in its last round, and c the mean of
        all c_i. "I" has c_i = c = 0, sends neither, and drifts.
    server_scale: alpha: the server moves by alpha times the mean change; 1 if left open.
    preset: "theorem1" is lambda = eta/N for N clients; "theorem2" is lambda = eta/sqrt(N) and alpha = sqrt(N), as the
        proof of Theorem 2 has them.
    """
    rates = preset_rates(population, local, preset, server_scale)
    work = local.work

    def client_update(key, message, client, data):
        private_key, shared_key = jax.random.split(key)
        private = fit_private(problem.loss, work, private_key, message, client.private, data)
        correction = subtract(message.control, client.own_control)

        def step(carry, batch):
            shared, total = carry
            gradient = jax.grad(problem.loss)(shared, private, batch)
            direction = gradient if option == "I" else add(gradient, correction)
            return descend(shared, message.step_size, direction), add(total, gradient)

        shared, total = work.fold(shared_key, data, step, (message.shared, zeros(message.shared)))
        own_control = () if option == "I" else scale(1 / local.steps, total)
        upload = Upload(subtract(shared, message.shared), subtract(own_control, client.own_control))
        return upload, Client(private, own_control, client.visits + 1)

    return build_fedres(problem, population, local, rates, client_update, controlled=option == "II")


def fit_private(loss: Loss, work: Work, key: Key, message: Message, private: PyTree, data: Data) -> PyTree:
    """Step 1 of Algorithms 3 and 4: the private part learns what the shared model, just received, leaves over."""

    def step(private, batch):
        gradient = jax.grad(loss, argnums=1)(message.shared, private, batch)
        return descend(private, message.private_step_size, gradient)

    return work.fold(key, data, step, private)
