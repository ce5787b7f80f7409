"""Logs of bandits: what was logged is what is read, what cannot have been is refused with its line."""

import numpy as np
import pytest

import cantons as ct
from cantons.data import logs_of
from cantons.data.registry import make_data
from cantons.study.read import check_study

HEADER = "age,height,choice,gain,chance,who"
ROWS = ["30,1.5,buy,1,0.25,ann", "40,1.6,skip,-2,0.75,ann", "", "50,1.7,skip,0,1,bob", "60,1.8,buy,0.5,1e-3,bob"]
NAMES = {"client": "who", "action": "choice", "reward": "gain", "propensity": "chance", "test": 0.0}


def written(tmp_path, rows=ROWS, header=HEADER):
    path = tmp_path / "log.csv"
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


def test_a_file_is_read_as_it_is_written(tmp_path):
    data = ct.bandit_log(written(tmp_path), **NAMES)
    assert data.actions == ("buy", "skip") and data.classes is None and data.input_shape == (2,)
    assert "a log of 2 actions" in data.describe()
    ann, bob = logs_of(data).values()
    np.testing.assert_array_equal(ann.contexts, [[30, 1.5], [40, 1.6]])
    for found, wanted in zip(bob[1:], ([1, 0], [0, 0.5], [1, 1e-3]), strict=True):
        np.testing.assert_array_equal(found, np.array(wanted, found.dtype))
    again = make_data(data.spec)
    np.testing.assert_array_equal(again.train.targets["propensity"], data.train.targets["propensity"])


def test_columns_actions_and_scale_can_be_chosen(tmp_path):
    data = ct.bandit_log(written(tmp_path), inputs=["age"], actions=["wait", "skip", "buy"], scale="unit", **NAMES)
    assert data.actions == ("wait", "skip", "buy")
    np.testing.assert_allclose(data.train.inputs[:, 0], [0.5, 2 / 3, 5 / 6, 1], rtol=1e-6)
    assert data.train.targets["action"].tolist() == [2, 1, 1, 2]


def test_contexts_may_be_text_or_lack_a_value_as_in_any_csv_file(tmp_path):
    rows = [row.replace("30,1.5", "young,1.5").replace("40", "old").replace("50", "old").replace("60,1.8", "young,")
            for row in ROWS]
    data = ct.bandit_log(written(tmp_path, rows), missing="mean", **NAMES)
    np.testing.assert_allclose(data.train.inputs, [[0, 1, 1.5, 0], [1, 0, 1.6, 0], [1, 0, 1.7, 0], [0, 1, 1.6, 1]])
    np.testing.assert_allclose(data.encoding.encode({"age": ["old"], "height": [1.2]}), [[1, 0, 1.2, 0]])
    assert ct.bandit_log(written(tmp_path), ignore=["age"], **NAMES).encoding.column_names == ("height",)


@pytest.mark.parametrize("row, change, words", [
    (0, {"0.25": "0"}, r"the propensity in line 2 of .*log.csv is 0.0; .* above 0, since it was, and at most 1"),
    (3, {",1,bob": ",1.01,bob"}, r"the propensity in line 5 of .*log.csv is 1.01"),
    (1, {"0.75": "-0.5"}, r"the propensity in line 3 of .* is -0.5"),
    (4, {"1e-3": "1e-60"}, r"the propensity in line 6 of .* is 1e-60"),  # it would be 0 in 32 bits
    (4, {"buy": "sell"}, r"unknown action 'sell'. Known: buy, skip. It is in line 6 of .*log.csv"),
    (1, {"skip": "skp"}, r"unknown action 'skp'. Did you mean 'skip'\? .* line 3 of"),
    (4, {"1e-3": ""}, r"'chance' in .*log.csv has no value in line 6"),
    (3, {",0,1": ",much,1"}, r"'gain' in .*log.csv holds 'much' in line 5, where a number belongs"),
    (3, {"skip": ""}, r"there is no action in line 5 of .*log.csv"),
    (3, {"bob": ""}, r"'who' in .*log.csv has no value in line 5"),
    (3, {"50": ""}, r"'age' in .*log.csv has no value in line 5; .* missing = .mean."),
])
def test_what_cannot_have_been_logged_is_refused_with_its_line(tmp_path, row, change, words):
    rows = list(ROWS)
    for old, new in change.items():
        assert old in rows[row]
        rows[row] = rows[row].replace(old, new)
    with pytest.raises(ct.InputError, match=words):
        ct.bandit_log(written(tmp_path, rows), actions=["buy", "skip"], **NAMES)


