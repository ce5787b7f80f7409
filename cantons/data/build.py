"""Rows become a federation."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from cantons.data.checks import Where, as_labels, as_rows, check_numbers
from cantons.data.federation import Federation, Population, gather, select_clients
from cantons.data.ragged import Ragged, from_sizes
from cantons.data.split.holdout import check_marks, hold_out_clients, mark_own_rows
from cantons.data.split.partition import natural
from cantons.errors import InputError, amount
from cantons.protocol import PyTree


def federation(
    inputs: PyTree,
    targets: PyTree,
    clients: ArrayLike,
    *,
    test: float | np.ndarray = 0.2,
    new: float = 0,
    classes: int | None = None,
    central: tuple[PyTree, PyTree] | None = None,
    min_examples: int = 1,
    name: str = "data",
    seed: int = 0,
    where: Where | None = None,
) -> Federation:
    """Rows with a client id each become a federation in which every client has test rows of its own.

    `test` is the fraction of each client's rows to set aside (one row always stays for training), or a
    boolean per row. `new` sets whole clients aside: a fraction of them, or from 1 on a number. `classes` is
    the number of labels, None for regression. `central` is the datacenter's (inputs, targets). Clients
    with fewer than `min_examples` rows are left out. A client's split depends on the seed and its own
    name and rows, never on the other clients. `where` says in messages where the user finds a row, by its
    number.

    >>> data = federation(np.zeros((6, 2)), np.arange(6.0), ["ann"] * 4 + ["bob"] * 2, test=0.5)
    >>> print(data.describe())
    data: 2 clients, 3 training and 3 test examples
    training examples per client: 1 to 2, median 1.5
    targets: numbers
    test set: 50% of each client's own examples
    """
    inputs, targets, rows = as_rows(inputs, targets)
    numbers, names = natural(clients)
    if rows == 0:
        raise InputError("there are no rows, so there are no clients; give at least one example.")
    if len(numbers) != rows:
        raise InputError(f"there are {len(numbers)} client ids for {rows} rows; give one id per row.")

    def own_row(row: int) -> str:
        own = np.count_nonzero(numbers[:row] == numbers[row])
        return f"row {own} (from 0) of client {names[numbers[row]]!r}"

    where = where or own_row
    check_numbers("inputs", inputs, where)
    check_numbers("targets", targets, where)
    if classes is not None:
        targets = as_labels(targets, classes, where)

    if isinstance(test, np.ndarray):
        marked, test_set = check_marks(test, rows), "the rows marked as test"
    else:
        marked = mark_own_rows(test, numbers, names, seed)
        test_set = f"{100 * test:g}% of each client's own examples"

    in_order = np.argsort(numbers, kind="stable")

    def pick(chosen: np.ndarray) -> Ragged:
        sizes = np.bincount(numbers[chosen], minlength=len(names))
        return gather(inputs, targets, in_order[chosen[in_order]], sizes)

    whole = Federation(Population(pick(~marked), pick(marked), names), central=_datacenter(central),
                       classes=classes, name=name, test_set=test_set)
    return hold_out_clients(_drop_small_clients(whole, min_examples), new, seed=seed)


def _datacenter(central: tuple[PyTree, PyTree] | None) -> Ragged | None:
    if central is None:
        return None
    inputs, targets, rows = as_rows(*central, whose=" of central")
    if rows == 0:
        raise InputError("central has no rows; leave it out or give it some.")
    for what, arrays in (("inputs", inputs), ("targets", targets)):
        check_numbers(f"{what} of central", arrays, lambda row: f"row {row} (from 0)")
    return from_sizes(inputs, targets, np.array([rows]))


def _drop_small_clients(whole: Federation, min_examples: int) -> Federation:
    sizes = np.add(whole.train.sizes, whole.test.sizes)
    enough = sizes >= min_examples
    if not enough.any():
        raise InputError(f"min_examples is {min_examples} and no client has more than {sizes.max()}; "
                         "lower it.")
    if enough.all():
        return whole
    note = f"left out: {amount(np.count_nonzero(~enough), 'client')} with fewer than {min_examples} examples"
    return replace(whole, clients=select_clients(whole.clients, enough), notes=(*whole.notes, note))
