"""Runs that are one program: what may differ between them, and where they begin."""

import jax
import numpy as np
import pytest

import cantons as ct
from cantons.engine import real_options
from cantons.protocol import Start
from cantons.study.resolve import resolve

SIZES = [(0.1, 0.3), (0.2, 0.05), (0.2, 0.3)]  # of the server's steps, and of the tuner's


def recipe(step_size, tuner_step_size, **tuner):
    return ct.ffgg(step_size=step_size, tuner={"name": "gd", "steps": 3, "step_size": tuner_step_size, **tuner},
                   private_init="last")


def test_runs_with_other_tuners_and_other_beginnings_are_those_that_they_are_alone():
    data = ct.digits(clients=5, partition="iid", new=1)
    problem = ct.logistic(data, split="*/bias")
    engine = ct.Local(devices=1)
    parts = [resolve(problem, data, recipe(*sizes), rounds=2, cohort=3, seed=seed, engine=engine).parts
             for seed, sizes in enumerate(SIZES)]

    def start(seed):
        shared, private = jax.tree.map(lambda leaf: leaf + 0.1 * (seed + 1), problem.init(jax.random.key(seed)))
        rows = jax.tree.map(lambda leaf: np.stack([leaf + client for client in range(data.population)]), private)
        return Start(shared, private, rows)

    def play(session, initial):
        state = session.advance(session.begin(initial), 2)
        return session.whole(state), session.evaluate(state)

    together = play(engine.together().start(parts, print), [start(seed) for seed in range(3)])
    for number, run in enumerate(parts):
        alone = play(engine.start([run], print), start(number))
        for ours, theirs in zip(together, alone, strict=True):
            for one, other in zip(jax.tree.leaves(ours[number]), jax.tree.leaves(theirs[0]), strict=True):
                np.testing.assert_allclose(one, other, rtol=2e-5, atol=1e-6)


def test_all_may_begin_in_one_place():
    data = ct.digits(clients=3, partition="iid")
    problem, engine = ct.logistic(data), ct.Local(devices=1)
    parts = [resolve(problem, data, ct.fedavg(), rounds=1, seed=seed, engine=engine).parts for seed in (0, 1)]
    shared = jax.tree.map(lambda leaf: leaf + 1, problem.init(jax.random.key(0))[0])
    session = engine.together().start(parts, print)
    for one in session.whole(session.begin((shared, ()))):
        jax.tree.map(np.testing.assert_array_equal, one.state.server.shared, shared)


def test_the_real_numbers_of_a_tuner_may_vary_and_nothing_else_of_it():
    assert real_options(recipe(0.1, 0.3)).items() >= {"step_size": 0.1, "tuner.step_size": 0.3}.items()
    data = ct.digits(clients=3, partition="iid")
    engine, problem = ct.Local(devices=1), ct.logistic(data)
    for other in (recipe(0.1, 0.3, steps=4), ct.ffgg(step_size=0.1, tuner="cg", private_init="last")):
        with pytest.raises(ct.InputError, match="differ in its real numbers alone"):
            engine.together().start([resolve(problem, data, one, rounds=1, engine=engine).parts
                                     for one in (recipe(0.1, 0.3), other)], print)
