"""Labelled data as the log of a contextual bandit, whose truth is known."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any

import numpy as np

from cantons.data.centres import map_kinds
from cantons.data.federation import Federation, Population
from cantons.data.log import as_log
from cantons.data.ragged import Ragged
from cantons.data.registry import make_data
from cantons.data.seeds import generator
from cantons.errors import InputError
from cantons.memory import require
from cantons.ranges import DataSeed, Range, checked


@checked
def classification_log(source: Federation | Mapping[str, Any], *,
                       epsilon: Annotated[float, Range(0, 1, above=True)] = 0.5, seed: DataSeed = 0) -> Federation:
    """Labelled data as the log of a bandit, the usual simulation: actions are classes, and the right one brought 1.

    Every client logs with an epsilon-greedy policy of its own, which is fond of one class. The targets also hold what
    each action would have brought, as "rewards": no learner looks at these, and scores tell the truth by them.

    source: a federation with classes, or how to make one, {name = "digits", clients = 20, ...}.
    epsilon: how often a client draws its action uniformly, above 0; otherwise it takes its favourite.
    seed: of favourites and actions.

    >>> data = classification_log({"name": "digits", "clients": 5, "partition": "iid"}, epsilon=0.5)
    >>> len(data.actions), np.unique(data.train.targets["propensity"]).round(2)
    (10, array([0.05, 0.55], dtype=float32))
    """
    data = source if isinstance(source, Federation) else make_data(source)
    kinds = data.classes
    if kinds is None or not hasattr(data.train.targets, "ndim") or data.train.targets.ndim != 1:
        raise InputError("classification_log needs a label for each example, and this data has none; give data with "
                         "classes.")

    def log(kind: str) -> Callable[[Ragged, Sequence[str]], Ragged]:
        def logged(ragged: Ragged, names: Sequence[str]) -> Ragged:
            require(4 * kinds * len(ragged.targets), f"a log of {kinds} actions and {len(ragged.targets)} rows")
            parts = [_draw(generator(seed, "log", kind, name), _favourite(seed, name, kinds), int(size), kinds, epsilon)
                     for name, size in zip(names, ragged.sizes, strict=True)]
            actions, propensities = (np.concatenate(part) for part in zip(*parts, strict=True))
            rewards = np.eye(kinds, dtype=np.float32)[np.asarray(ragged.targets)]
            return replace(ragged, targets={"action": actions, "reward": rewards[np.arange(len(actions)), actions],
                                            "propensity": propensities, "rewards": rewards})

        return logged

    def population(some: Population) -> Population:
        return replace(some, train=log("train")(some.train, some.names), test=log("test")(some.test, some.names))

    named = data.encoding and data.encoding.classes
    logged = replace(
        data,
        clients=population(data.clients),
        new=data.new and population(data.new),
        central=map_kinds(lambda rows: log("central")(rows, ["central"]), data.central),
        validation=data.validation and log("validation")(data.validation, data.clients.names),
        classes=None,
        name=f"{data.name} as a log",
        notes=(*data.notes, f"actions were drawn epsilon-greedily (epsilon {epsilon:g}) around a client's favourite"),
        spec=data.spec and {"name": "classification_log", "source": data.spec, "epsilon": epsilon, "seed": seed},
    )
    return as_log(logged, tuple(map(str, named if named and len(named) == kinds else range(kinds))))


def _favourite(seed: int, name: str, kinds: int) -> int:
    return int(generator(seed, "favourite", name).integers(kinds))


def _draw(random: np.random.Generator, favourite: int, size: int, kinds: int,
          epsilon: float) -> tuple[np.ndarray, np.ndarray]:
    """Actions, and the probability of each."""
    explores, drawn = random.random(size) < epsilon, random.integers(kinds, size=size)
    actions = np.where(explores, drawn, favourite).astype(np.int32)
    return actions, (epsilon / kinds + (1 - epsilon) * (actions == favourite)).astype(np.float32)
