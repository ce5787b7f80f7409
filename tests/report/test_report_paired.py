"""What a comparison says follows from its numbers, and no more than that."""

import csv
import inspect
import json
import re
from unittest import mock
from xml.etree import ElementTree

import numpy as np
import pytest

import cantons as ct
import cantons.reporting.markup
from cantons.reporting import read_comparison
from cantons.reporting.paired import conclude
from cantons.reporting.save import as_latex, as_markdown
from cantons.reporting.unasked import unasked_options
from cantons.study.folder import Folder
from cantons.study.registry import REGISTRY

BASE = np.linspace(0.4, 0.9, 20)  # what twenty clients score by the reference


@pytest.fixture
def no_drawings():
    """Drawing takes most of the time."""
    with mock.patch.object(cantons.reporting.markup, "svg", lambda draw, name: ""):
        yield


@pytest.fixture
def compared(make_run):
    """`compared({method: changes})`: a comparison of methods with the base plus these changes, one row per seed."""

    def compare(changes, metric="accuracy", base=BASE, **options):
        folders = []
        for name, rows in changes.items():
            for seed, row in enumerate(rows):
                scores = tuple(map(float, base + np.asarray(row)))
                folders.append(make_run(f"{name}-{seed}", scores=scores, seed=seed, name=name, metric=metric,
                                        new=float(np.mean(scores)) / 2, **options))
        return read_comparison(folders)

    return compare


def rows_of(path):
    return list(csv.DictReader(path.read_text().splitlines()))


def gains(seeds, clients=20, mean=0.05, noise=0.01):
    return np.random.default_rng(3).normal(mean, noise, (seeds, clients))


@pytest.mark.parametrize("seeds, change, metric, words", [
    (8, 0.05, "accuracy", "other is better, over seeds and over clients."),
    (8, -0.05, "accuracy", "other is worse, over seeds and over clients."),
    (8, 0.05, "loss", "other is worse, over seeds and over clients."),
    (8, 0.05, "reward", "other is better, over seeds and over clients."),
    (8, -0.05, "recall@10", "other is worse, over seeds and over clients."),
    (3, 0.05, "accuracy", "other is better over clients, in all 3 seeds; 3 seeds are too few to say that other seeds "
                          "would show the same (a test needs 6 or more)."),
    (2, 0.05, "accuracy", "other is better over clients, in both seeds; 2 seeds are too few to say that other seeds "
                          "would show the same (a test needs 6 or more)."),
    (1, 0.05, "loss", "other is worse over clients, by the one seed; 1 seed is too few to say that other seeds would "
                      "show the same (a test needs 6 or more)."),
])
def test_the_sentence_says_who_is_better_and_how_far_that_goes(compared, seeds, change, metric, words):
    found = compared({"base": np.zeros((seeds, 1)), "other": gains(seeds, mean=change)}, metric)
    assert found.conclusion == f"By {metric}, against base: {words}"
    assert str(found).replace("\n", " ").replace("  ", " ").endswith(found.conclusion)


def test_noise_is_no_difference_and_seeds_that_disagree_are_none_either(compared):
    noise = np.random.default_rng(0).normal(0, 0.05, (8, 20))
    found = compared({"base": np.zeros((8, 1)), "noise": noise - noise.mean()})
    assert found.conclusion == "By accuracy, against base: no difference is seen for noise."


def test_clients_alone_do_not_decide_where_seeds_disagree(compared):
    found = compared({"base": np.zeros((3, 1)), "other": gains(3) - np.array([[0.0], [0.06], [0.0]])})
    assert "no difference is seen for other on which the seeds agree; 3 seeds are too few" in found.conclusion


def test_many_seeds_that_disagree_outweigh_the_clients(compared):
    swings = np.array([0.3, -0.2, 0.25, -0.15, 0.2, -0.2, 0.1, -0.1])[:, None]
    found = compared({"base": np.zeros((8, 1)), "other": swings + gains(8, mean=0.0, noise=0.0001)})
    assert found.differences[0]["clients_p"] < 0.05 < found.differences[0]["seeds_p"]
    assert found.conclusion == "By accuracy, against base: no difference is seen for other."


def test_a_gain_of_a_few_clients_is_not_one_over_clients(compared):
    few = np.zeros(20)
    few[:2] = 0.5
    found = compared({"base": np.zeros((8, 1)), "other": few * np.linspace(0.9, 1, 8)[:, None]})
    assert found.conclusion.endswith("other is better over seeds, but over clients no difference is seen.")


