"""Logs of contextual bandits as federations: what was chosen in each context, what it brought and how likely it was."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from cantons.data.build import federation
from cantons.data.checks import Where
from cantons.data.column import is_missing
from cantons.data.federation import Federation
from cantons.errors import InputError, shown, unknown
from cantons.protocol import PyTree


class Log(NamedTuple):
    """What one client logged. All but the contexts are what `cantons.metrics.ips` takes, in its order."""

    contexts: PyTree  # [n, ...]
    actions: np.ndarray  # int32[n]
    rewards: np.ndarray  # [n]
    propensities: np.ndarray  # [n]: how likely the action was


def from_log(contexts: PyTree, actions: ArrayLike, rewards: ArrayLike, propensities: ArrayLike, clients: ArrayLike, *,
             names: Sequence[Any] | None = None, **options: Any) -> Federation:
    """Rows of a log become a federation for the problem `logged_bandit`; options are those of `federation`.

    `propensities` are the probabilities with which the logged `actions` were chosen, above 0 and at most 1. `names` are
    all actions that there are; those of the log, sorted, if not given.

    >>> data = from_log(np.zeros((4, 2)), ["buy", "skip", "skip", "buy"], [1, 0, 0, 3], [0.5] * 4, list("aabb"))
    >>> data.actions, data.train.targets["action"].tolist()
    (('buy', 'skip'), [0, 1, 1, 0])
    """
    known, targets = check_log(actions, rewards, propensities, names)
    return as_log(federation(contexts, targets, clients, **options), known)


def as_log(data: Federation, actions: tuple[str, ...]) -> Federation:
    """The federation as the log of a bandit with these actions, by whose names a model answers."""
    return replace(data, actions=actions, encoding=data.encoding and replace(data.encoding, classes=actions))


def check_log(actions: ArrayLike, rewards: ArrayLike, propensities: ArrayLike, names: Sequence[Any] | None = None,
              where: Where = lambda row: f"row {row} (from 0)") -> tuple[tuple[str, ...], dict[str, np.ndarray]]:
    """The names of all actions, and the targets of `logged_bandit`; what cannot be is refused with its row."""
    chosen, earned, likely = np.asarray(actions), np.asarray(rewards), np.asarray(propensities)
    if chosen.ndim != 1 or earned.shape != chosen.shape or likely.shape != chosen.shape:
        raise InputError("a log has one action, reward and propensity for each row, and here they have shapes "
                         f"{chosen.shape}, {earned.shape} and {likely.shape}.")
    for what, values in (("reward", earned), ("propensity", likely)):
        if values.dtype.kind not in "biuf":
            raise InputError(f"the {what} of each row is a number, and here they are of type {values.dtype}.")
        odd = np.flatnonzero(~np.isfinite(values.astype(np.float64)))
        if len(odd):
            raise InputError(f"the {what} in {where(int(odd[0]))} is {values[odd[0]]}; give a number.")
    odd = np.flatnonzero((likely.astype(np.float32) <= 0) | (likely > 1))
    if len(odd):
        raise InputError(f"the propensity in {where(int(odd[0]))} is {likely[odd[0]]}; it is the probability with "
                         "which the action was chosen: above 0, since it was, and at most 1.")
    odd = np.flatnonzero(is_missing(chosen))
    if len(odd):
        raise InputError(f"there is no action in {where(int(odd[0]))}; remove such rows or fill one in.")
    words = [_word(value) for value in chosen.tolist()]
    known = _sorted(chosen) if names is None else tuple(_word(name) for name in names)
    if len(known) < 2 or len(set(known)) < len(known):
        raise InputError(f"the actions are {shown(list(known))}; a bandit has two or more, each with a name of its "
                         "own: name all of them where the log has but one.")
    places = {name: place for place, name in enumerate(known)}
    for row, word in enumerate(words):
        if word not in places:
            raise InputError(f"{unknown('action', word, known)} It is in {where(row)}.")
    return known, {"action": np.array([places[word] for word in words], np.int32),
                   "reward": earned.astype(np.float32), "propensity": likely.astype(np.float32)}


def logs_of(data: Federation, *, test: bool = False) -> dict[str, Log]:
    """Every client's log, or that of its test rows, as plain arrays: to evaluate any policy on it."""
    if data.actions is None:
        raise InputError(f"{data.name} is not the log of a bandit; make one with bandit_log, from_log or "
                         "classification_log.")
    ragged, found = data.test if test else data.train, {}
    for name, start, size in zip(data.clients.names, ragged.starts, ragged.sizes, strict=True):
        own = slice(start, start + size)
        found[name] = Log(ragged.inputs[own], *(np.asarray(ragged.targets[part][own]) for part in (
            "action", "reward", "propensity")))
    return found


def _word(value: Any) -> str:
    """The name of an action; whole numbers that are written as floats are the same."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _sorted(actions: np.ndarray) -> tuple[str, ...]:
    return tuple(_word(value) for value in np.unique(actions).tolist())
