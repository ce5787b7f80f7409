"""Least squares with a part that clients share and a part of each client's own.

Mishchenko et al., "Partially Personalized Federated Learning: Breaking the Curse of Data Heterogeneity", sections 5.1
and E.1: f_m(theta, w) = |H_m theta - b_m|^2 / 2 + |A_m theta + B_m w - y_m|^2 / 2. The first columns of an input go
with theta and the others with w, which the rows of H_m have zeros for. The paper's losses are sums and ours are means:
f_m is the mean squared error times `rows`, so that its step sizes are to be multiplied by `rows`.

The trap: how targets are made decides which claims hold. Assumption 2, one theta that is best for every client, needs
`targets = "shared"` and no noise.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from cantons.data.build import federation
from cantons.data.federation import Federation
from cantons.data.provenance import recorded
from cantons.data.seeds import generator
from cantons.memory import require
from cantons.ranges import Count, DataSeed, New, NonNegative


@recorded
def synthetic_least_squares(
    clients: Count = 32,
    *,
    rows: Count = 10_000,
    shared: Count = 100,
    private: Count = 50,
    heterogeneity: NonNegative | None = None,
    targets: Literal["shared", "own"] = "shared",
    noise: NonNegative = 0.0,
    compact: bool = True,
    new: New = 0,
    seed: DataSeed = 0,
) -> Federation:
    """Clients with linear targets, by a model that is shared in part, or by models of their own.

    clients: how many clients there are, the new ones among them.
    rows: of H_m, and as many of A_m and B_m: a client has twice as many.
    shared: numbers in the shared part, and the first columns of an input.
    private: numbers in the private part, and the other columns.
    heterogeneity: zeta of section E.1: all clients have the same matrices, plus normal ones of this spectral norm; with
        none, each client has matrices of its own, as in section 5.1.
    targets: "shared" makes them all from one theta, and a w of each client's own; "own" draws a theta for every b_m and
        another for every y_m, as section E.1 does.
    noise: the standard deviation of what is added to every target.
    compact: put a root of a client's normal equations in the place of its rows: as many rows as there are columns, and
        the same mean squared error for every linear model. A gradient then costs as much as with few rows.
    new: whole clients to hold out of training, a fraction of them or, from 1 on, a number.
    seed: of everything that is drawn at random here.
    """
    width = shared + private
    kept = width + 1 if compact else 2 * rows
    require(8 * (clients * kept + 3 * rows) * (width + 1),
            f"synthetic_least_squares with {clients} clients, {rows} rows and {width} columns")
    common = _uniform(generator(seed, "least squares"), rows, shared, private)
    theta = generator(seed, "least squares", "theta").normal(size=shared)
    own_rows = np.zeros((2 * rows, width + 1))  # written anew for each client: fresh memory costs more than the numbers
    found = []
    for number in range(clients):
        # The draws of a client's models depend on neither rows nor noise: it may come again with other rows.
        models = generator(seed, "least squares", str(number), "models")
        of_b, of_y = (theta, theta) if targets == "shared" else models.normal(size=(2, shared))
        own = generator(seed, "least squares", str(number), "models of its own").normal(size=private)
        random = generator(seed, "least squares", str(number))
        H, A, B = _uniform(random, rows, shared, private) if heterogeneity is None else (
            matrix + _normal(random, matrix.shape, heterogeneity) for matrix in common)
        b, y = (exact + noise * random.normal(size=rows) for exact in (H @ of_b, A @ of_y + B @ own))
        own_rows[:rows, :shared], own_rows[:rows, -1] = H, b
        own_rows[rows:, :shared], own_rows[rows:, shared:-1], own_rows[rows:, -1] = A, B, y
        found.append(_root(own_rows) * np.sqrt(kept / (2 * rows)) if compact else own_rows.copy())
    whole = np.concatenate(found)
    return federation(whole[:, :-1], whole[:, -1], np.repeat(np.arange(clients), kept), test=0, new=new, seed=seed,
                      name=f"synthetic_least_squares({targets})")


def _uniform(random: np.random.Generator, rows: int, shared: int, private: int) -> tuple[np.ndarray, ...]:
    """H, A and B with entries from 0 to 1 over their number of columns."""
    return tuple(random.uniform(size=(rows, width)) / width for width in (shared, shared, private))


def _normal(random: np.random.Generator, shape: tuple[int, ...], norm: float) -> np.ndarray:
    """A normal matrix, scaled to a spectral norm."""
    matrix = random.normal(size=shape)
    return matrix * (norm / np.linalg.norm(matrix, 2))


def _root(rows: np.ndarray) -> np.ndarray:
    """A square matrix with the same product R'R as the rows.

    By eigenvalues: targets without noise depend on the other columns, which Cholesky's factor does not allow, and a
    QR decomposition takes six times as long. R'R is good to the last digits either way.
    """
    values, axes = np.linalg.eigh(rows.T @ rows)
    return np.sqrt(np.maximum(values, 0))[:, None] * axes.T
