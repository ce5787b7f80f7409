"""Step sizes over rounds: functions from the round number to a step size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import jax
import jax.numpy as jnp

from cantons.errors import at_least
from cantons.protocol import Array
from cantons.ranges import Count, Named, NonNegative, Positive, Whole, as_declared, check, checked

Schedule = Callable[[Array], Array]


@checked
def constant(value: Positive) -> Schedule:
    return lambda step: jnp.full((), value)


@checked
def linear(peak: Positive, rounds: Count, warmup: Whole = 0, end: NonNegative = 0.0) -> Schedule:
    """Rise from 0 to `peak` over `warmup` rounds, then fall linearly to `end` at round `rounds`."""
    at_least("rounds", rounds, warmup + 1)

    def value(step):
        rising = (step + 1) / max(warmup, 1)
        falling = (rounds - step) / (rounds - warmup)
        return jnp.where(step < warmup, peak * rising, end + (peak - end) * jnp.clip(falling, 0.0, 1.0))

    return value


@checked
def cosine(peak: Positive, rounds: Count, warmup: Whole = 0, end: NonNegative = 0.0) -> Schedule:
    """Rise from 0 to `peak` over `warmup` rounds, then fall along half a wave to `end` at round `rounds`."""
    at_least("rounds", rounds, warmup + 1)

    def value(step):
        rising = (step + 1) / max(warmup, 1)
        passed = jnp.clip((step - warmup) / (rounds - warmup), 0.0, 1.0)
        return jnp.where(step < warmup, peak * rising, end + (peak - end) * (1 + jnp.cos(jnp.pi * passed)) / 2)

    return value


@checked
def step_decay(start: Positive, factor: Positive, every: Count) -> Schedule:
    """`start`, multiplied by `factor` after each `every` rounds."""
    return lambda step: start * jnp.power(factor, step // every)


@checked
def sqrt_decay(start: Positive) -> Schedule:
    """`start` over the root of the number of the step, from 1: the usual step of online gradient descent."""
    return lambda step: start * jax.lax.rsqrt(step + 1.0)


@checked
def inverse(start: Positive) -> Schedule:
    """`start` over the number of the step, from 1: the step for strongly convex losses."""
    return lambda step: start / (step + 1.0)


SCHEDULES: dict[str, Callable[..., Schedule]] = {
    "constant": constant, "cosine": cosine, "inverse": inverse, "linear": linear, "sqrt_decay": sqrt_decay,
    "step_decay": step_decay}
ScheduleTable = Annotated[dict, Named("schedule", SCHEDULES)]
StepSize = Positive | ScheduleTable | Schedule


def usual_step(step_size: StepSize) -> float | Array:
    """The step size for work outside the rounds, such as a new client's: of a schedule, its peak or first value."""
    if isinstance(step_size, dict):
        first = next(step_size[name] for name in ("peak", "start", "value") if name in step_size)
        return as_declared(Positive, first)
    return step_size(jnp.zeros((), jnp.int32)) if callable(step_size) else step_size


def as_schedule(step_size: StepSize) -> Schedule:
    """Turn a number, `{"name": "linear", "peak": 0.1, "rounds": 100}` or a function into a function of the round."""
    check("step_size", StepSize, step_size)
    if callable(step_size):
        return step_size
    if isinstance(step_size, dict):
        options = dict(step_size)
        return SCHEDULES[options.pop("name")](**options)
    return constant(step_size)


def both_schedules(step_size: StepSize, private_step_size: StepSize | None) -> Callable[[Array], tuple[Array, Array]]:
    """The shared and the private part's step sizes as a function of the round; the second is the first unless given."""
    shared = as_schedule(step_size)
    private = shared if private_step_size is None else as_schedule(private_step_size)
    return lambda round: (shared(round), private(round))
