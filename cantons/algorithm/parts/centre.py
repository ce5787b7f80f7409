"""What the datacenter does in a round: steps on its own loss, with batches that follow from the seed and the round."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

from cantons.algorithm.parts.schedule import StepSize, as_schedule
from cantons.algorithm.parts.training import LocalOptimizer, Optimizer, Trained, Work, trainer
from cantons.algorithm.parts.trees import add, zeros
from cantons.errors import InputError
from cantons.protocol import Array, Batch, Datacenter, Needs, Problem, PyTree
from cantons.ranges import Count


class CentralWork(NamedTuple):
    """What the centre does in a round.

    central_step_size: of its steps: a number, or a schedule over rounds.
    central_steps: how many it makes in a round.
    central_batch_size: examples of the datacenter in a step; with none, all it has.
    central_optimizer: CENTRALOPT: the same choice as `client_optimizer`; its state is not kept between rounds.
    central_private: where the problem has a private part, the centre's: "start" is the one that everybody starts with,
        "trained" moves in the centre's steps.
    """

    central_step_size: StepSize = 0.1
    central_steps: Count = 10
    central_batch_size: Count | None = 32
    central_optimizer: Optimizer = "sgd"
    central_private: Literal["start", "trained"] = "start"


class Centre(NamedTuple):
    """The datacenter at work. `server` has fields `shared`, `private` and `round`."""

    train: Callable[..., Trained]  # (central, server, gradient to add to each) -> where its steps lead
    gradient: Callable[[Datacenter, Any], PyTree]  # (central, server) -> one gradient at the server's model
    needs: Needs


class NoExamples:
    """A handle for losses that look at no examples: their batch is None."""

    def sample(self, key: Any, size: int) -> None:
        return None

    def full(self, key: Any = None) -> None:
        return None


def centre_of(problem: Problem, work: CentralWork, or_groups: bool = False) -> Centre:
    """The centre of a problem that has a central loss; one `or_groups` can do without."""
    if problem.central is None and or_groups and problem.groups:
        return Centre(_idle, lambda central, server: zeros(server.shared), Needs())
    if problem.central is None:
        raise InputError("this algorithm needs a loss of the datacenter and the problem has none; give it one: "
                         "central_loss = \"same\" in [problem] (in Python: with_central_loss(problem, \"same\")).")
    loss, schedule = problem.central.loss, as_schedule(work.central_step_size)
    steps = Work(steps=work.central_steps, batch_size=work.central_batch_size)
    optimizer = LocalOptimizer(work.central_optimizer)

    def train(central: Datacenter, server: Any, extra: PyTree = None) -> Trained:
        moves = work.central_private == "trained"
        objective = loss if moves else lambda shared, nothing, batch: loss(shared, server.private, batch)
        adjust = {} if extra is None else {"adjust": lambda gradient, shared, step: add(gradient, extra)}
        found = trainer(objective, steps, optimizer, sum_gradients=True)(
            central.key, server.shared, server.private if moves else (), _examples(central), schedule(server.round),
            **adjust)
        return found if moves else found._replace(private=server.private)

    def gradient(central: Datacenter, server: Any) -> PyTree:
        return jax.grad(loss)(server.shared, server.private, central_batch(central, 0, work.central_batch_size))

    rows = (work.central_batch_size or 1) if problem.central.needs_data else 0
    return Centre(train, gradient, Needs(central="loss", central_rows=rows))


def _idle(central: Datacenter, server: Any, extra: PyTree = None) -> Trained:
    """Where there is no datacenter."""
    return Trained(server.shared, server.private, jnp.ones((), jnp.int32), gradient_sum=zeros(server.shared))


def central_batch(central: Datacenter, step: Array | int, size: int | None) -> Batch | None:
    """The batch of one central step; with a size of None, all examples there are."""
    return _examples(central).full(jax.random.fold_in(central.key, step)) if size is None else central.batch(step, size)


def _examples(central: Datacenter) -> Any:
    return NoExamples() if central.examples is None else central.examples
