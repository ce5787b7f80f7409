"""Clients are known by id, not by their place in a cohort, and whoever is away stays as it was."""

from __future__ import annotations

from cantons.checks.case import Case
from cantons.checks.compare import difference, rows
from cantons.checks.finding import Failed

LEDGER = ("acknowledged", "downloads", "uploads", "rejected")


def a_client_sends_the_same_whoever_else_is_there(case: Case) -> None:
    stage = case.stage
    pair, crowd = stage.play(case.warm, (2, 5)), stage.play(case.warm, stage.everybody)
    found = difference(rows(pair.clients, [2, 5]), rows(crowd.clients, [2, 5]))
    if found:
        raise Failed(f"a client's round changes with who else takes part: {found}; let `client_update` depend on "
                     "nothing but its key, the message, the client's state and its data.")


def the_order_of_a_cohort_is_irrelevant(case: Case) -> None:
    stage = case.stage
    ascending, shuffled = stage.play(case.warm, (1, 2, 4, 6)), stage.play(case.warm, (4, 1, 6, 2))
    found = difference(ascending.clients, shuffled.clients)
    found = found or difference(ascending, shuffled, digits=1e-12)  # sums are taken in another order
    if found:
        raise Failed(f"the same clients in another order give another result: {found}; let `aggregate` treat all "
                     "uploads alike, and know a client by its id.")


def absent_clients_keep_their_state_bit_for_bit(case: Case) -> None:
    stage = case.stage
    absent = [0, 2, 3, 6]
    after = stage.play(case.warm, (1, 4, 5), (4,), rounds=3)
    for part in ("clients", *LEDGER):
        found = difference(rows(getattr(case.warm, part), absent), rows(getattr(after, part), absent))
        if found:
            raise Failed(f"clients that were away have changed: {found} in {part}; change a client in `receive` and "
                         "`client_update` alone.")
