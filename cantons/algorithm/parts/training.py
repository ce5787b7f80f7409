"""What nearly every client does in a round: some steps of a gradient method on its own data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from cantons.algorithm.parts.schedule import StepSize
from cantons.algorithm.parts.trees import add, norm, scale, zeros
from cantons.protocol import Array, Batch, Data, Key, PyTree
from cantons.ranges import Count, OneOf, Positive, check

Loss = Callable[[PyTree, PyTree, Batch], Array]
OptimizerBuilder = Callable[[Any], optax.GradientTransformation]  # step size -> optimiser

GRADIENT_BATCH = 128  # examples whose gradient is taken at once, where the gradient of all is wanted
OPTIMIZERS: dict[str, OptimizerBuilder] = {
    "sgd": optax.sgd,
    "momentum": lambda step_size: optax.sgd(step_size, momentum=0.9),
    "adam": optax.adam,
    "adamw": optax.adamw,
    "adagrad": optax.adagrad,
    "rmsprop": optax.rmsprop,
    "yogi": optax.yogi,
}
Optimizer = Annotated[str, OneOf("optimizer", tuple(OPTIMIZERS))] | OptimizerBuilder


class Trained(NamedTuple):
    shared: PyTree
    private: PyTree
    steps: Array  # how many gradient steps were made
    clipped: Array | tuple[()] = ()  # in how many of them the gradient was clipped, where that can happen
    gradient_sum: PyTree = ()  # of the shared part's gradients as the loss gave them, where that is asked for


# (gradient of the shared part, current shared part, number of the step) -> the direction to use instead
Adjust = Callable[[PyTree, PyTree, Array], PyTree]


def get_optimizer(name: Optimizer) -> OptimizerBuilder:
    check("optimizer", Optimizer, name)
    return name if callable(name) else OPTIMIZERS[name]


class LocalWork(NamedTuple):
    """What a client does in a round: gradient steps on its own examples.

    step_size: of the local steps: a number, or a schedule over rounds.
    epochs: passes over a client's own examples in one round.
    steps: if given, this many batches drawn at random take the place of `epochs`.
    batch_size: examples in a batch; with none, all examples of a client at once.
    """

    step_size: StepSize = 0.1
    epochs: Count = 1
    steps: Count | None = None
    batch_size: Count | None = 32

    @property
    def work(self) -> Work:
        return Work(self.epochs, self.steps, self.batch_size)


class LocalOptimizer(NamedTuple):
    """How a client turns gradients into steps.

    client_optimizer: of the local steps: "sgd", "momentum", "adam", "adamw", "adagrad", "rmsprop" or "yogi"; in Python
        also a function from a step size to an optax optimiser. Its state is not kept between rounds.
    clip_norm: no local gradient is longer than this.
    """

    client_optimizer: Optimizer = "sgd"
    clip_norm: Positive | None = None


PLAIN_STEPS = LocalOptimizer()


def moves_without_gradient(optimizer: LocalOptimizer) -> bool:
    """Does it move a parameter whose gradient is 0, as weight decay and the averages of optax's yogi do?"""
    method, point = get_optimizer(optimizer.client_optimizer)(1.0), jnp.ones(())
    with jax.ensure_compile_time_eval():
        move, _ = method.update(jnp.zeros(()), method.init(point), point)
        return bool(move != 0)


class Work(NamedTuple):
    """How much is computed: passes over the data, or `steps` sampled batches; a batch of None is all examples."""

    epochs: int = 1
    steps: int | None = None
    batch_size: int | None = 32

    def examples(self, size: Array | int) -> Array | int:
        """How many examples that is for a client with `size` of them, each counted as often as it is met."""
        if self.batch_size is None:
            return (self.steps or self.epochs) * size
        return self.epochs * size if self.steps is None else self.steps * self.batch_size

    def most_steps(self, size: int) -> int:
        """How many gradient steps that is for a client with `size` examples."""
        passes = 1 if self.batch_size is None else -(-size // self.batch_size)
        return self.epochs * passes if self.steps is None else self.steps

    def draw(self, key: Key, data: Data, number: Array | int) -> Batch:
        """The batch of one of the `steps`."""
        assert self.batch_size is not None
        return data.sample(jax.random.fold_in(key, number), self.batch_size)

    def fold(self, key: Key, data: Data, body: Callable[[PyTree, Batch], PyTree], carry: PyTree) -> PyTree:
        """Fold `body` over the batches this work consists of."""
        if self.batch_size is None:
            whole = data.full(key)
            return jax.lax.fori_loop(0, self.steps or self.epochs, lambda number, carry: body(
                carry, jax.tree.map(lambda batch: batch.again(number), whole, is_leaf=is_batch)), carry)
        if self.steps is not None:
            return jax.lax.fori_loop(0, self.steps, lambda number, carry: body(
                carry, self.draw(key, data, number)), carry)
        if self.epochs == 1:
            return data.epoch(key, self.batch_size, body, carry)
        size = self.batch_size
        return jax.lax.fori_loop(0, self.epochs, lambda number, carry: data.epoch(
            jax.random.fold_in(key, number), size, body, carry), carry)


def is_batch(node: Any) -> bool:
    """For trees of batches: a datacenter may have examples of several kinds, or none."""
    return isinstance(node, Batch)


def trainer(loss: Loss, work: Work, optimizer: LocalOptimizer = PLAIN_STEPS,
            sum_gradients: bool = False) -> Callable[..., Trained]:
    """Build `train(key, shared, private, data, step_size, adjust)`: both parts move together.

    `adjust` replaces the shared part's gradient, which is all that FedProx, SCAFFOLD and gradient transfer change.
    """
    build, clip_norm = get_optimizer(optimizer.client_optimizer), optimizer.clip_norm

    def train(key: Key, shared: PyTree, private: PyTree, data: Data, step_size: Array,
              adjust: Adjust = lambda gradient, shared, step: gradient) -> Trained:
        method = build(step_size)
        if clip_norm is not None:
            method = optax.chain(optax.clip_by_global_norm(clip_norm), method)

        def step(carry, batch):
            parts, optimizer_state, count, clipped, total = carry
            shared_gradient, private_gradient = jax.grad(loss, argnums=(0, 1))(*parts, batch)
            direction = adjust(shared_gradient, parts[0], count), private_gradient
            moves, optimizer_state = method.update(direction, optimizer_state, parts)
            if clip_norm is not None:
                clipped = clipped + (norm(direction) > clip_norm)
            total = add(total, shared_gradient) if sum_gradients else ()
            return optax.apply_updates(parts, moves), optimizer_state, count + 1, clipped, total

        parts = shared, private
        none = () if clip_norm is None else jnp.zeros((), jnp.int32)
        parts, _, count, clipped, total = work.fold(key, data, step, (
            parts, method.init(parts), jnp.zeros((), jnp.int32), none, zeros(shared) if sum_gradients else ()))
        return Trained(parts[0], parts[1], count, clipped, total)

    return train


def gradient_norm(loss: Loss, model: tuple[PyTree, PyTree], data: Data) -> Array:
    """The length of the shared part's gradient on all of a client's examples: ||F_m|| where the private part is tuned.

    Examples are looked at in batches, so that a large model needs no more memory here than elsewhere.
    """
    shared, private = model

    def one_batch(total: PyTree, batch: Batch) -> PyTree:
        return add(total, scale(batch.mask.sum(), jax.grad(loss)(shared, private, batch)))

    total = data.fold(GRADIENT_BATCH, one_batch, zeros(shared))
    return norm(total) / jnp.maximum(jnp.asarray(data.size, float), 1)
