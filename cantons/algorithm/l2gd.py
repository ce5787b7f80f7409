"""L2GD: every client keeps a whole model of its own, and all are pulled towards their mean.

Hanzely and Richtárik, "Federated Learning of a Mixture of Global and Local Models", 2020, Algorithm 1.
It flips a coin at every step: with probability 1 - p all clients take a local gradient step, with
probability p all move towards the mean. Only a head after a tail needs the network, for until then the
mean is known. So one round here is one communication: the run of heads since (`pulls`), then the next run
of tails (`local_steps`), both geometric. In the paper's symbols step_size = alpha / (M (1 - p)), and one
pull multiplies the distance to the mean by 1 - alpha lambda / (M p). The step size that Mishchenko et al. print for
it is not inverted and diverges; `step_size = 1 / (2 L)` is the safe reading.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from cantons.aggregate import mean_of_uploads
from cantons.algorithm.parts.fitting import fit_whole_model
from cantons.algorithm.parts.schedule import StepSize, as_schedule, usual_step
from cantons.algorithm.parts.training import Work, trainer
from cantons.algorithm.parts.trees import choose, norm, subtract
from cantons.algorithm.parts.tuning import name_diverged
from cantons.errors import InputError
from cantons.protocol import Algorithm, Array, Diagnostics, Needs, Problem, PyTree
from cantons.ranges import Count, Fraction, NonNegative
from cantons.recipe import algorithm


class Server(NamedTuple):
    shared: PyTree  # the mean of the clients' models
    round: Array


class Client(NamedTuple):
    own: PyTree  # this client's copy of the shared part
    private: PyTree
    visits: Array


class Message(NamedTuple):
    shared: PyTree
    pulls: Array
    local_steps: Array
    step_size: Array


@algorithm
def l2gd(problem: Problem, population: int, *, penalty: NonNegative = 0.1, communication: Fraction = 0.5,
         step_size: StepSize = 0.1, batch_size: Count | None = None, fit_epochs: Count = 5) -> Algorithm:
    """Every client keeps a whole model, and all are pulled towards their mean.

    It minimises sum_m f_m(x_m) + penalty/2 sum_m ||x_m - mean||^2. A client met for the first time starts from the
    mean. The paper has all clients in every round.

    penalty: strength of the pull towards the mean: 0 is purely local training, a large one is nearly a single model.
    communication: the coin's p, the probability of a step towards the mean.
    step_size: of the local steps: a number, or a schedule over rounds.
    batch_size: examples in the batch of a local step; with none, all examples of a client.
    fit_epochs: passes that a client which has never acted spends on its model before it predicts.
    """
    schedule = as_schedule(step_size)
    pull_per_step = penalty * (1 - communication) / communication
    # Where several runs are one program, what differs between them is traced, and each was checked before.
    if isinstance(step_size, int | float) and isinstance(pull_per_step, int | float) and (
            step_size * pull_per_step >= 2):
        raise InputError(f"penalty {penalty} with step_size {step_size} and communication {communication} throws "
                         "clients beyond the mean ever further; lower penalty or step_size, or raise communication.")
    step = trainer(problem.loss, Work(steps=1, batch_size=batch_size))
    work = Work(epochs=fit_epochs, batch_size=batch_size)
    tune = trainer(problem.loss, work)

    def init_server(key, shared, private):
        return Server(shared, jnp.zeros((), jnp.int32))

    def init_client(key, shared, private):
        return Client(shared, private, jnp.zeros((), jnp.int32))

    def broadcast(key, server, central):
        heads, tails = jax.random.split(key)
        pulls = jax.random.geometric(heads, jnp.float32(1 - communication), dtype=jnp.int32)
        local_steps = jax.random.geometric(tails, jnp.float32(communication), dtype=jnp.int32)
        return Message(server.shared, pulls, local_steps, schedule(server.round))

    def near_mean(message, own):
        kept = (1 - message.step_size * pull_per_step) ** message.pulls
        return jax.tree.map(lambda centre, mine: centre + kept * (mine - centre), message.shared, own)

    def client_update(key, message, client, data):
        def local_step(number, parts):
            trained = step(jax.random.fold_in(key, number), *parts, data, message.step_size)
            return trained.shared, trained.private

        own = choose(client.visits == 0, message.shared, client.own)
        start = near_mean(message, own), client.private
        own, private = jax.lax.fori_loop(0, message.local_steps, local_step, start)
        return own, Client(own, private, client.visits + 1)

    def server_update(key, server, cohort, central):
        return Server(cohort.value, server.round + 1)

    def model(key, message, client, data):
        def first_time():
            tuned = tune(key, message.shared, client.private, data, usual_step(step_size))
            return tuned._replace(shared=near_mean(message, tuned.shared))

        return fit_whole_model(problem.loss, work, key, data, (message.shared, client.private), first_time,
                           client.visits, (client.own, client.private))

    return Algorithm(init_server, init_client, broadcast, client_update, mean_of_uploads(), server_update, model,
                     needs=Needs(together="its server keeps the mean of the models that arrive together"),
                     diagnostics=Diagnostics(client=lambda message, client, model, data: {
                         "drift": norm(subtract(model[0], message.shared))}, remarks=name_diverged))
