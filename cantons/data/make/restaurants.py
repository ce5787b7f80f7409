"""Two users who rate restaurants, agree on two features and disagree on two others.

Wei, Agarwal and Langford, "Federated Residual Learning" (v2), Example 1.
"""

from __future__ import annotations

import numpy as np

from cantons.data.build import federation
from cantons.data.federation import Federation
from cantons.data.provenance import recorded
from cantons.data.seeds import generator
from cantons.memory import require
from cantons.ranges import Count, DataSeed, Held, NonNegative

TASTES = {"A": (1, -1, 1, -1), "B": (1, -1, -1, 1)}  # for cleanness, price, quietness and spiciness


@recorded
def restaurants(examples: Count = 200, *, noise: NonNegative = 1.0, test: Held = 0.2, seed: DataSeed = 0) -> Federation:
    """Two users rate restaurants with features from N(0, 1): A by x1 - x2 + x3 - x4, B by x1 - x2 - x3 + x4.

    The best expected squared losses are sigma^2 with a model for each, sigma^2 + 2 with one for both, and
    sigma^2 + 2 (l / (2 + l))^2 with models that a penalty of l/2 times their squared distance pulls towards their mean.

    examples: how many each user has.
    noise: the standard deviation sigma of a rating.
    test: the fraction of each user's rows to hold out for testing.
    seed: of everything that is drawn at random here.
    """
    require(200 * examples, f"restaurants with {examples} examples")
    inputs, ratings = [], []
    for user, taste in TASTES.items():
        random = generator(seed, "restaurants", user)
        rows = random.normal(size=(examples, 4))
        inputs.append(rows.astype(np.float32))
        ratings.append((rows @ taste + noise * random.normal(size=examples)).astype(np.float32))
    return federation(np.concatenate(inputs), np.concatenate(ratings), np.repeat(list(TASTES), examples),
                      test=test, name="restaurants", seed=seed)
