"""Start a session with parts built by hand, as a study would with parts it has resolved."""

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
