"""FedAlt and FedSim on least squares: beside plain NumPy, and where they are FFGG or gradient descent on both parts."""

import jax
import numpy as np
import pytest

import cantons as ct

pytestmark = pytest.mark.usefixtures("float64")
SHARED, PRIVATE = [0, 1, 2], [1, 2]
THETA, W = np.array([1.0, -2.0, 0.5]), np.array([0.3, -0.4])
ETA, ETA_W = 0.05, 0.1
RATES = {"step_size": ETA, "private_step_size": ETA_W, "batch_size": None}


@pytest.fixture(scope="module")
def problem(numbers):
    model = ct.linear(bias=False)
    return ct.residual(numbers, shared_features=SHARED, private_features=PRIVATE, shared_model=model,
                       private_model=model)


@pytest.fixture(scope="module")
def play(played, problem, numbers):
    start = {"layer0": {"weight": THETA[:, None]}}, {"layer0": {"weight": W[:, None]}}
    return lambda recipe, rounds=3: played(problem, numbers, recipe, rounds, initial=start)


@pytest.fixture(scope="module")
def clients(numbers, own_rows):
    return [(x[:, SHARED], x[:, PRIVATE], y) for x, y in own_rows(numbers)]


def weight(part):
    return np.asarray(part["layer0"]["weight"])[..., 0]


def same(one, other, digits=1e-13):
    np.testing.assert_allclose(one, other, rtol=0, atol=digits)


def rounds_of(clients, turn, kept, weights=None, rounds=3):
    at, own = THETA, [W] * len(clients)
    for _ in range(rounds):
        ends = [turn(*rows, at, w if kept else W) for rows, w in zip(clients, own, strict=True)]
        at, own = np.average([end for end, _ in ends], axis=0, weights=weights), [w for _, w in ends]
    return at, own


def alternate(A, B, y, theta, w, private_steps=2, steps=3):
    for _ in range(private_steps):
        w = w - ETA_W * 2 / len(y) * B.T @ (A @ theta + B @ w - y)
    for _ in range(steps):
        theta = theta - ETA * 2 / len(y) * A.T @ (A @ theta + B @ w - y)
    return theta, w


def together(A, B, y, theta, w, steps=3):
    for _ in range(steps):
        residual = 2 / len(y) * (A @ theta + B @ w - y)
        theta, w = theta - ETA * A.T @ residual, w - ETA_W * B.T @ residual
    return theta, w


METHODS = {"fedalt": (ct.fedalt(private_steps=2, steps=3, **RATES), alternate),
           "fedsim": (ct.fedsim(steps=3, **RATES), together)}


@pytest.mark.parametrize("state", ["kept", "none"])
@pytest.mark.parametrize("name", METHODS)
def test_it_is_the_paper_s(play, clients, name, state):
    recipe, turn = METHODS[name]
    found = play(recipe.again(**{**recipe.options, "state": state}))
    at, own = rounds_of(clients, turn, state == "kept")
    same(weight(found.server.shared), at)
    if state == "kept":
        same(weight(found.clients.private), own)
    else:
        assert not jax.tree.leaves(found.clients.private)


def test_clients_may_count_by_their_batches(played):
    """Clients whose rows are all alike, so that every batch has the gradient of all rows."""
    random, copies = np.random.default_rng(0), (3, 9, 20)
    rows = [(random.normal(size=3), random.normal()) for _ in copies]
    data = ct.from_clients({f"c{number}": (np.tile(x, (count, 1)), np.full(count, y)) for number, ((x, y), count)
                            in enumerate(zip(rows, copies, strict=True))}, test=0)
    model = ct.linear(bias=False)
    problem = ct.residual(data, shared_features=SHARED, private_features=PRIVATE, shared_model=model,
                          private_model=model)
    start = {"layer0": {"weight": THETA[:, None]}}, {"layer0": {"weight": W[:, None]}}
    clients = [(x[None, SHARED], x[None, PRIVATE], np.array([y])) for x, y in rows]
    for weighting, weights in (("batches", [1, 3, 5]), ("uniform", None)):
        found = played(problem, data, ct.fedsim(steps=3, **{**RATES, "batch_size": 4}, weighting=weighting), 2,
                       initial=start)
        same(weight(found.server.shared), rounds_of(clients, together, True, weights, 2)[0])


def test_in_the_first_round_it_does_not_matter_whether_clients_keep_anything(play):
    for recipe, _ in METHODS.values():
        one, other = (play(recipe.again(**{**recipe.options, "state": state}), 1) for state in ("kept", "none"))
        same(weight(one.server.shared), weight(other.server.shared), 0)


def test_stateless_fedalt_with_one_shared_step_is_ffgg(play):
    alt = ct.fedalt(private_steps=4, steps=1, **RATES, state="none")
    tuned = ct.ffgg(step_size=ETA, tuner={"name": "gd", "steps": 4, "step_size": ETA_W})
    same(weight(play(alt).server.shared), weight(play(tuned).server.shared))


def test_fedsim_with_one_step_is_gradient_descent_on_both_parts(play, clients):
    at, own = THETA, [W] * len(clients)
    for _ in range(3):
        residuals = [2 / len(y) * (A @ at + B @ w - y) for (A, B, y), w in zip(clients, own, strict=True)]
        own = [w - ETA_W * B.T @ residual for (_, B, _), w, residual in zip(clients, own, residuals, strict=True)]
        gradients = [A.T @ residual for (A, _, _), residual in zip(clients, residuals, strict=True)]
        at = at - ETA * np.mean(gradients, axis=0)
    found = play(ct.fedsim(steps=1, **RATES))
    same(weight(found.server.shared), at)
    same(weight(found.clients.private), own)
