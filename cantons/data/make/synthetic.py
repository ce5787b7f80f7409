"""Linear models that differ from client to client, on inputs that do too.

Synthetic(alpha, beta) of Li et al., "Federated Optimization in Heterogeneous Networks" (FedProx), MLSys 2020.
Client k draws u_k ~ N(0, alpha) and B_k ~ N(0, beta), then a model (W_k, b_k) with entries from N(u_k, 1),
a centre v_k with entries from N(B_k, 1), and inputs from N(v_k, diag(j^-1.2)). The label of x is
argmax(W_k x + b_k). As in the authors' code, alpha and beta are standard deviations, and a client has 50 plus
a log-normal(4, 2) number of examples.

The trap: u_k moves all the logits of an example alike, so `alpha` changes no label. Clients disagree about
labels even at alpha = 0, because W_k is drawn anew for each; `alpha` matters for regression, where the
target is the single output W_k x + b_k.
"""

from __future__ import annotations

import numpy as np

from cantons.data.build import federation
from cantons.data.federation import Federation
from cantons.data.provenance import recorded
from cantons.data.seeds import generator
from cantons.memory import require
from cantons.ranges import Classes, Count, DataSeed, Held, New, NonNegative

CLIENT = 1000  # bytes for a client's name, its arrays' headers and the like


@recorded
def synthetic(
    clients: Count = 30,
    *,
    alpha: NonNegative = 1.0,
    beta: NonNegative = 1.0,
    features: Count = 60,
    classes: Classes = 10,
    regression: bool = False,
    largest: Count = 1000,
    test: Held = 0.2,
    new: New = 0,
    seed: DataSeed = 0,
) -> Federation:
    """Clients with linear models of their own, which give labels or, with `regression`, exactly linear targets.

    clients: how many clients there are, the new ones among them.
    alpha: how much the clients' models differ in their mean, a standard deviation; see the trap above.
    beta: how much the clients' inputs differ in their mean, a standard deviation.
    features: numbers in an input.
    classes: how many labels there are.
    regression: targets are numbers; otherwise they are labels.
    largest: the most examples a client may have.
    test: the fraction of each client's rows to hold out for testing.
    new: whole clients to hold out of training, a fraction of them or, from 1 on, a number.
    seed: of everything that is drawn at random here.
    """
    outputs = 1 if regression else classes
    rows = clients * min(largest, 450)  # a client has 450 examples in the mean, if it may have as many
    require(CLIENT * clients + 12 * rows * (features + outputs) + 8 * features * outputs,
            f"synthetic data of {clients} clients, {features} features and {outputs} outputs")
    own = [_client(generator(seed, "synthetic", str(number)), alpha, beta, features, outputs, largest)
           for number in range(clients)]
    inputs = np.concatenate([x for x, _ in own]).astype(np.float32)
    logits = np.concatenate([outputs for _, outputs in own])
    return federation(
        inputs,
        logits[:, 0].astype(np.float32) if regression else logits.argmax(axis=1),
        np.repeat(np.arange(clients), [len(x) for x, _ in own]),
        classes=None if regression else classes,
        test=test,
        new=new,
        name=f"synthetic({alpha:g}, {beta:g})",
        seed=seed,
    )


def _client(random: np.random.Generator, alpha: float, beta: float, features: int, outputs: int,
            largest: int) -> tuple[np.ndarray, np.ndarray]:
    """One client's inputs, and the outputs of its model for them."""
    size = min(50 + int(random.lognormal(4, 2)), largest)
    weight_mean, input_mean = random.normal(0, [alpha, beta])
    weights = random.normal(weight_mean, 1, (features, outputs))
    bias = random.normal(weight_mean, 1, outputs)
    centre = random.normal(input_mean, 1, features)
    deviations = np.arange(1, features + 1) ** -0.6  # the variances are j^-1.2
    inputs = random.normal(centre, deviations, (size, features))
    return inputs, inputs @ weights + bias
