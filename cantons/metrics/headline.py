"""The metric that methods are compared and chosen by, of several that they are scored with."""

from __future__ import annotations

from collections.abc import Collection

UPWARDS = ("accuracy", "reward", "recall@10")  # better when larger
HEADLINES = (*UPWARDS, "loss")  # the first of these that there is


def headline_of(scored: Collection[str]) -> str:
    """What methods that are scored by all this are compared by.

    >>> headline_of(["loss", "reward", "reward_dr"]), headline_of(["loss", "mine"])
    ('reward', 'loss')
    """
    return next((metric for metric in HEADLINES if metric in scored), "loss")
