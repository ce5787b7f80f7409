"""Streams of targets that move: alternating, drifting, switching, or drawn afresh each step.

The first is equation (46) of Mitra, Hassani and Pappas, "Online Federated Learning", 2021: a_{i,t} ~ N(2, 5), taken as
it is in even steps and with its sign turned in odd ones, counted from 1. The paper does not say whether 5 is the
variance or the standard deviation; `spread` is the standard deviation, so give 5 or sqrt(5).
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from cantons.data.clients import from_clients
from cantons.data.federation import Federation
from cantons.data.provenance import recorded
from cantons.data.seeds import generator
from cantons.memory import require
from cantons.ranges import Count, DataSeed, Finite, NonNegative, Positive, Whole

Kind = Literal["alternating", "drifting", "switching", "iid"]


@recorded
def drifting_targets(
    clients: Count = 20,
    steps: Count = 10_000,
    *,
    kind: Kind = "alternating",
    dimensions: Count = 1,
    centre: Finite = 2.0,
    spread: Positive = 5.0,
    apart: NonNegative = 0.0,
    period: Count = 1000,
    test: Whole = 0,
    seed: DataSeed = 0,
) -> Federation:
    """Targets in the order in which they come, for the problem `target`.

    Every target is a draw from N(centre_t, spread^2) in each dimension, plus a place of the client's own.

    clients: how many clients there are.
    steps: how many targets each client has.
    kind: "alternating" turns the sign in every odd step, "switching" after every period, "drifting" lets the centre
        follow a sine, and "iid" leaves it where it is.
    dimensions: numbers in a target.
    centre: the mean of a target, before its sign is turned.
    spread: the standard deviation of a target.
    apart: the standard deviation of the clients' own places, each drawn once.
    period: steps of a sine, or between two switches.
    test: how many more steps to set aside as test rows.
    seed: of everything that is drawn at random here.
    """
    require(28 * clients * (steps + test) * dimensions,
            f"drifting_targets with {clients} clients, {steps + test} steps and {dimensions} dimensions")
    random = generator(seed, "moving")  # the word of old: another would draw other numbers
    times = np.arange(1, steps + test + 1)
    turned = {"alternating": times % 2 == 1, "switching": (times - 1) // period % 2 == 1}
    signs = np.where(turned.get(kind, False), -1, np.ones(len(times)))
    middle = centre * np.sin(2 * np.pi * times / period) if kind == "drifting" else np.full(len(times), centre)
    homes = random.normal(0, apart, (clients, 1, dimensions)) if apart else np.zeros((clients, 1, dimensions))
    # One after the other, so that the stream is the same with and without test rows.
    draws = np.concatenate([random.normal(0, spread, (clients, length, dimensions)) for length in (steps, test)],
                           axis=1)
    targets = (signs[:, None] * (middle[:, None] + draws) + homes).astype(np.float32)
    rows = {str(number): (own, np.zeros(len(times), np.float32)) for number, own in enumerate(targets)}
    held_out = np.tile(np.arange(len(times)) >= steps, clients)
    return from_clients(rows, test=held_out if test else 0, name=f"drifting_targets ({kind})")
