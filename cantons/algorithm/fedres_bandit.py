"""Federated contextual bandits: clients choose actions by what a regressor predicts, and FedRes is that regressor.

Agarwal, Langford and Wei, "Federated Residual Learning", 2020 (v1), section 5, epsilon-greedy in the form that explores
at t = B, 2B, ...: these examples alone are fed to the regressor, so a delay of tau steps holds back ceil(tau / B)
explorations (the paper calls no delay tau = 1). Inverse-gap weighting is SquareCB of Foster and Rakhlin, "Beyond UCB:
Optimal and Efficient Contextual Bandits with Regression Oracles", ICML 2020, Algorithm 1 with mu = K.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp

from cantons.algorithm.fedres_online import Residuals, fedres_online_sgd
from cantons.algorithm.online_baselines import online_central, online_independent
from cantons.algorithm.parts.descent import OnlineSteps, PrivateSteps
from cantons.algorithm.parts.trees import zeros
from cantons.errors import InputError, positive
from cantons.options import Flat
from cantons.problem.bandit import of_actions, regret_of, rewards_of
from cantons.protocol import Aggregator, Algorithm, Array, Batch, Key, Needs, Problem, PyTree, Receipt, Stack, Sum
from cantons.ranges import Count, NonNegative
from cantons.recipe import algorithm


class Client(NamedTuple):
    learner: PyTree  # the state of a client of the regressor
    time: Array  # int32: steps so far


class Upload(NamedTuple):
    used: Array  # 1.0 if the regressor learns from this step
    example: PyTree  # then the regressor's upload, otherwise zeros


class Note(NamedTuple):
    used: Array
    learner: PyTree


class Choice(NamedTuple):
    values: Array  # [b, actions]: predicted rewards
    actions: Array  # int32[b]
    used: Array  # bool: does this step count as an example?


class Chosen(NamedTuple):
    """All that the regressor is shown of a step: features and reward of the chosen actions."""

    batch: Batch

    def now(self) -> Batch:
        return self.batch


@algorithm
def fedres_bandit(problem: Problem, population: int, *, explore: Literal["every", "igw", "uniform"] = "every",
                  every: Count = 10, gamma: NonNegative = 10.0, gamma_exponent: NonNegative = 0.5,
                  regressor: Literal["joint", "shared", "private", "alone"] = "joint", steps: Flat[OnlineSteps],
                  private_steps: Flat[PrivateSteps], residuals: Flat[Residuals]) -> Algorithm:
    """In each step a client chooses an action by predicted rewards, and learns from what that action brings.

    The options of steps, radii and residuals are the regressor's. Theorem 3's B is `theorem3_every`; it is no default,
    because it is 1 to 8 even for a million steps.

    explore: "every": a uniform action in the client's steps B, 2B, ..., the only ones it learns from, and the best
        predicted action otherwise. "igw", inverse-gap weighting: an action that seems worse than the best by a gap has
        probability 1 / (K + c gap), the best has the rest, and every step is learned from. "uniform": always explore.
    every: B, the steps from one exploration to the next under explore = "every".
    gamma: under "igw", c is gamma times t to the power `gamma_exponent` in the client's step t.
    gamma_exponent: how fast c grows; 0 fixes it.
    regressor: "joint" is fedres_online_sgd; the others are baselines: "shared" and "private" keep one of the two
        models, and "alone" lets every client learn both by itself.
    private_step_size: of the private model, and of regressor "private" and "alone", which send nothing and learn at
        once; the same as `step_size` unless given.
    radius: the largest norm of each model; none leaves it free.
    private_radius: the largest norm of a private model, and of the whole model under regressor "alone"; the same as
        `radius` unless given.
    """
    if problem.residual is None or "reward" not in problem.maximise:
        raise InputError("fedres_bandit chooses among actions; make the problem with bandit(data, ...), or in a study "
                         "file [problem] name = \"bandit\".")
    own_steps = private_steps.of(steps)
    recipe = {
        "joint": lambda: fedres_online_sgd(**steps._asdict(), **private_steps._asdict(), **residuals._asdict()),
        "shared": lambda: online_central(**steps._asdict(), **residuals._asdict()),
        "private": lambda: online_independent(**own_steps._asdict()),
        "alone": lambda: online_independent(**own_steps._asdict()),
    }[regressor]()
    inner = recipe.build(_without_shared(problem) if regressor == "private" else problem, population)

    def init_client(key, shared, private):
        return Client(inner.init_client(key, shared, private), jnp.zeros((), jnp.int32))

    def model(key, message, client, data):
        shared, private = inner.personal_model(key, message, client.learner, data).parts
        return (zeros(shared) if regressor == "private" else shared,
                zeros(private) if regressor == "shared" else private)

    def choose(key, message, client, data):
        values = problem.predict(*model(key, message, client, data), data.now().inputs)
        time = client.time + 1
        used = time % every == 0 if explore == "every" else jnp.ones((), bool)
        if explore == "igw":
            wanted = inverse_gap_weights(values, gamma * time.astype(values.dtype) ** gamma_exponent)
        elif explore == "every":
            wanted = jnp.where(used, inverse_gap_weights(values, 0.0), _greedy_weights(values))
        else:
            wanted = inverse_gap_weights(values, 0.0)
        # The regressors draw nothing, so the key is the action's own: the same one is scored, noted and learned from.
        return Choice(values, jax.random.categorical(key, jnp.log(wanted)), used)

    def keep_chosen(choice, batch):
        return Chosen(Batch(of_actions(batch.inputs, choice.actions),
                            of_actions(rewards_of(batch.targets), choice.actions), batch.mask))

    def score(key, message, client, data):
        batch = data.now()
        choice = choose(key, message, client, data)
        rewards = of_actions(rewards_of(batch.targets), choice.actions)
        found = {"loss": (of_actions(choice.values, choice.actions) - rewards) ** 2, "reward": rewards,
                 "regret": regret_of(batch.targets, choice.actions)}
        return {name: (value * batch.mask).sum() / jnp.maximum(batch.mask.sum(), 1) for name, value in found.items()}

    def note(key, message, client, data):
        choice = choose(key, message, client, data)
        return Note(choice.used, inner.note(key, message, client.learner, keep_chosen(choice, data.now())))

    def receive(message, receipt, client):
        told = Receipt(receipt.new, receipt.heard & receipt.note.used, receipt.note.learner)
        return client._replace(learner=inner.receive(message, told, client.learner))

    def client_update(key, message, client, data):
        choice = choose(key, message, client, data)
        example, learner = inner.client_update(key, message, client.learner, keep_chosen(choice, data.now()))
        learner = _select(choice.used, learner, client.learner)
        return (Upload(choice.used.astype(choice.values.dtype), _select(choice.used, example, zeros(example))),
                Client(learner, client.time + 1))

    def server_update(key, server, aggregate, central):
        learned, used = aggregate
        return _select(used > 0, inner.server_update(key, server, learned, central), server)

    return Algorithm(inner.init_server, init_client, inner.broadcast, client_update, _aggregate_used(inner.aggregate),
                     server_update, model, receive=receive, note=note, score=score,
                     needs=Needs(shared=False, stream=True))


def inverse_gap_weights(values: Array, gamma: Array | float) -> Array:
    """The probabilities of actions with predicted rewards `values` [b, actions]; with gamma 0 all are the same.

    >>> inverse_gap_weights(jnp.array([[1.0, 0.0]]), 8.0)  # the worse one has 1 / (2 + 8)
    Array([[0.9, 0.1]], dtype=float32)
    """
    best = _greedy_weights(values)
    gaps = values.max(axis=1, keepdims=True) - values
    others = (1 - best) / (values.shape[1] + gamma * gaps)
    return others + best * (1 - others.sum(axis=1, keepdims=True))


def theorem3_every(rounds: int, clients: int, actions: int, *, norms: float, variance: float, smoothness: float,
                   radius: float, lipschitz: float) -> float:
    """The B with which Theorem 3 (Appendix D) gets its bound for T = `rounds`; below 1, explore always.

    `norms` is ||w^g||^2 plus the sum of ||w_i||^2 at the optimum, `variance` sigma^2 of the gradients, `smoothness`
    gamma and `lipschitz` G of the losses, `radius` D. It does not depend on the delay. Do not expect much of it:

    >>> constants = dict(norms=1.3, variance=0.05, smoothness=4, radius=1, lipschitz=2)
    >>> [round(theorem3_every(rounds, 20, 10, **constants), 1) for rounds in (1_000, 10_000, 1_000_000)]
    [0.7, 1.3, 4.0]
    """
    for name, value in (("rounds", rounds), ("clients", clients), ("actions", actions), ("norms", norms),
                        ("variance", variance), ("smoothness", smoothness), ("radius", radius),
                        ("lipschitz", lipschitz)):
        positive(name, value)
    return min((clients * rounds / (actions**4 * norms * variance)) ** (1 / 5),
               rounds ** (1 / 4) / (actions**6 * smoothness * radius**4 * lipschitz**2) ** (1 / 8),
               (rounds / (actions**2 * radius * lipschitz)) ** (1 / 3))


def _without_shared(problem: Problem) -> Problem:
    """The same problem with the private model alone."""
    joint = problem.residual
    assert joint is not None

    def loss(shared, private, batch):
        return joint.loss(joint.private(private, batch.inputs), batch.targets, batch.mask)

    return problem._replace(loss=loss)


def _aggregate_used(rule: Aggregator) -> Aggregator:
    """Apply the regressor's rule to the uploads it learns from, and count them: without any, the server stays."""
    if isinstance(rule, Sum):
        def lift(upload, message):
            summand = rule.lift(upload.example, message)
            return _select(upload.used > 0, summand, zeros(summand)), upload.used

        return Sum(lift, lambda key, summed: (rule.finish(key, summed[0]), summed[1]))

    assert isinstance(rule, Stack)

    def reduce(key: Key, uploads: PyTree, ids: Array, counts: Array) -> PyTree:
        counts = counts * uploads.used
        return rule.reduce(key, uploads.example, ids, counts), counts.sum()

    return Stack(reduce)


def _greedy_weights(values: Array) -> Array:
    """All the weight on the best action; of equals, on the first."""
    return jax.nn.one_hot(values.argmax(axis=1), values.shape[1], dtype=values.dtype)


def _select(condition: Array, yes: PyTree, no: PyTree) -> PyTree:
    return jax.tree.map(lambda left, right: jnp.where(condition, left, right), yes, no)