@pytest.mark.parametrize("change", [
    [0.01] * 18 + [-0.2, -0.3],  # nearly all gain a little, which the test sees; the mean is anybody's
    [0.3] * 5 + [-0.01] * 15,  # the mean is above 0, which the interval sees; the test looks at ranks
])
def test_the_test_and_the_interval_must_agree_on_clients(compared, change):
    found = compared({"base": np.zeros((8, 1)), "other": change * np.linspace(0.9, 1, 8)[:, None]})
    [row] = found.differences
    assert (row["clients_p"] < 0.05) != (row["clients_low"] * row["clients_high"] > 0), "they do not agree here"
    assert found.conclusion.endswith("over seeds, but over clients no difference is seen.")


def test_clients_and_seeds_must_not_contradict_each_other(compared):
    """As they might where each seed scores a sample of the clients."""
    found = compared({"base": np.zeros((8, 1)), "other": gains(8)})
    [one] = found.paired
    turned = one.clients._replace(mean=-one.clients.mean, low=-one.clients.high, high=-one.clients.low)
    assert "over seeds and over clients" not in conclude(found.groups, [one._replace(clients=turned)])


def test_what_single_precision_cannot_tell_apart_is_the_same(compared):
    found = compared({"base": np.zeros((6, 1)), "other": gains(6, mean=0, noise=1e-9)})
    assert "all scores of other are the same, so no difference is seen" in found.conclusion


@pytest.mark.parametrize("seeds", [2, 3, 8, 20])
def test_seeds_that_change_nothing_are_no_evidence(compared, seeds):
    """A run in which nothing is drawn can be repeated at will: many copies say what one says."""
    [gain] = gains(1)
    found = compared({"base": np.zeros((seeds, 1)), "other": np.tile(gain, (seeds, 1)),
                      "few": np.tile(np.where(np.arange(20) < 5, gain, 0), (seeds, 1))})
    for row in found.differences:
        assert row["seeds_number"] == 1 and row["seeds_p"] is None and row["clients_p"] is not None
    all_seeds = "both seeds" if seeds == 2 else f"all {seeds} seeds"
    assert found.conclusion == ("By accuracy, against base: other is better over clients; no difference is seen for "
                                f"few; {all_seeds} gave the same and count as one.")
    assert "over seeds" not in str(found) and f"over {seeds}" not in str(found).replace("\N{NO-BREAK SPACE}", " ")


def test_of_methods_with_and_without_chance_the_latter_are_named(compared):
    found = compared({"base": np.zeros((8, 1)), "fixed": np.full((8, 1), 0.05), "drawn": gains(8)})
    assert found.conclusion == ("By accuracy, against base: fixed is better over clients; drawn is better, over seeds "
                                "and over clients; all 8 seeds gave the same and count as one for fixed.")


def test_too_few_of_both_allow_nothing(compared):
    found = compared({"base": np.zeros((2, 1)), "other": [[0.1] * 3, [0.2] * 3]}, base=BASE[:3])
    assert found.conclusion == ("By accuracy, against base: there are too few pairs to tell for other; 2 seeds are too "
                                "few to say that other seeds would show the same (a test needs 6 or more).")


def test_a_method_compared_with_itself_differs_by_exactly_nothing(compared):
    found = compared({"one": gains(3), "same": gains(3)})
    [row] = found.differences
    assert {value for key, value in row.items() if key.endswith(("_mean", "_low", "_high"))} == {0.0}
    assert row["clients_p"] == 1
    assert "all scores of same are the same, so no difference is seen" in found.conclusion


def test_a_method_that_diverged_is_not_compared(compared):
    wild = gains(2)
    wild[1, 4] = np.nan
    found = compared({"base": np.zeros((2, 1)), "wild": wild})
    assert "for wild there is nothing to compare" in found.conclusion and found.differences[0]["clients_mean"] is None


def test_the_order_of_seeds_and_clients_changes_nothing(compared, tmp_path):
    changes = {"base": gains(6, mean=0), "other": gains(6), "third": gains(6, mean=-0.01, noise=0.03)}
    found = compared(changes)
    order = np.random.default_rng(0).permutation(20)
    for folder in found.folders:
        clients = rows_of(folder / "clients.csv")
        Folder(folder).clients({key: [clients[place][key] for place in order] for key in clients[0]})
    first = [3, 10, 15]  # of each method one, in the same order
    rest = np.random.default_rng(1).permutation([place for place in range(18) if place not in first])
    again = read_comparison([found.folders[place] for place in (*first, *rest)])
    assert again.rows == found.rows
    assert [pytest.approx(row) for row in again.differences] == found.differences
    assert str(again) == str(found)


