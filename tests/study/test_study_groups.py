"""Studies with groups of clients and with several central losses: they run, resume, sweep, load and report."""

import functools
import json
from pathlib import Path

import jax
import numpy as np
import pytest
from click.testing import CliRunner

import cantons as ct
from cantons.cli.main import cantons
from cantons.data import Centres, from_labels, from_sizes, with_centres
from cantons.data.names import TAKEN
from cantons.study.read import check_study, read_study

STUDY = """
rounds = 4
cohort = { low = 2, high = 3 }
evaluate_every = 2

[data]
name = "digits"
clients = 12
partition = "dirichlet"

[central.seven]
name = "from_labels"
labels = [7]

[central.nine]
name = "from_labels"
labels = [9]

[groups]
name = "by_label"
labels = { low = [0, 1, 2, 3], high = [4, 5, 6, 8] }

[problem]
name = "logistic"
group_weights = { low = 0.5, high = 0.5 }
group_losses = { high = "own_losses:twice" }
central_loss = { seven = "same", nine = "same" }
weights = { clients = 0.5, seven = 0.3, nine = 0.2 }

[algorithm]
name = "two_way_transfer"
steps = 2
batch_size = 8
central_steps = 2
merge_step_size = 0.3
"""
OWN = """
from cantons.protocol import CentralLoss
from cantons.recipe import central_loss

@central_loss
def twice(problem):
    return CentralLoss(lambda shared, private, batch: 2 * problem.loss(shared, private, batch))
"""


def play(*words):
    return CliRunner().invoke(cantons, list(map(str, words)))


@pytest.fixture
def study(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "own_losses.py").write_text(OWN)
    (tmp_path / "groups.toml").write_text(STUDY)
    return tmp_path / "groups.toml"


def test_it_runs_goes_on_to_the_same_bits_loads_and_is_reported(study, tmp_path):
    assert play("run", study, "--out", "whole").exit_code == 0
    assert play("run", study, "--out", "part", "--rounds", "2").exit_code == 0
    again = play("run", study, "--out", "part", "--resume")
    assert again.exit_code == 0, again.output
    rows = [json.loads((tmp_path / name / "metrics.jsonl").read_text().splitlines()[-1]) for name in ("whole", "part")]
    told = [key for key in rows[0] if key.split(".")[0] in ("low", "high", "seven", "nine", "inference", "server")]
    assert {key.split(".")[0] for key in told} == {"low", "high", "seven", "nine", "inference", "server"}
    assert all(rows[0][key] == rows[1][key] for key in told)
    assert "group" in (tmp_path / "whole" / "clients.csv").read_text().splitlines()[0].split(",")
    with pytest.raises(ct.InputError, match="own_losses:twice"):
        ct.load("whole")
    loaded = ct.load("whole", trust=True)
    assert [(group.name, group.weight) for group in loaded.problem.groups] == [("low", 0.25), ("high", 0.25)]
    assert [term.weight for term in loaded.problem.central.terms] == [0.3, 0.2]
    inputs = loaded.data.sets["inference"].inputs[:5]
    np.testing.assert_array_equal(loaded.outputs(inputs), read_study(study).run().outputs(inputs))
    report = play("report", "whole", "--out", "page.html")
    assert report.exit_code == 0 and "Groups" in Path("page.html").read_text(), report.output


def test_a_sweep_and_a_comparison_of_it_run(study):
    swept = play("sweep", study, "--grid", "algorithm.merge_step_size=0.2,0.3", "--seeds", "1", "--out", "sweep")
    assert swept.exit_code == 0, swept.output
    compared = play("compare", study, "--algorithm", "fedavg", "--algorithm", "parallel_training", "--seeds", "1",
                    "--out", "compare")
    assert compared.exit_code == 0, compared.output


def test_a_mean_of_a_group_is_over_its_clients(study):
    result = read_study(study).run()
    groups, values = result.clients["group"], np.asarray(result.clients["test.shared.accuracy"])
    for name in ("low", "high"):
        chosen = [group == name for group in groups]
        assert result.final[f"{name}.test.shared.accuracy"] == pytest.approx(np.nanmean(values[chosen]))


@pytest.mark.parametrize(("change", "sentence"), {
    "cohort={low=2}": "cohort is {'low': 2}; name each group of the data once: they are low, high",
    "cohort={low=2, high=99}": "cohort.high is 99 but the group has only",
    "cohort={low=2, high=0}": "cohort.high = 0; give 1 or more",
    "groups.labels={low=[0]}": "name two or more",
    "groups.labels={test=[0], low=[1]}": "a group cannot be called 'test'",
    "groups={name='by_name', clients={a=['0'], b=['1']}}": "in no group; name each client once",
    "problem.group_weights={low=1.0}": "the data has the groups low, high; name some of them",
    "problem.group_weights={low=-1.0, high=1.0}": "problem.group_weights.low = -1.0; give 0 or more",
    "problem.group_losses={middle='same'}": "the data has the groups low, high; name some of them",
    "problem.group_losses={low='nothing'}": "unknown central_loss 'nothing'",
    "problem.weights={seven=1.0}": "give one for clients and one for each central loss: seven, nine",
    "problem.central_loss={seven='same'}": "give one for clients and one for each central loss: seven",
    "problem.central_loss=same": "there is one central loss without a name",
    "problem.central_loss={seven='same', ten='same'}": "give one for clients",
    "central={seven={name='from_labels', labels=[7]}}": "name two or more",
    "algorithm={name='central'}": "pools the rows of all clients",
}.items())
def test_what_makes_no_sense_is_refused_in_a_sentence(study, change, sentence):
    from cantons.cli.changes import parsed

    with pytest.raises(ct.InputError) as refused:
        read_study(study, parsed([change])).run()
    assert sentence in str(refused.value)


