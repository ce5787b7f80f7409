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
from cantons.protocol import Array, CentralLoss, Convex, Problem
from cantons.ranges import NonNegative, check
from cantons.recipe import central_loss

EQUAL = (0.5, 0.5)


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
    """
    if isinstance(loss, CentralLoss):
        return mixed(problem, loss, weights)
    table = {"name": loss} if isinstance(loss, str) else dict(loss)
    options = dict(table)
    name = options.pop("name", "")
    if name not in CENTRAL_LOSSES:
        raise unknown("central loss", str(name), CENTRAL_LOSSES)
    check_options(CENTRAL_LOSSES[name], {"problem", *options}, name)
    return mixed(problem, CENTRAL_LOSSES[name](problem, **options), weights, table)


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
        central=central._replace(loss=loss_of_centre, weights=(of_clients, of_centre)))


def check_weights(weights: Sequence[float]) -> tuple[float, float]:
    """w_f and w_c."""
    check("weights", list[NonNegative], list(weights))
    if len(weights) != 2 or not sum(weights):
        raise InputError(f"weights is {list(weights)}; give two numbers from 0 on, the weight of the clients' loss and "
                         "that of the datacenter's, and not 0 for both.")
    return float(weights[0]), float(weights[1])