def test_held_against_the_other_one_signs_turn(compared, tmp_path, no_drawings):
    found = compared({"base": np.zeros((6, 1)), "other": gains(6)})
    turned = ct.report(*found.folders, out=tmp_path / "report.html", reference="other")
    [row], [back] = found.differences, turned.differences
    for key in ("seeds_mean", "clients_mean", "worst10_mean", "new_clients_mean"):
        assert row[key] == pytest.approx(-back[key])
    assert row["seeds_p"] == back["seeds_p"] and row["clients_p"] == back["clients_p"]
    assert found.conclusion.endswith("other is better, over seeds and over clients.")
    assert turned.conclusion.endswith("base is worse, over seeds and over clients.")
    page = turned.report.read_text("utf-8")
    assert "Differences to other" in page and turned.conclusion in page


def test_numbers_are_means_over_pairs_of_what_the_runs_have(compared):
    changes = gains(6)
    row = compared({"base": np.zeros((6, 1)), "other": changes}).differences[0]
    assert row["seeds_mean"] == pytest.approx(changes.mean(), abs=1e-6)
    assert row["clients_mean"] == pytest.approx(changes.mean(), abs=1e-6)
    assert row["new_clients_mean"] == pytest.approx(changes.mean() / 2, abs=1e-6)
    worst = (BASE + changes).min(axis=1) - BASE.min()
    assert row["worst10_mean"] == pytest.approx(worst.mean(), abs=1e-6)
    assert (row["seeds_number"], row["clients_number"]) == (6, 20)


def test_more_methods_need_more_seeds_and_smaller_p(compared):
    two = compared({"base": np.zeros((6, 1)), "a": gains(6)})
    assert two.differences[0]["seeds_p"] == pytest.approx(2 / 64)
    assert two.conclusion.endswith("a is better, over seeds and over clients.")


def test_with_several_methods_six_seeds_are_too_few(compared):
    found = compared({"base": np.zeros((6, 1)), "a": gains(6), "b": gains(6)})
    assert [row["seeds_p"] for row in found.differences] == [None, None]
    assert "a and b are better over clients, in all 6 seeds; 6 seeds are too few" in found.conclusion
    assert "(a test needs 7 or more)" in found.conclusion


@pytest.mark.parametrize("first, second, listed", [
    ({"name": "fedavg", "batch_size": 32}, {"name": "fedsgd", "batch_size": None},
     ["algorithm.batch_size is 32 (the default) for one, none (the default) for two"]),
    ({"name": "fedavg", "batch_size": 8}, {"name": "fedprox", "batch_size": 32},
     ["algorithm.batch_size is 8 for one, 32 (the default) for two"]),
    ({"name": "fedavg", "batch_size": 8}, {"name": "fedres_avg", "batch_size": 16}, []),  # both were asked for
    ({"name": "fedavg", "batch_size": 8}, {"name": "mine:method", "batch_size": 16},  # may be its default
     ["algorithm.batch_size is 8 for one, 16 for two"]),
    ({"name": "fedavg", "batch_size": 8}, {"name": "fedavg", "batch_size": 32}, []),
    ({"name": "fedavg", "batch_size": 32}, {"name": "fedprox", "mu": 0.1, "batch_size": 32}, []),
])
def test_options_that_differ_unasked_are_listed(make_run, first, second, listed):
    found = read_comparison([make_run(name, name=name, algorithm=algorithm)
                             for name, algorithm in (("one", first), ("two", second))])
    assert found.unasked == listed
    assert all(line in str(found).replace("\n", " ") for line in listed)
    assert unasked_options(found.groups, tuned=["algorithm.batch_size"]) == []


@pytest.fixture
def with_defaults(make_run):
    """Runs of algorithms with all their options at their defaults."""
    def read(*names):
        options = (inspect.signature(REGISTRY["algorithm"][name]).parameters.values() for name in names)
        return read_comparison([make_run(name, name=name, algorithm={"name": name, **{
            option.name: option.default for option in own}}) for name, own in zip(names, options, strict=True)])

    return read


