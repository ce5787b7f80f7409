"""From run folders to groups, labels and rows."""

import numpy as np
import pytest

from cantons import InputError
from cantons.reporting import cells, collect, comparison_rows
from cantons.reporting.collect import differences, metrics


def test_runs_that_differ_in_their_seed_only_are_one_group(make_run):
    groups = collect([make_run("b", seed=5), make_run("c", algorithm={"name": "scaffold"}), make_run("a", seed=2)])
    assert [(group.label, [run.study["seed"] for run in group.runs]) for group in groups] == [
        ("fedavg", [2, 5]), ("scaffold", [0])]


def test_an_option_that_is_missing_is_the_same_as_one_that_is_none(make_run):
    assert len(collect([make_run("old"), make_run("new", seed=1, algorithm={"clip_norm": None})])) == 1


def test_curves_are_over_the_rounds_that_all_seeds_have(make_run):
    [group] = collect([make_run("whole", evaluations=(0, 10, 20)), make_run("killed", seed=1, evaluations=(0, 10))])
    assert group.rounds.tolist() == [0, 10]
    np.testing.assert_allclose(group.curve("test.personal.accuracy.mean"), [[0.375, 0.5625]] * 2)


def test_scores_of_clients_are_averaged_over_seeds(make_run):
    [group] = collect([make_run("a", scores=(0.0, 0.5, 1.0)), make_run("b", seed=1, scores=(1.0, 0.5, 1.0))])
    assert group.clients("test.personal.accuracy").tolist() == [0.5, 0.5, 1.0]


@pytest.mark.parametrize("first, second, labels", [
    ({"name": "mine"}, {"name": "yours"}, ["mine", "yours"]),
    ({}, {"algorithm": {"name": "scaffold"}}, ["fedavg", "scaffold"]),
    ({"algorithm": {"step_size": 0.1}}, {"algorithm": {"step_size": 1.0}},
     ["fedavg, step_size 0.1", "fedavg, step_size 1.0"]),
    ({"algorithm": {"weighting": "examples"}}, {}, ["fedavg, weighting examples", "fedavg"]),
    ({"rule": {"name": "krum", "f": 3}}, {"rule": {"name": "mean"}}, ["fedavg, krum", "fedavg, mean"]),
    ({"rule": {"name": "krum", "f": 3}}, {"rule": {"name": "krum", "f": 4}}, ["fedavg, f 3", "fedavg, f 4"]),
    ({"rule": {"f": 3}}, {"clock": {"f": 3}}, ["fedavg, rule.f 3", "fedavg, clock.f 3"]),
])
def test_labels_tell_methods_apart(make_run, first, second, labels):
    assert [group.label for group in collect([make_run("a", **first), make_run("b", **second)])] == labels


def test_options_of_a_part_are_in_labels_only_where_they_tell_methods_with_that_part_apart(make_run):
    tuners = [{"name": "gd", "steps": 10, "step_size": 0.1}, {"name": "gd", "steps": 10, "step_size": 0.5},
              {"name": "sgd", "epochs": 1, "batch_size": 32, "step_size": 0.1}]
    groups = collect([make_run(str(number), name="ffgg", algorithm={"name": "ffgg", "tuner": tuner})
                      for number, tuner in enumerate(tuners)])
    assert [group.label for group in groups] == ["ffgg, gd, tuner.step_size 0.1", "ffgg, gd, tuner.step_size 0.5",
                                                 "ffgg, sgd"]


def test_differences_leave_out_what_is_the_same_and_the_seed():
    assert differences([{"seed": 0, "rounds": 9, "clock": {"cohort": 5}}, {"seed": 1, "rounds": 9, "clock": {}}]) == {
        "clock.cohort": [5, None]}


