"""Who gets which row: each partition gives the client number of every row."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from cantons.data.seeds import generator
from cantons.errors import InputError, at_least, positive

DRAWS = 1000  # of Dirichlet proportions, before giving up on the smallest client


def natural(ids: ArrayLike) -> tuple[np.ndarray, tuple[str, ...]]:
    """One client per distinct id (a writer, a user), in sorted order; also the clients' names.

    >>> natural(["bob", "ann", "bob"])
    (array([1, 0, 1]), ('ann', 'bob'))
    """
    ids = np.asarray(ids)
    if ids.ndim != 1 or (ids.dtype.kind not in "iuU" and ids.size):
        raise InputError(f"client ids are of type {ids.dtype} and shape {ids.shape}; "
                         "give one integer or string per row.")
    distinct, numbers = np.unique(ids, return_inverse=True)
    names = tuple(map(str, distinct.tolist()))
    try:
        "".join(names).encode()  # seeds and files are made of these bytes
    except UnicodeEncodeError as error:
        raise InputError(f"the name of a client is no Unicode text ({error}); give it another one.") from error
    return numbers, names


def iid(rows: int, clients: int, *, seed: int = 0) -> np.ndarray:
    """Deal shuffled rows around: sizes differ by at most one."""
    _check_clients(rows, clients, each=1)
    return generator(seed, "iid").permutation(np.arange(rows) % clients)


def dirichlet(labels: np.ndarray, clients: int, *, alpha: float, min_size: int = 1,
              seed: int = 0) -> np.ndarray:
    """Share out each class by proportions drawn from Dirichlet(alpha, ..., alpha) over the clients.

    Small alpha gives few classes to each client and unequal sizes; large alpha comes close to `iid` in its
    classes. Drawn again until every client has `min_size` rows. Yurochkin et al., "Bayesian Nonparametric
    Federated Learning of Neural Networks", ICML 2019. (Hsu et al. 2019 draw the other way
    round: one mixture of classes per client, with clients of equal size.)
    """
    positive("alpha", alpha)
    at_least("min_size", min_size, 1)
    _check_clients(len(labels), clients, each=min_size)
    random = generator(seed, "dirichlet")
    classes, counts = np.unique(labels, return_counts=True)
    for _ in range(DRAWS):
        proportions = random.dirichlet(np.full(clients, alpha), size=len(classes))
        # Cutting at rounded cumulative proportions hands out every row exactly once.
        cuts = np.round(np.cumsum(proportions, axis=1) * counts[:, None]).astype(int)
        shares = np.diff(cuts, axis=1, prepend=0)
        if shares.sum(axis=0).min() >= min_size:
            break
    else:
        raise InputError(f"no {clients} clients with {min_size} rows each came out of {DRAWS} draws with "
                         f"alpha {alpha}; raise alpha, or lower clients or min_size.")
    numbers = np.empty(len(labels), int)
    for label, share in zip(classes, shares, strict=True):
        rows = np.flatnonzero(labels == label)
        numbers[random.permutation(rows)] = np.repeat(np.arange(clients), share)
    return numbers


def shards(labels: np.ndarray, clients: int, *, per_client: int = 2, seed: int = 0) -> np.ndarray:
    """Sort the rows by label, cut them into equal shards, and deal each client `per_client` of those.

    McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized Data",
    AISTATS 2017: the "pathological" split of MNIST, where most clients see two digits.
    """
    at_least("per_client", per_client, 1)
    _check_clients(len(labels), clients, each=per_client)
    random = generator(seed, "shards")
    shuffled = random.permutation(len(labels))
    by_label = shuffled[np.argsort(np.asarray(labels)[shuffled], kind="stable")]
    owners = random.permutation(np.repeat(np.arange(clients), per_client))
    numbers = np.empty(len(labels), int)
    for owner, rows in zip(owners, np.array_split(by_label, len(owners)), strict=True):
        numbers[rows] = owner
    return numbers


def _check_clients(rows: int, clients: int, each: int) -> None:
    at_least("clients", clients, 1)
    if clients * each > rows:
        raise InputError(f"{clients} clients with at least {each} of {rows} rows each are too many; "
                         f"give at most {rows // each} clients.")
