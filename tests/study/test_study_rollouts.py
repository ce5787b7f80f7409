"""Several runs as one program: each is what it would be by itself."""

import numpy as np
import pytest

import cantons as ct


def streams(number):
    random = np.random.default_rng(0)
    return [ct.from_clients({f"client{client}": (random.normal(size=(12, 3)), random.normal(size=12))
                             for client in range(4)}, test=0.25) for _ in range(number)]


def same(history, alone):
    for row in history:
        other = next(one for one in alone.history if one["round"] == row["round"])
        kept = [name for name in row if "second" not in name and not isinstance(row[name], list)]
        assert {name: row[name] for name in kept} == pytest.approx({name: other[name] for name in kept}, rel=1e-6,
                                                                   nan_ok=True)


def test_each_run_has_its_own_data_algorithm_clock_and_seed():
    federations = streams(3)
    recipes = [ct.fedavg(step_size=size, batch_size=4) for size in (0.01, 0.1, 0.2)]
    problem, seeds = ct.regression(federations[0], ct.mlp(hidden=(2,))), [5, 3, 3]
    clocks = [ct.rounds(cohort=2)] * 3
    found = ct.rollouts(problem, federations, recipes, rounds=6, clock=clocks, seed=seeds, evaluate_every=2, at_once=2)
    for history, data, recipe, clock, seed in zip(found, federations, recipes, clocks, seeds, strict=True):
        assert [row["round"] for row in history] == [2, 4, 6]
        same(history, ct.run(problem, data, recipe, rounds=6, clock=clock, seed=seed, evaluate_every=2))


def test_one_federation_and_one_algorithm_serve_all_seeds():
    (data,) = streams(1)
    problem, recipe = ct.regression(data, ct.mlp(hidden=(2,))), ct.fedavg(step_size=0.1, batch_size=4)
    found = ct.rollouts(problem, data, recipe, rounds=4, seed=[7, 8])
    for history, seed in zip(found, (7, 8), strict=True):
        same(history, ct.run(problem, data, recipe, rounds=4, seed=seed))


def test_runs_whose_private_part_is_empty_go_on_after_an_evaluation():
    federations = streams(3)
    problem = ct.residual(federations[0], shared_features="all", private_features="none",
                          shared_model=ct.linear(bias=False), private_model=ct.linear(bias=False))
    found = ct.rollouts(problem, federations, ct.fedres_erm(), rounds=6, clock=ct.online(), evaluate_every=2)
    assert [row["round"] for row in found[-1]] == [2, 4, 6]


def test_the_number_of_runs_is_the_length_of_the_lists():
    federations = streams(2)
    problem, recipe = ct.regression(federations[0], ct.linear()), ct.fedavg(step_size=0.1)
    with pytest.raises(ct.InputError, match="2 federations and 3 algorithms"):
        ct.rollouts(problem, federations, [recipe] * 3, rounds=1)
    with pytest.raises(ct.InputError, match="one for each run"):
        ct.rollouts(problem, federations[0], recipe, rounds=1)