def test_methods_without_an_option_that_others_have_otherwise_are_named(with_defaults):
    found = with_defaults("fedavg", "ffgg", "local_ffgg", "fedalt", "fedrep")
    assert ("algorithm.weighting is examples (the default) for fedavg, uniform (the default) for fedalt and fedrep; "
            "ffgg and local_ffgg have no such option") in found.unasked
    assert "algorithm.batch_size is 32 (the default) for fedavg, fedalt and fedrep, none (the default) for " \
           "local_ffgg; ffgg has no such option" in found.unasked


def test_options_of_one_name_are_not_held_against_each_other_where_methods_mean_something_of_their_own(with_defaults):
    found = with_defaults("ditto", "pfedme", "l2gd")
    assert not [line for line in found.unasked if line.startswith("algorithm.penalty")]
    assert [line for line in found.unasked if line.startswith("algorithm.batch_size is 32")]  # l2gd has own words


def test_a_part_that_differs_unasked_is_shown_by_its_name_and_options(make_run):
    tuners = {"ffgg": {"name": "gd", "steps": 10, "step_size": 0.1}, "pfedme": {"name": "exact"}}
    groups = read_comparison([make_run(name, name=name, algorithm={"name": name, "tuner": tuner})
                              for name, tuner in tuners.items()]).groups
    assert unasked_options(groups) == [
        "algorithm.tuner is gd (steps 10, step_size 0.1) (the default) for ffgg, exact for pfedme"]
    assert unasked_options(groups, tuned=["algorithm.tuner.step_size"]) == []


def test_tables_and_figures_are_saved_as_files(compared, tmp_path):
    found = compared({"base": np.zeros((2, 1)), "a & b_%": gains(2)})
    paper = tmp_path / "paper"
    written = ct.report(*found.folders, out=tmp_path / "report.html", save=paper)
    page = written.report.read_text("utf-8")
    titles = re.findall(r"<h3>(.*?)</h3>", page)
    contents = json.loads((paper / "contents.json").read_text())
    assert sorted(path.name for path in paper.iterdir()) == sorted([*contents["files"], "contents.json"])
    assert contents["sentences"][-1] == found.conclusion
    for kind, begins in (("svg", b"<?xml"), ("png", b"\x89PNG")):
        figures = sorted(paper.glob(f"*.{kind}"))
        assert len(figures) == len(titles) == page.count("<svg")
        assert all(figure.read_bytes().startswith(begins) for figure in figures)
    for figure in paper.glob("*.svg"):
        ElementTree.parse(figure)
    for name, rows in (("comparison", found.rows), ("differences", found.differences)):
        read = rows_of(paper / f"{name}.csv")
        assert [{key: "" if value is None else str(value) for key, value in row.items()} for row in rows] == read
        assert (paper / f"{name}.tex").read_text().count(r"\\") == 1 + len(rows)
        assert r"a \& b\_\%" in (paper / f"{name}.tex").read_text()
        assert (paper / f"{name}.md").read_text().count("\n|") == 1 + len(rows)
    (paper / "comparison.csv").write_text("old")
    alone = read_comparison(found.folders[:2]).save(paper)  # a method alone has no differences
    assert not list(paper.glob("differences.*")) and "old" not in (paper / "comparison.csv").read_text()
    assert {*alone, paper / "contents.json"} == {*paper.iterdir()}


def test_a_folder_with_other_things_is_refused_before_anything_is_written(compared, tmp_path, no_drawings):
    found = compared({"base": np.zeros((1, 1))})
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "thesis.tex").write_text("mine")
    with pytest.raises(ct.InputError, match="theirs exists and was not written by this command"):
        ct.report(*found.folders, out=tmp_path / "report.html", save=theirs)
    assert [path.name for path in theirs.iterdir()] == ["thesis.tex"] and not (tmp_path / "report.html").exists()
    found.save(theirs, overwrite=True)
    assert (theirs / "thesis.tex").read_text() == "mine" and (theirs / "comparison.tex").exists()
    with pytest.raises(ct.InputError, match="thesis.tex exists and was not written"):
        found.save(theirs / "thesis.tex")


def test_words_are_never_markup_in_tables():
    rows = [["method", "x"], [r"\input{a} ~ ^ # $ 50% <b> | `c`", "1"]]
    latex = as_latex(rows)
    assert r"\textbackslash{}input\{a\} \textasciitilde{} \textasciicircum{} \# \$ 50\% $<$b$>$" in latex
    assert [len(re.findall(r"(?<!\\)\|", line)) for line in as_markdown(rows).splitlines()] == [3, 3, 3]
