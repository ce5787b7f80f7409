"""Mixed problems: the clients' loss and one of the datacenter, each with its weight inside.

Augenstein et al., "Mixed Federated Learning: Joint Decentralized and Centralized Learning", 2022, equation 1:
f(x) = w_f f_f(x) + w_c f_c(x). A problem and a central loss are chosen apart and put together here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from cantons.errors import InputError, check_options, unknown
from cantons.problem.normalize import unit_rows
from cantons.problem.split import paths
from cantons.protocol import Array, CentralLoss, CentralTerm, Convex, Problem
from cantons.ranges import NonNegative, check
from cantons.recipe import central_loss

EQUAL = (0.5, 0.5)
CLIENTS = "clients"  # whose weight it is, beside those of several central losses


@central_loss
def same(problem: Problem) -> CentralLoss:
    """The clients' own loss, on the datacenter's examples."""
    return CentralLoss(problem.loss)


@central_loss
def spreadout(problem: Problem, *, strength: NonNegative = 1.0) -> CentralLoss:
    """How alike the rows of the tables are: the norm of all cosines between two of them. It looks at no examples.

    Zhang et al., "Learning Spread-out Local Feature Descriptors", ICCV 2017, as in the public code of Ning et al.,
    2021: the Frobenius norm, not its square, of the matrix of cosines without its diagonal.

    strength: what the norm is multiplied by. It adds up N^2 cosines, where the clients' loss is a mean: with thousands
        of rows a hundredth or less keeps the two in proportion.
    """
    check("strength", NonNegative, strength)
    if problem.tables is None:
        raise InputError("spreadout pushes the rows of a table apart, and this problem has no tables; choose one that "
                         "has, such as dual_encoder.")
    wanted = problem.tables.paths

    def loss(shared, private, batch):
        leaves = zip(paths(shared), jax.tree.leaves(shared), strict=True)
        return strength * sum(norm_of_cosines(leaf) for path, leaf in leaves if path in wanted)

    return CentralLoss(loss, needs_data=False)


def norm_of_cosines(table: Array) -> Array:
    """The Frobenius norm of the cosines between two different rows, of the N x d numbers in a table.

    >>> norm_of_cosines(jnp.array([[1.0, 0.0], [1.0, 0.0], [0.0, 2.0]]))  # two pairs of ones, one for each order
    Array(1.4142135, dtype=float32)
    """
    rows = unit_rows(table)
    size, width = rows.shape
    if size > 4 * width:
        # X X' and X'X have the same norm, and X'X is small: N d^2 products instead of N^2 d. Its squared norm is at
        # least N^2 / d, so above 4 d rows the diagonal, N, is at most a quarter of it: no digits are lost.
        squares = ((rows.T @ rows) ** 2).sum() - ((rows**2).sum(axis=1) ** 2).sum()
    else:
        squares = (jnp.where(jnp.eye(size, dtype=bool), 0, rows @ rows.T) ** 2).sum()
    return jnp.where(squares > 0, jnp.sqrt(jnp.where(squares > 0, squares, 1)), 0)


CENTRAL_LOSSES: dict[str, Callable[..., CentralLoss]] = {"same": same, "spreadout": spreadout}


def with_central_loss(problem: Problem, loss: str | Mapping[str, Any] | CentralLoss = "same",
                      weights: Sequence[float] = EQUAL) -> Problem:
    """The problem together with a loss of the datacenter.

    `loss` is a name, such as "same", a table with a name and options, or a CentralLoss of your own. `weights` are w_f
    and w_c: clients minimise w_f times what they did before, so gradients, smoothness and good step sizes change with
    it; scores do not.

    A datacenter may have several losses, {"web": "same", "apart": "spreadout"}, with weights by name, {"clients": 0.5,
    "web": 0.3, "apart": 0.2}. Where it has examples of several kinds, a loss is shown those of its name.
    """
    if isinstance(loss, Mapping) and "name" not in loss:
        found = {name: central_loss_of(problem, each) for name, each in loss.items()}
        return mixed_with(problem, {name: each for name, (each, _) in found.items()}, weights,
                          {name: table for name, (_, table) in found.items()})
    made, table = central_loss_of(problem, loss)
    return mixed(problem, made, weights, table)


def central_loss_of(problem: Problem, loss: str | Mapping[str, Any] | CentralLoss,
                    ) -> tuple[CentralLoss, dict[str, Any] | None]:
    """The loss that is meant, and the table that tells how it is made again, if there is one."""
    if isinstance(loss, CentralLoss):
        return loss, None
    table = {"name": loss} if isinstance(loss, str) else dict(loss)
    options = dict(table)
    name = options.pop("name", "")
    if name not in CENTRAL_LOSSES:
        raise unknown("central loss", str(name), CENTRAL_LOSSES)
    check_options(CENTRAL_LOSSES[name], {"problem", *options}, name)
    return CENTRAL_LOSSES[name](problem, **options), table


def mixed_with(problem: Problem, losses: Mapping[str, CentralLoss], weights: Any,
               tables: Mapping[str, Mapping[str, Any] | None]) -> Problem:
    """Several central losses as one, which is their sum; `weights` are by name, and of the "clients"."""
    if not isinstance(weights, Mapping):
        weights = dict.fromkeys((CLIENTS, *losses), 1 / (1 + len(losses)))
    if CLIENTS in losses or set(weights) != {CLIENTS, *losses}:
        raise InputError(f"weights are given for {', '.join(map(str, weights))}; give one for {CLIENTS} and one for "
                         f"each central loss: {', '.join(losses)}.")
    for name, weight in weights.items():
        check(f"weights.{name}", NonNegative, weight)

    def term(name: str, central: CentralLoss) -> CentralTerm:
        def loss(shared, private, batch):
            own = None if not central.needs_data else batch[name] if isinstance(batch, dict) else batch
            return weights[name] * central.loss(shared, private, own)

        return CentralTerm(name, loss, float(weights[name]))

    terms = tuple(term(name, central) for name, central in losses.items())
    def total(shared, private, batch):
        return sum([each.loss(shared, private, batch) for each in terms], jnp.zeros(()))

    whole = CentralLoss(total, any(central.needs_data for central in losses.values()), terms=terms,
                        kinds=tuple(name for name, central in losses.items() if central.needs_data))
    made = mixed(problem, whole, (weights[CLIENTS], 1.0))
    assert made.central is not None
    of_centre = sum(each.weight for each in terms)
    spec = None if problem.spec is None or None in tables.values() else {
        **problem.spec, "central_loss": {name: dict(table or {}) for name, table in tables.items()},
        "weights": {name: float(weight) for name, weight in weights.items()}}
    return made._replace(spec=spec, central=made.central._replace(weights=(float(weights[CLIENTS]), of_centre)))


def mixed(problem: Problem, central: CentralLoss, weights: Sequence[float],
          table: Mapping[str, Any] | None = None) -> Problem:
    """Put the weights inside the two losses; `table` tells how the central one is made again."""
    of_clients, of_centre = check_weights(weights)

    def loss(shared, private, batch):
        return of_clients * problem.loss(shared, private, batch)

    def loss_of_centre(shared, private, batch):
        return of_centre * central.loss(shared, private, batch)

    def residual_loss(outputs, targets, mask):
        assert problem.residual is not None
        return of_clients * problem.residual.loss(outputs, targets, mask)

    spec = None if problem.spec is None or table is None else {
        **problem.spec, "central_loss": dict(table), "weights": [of_clients, of_centre]}
    return problem._replace(
        loss=loss, spec=spec,
        residual=problem.residual and problem.residual._replace(loss=residual_loss),
        convex=problem.convex and Convex(of_clients * problem.convex.curvature),
        groups=tuple(group._replace(weight=of_clients * group.weight) for group in problem.groups),
        central=central._replace(loss=loss_of_centre, weights=(of_clients, of_centre)))


def check_weights(weights: Sequence[float]) -> tuple[float, float]:
    """w_f and w_c."""
    if isinstance(weights, Mapping):
        raise InputError(f"weights are given by name, {dict(weights)}, and there is one central loss without a name; "
                         "give two numbers, the weight of the clients' loss and that of the datacenter's.")
    check("weights", list[NonNegative], list(weights))
    if len(weights) != 2 or not sum(weights):
        raise InputError(f"weights is {list(weights)}; give two numbers from 0 on, the weight of the clients' loss and "
                         "that of the datacenter's, and not 0 for both.")
    return float(weights[0]), float(weights[1])
