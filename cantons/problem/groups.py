"""Problems of several populations: clients are of named groups, each with a loss and a weight of its own.

Augenstein et al., "Mixed Federated Learning: Joint Decentralized and Centralized Learning", 2022, section 6: mixing may
also be between distinct populations of clients, f(x) = sum over groups of w_g f_g(x), with a datacenter or without.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax

from cantons.data import Federation
from cantons.errors import InputError
from cantons.problem.central import central_loss_of
from cantons.protocol import CentralLoss, GroupLoss, Problem
from cantons.ranges import NonNegative, check


def with_group_losses(problem: Problem, data: Federation, losses: Mapping[str, Any] | None = None,
                      weights: Mapping[str, float] | None = None) -> Problem:
    """The problem in which each group of clients minimises a loss of its own, times its weight.

    `losses` are given as for `with_central_loss`, by group; the others have the problem's own. `weights` are alike if
    none are given, and add up to 1. Give the problem a central loss afterwards, if it is to have one.
    """
    names = () if data.clients.groups is None else data.clients.groups.names
    found = {name: central_loss_of(problem, loss) for name, loss in (losses or {}).items()}
    return grouped(problem, names, {name: loss for name, (loss, _) in found.items()}, weights,
                   {name: table for name, (_, table) in found.items()})


def grouped(problem: Problem, names: Sequence[str], losses: Mapping[str, CentralLoss],
            weights: Mapping[str, float] | None, tables: Mapping[str, Mapping[str, Any] | None]) -> Problem:
    """Put the weights inside the losses; `names` are those of the data's groups, in its order.

    Who has no loss of its own has the problem's. `tables` tell how losses are made again.
    """
    if not names:
        raise InputError("losses and weights of groups are given, and the data has no groups; make some: a [groups] "
                         "table (in Python: by_label(data, ...), by_size, by_name or at_random).")
    weights = weights or dict.fromkeys(names, 1 / len(names))
    if not set(losses) <= set(names) or set(weights) != set(names):
        raise InputError(f"losses or weights of groups are given for {', '.join({**losses, **weights})}, and the data "
                         f"has the groups {', '.join(names)}; name some of them for losses, each for weights.")
    losses = {name: losses.get(name, CentralLoss(problem.loss)) for name in names}
    tables = {name: tables.get(name, {"name": "same"}) for name in names}
    weights = {name: weights[name] for name in names}
    for name, weight in weights.items():
        check(f"group_weights.{name}", NonNegative, weight)
    if not sum(weights.values()):
        raise InputError("the weights of all groups are 0; give one of them more.")
    own = problem.loss

    def charged(name: str, weight: float):
        return lambda shared, private, batch: weight * losses[name].loss(shared, private, batch)

    charges = [charged(name, float(weight)) for name, weight in weights.items()]

    def loss(shared, private, batch):
        if isinstance(batch.group, tuple):  # rows of nobody's, such as the datacenter's
            return own(shared, private, batch)
        return jax.lax.switch(batch.group, charges, shared, private, batch)

    spec = None if problem.spec is None or None in tables.values() else {
        **problem.spec, "group_losses": {name: dict(table or {}) for name, table in tables.items()},
        "group_weights": {name: float(weight) for name, weight in weights.items()}}
    # What else is known of the problem was known of its own loss.
    return problem._replace(loss=loss, spec=spec, residual=None, convex=None,
                            groups=tuple(GroupLoss(name, float(weight)) for name, weight in weights.items()))
