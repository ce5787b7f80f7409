"""Mixed federated learning of a dual encoder, with spreadout at the centre: beside plain NumPy, on sampled batches."""

from typing import NamedTuple

import jax
import numpy as np
import pytest

import cantons as ct
from cantons.engine import seed_keys
from cantons.engine.round import round_keys

pytestmark = pytest.mark.usefixtures("float64")
MOVIES, CONTEXT, WIDTH, SIZES = 50, 3, 4, (6, 17, 9)
ETA, STEPS, BATCH, ROUNDS, ROWS = 0.1, 3, 4, 3, 40
W_F, W_C, STRENGTH = 0.6, 0.4, 0.3
WORK = {"steps": STEPS, "batch_size": BATCH, "step_size": ETA}
CENTRE = {"central_steps": STEPS, "central_step_size": ETA}


class Model(NamedTuple):
    table: np.ndarray
    weight: np.ndarray
    bias: np.ndarray

    def plus(self, factor, other):
        return Model(*(mine + factor * theirs for mine, theirs in zip(self, other, strict=True)))


def hinge_gradient(model, inputs, targets):
    """Of the mean of max(0, 0.9 - cosine)^2, example by example."""
    found = Model(*map(np.zeros_like, model))
    for row, target in zip(inputs, targets, strict=True):
        met = row[row >= 0]
        mean = model.table[met].mean(axis=0)
        context = np.maximum(mean @ model.weight + model.bias, 0)
        length, wanted = np.linalg.norm(context), np.linalg.norm(model.table[target])
        left, right = context / length, model.table[target] / wanted
        cosine = left @ right
        slope = -2 * max(0, 0.9 - cosine) / len(targets)
        inner = np.where(context > 0, slope * (right - cosine * left) / length, 0)
        found.weight[:] += np.outer(mean, inner)
        found.bias[:] += inner
        np.add.at(found.table, met, model.weight @ inner / len(met))
        found.table[target] += slope * (left - cosine * right) / wanted
    return found


def spreadout_gradient(model):
    """Of the norm of all cosines between two rows."""
    lengths = np.linalg.norm(model.table, axis=1, keepdims=True)
    rows = model.table / lengths
    cosines = rows @ rows.T - np.eye(len(rows))
    pull = 2 * cosines @ rows / np.linalg.norm(cosines)
    return Model((pull - (pull * rows).sum(axis=1, keepdims=True) * rows) / lengths, 0 * model.weight, 0 * model.bias)


class Paper:
    """Algorithms 1 and 2, line by line; clients make equally many steps, so they count alike."""

    def __init__(self, data, start):
        self.data, self.x = data, Model(*(np.asarray(leaf) for leaf in (
            start["table"], start["hidden"]["weight"], start["hidden"]["bias"])))
        self.nothing = Model(*map(np.zeros_like, self.x))

    def clients(self, number, extra):
        change, met = self.nothing, self.nothing
        for client, key in enumerate(self.keys(number)):
            y = self.x
            for step in range(STEPS):
                batch = self.data.train.client(client).sample(jax.random.fold_in(key, step), BATCH)
                gradient = self.nothing.plus(W_F, hinge_gradient(y, *map(np.asarray, batch[:2])))
                y, met = y.plus(-ETA, gradient).plus(-ETA, extra), met.plus(1 / (len(SIZES) * STEPS), gradient)
            change = change.plus(1 / len(SIZES), y.plus(-1, self.x))
        return change, met

    def keys(self, number):
        key = round_keys(seed_keys(0)[1], number).client
        return [jax.random.fold_in(key, client) for client in range(len(SIZES))]

    def central_gradient(self, y):
        return self.nothing.plus(W_C * STRENGTH, spreadout_gradient(y))

    def centre(self, extra):
        y, met = self.x, self.nothing
        for _ in range(STEPS):
            gradient = self.central_gradient(y)
            y, met = y.plus(-ETA, gradient).plus(-ETA, extra), met.plus(1 / STEPS, gradient)
        return y.plus(-1, self.x), met

    def one_way(self):
        for number in range(ROUNDS):
            self.x = self.x.plus(1, self.clients(number, self.central_gradient(self.x))[0])
        return self.x

    def parallel(self):
        for number in range(ROUNDS):
            self.x = self.x.plus(1, self.clients(number, self.nothing)[0]).plus(1, self.centre(self.nothing)[0])
        return self.x

    def two_way(self):
        of_centre = of_clients = self.nothing
        for number in range(ROUNDS):
            (change, met), (central, central_met) = self.clients(number, of_centre), self.centre(of_clients)
            self.x, of_centre, of_clients = self.x.plus(0.5, change).plus(0.5, central), central_met, met
        return self.x


@pytest.fixture(scope="module")
def data():
    random = np.random.default_rng(3)

    def client(size):
        met = random.integers(0, MOVIES - 5, (size, CONTEXT + 1)).astype(np.int32)
        met[::4, 0] = -1
        return met[:, :-1], met[:, -1]

    return ct.from_clients({str(number): client(size) for number, size in enumerate(SIZES)}, classes=MOVIES, test=0)


METHODS = {"one_way": (ct.one_way_transfer, WORK), "parallel": (ct.parallel_training, WORK | CENTRE),
           "two_way": (ct.two_way_transfer, WORK | CENTRE | {"merge_step_size": 0.5})}


@pytest.mark.parametrize("rows", [None, ROWS], ids=["whole tables", "some rows"])
@pytest.mark.parametrize("method", METHODS)
def test_it_takes_the_paper_s_path(played, data, method, rows):
    problem = ct.with_central_loss(ct.dual_encoder(data, width=WIDTH), {"name": "spreadout", "strength": STRENGTH},
                                   [W_F, W_C])
    build, options = METHODS[method]
    start = jax.device_get(problem.init(seed_keys(0)[0])[0])
    shared = played(problem, data, build(**options, rows=rows), ROUNDS).server.shared
    expected = getattr(Paper(data, start), method)()
    for found, leaf in zip((shared["table"], shared["hidden"]["weight"], shared["hidden"]["bias"]), expected,
                           strict=True):
        np.testing.assert_allclose(found, leaf, rtol=0, atol=1e-12)
    assert np.abs(shared["table"] - start["table"]).max() > 0.01
