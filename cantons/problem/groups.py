"""Problems of several populations: clients are of named groups, each with a loss and a weight of its own.

Augenstein et al., "Mixed Federated Learning: Joint Decentralized and Centralized Learning", 2022, section 6: mixing may
also be between distinct populations of clients, f(x) = sum over groups of w_g f_g(x), with a datacenter or without.
"""

from __future__ import annotations

from collections.abc import Mapping
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
    if data.clients.groups is None:
        raise InputError(f"{data.name} has no groups; make some first: by_label(data, ...), by_size or by_name.")
    names = data.clients.groups.names
    losses, weights = losses or {}, weights or dict.fromkeys(names, 1 / len(names))
    for what, given in (("losses", losses), ("weights", weights)):
        odd = [name for name in given if name not in names]
        if odd or (what == "weights" and set(given) != set(names)):
            raise InputError(f"the {what} of groups are given for {', '.join(map(repr, given))}, and {data.name} has "
                             f"the groups {', '.join(names)}; name {'each' if what == 'weights' else 'some'} of them.")
    found = {name: central_loss_of(problem, losses.get(name, "same")) for name in names}
    return grouped(problem, {name: loss for name, (loss, _) in found.items()}, {name: weights[name] for name in names},
                   {name: table for name, (_, table) in found.items()})


def grouped(problem: Problem, losses: Mapping[str, CentralLoss], weights: Mapping[str, float],
            tables: Mapping[str, Mapping[str, Any] | None]) -> Problem:
    """Put the weights inside the losses; the order of `weights` is that of the data's groups."""
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
        "group_weights": dict(weights)}
    # What else is known of the problem was known of its own loss.
    return problem._replace(loss=loss, spec=spec, residual=None, convex=None,
                            groups=tuple(GroupLoss(name, float(weight)) for name, weight in weights.items()))