def test_rows_hold_means_over_seeds_and_their_spread(make_run):
    runs = [make_run("a", scores=(0.6, 0.6, 0.6)), make_run("b", seed=1, scores=(0.8, 0.8, 0.8))]
    [row] = comparison_rows(collect(runs))
    spread = pytest.approx(np.std([0.6, 0.8], ddof=1))
    assert row == {"method": "fedavg", "seeds": 2, "chosen": None, "metric": "accuracy", "headline": "personal",
                   "personal": pytest.approx(0.7), "spread": spread, "worst10_spread": spread, "shared_spread": 0.0,
                   "new_clients_spread": None, "error": None, "worst10": pytest.approx(0.7),
                   "shared": 0.5, "new_clients": None, "online": None, "reward": None, "estimated_reward": None,
                   "regret": None, "bound": None, "kib_per_client": 2.0, "ms_per_round": 4.0}
    assert cells([row]) == [["method", "seeds", "personal", "worst 10%", "shared", "KiB/client", "ms/round"],
                            ["fedavg", "2", "0.700 ± 0.141", "0.700 ± 0.141", "0.500 ± 0.000", "2.0", "4.00"]]


def test_policies_from_logs_show_what_they_would_earn(make_run):
    numbers = {"test.personal.reward_dr.mean": 0.03}
    runs = [make_run(str(seed), seed=seed, metric="loss", numbers=numbers) for seed in range(2)]
    titles, words = cells(comparison_rows(collect(runs)))
    assert words[titles.index("reward (DR)")] == "0.600"


def test_large_losses_have_no_more_digits_than_small_ones(make_run):
    runs = [make_run(str(seed), seed=seed, metric="loss", scores=(loss,) * 3) for seed, loss in enumerate((3100, 3300))]
    assert cells(comparison_rows(collect(runs)))[1][2] == "3,200 ± 141"


def test_scores_that_are_not_finite_are_shown_as_a_dash(make_run):
    rows = comparison_rows(collect([make_run("a"), make_run("b", scores=(np.nan,) * 3, algorithm={"name": "wild"})]))
    assert rows[1]["personal"] is None
    assert cells(rows)[2][2] == "–"


@pytest.mark.parametrize("counts, shown", [((0.0, 0.0), False), ((0.0, 2.0), True), ((None, 0.0), False)])
def test_a_diagnostic_that_counts_nothing_for_any_method_has_no_column(make_run, counts, shown):
    rows = comparison_rows(collect([make_run("a"), make_run("b", algorithm={"name": "other"})]))
    title = cells([{**row, "client diverged tunings": count} for row, count in zip(rows, counts, strict=True)])[0]
    assert ("client diverged tunings" in title) == shown


def test_the_headline_is_the_first_metric_that_all_runs_have(make_run):
    assert metrics(collect([make_run("a")])) == ["accuracy"]
    assert metrics(collect([make_run("b", metric="loss")])) == ["loss"]


def test_what_cannot_be_reported_is_refused_in_a_sentence(make_run, tmp_path):
    make_run("run")
    (tmp_path / "empty").mkdir()
    damaged = make_run("damaged")
    (damaged / "study.json").write_text('{"name": "study"}')
    refused = {
        "no run folder was given": [],
        "empty is not a run folder": [tmp_path / "empty"],
        "has no evaluation yet": [make_run("young", evaluations=())],
        "damaged: its study.json lacks seed": [damaged],
        "has no test scores": [make_run("untested", test_rows=0)],
        "lacks test.personal.accuracy.mean": [make_run("odd", metric="perplexity")],
        r"run ran on toy \(checksum 7\) and .*other on toy \(checksum 8\); compare runs of the same data":
            [tmp_path / "run", make_run("other", checksum=8)],
        "run and .*copy are the same study with the same seed": [tmp_path / "run", make_run("copy")],
    }
    for sentence, folders in refused.items():
        with pytest.raises(InputError, match=sentence):
            collect(folders)
    with pytest.raises(InputError, match="scored by accuracy and .* by loss; compare runs that share a metric"):
        comparison_rows(collect([tmp_path / "run", make_run("c", metric="loss", algorithm={"name": "other"})]))
