"""`evaluate_clients`: evaluations score a sample of the clients, and say how far it may be from all of them."""

import numpy as np
import pytest

import cantons as ct
from cantons.cli.changes import parsed_grid
from cantons.metrics import standard_errors, statistics
from cantons.reporting.collect import collect
from cantons.reporting.table import cells, comparison_rows
from cantons.study.callbacks import Callback
from cantons.study.reading import read_clients, read_evaluations
from cantons.study.resolve import sample_clients
from cantons.study.sweep import sweep

DATA = ct.synthetic(clients=14, features=4, largest=40, seed=0, new=5)
PROBLEM = ct.logistic(DATA, split="*bias")
SCORE = "test.personal.loss"
STUDY = """
rounds = 2
cohort = 3
evaluate_clients = 4
[data]
name = "synthetic"
clients = 14
features = 4
largest = 40
new = 5
[problem]
name = "logistic"
split = "*bias"
[algorithm]
name = "ffgg"
"""


def play(**options):
    return ct.run(PROBLEM, DATA, ct.ffgg(), rounds=2, cohort=3, seed=1, **options)


@pytest.fixture(scope="module")
def everybody():
    return play()


@pytest.mark.parametrize("engine", [ct.Local(devices=1), ct.Local(devices=2, mode="vmap"), ct.Plain(compile=True)],
                         ids=["one device", "two devices", "plain"])
def test_a_sample_has_the_numbers_that_these_clients_have_among_all(engine, everybody):
    found = play(evaluate_clients=4, engine=engine)
    chosen = sample_clients(everybody.model.data, 1, 4)["clients"]
    for name in (SCORE, "train.shared.loss", "clients.diverged_tunings"):
        values = np.asarray(found.clients[name])
        assert np.flatnonzero(np.isfinite(values)).tolist() == chosen.tolist()
        np.testing.assert_allclose(values[chosen], np.asarray(everybody.clients[name])[chosen], rtol=1e-5)
    for side, of_all in (("test", everybody.clients[SCORE][chosen]), ("new_test", None)):
        assert found.final[f"{side}.personal.loss.error"] > 0
        if of_all is not None:
            assert found.final[f"{SCORE}.mean"] == pytest.approx(np.mean(of_all, dtype=float))
    assert found.final["uploads"] == everybody.final["uploads"]  # training does not know of it


def test_a_sample_of_more_than_there_are_is_everybody(everybody):
    assert sample_clients(DATA, 1, 400) == {} == sample_clients(DATA, 1, None)
    assert sample_clients(DATA, 1, 6).keys() == {"clients"}  # there are five new clients
    assert f"{SCORE}.error" not in everybody.final


@pytest.mark.parametrize("every", [{}, {"validation": 0.2}])
def test_a_sample_that_is_larger_than_the_population_is_refused(every):
    assert play(evaluate_clients=9, **every).final["round"] == 2
    with pytest.raises(ct.InputError, match="evaluate_clients is 10 but there are only 9 clients; give at most 9"):
        play(evaluate_clients=10, **every)
    stages = {"first": {}, "second": {"evaluate_clients": 10}}
    with pytest.raises(ct.InputError, match="stage second: evaluate_clients is 10 but there are only 9 clients"):
        ct.run_stages(DATA, stages, problem=PROBLEM, algorithm=ct.ffgg(), rounds=1, **every)


def test_smaller_samples_are_among_larger_ones_and_other_seeds_draw_others():
    small, large, other = (set(sample_clients(DATA, seed, count)["clients"].tolist()) for seed, count in (
        (0, 3), (0, 6), (1, 3)))
    assert small < large and small != other


def test_the_standard_error_is_how_far_samples_are_from_everybody():
    rng = np.random.default_rng(0)
    values, examples = rng.normal(size=40), rng.integers(0, 30, 40)
    wanted = statistics(values, examples, True)
    there, draws = int((examples > 0).sum()), []
    for _ in range(4000):
        chosen = rng.permutation(np.flatnonzero(examples))[:25]
        found = statistics(values[chosen], examples[chosen], True)
        draws.append((found["mean"], found["weighted"], *standard_errors(values[chosen], examples[chosen],
                                                                         there).values()))
    mean, weighted, error, weighted_error = np.array(draws).T
    assert mean.mean() == pytest.approx(wanted["mean"], abs=0.02)
    assert mean.std() == pytest.approx(np.sqrt((error**2).mean()), rel=0.05)
    assert weighted.std() == pytest.approx(np.sqrt((weighted_error**2).mean()), rel=0.1)
    assert set(standard_errors(values, examples, there).values()) == {0.0}


def test_a_sweep_samples_by_seed_as_single_runs_do(tmp_path):
    (tmp_path / "study.toml").write_text(STUDY)
    sweep(tmp_path / "study.toml", parsed_grid(["algorithm.step_size=0.1,0.2"]), 2, tmp_path / "out", {}, Callback())
    for seed in (0, 1):
        folder = tmp_path / "out" / f"step_size=0.1-{seed}"
        alone = ct.run(PROBLEM, DATA, ct.ffgg(step_size=0.1), rounds=2, cohort=3, seed=seed, evaluate_clients=4,
                       validation=0.2)
        np.testing.assert_allclose([float(value) for value in read_clients(folder)[SCORE]], alone.clients[SCORE],
                                   rtol=1e-5)
        assert read_evaluations(folder)[-1][f"{SCORE}.error"] == pytest.approx(alone.final[f"{SCORE}.error"], rel=1e-4)
    rows = comparison_rows(collect([tmp_path / "out" / "step_size=0.1-1"]))
    assert rows[0]["error"] > 0 and "±" in " ".join(cells(rows)[1])


def test_a_stream_is_charged_for_everybody_and_its_test_rows_are_sampled():
    data = ct.drifting_targets(clients=6, steps=4, test=3)
    found = ct.run(ct.target(data), data, ct.fedomd(), rounds=4, clock=ct.online(), evaluate_clients=2)
    assert np.isfinite(found.clients["online.personal.loss"]).all()
    assert np.isfinite(found.clients["test.personal.loss"]).sum() == 2