def test_a_line_is_that_of_the_file_although_a_cell_may_have_several(tmp_path):
    rows = ['"ann",1,0,0,0.5', '"b\no\nb",1,0,1,0.5', '"ann",1,1,0,2']
    path = written(tmp_path, rows, "who,x,action,reward,propensity")
    with pytest.raises(ct.InputError, match=r"the propensity in line 6 of"):
        ct.bandit_log(path, client="who")


@pytest.mark.parametrize("change, words", [
    ({"actions": [0, 1]}, r"shapes \(2,\), \(4,\) and \(4,\)"),
    ({"actions": [0, 0, 0, 0]}, "two or more"),
    ({"names": ["0", "0", "1"]}, "each with a name of its own"),
    ({"names": [0, 2]}, r"unknown action '1'. .* It is in row 1 \(from 0\)"),
    ({"propensities": [0.5, 0.5, 0.0, 0.5]}, r"the propensity in row 2 \(from 0\) is 0.0"),
    ({"rewards": [0, 1, np.inf, 0]}, r"the reward in row 2 \(from 0\) is inf"),
    ({"rewards": ["a", "b", "c", "d"]}, "is a number"),
])
def test_arrays_that_are_no_log_are_refused(change, words):
    log = {"actions": [0, 1, 0, 1], "rewards": [0, 1, 1, 0], "propensities": [0.5] * 4} | change
    with pytest.raises(ct.InputError, match=words):
        ct.from_log(np.zeros((4, 2)), clients=list("aabb"), **log)


def test_other_data_has_no_logs():
    with pytest.raises(ct.InputError, match="is not the log of a bandit"):
        logs_of(ct.digits(5))


@pytest.fixture(scope="module")
def simulated():
    return ct.classification_log({"name": "digits", "clients": 4, "partition": "iid"}, epsilon=0.6, seed=1)


def test_a_simulated_log_has_the_rewards_and_the_propensities_of_its_policy(simulated):
    source = ct.digits(4, partition="iid")
    targets = simulated.train.targets
    rows = np.arange(len(targets["action"]))
    np.testing.assert_array_equal(targets["rewards"].argmax(axis=1), source.train.targets)
    np.testing.assert_array_equal(targets["reward"], targets["rewards"][rows, targets["action"]])
    np.testing.assert_array_equal(targets["reward"], targets["action"] == source.train.targets)
    for log in logs_of(simulated).values():
        favourite = np.bincount(log.actions).argmax()
        np.testing.assert_allclose(log.propensities, np.where(log.actions == favourite, 0.46, 0.06), rtol=1e-5)
        # Every action, drawn as often as its propensity says, weighs as much as there are rows.
        weights = np.bincount(log.actions, 1 / log.propensities, minlength=10) / len(log.actions)
        assert np.abs(weights - 1).max() < 5 / np.sqrt(0.06 * len(log.actions))


def test_a_client_s_log_depends_on_the_seed_and_on_itself_alone(simulated):
    again = make_data({"name": "digits", "clients": 4, "partition": "iid"})
    for seed, same in ((1, True), (2, False)):
        targets = ct.classification_log(again, epsilon=0.6, seed=seed).train.targets
        assert np.array_equal(targets["action"], simulated.train.targets["action"]) == same


def test_a_study_can_name_logs(tmp_path):
    log = {"name": "classification_log", "source": {"name": "digits", "clients": 4, "partition": "iid"}, "epsilon": 1.0}
    problem, data, *_ = check_study({
        "rounds": 1, "data": log, "problem": {"name": "logged_bandit", "model": "linear", "estimator": "dr"},
        "algorithm": {"name": "fedavg"}}, "study").parts()
    assert data.spec["epsilon"] == 1.0 and problem.spec["actions"] == 10
    np.testing.assert_allclose(data.train.targets["propensity"], 0.1, rtol=1e-6)
    with pytest.raises(ct.InputError, match="epsilon"):
        ct.classification_log(ct.digits(5), epsilon=0.0)
    with pytest.raises(ct.InputError, match="needs a label for each example"):
        ct.classification_log(ct.restaurants())
