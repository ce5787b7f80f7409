"""Start a session with parts built by hand, as a study would with parts it has resolved."""

from dataclasses import replace

import numpy as np

from cantons.protocol import Parts, Recipe, Snapshot


def start(engine, problem, algorithm, clock, data, central=None, seed=0):
    """A session of the engine for one run."""
    recipe = Recipe("by hand", {}, lambda *given: algorithm)
    return engine.start([Parts(problem, recipe, algorithm, clock, data, central, seed)])


def restored(session, state):
    """The session's own state, from one on the host."""
    return session.restore([Snapshot(state, ())])


def scores(session, state, side="clients"):
    """{set: {model: {metric: a number per client}}} of a single run."""
    return session.evaluate(state)[0].scores[side]


def enlarged(data, factors):
    """The same federation with every row times its client's factor, which no reader of data would let in."""
    train = data.clients.train
    each = np.repeat(factors, train.sizes)
    larger = replace(train, inputs=train.inputs * each[:, None], targets=train.targets * each)
    return replace(data, clients=replace(data.clients, train=larger))
