"""Means, as sums: the only rules that can be chunked, reduced on workers or kept secret."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from cantons.protocol import Aggregator, Average, Averages, Report, Sum, SumRule
from cantons.recipe import rule


@rule
def weighted_mean() -> SumRule:
    """The mean by the weights that clients give, such as how many examples are behind a change of the model."""
    return SumRule(lambda state, upload: _scale(upload.weight, upload), _finish)


@rule
def mean() -> SumRule:
    """The plain mean: every client counts the same, whatever weight it gives."""
    return SumRule(lambda state, upload: Average(upload.value, jnp.ones(())), _finish)


def _scale(weight, upload: Average) -> Average:
    return Average(jax.tree.map(lambda leaf: weight * leaf, upload.value), weight)


def _finish(key, state, total, expected):
    return divided(total), state, Report()


def divided(total: Average) -> Average:
    """A sum of weighted values and of their weights, as the mean and the weight behind it."""
    value, weight = total
    return Average(jax.tree.map(lambda leaf: leaf / jnp.maximum(weight, jnp.finfo(weight.dtype).tiny), value), weight)


def as_sum(aggregate: Aggregator) -> Sum:
    """An algorithm's aggregation by adding, be it one of its own or the mean of averages."""
    if isinstance(aggregate, Sum):
        return aggregate
    assert isinstance(aggregate, Averages)
    read = aggregate.read
    return Sum(lambda upload, message: _scale(read(upload).weight, read(upload)), lambda key, total: divided(total))
