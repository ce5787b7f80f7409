"""Clients that agree in part: a linear model they share, and one of their own.

Wei, Agarwal and Langford, "Federated Residual Learning" (v2), appendix E.2: the label of x is argmax{(1 - alpha) W x +
alpha Theta_i x + n}, equation (13), where W, all Theta_i, x and the noise n have entries from N(0, 1).

The trap: (1 - alpha) W + alpha Theta_i has entries of variance (1 - alpha)^2 + alpha^2, half as much at alpha = 0.5 as
at the ends, while the noise stays the same. So the best possible loss is not the same for every alpha.
"""

from __future__ import annotations

import numpy as np

from cantons.data.build import federation
from cantons.data.federation import Federation
from cantons.data.provenance import recorded
from cantons.data.seeds import generator
from cantons.memory import require
from cantons.ranges import Classes, Count, DataSeed, Held, New, NonNegative, Part


@recorded
def synthetic_mixture(
    clients: Count = 10,
    *,
    alpha: Part = 0.5,
    features: Count = 10,
    classes: Classes = 2,
    examples: Count = 200,
    noise: NonNegative = 1.0,
    test: Held = 0.2,
    new: New = 0,
    seed: DataSeed = 0,
) -> Federation:
    """Labels by a mixture of a linear model that all clients share and one of each client's own.

    clients: how many clients there are, the new ones among them.
    alpha: the weight of a client's own model, from 0 (all clients alike) to 1 (nothing in common).
    features: numbers in an input.
    classes: how many labels there are.
    examples: how many each client has.
    noise: the standard deviation of what is added to every logit.
    test: the fraction of each client's rows to hold out for testing.
    new: whole clients to hold out of training, a fraction of them or, from 1 on, a number.
    seed: of everything that is drawn at random here.
    """
    require(8 * clients * (100 + examples * (features + classes)) + 24 * features * classes,
            f"synthetic_mixture with {clients} clients, {examples} examples, {features} features and {classes} classes")
    # "blended" is the word of old: another would draw other numbers.
    common = generator(seed, "blended").normal(size=(features, classes))
    inputs, labels = [], []
    for number in range(clients):
        # The same draws for every alpha: two of them differ in nothing but the blend.
        random = generator(seed, "blended", str(number))
        own = random.normal(size=(features, classes))
        rows = random.normal(size=(examples, features))
        logits = rows @ ((1 - alpha) * common + alpha * own) + noise * random.normal(size=(examples, classes))
        inputs.append(rows.astype(np.float32))
        labels.append(logits.argmax(axis=1))
    return federation(np.concatenate(inputs), np.concatenate(labels), np.repeat(np.arange(clients), examples),
                      classes=classes, test=test, new=new, name=f"synthetic_mixture({alpha:g})", seed=seed)
