"""`compare --resplit`: every seed splits the data anew, and clients are told apart by their names, not their places."""

import dataclasses
from unittest import mock

import numpy as np
import pytest
from click.testing import CliRunner

import cantons as ct
import cantons.reporting.markup
from cantons.cli import main
from cantons.reporting import collect

STUDY = """
rounds = 2
cohort = 3
[data]
name = "digits"
clients = 8
new = 3
[problem]
name = "logistic"
[algorithm]
name = "fedavg"
"""
KEY = "test.personal.accuracy"


@pytest.fixture(scope="module", autouse=True)
def no_drawings():
    """Drawing takes most of the time."""
    with mock.patch.object(cantons.reporting.markup, "svg", lambda draw, name: ""):
        yield


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    """A study file, what the shell printed, and the comparison of two methods over three splits."""
    folder = tmp_path_factory.mktemp("resplit")
    study = folder / "study.toml"
    study.write_text(STUDY)
    command = ["compare", str(study), "--algorithm", "fedavg", "--algorithm", "fedsgd", "--resplit", "--out",
               str(folder / "out")]
    result = CliRunner().invoke(main.cantons, command)
    assert result.exit_code == 0, result.output
    found = ct.compare(study, algorithm=["fedavg", "fedsgd"], resplit=True, out=folder / "out", progress=False)
    return study, result.output, found


def test_each_seed_has_the_split_of_its_number_and_all_methods_have_the_same(played):
    _, printed, found = played
    splits = [[run.study["data"] for run in group.runs] for group in found.groups]
    assert splits[0] == splits[1] and len({data["checksum"] for data in splits[0]}) == 3
    assert [data["made_by"]["seed"] for data in splits[0]] == [0, 1, 2]
    sentence = "Every seed has a split of the data of its own."
    assert sentence in found.sentences and sentence in " ".join(printed.split())
    assert sentence in found.report.read_text()


def test_clients_are_averaged_over_the_splits_in_which_they_train(played):
    """Three of eight clients are held out, other ones in each split: nobody's score may go to another's place."""
    group = played[2].groups[0]
    expected: dict[str, list[float]] = {}
    for run in group.runs:
        for name, score in zip(run.clients["client"], run.scores(KEY), strict=True):
            expected.setdefault(name, []).append(score)
    names = sorted(expected)
    assert len({len(scores) for scores in expected.values()}) > 1, "this tries nothing if all clients always train"
    np.testing.assert_allclose(group.clients(KEY, names), [np.mean(expected[name]) for name in names])
    assert np.isnan(group.clients(KEY, [*names, "nobody"])[-1])
    one, other = group.runs[:2]
    asked = other.clients["client"]  # as many as `one` has, and not the same
    there = dict(zip(one.clients["client"], one.scores(KEY), strict=True))
    assert len(asked) == len(there) and set(asked) != set(there)
    np.testing.assert_array_equal(one.scores_of(asked, KEY), [there.get(name, np.nan) for name in asked])


def test_differences_are_of_the_same_client_in_the_same_split(played):
    found = played[2]
    pairs = list(zip(*(group.runs for group in found.groups), strict=True))
    apart: dict[str, list[float]] = {}
    for one, other in pairs:
        assert list(one.clients["client"]) == list(other.clients["client"])
        for name, change in zip(one.clients["client"], other.scores(KEY) - one.scores(KEY), strict=True):
            apart.setdefault(name, []).append(change)
    assert found.differences[0]["clients_number"] == len(apart)
    assert found.differences[0]["clients_mean"] == pytest.approx(
        np.mean([np.mean(each) for each in apart.values()]), abs=1e-6)  # what `paired` rounds to


def test_methods_with_other_splits_for_the_same_seed_are_refused(played, tmp_path):
    study, _, found = played
    once = ct.compare(study, algorithm="fedprox", seeds=2, out=tmp_path / "once", progress=False)
    assert "All seeds share one split of the data" in once.split and once.split not in once.sentences
    with pytest.raises(ct.InputError, match="compare runs of the same data"):
        collect([*(run.folder for run in found.groups[0].runs), once.groups[0].runs[1].folder])


def test_a_file_that_was_changed_is_not_another_split(tmp_path):
    """The seed is the same: other rows under it are other data."""
    rows = [f"{client},{number},{number % 2}" for client in "ab" for number in range(20)]
    table, folders = tmp_path / "table.csv", []
    study = tmp_path / "study.toml"
    study.write_text(STUDY.replace('name = "digits"\nclients = 8\nnew = 3',
                                   f'name = "csv"\npath = "{table}"\ntargets = "y"\nclient = "who"')
                     .replace("cohort = 3", "cohort = 2"))
    for seed, last in enumerate(("1", "0")):
        table.write_text("\n".join(["who,x,y", *rows, f"b,7,{last}"]) + "\n")
        folders.append(tmp_path / f"run-{seed}")
        ct.read_study(study, {"seed": seed}).run(out=folders[-1], progress=False)
    with pytest.raises(ct.InputError, match="compare runs of the same data"):
        collect(folders)


def test_what_cannot_be_split_anew_is_refused_in_a_sentence(played, tmp_path):
    study = played[0]
    with pytest.raises(ct.InputError, match="tuning would learn from rows that other splits test on"):
        ct.compare(study, resplit=True, tune={"algorithm.step_size": [0.1, 0.2]}, out=tmp_path / "out")
    data = ct.digits(clients=4)
    made = ct.Study(ct.logistic(data), data, ct.fedavg(), rounds=1)
    bare = dataclasses.replace(data, spec=None)  # nobody knows how it was split
    assert ct.compare(ct.Study(ct.logistic(bare), bare, ct.fedavg(), rounds=1), seeds=2, out=tmp_path / "bare",
                      progress=False).split == ""
    with pytest.raises(ct.InputError, match=r"cannot change data\.seed, because the data of a study made in Python"):
        ct.compare(made, resplit=True, out=tmp_path / "out")
