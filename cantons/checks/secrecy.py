"""What a client keeps private stays with it."""

from __future__ import annotations

import jax

from cantons.checks.case import Case
from cantons.checks.compare import difference, rows, with_row, with_row_of_nan
from cantons.checks.finding import Failed


def what_an_absent_client_keeps_private_reaches_nobody(case: Case) -> None:
    stage, stranger, present = case.stage, 6, [0, 1, 2, 3, 4, 5]
    # NaN wherever client 6 keeps a number: had anybody looked at it, it would show.
    secret = case.warm._replace(clients=with_row_of_nan(case.warm.clients, stranger))
    known, hidden = (stage.play(state, present, (0, 3), rounds=2) for state in (case.warm, secret))
    found = difference((known.server, rows(known.clients, present)), (hidden.server, rows(hidden.clients, present)))
    if found:
        raise Failed(f"what a client that is away keeps to itself changes others: {found}; let what is known of a "
                     "client leave it in its upload alone.")


def the_message_to_a_client_does_not_change_with_its_private_part(case: Case) -> None:
    stage = case.stage
    algorithm, key = stage.session.algorithm, jax.random.key(0)
    shared, private = case.problem.init(key)
    other = jax.tree.map(lambda leaf: leaf + 1.0, private)
    changed = stage.start._replace(clients=with_row(stage.start.clients, 2, algorithm.init_client(key, shared, other)))
    before, after = (stage.play(state, stage.everybody) for state in (stage.start, changed))
    others = [0, 1, 3, 4, 5, 6]
    found = difference((before.clients.sent, rows(before.clients, others)),
                       (after.clients.sent, rows(after.clients, others)))
    if found:
        raise Failed(f"what is sent down changes with a client's private part: {found}; let `broadcast` look at the "
                     "server's state alone, and `request` ask for nothing that depends on the private part.")
