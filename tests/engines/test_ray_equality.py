"""Wherever the clients are, the numbers are the same: every algorithm that runs in rounds, on 1, 2 and 3 actors."""

import functools

import jax
import numpy as np
import pytest
from starting import start
from test_contract import ALGORITHMS, recipe

import cantons as ct
from cantons.checks.case import fitting_case
from cantons.protocol import Averages, adds

pytestmark = pytest.mark.usefixtures("kept_actors")

ROUNDS = 5
DIGITS = {"float64": 1e-12, "float32": 1e-5}  # of the largest entry
# Their aggregation is part of the method: no rule that stacks can be chosen.
SUMS_ONLY = {"central", "fedres_avg", "independent", "only_central", "scaffold", "two_way_transfer"}
CASES = [(name, stack) for name in sorted(ALGORITHMS) for stack in (False, True) if not stack or name not in SUMS_ONLY]


def difference(one, other):
    """The largest difference between two states, as a part of the largest entry."""
    pairs = list(zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True))
    assert all(left.shape == right.shape and left.dtype == right.dtype for left, right in pairs)
    floats = [pair for pair in pairs if np.issubdtype(pair[0].dtype, np.floating) and pair[0].size]
    for left, right in pairs:
        if not np.issubdtype(left.dtype, np.floating):
            np.testing.assert_array_equal(left, right)
    largest = max((np.abs(left).max() for left, _ in floats), default=1.0)
    return max((np.abs(left - right).max() for left, right in floats), default=0.0) / largest


def stacked(algorithm):
    """The same algorithm with a rule that must see every upload; none where it cannot be chosen."""
    averages = algorithm.aggregate
    if not isinstance(averages, Averages) or averages.only:
        return None
    return algorithm._replace(aggregate=averages._replace(rule=ct.median().build()))


@functools.cache
def example(name):
    return fitting_case(recipe(name))[1]


def play(engine, name, stack, clock):
    case = example(name)
    algorithm = recipe(name).build(case.problem, case.data.population)
    session = start(engine, case.problem, stacked(algorithm) if stack else algorithm,
                    clock.build(case.data.population), case.data, case.data.central, seed=3)
    try:
        return session.whole(session.advance(session.begin(), ROUNDS))[0].state
    finally:
        session.close()


@pytest.mark.parametrize("precision", DIGITS)
@pytest.mark.parametrize("name, stack", CASES, ids=lambda value: {False: "sum", True: "stack"}.get(value, value))
def test_every_algorithm_agrees_with_the_local_engine_on_1_2_and_3_actors(name, stack, precision):
    clock = ct.rounds(cohort=5)
    with jax.enable_x64(precision == "float64"):
        expected = play(ct.Local(devices=1), name, stack, clock)
        for actors in (1, 2, 3):
            found = play(ct.Ray(actors=actors), name, stack, clock)
            assert difference(expected, found) <= DIGITS[precision], f"{actors} actors"


def test_the_cases_are_all_there_are():
    """Every algorithm adds its uploads up, and those whose rule can be chosen also stack them for a median."""
    kinds = {name: recipe(name).build(example(name).problem, example(name).data.population) for name in ALGORITHMS}
    assert all(adds(one.aggregate) for one in kinds.values())
    assert {name for name, one in kinds.items() if stacked(one) is not None} == set(kinds) - SUMS_ONLY
    assert not any(adds(stacked(one).aggregate) for one in kinds.values() if stacked(one) is not None)
