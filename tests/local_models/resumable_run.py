"""A run with models of three kinds, and a digest of everything it knows; as a program, one that may be killed.

    python tests/local_models/resumable_run.py FOLDER
"""

from __future__ import annotations

import hashlib
import json
import sys
import time

import jax
import numpy as np
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import SGDRegressor

import cantons as ct
from cantons import local_models as lm
from cantons.study.plain import plain

TIMES = ("seconds", "seconds_per_round", "updates_per_second", "evaluation_seconds")


def make_data():
    random = np.random.default_rng(0)

    def client(size):
        inputs = random.normal(size=(size, 3))
        return inputs, inputs @ random.normal(size=3) + 0.1 * random.normal(size=size)

    return ct.from_clients({f"client{number}": client(size) for number, size in enumerate((5, 17, 5, 8, 11, 6, 9))},
                           test=0.2)


def make_model(name):
    """Neighbours have models of different kinds."""
    return [lambda: lm.Linear(0.05),
            lambda: lm.PartialFit(SGDRegressor(random_state=0)),
            lambda: lm.Refit(RandomForestRegressor(3, random_state=0), every=4, window=12)][int(name[-1]) % 3]()


def play(out, factory=make_model, batch=2, rounds=30, **options):
    """Late messages, silent clients; checkpoints come at other steps than evaluations."""
    data = make_data()
    problem = ct.residual(data, shared_features=[0, 1], private_features=[1, 2])
    clock = ct.online(uplink=[0, 3, 1, 2, 0, 4, 2], downlink={"least": 0, "most": 3}, batch=batch, order="shuffle",
                      active={"probability": 0.8})
    return ct.run_with_models(problem, data, factory, rounds=rounds, step_size=0.02, method="adagrad", combine="mean",
                              clock=clock, evaluate_every=5, out=out, checkpoint_every=4, **options)


def digest(result):
    """Of the server's state, of every evaluation but its times, and of what every client's model predicts."""
    found = hashlib.sha256()
    for leaf in jax.tree.leaves(result.model.state):
        found.update(np.asarray(leaf).tobytes())
    for row in plain(result.history):  # as a folder has it: a resumed run has read it there
        found.update(json.dumps({name: value for name, value in sorted(row.items()) if name not in TIMES}).encode())
    for client in range(7):
        found.update(result.predict(result.model.data.train.inputs, client=client).tobytes())
    return found.hexdigest()


class Slowly(ct.Callback):
    """Leaves time for a signal."""

    def advanced(self, round, rounds):
        time.sleep(0.05)


if __name__ == "__main__":
    print(digest(play(sys.argv[1], resume=True, callbacks=[Slowly()])))