def test_somebody_who_is_named_in_two_groups_is_refused():
    data = ct.digits(clients=2, partition="iid")
    first, second = data.clients.names
    with pytest.raises(ct.InputError, match="clients names somebody twice"):
        ct.by_name(data, clients={"a": [first, second], "b": [second]})


def test_examples_of_several_kinds_need_losses_of_their_names():
    kinds = {name: functools.partial(from_labels, labels=[label]) for name, label in (("a", 1), ("b", 2))}
    data = with_centres(ct.digits(clients=5, partition="iid"), kinds)
    assert isinstance(data.central, Centres) and set(data.sets) == {"federated", "a", "b", "inference"}
    problem = ct.logistic(data)
    for losses in ("same", {"a": "same", "c": "same"}):
        with pytest.raises(ct.InputError, match="datacenter.* examples"):
            ct.run(ct.with_central_loss(problem, losses), data, ct.parallel_training(), rounds=1)
    smallest = min(rows.longest for rows in data.central.rows.values())
    with pytest.raises(ct.InputError, match=f"examples of the datacenter, which has {smallest}; lower"):
        ct.run(ct.with_central_loss(problem, {"a": "same", "b": "same"}), data,
               ct.one_way_transfer(central_batch_size=smallest + 1), rounds=1)


def test_kinds_are_drawn_apart():
    """The same rows twice: their batches are two draws."""
    rows = from_sizes(np.arange(1000.0)[:, None], np.zeros(1000), np.array([1000]))
    drawn = Centres({"a": rows, "b": rows}).client(0).sample(jax.random.key(0), 50)
    assert (drawn["a"].inputs != drawn["b"].inputs).mean() > 0.9


# Groups of data


@pytest.fixture(scope="module")
def digits():
    return ct.digits(clients=12, partition="dirichlet", new=3)


def test_by_label_is_by_what_a_client_has_most_of(digits):
    found = ct.by_label(digits, labels={"even": [0, 2, 4, 6, 8], "odd": [1, 3, 5, 7, 9]})
    for population in (found.clients, found.new):
        ends = np.cumsum(population.train.sizes)[:-1]
        for number, targets in zip(population.groups.numbers, np.split(population.train.targets, ends), strict=True):
            assert number == (np.mean(targets % 2) > 0.5)


def test_by_size_goes_from_few_to_many(digits):
    found = ct.by_size(digits, names=["few", "some", "many"])
    sizes, numbers = np.asarray(found.train.sizes), found.clients.groups.numbers
    assert (np.bincount(numbers) == 3).all() and (np.diff(numbers[np.argsort(sizes, kind="stable")]) >= 0).all()


def test_at_random_is_even_and_follows_the_seed(digits):
    one, same, other = (ct.at_random(digits, names=["a", "b"], seed=seed).clients.groups.numbers for seed in (0, 0, 1))
    assert sorted(np.bincount(one)) == [4, 5] and (one == same).all() and (one != other).any()


def test_groups_stay_with_clients_whose_rows_are_held_back(digits):
    found = ct.with_validation(ct.by_size(digits, names=["few", "many"]), 0.3)
    np.testing.assert_array_equal(found.train.groups, found.clients.groups.numbers)


def test_a_cohort_of_each_group_is_uniform_within_it(digits):
    found = ct.by_size(digits, names=["few", "many"])
    clock = ct.rounds(cohort={"few": 2, "many": 1}).build(
        found.population, None, found.clients.groups)
    plans = jax.vmap(lambda key: clock.plan(clock.arrays, key, 0))(jax.random.split(jax.random.key(0), 3000))
    numbers, ids = found.clients.groups.numbers, np.asarray(plans.ids)
    assert (np.diff(ids, axis=1) > 0).all() and ((numbers[ids] == 0).sum(axis=1) == 2).all()
    for number, count in ((0, 2), (1, 1)):
        members = np.flatnonzero(numbers == number)
        drawn = np.bincount(ids.ravel(), minlength=found.population)[members] / 3000
        assert abs(drawn - count / len(members)).max() < 4 * np.sqrt(0.25 / 3000)


def test_a_study_with_a_group_s_loss_is_checked_before_it_is_made():
    raw = {"rounds": 1, "data": "digits", "problem": {"name": "logistic", "group_losses": {"a": {"name": 3}}},
           "algorithm": "fedavg"}
    with pytest.raises(ct.InputError, match="problem.group_losses.a.name = 3; give a name"):
        check_study(raw, "study")


def test_no_group_can_have_a_name_that_numbers_of_a_run_begin_with():
    data = ct.digits(clients=6, partition="iid", new=2)
    problem = ct.logistic(data)
    runs = [ct.run(problem, data, ct.fedavg(), rounds=1, validation=0.2), ct.run(problem, data, ct.fedavg(), rounds=1,
                                                                                 clock=ct.online())]
    words = {name.partition(".")[0] for run in runs for row in run.history for name in row if "." in name}
    assert {"train", "validation", "new_test", "online"} <= words <= set(TAKEN)
