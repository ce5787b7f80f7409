"""Environments: means are what they are said to be, and rewards are the classes'."""

import dataclasses

import numpy as np
import pytest

import cantons as ct
from cantons.data import DATA, contexts_of
from cantons.data.make.classification_bandit import blocks
from cantons.study.read import check_study

OPTIONS = dict(actions=3, features=5, contexts=40, test_contexts=10)


def test_means_are_a_global_and_a_local_linear_part_exactly():
    data = ct.synthetic_bandit(4, noise=0.0, share=0.75, **OPTIONS)
    found = contexts_of(data)
    # One model of the first half of the features for all clients, and one of the second half for each.
    columns, targets = [], []
    for number, client in enumerate(found.values()):
        rows = client.inputs.reshape(-1, 5).astype(float)
        own = np.zeros((len(rows), 4, 3))
        own[:, number] = rows[:, 2:]
        columns.append(np.concatenate([rows[:, :2], own.reshape(len(rows), -1)], axis=1))
        targets.append(client.means.ravel() - 0.5)
    columns, targets = np.concatenate(columns), np.concatenate(targets)
    weights, *_ = np.linalg.lstsq(columns, targets)
    np.testing.assert_allclose(columns @ weights, targets, atol=1e-6)
    assert np.linalg.norm(weights[:2]) == pytest.approx(0.375, abs=1e-5)
    np.testing.assert_allclose(np.linalg.norm(weights[2:].reshape(4, 3), axis=1), 0.125, atol=1e-5)
    np.testing.assert_array_equal(data.train.targets["reward"], data.train.targets["mean"])


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_means_stay_between_0_and_1(share):
    means = ct.synthetic_bandit(5, share=share, **OPTIONS).train.targets["mean"]
    assert means.min() >= 0 and means.max() <= 1 and means.std() > 0.05


def test_rewards_are_the_means_and_noise():
    targets = ct.synthetic_bandit(20, noise=0.3, **(OPTIONS | {"contexts": 500})).train.targets
    noise = targets["reward"] - targets["mean"]
    assert abs(noise.mean()) < 5 * 0.3 / np.sqrt(noise.size) and noise.std() == pytest.approx(0.3, rel=0.03)


def test_rewards_may_be_all_or_nothing():
    targets = ct.synthetic_bandit(20, noise="bernoulli", **(OPTIONS | {"contexts": 500})).train.targets
    assert set(np.unique(targets["reward"])) == {0.0, 1.0}
    high = targets["mean"] > 0.6
    assert targets["reward"][high].mean() == pytest.approx(targets["mean"][high].mean(), abs=0.03)


def test_a_client_is_the_same_however_many_there_are():
    few, many = (contexts_of(ct.synthetic_bandit(clients, **OPTIONS)) for clients in (2, 5))
    np.testing.assert_array_equal(few["1"].inputs, many["1"].inputs)
    np.testing.assert_array_equal(few["1"].rewards, many["1"].rewards)


def test_every_client_meets_and_is_judged_by_contexts_of_its_own():
    data = ct.synthetic_bandit(4, **OPTIONS)
    assert data.train.sizes.tolist() == [40] * 4 and data.test.sizes.tolist() == [10] * 4
    assert data.input_shape == (3, 5)
    assert len(np.unique(np.concatenate([data.train.inputs, data.test.inputs]).reshape(200, -1), axis=0)) == 200


def test_blocks_hold_the_inputs_and_a_one_in_the_action_s_own_place():
    wide = blocks(np.arange(6.0).reshape(2, 3), 4)
    assert wide.shape == (2, 4, 16)
    np.testing.assert_array_equal(wide[1, 2].reshape(4, 4), [[0] * 4, [0] * 4, [3, 4, 5, 1], [0] * 4])
    assert blocks(np.zeros((0, 8, 8)), 4).shape == (0, 4, 260)


def test_the_right_class_brings_one(labels):
    data = ct.classification_bandit(labels)
    np.testing.assert_array_equal(data.train.targets.argmax(axis=1), labels.train.targets)
    np.testing.assert_array_equal(data.train.targets.sum(axis=1), 1)
    np.testing.assert_array_equal(data.test.targets.argmax(axis=1), labels.test.targets)
    np.testing.assert_array_equal(data.new.train.targets.argmax(axis=1), labels.new.train.targets)
    assert data.classes is None and data.spec is None and data.input_shape == (3, 15)


def test_with_swaps_clients_disagree_about_some_classes_and_each_with_itself_never(labels):
    data = ct.classification_bandit(labels, swaps=1)
    tastes = []
    for ragged, plain in ((data.train, labels.train), (data.test, labels.test)):
        owner = np.repeat(np.arange(7), ragged.sizes)
        found = np.full((7, 3), -1)
        for client, before, after in zip(owner, plain.targets, ragged.targets.argmax(axis=1), strict=True):
            assert found[client, before] in (-1, after)
            found[client, before] = after
        tastes.append(found)
    both = np.where(tastes[0] >= 0, tastes[0], tastes[1])
    assert ((tastes[0] == tastes[1]) | (tastes[0] < 0) | (tastes[1] < 0)).all()
    assert len(np.unique(both, axis=0)) > 1
    assert "every client swaps 1 pairs of classes" in data.describe()


def test_an_environment_is_made_again_from_its_record():
    for data in (ct.synthetic_bandit(3, **OPTIONS),
                 ct.classification_bandit(ct.digits(5, partition="iid"), swaps=2, seed=3)):
        options = dict(data.spec)
        again = DATA[options.pop("name")](**options)
        np.testing.assert_array_equal(again.train.inputs, data.train.inputs)
        assert again.spec == data.spec
        for left, right in zip(contexts_of(again).values(), contexts_of(data).values(), strict=True):
            np.testing.assert_array_equal(left.rewards, right.rewards)


def test_a_study_file_can_ask_for_them(tmp_path):
    study = check_study({
        "rounds": 3, "data": {"name": "classification_bandit", "source": {"name": "digits", "clients": 5,
                                                                          "partition": "iid"}},
        "problem": {"name": "bandit"}, "algorithm": {"name": "fedres_bandit", "explore": "igw"},
        "clock": {"name": "online"}}, "study")
    run = study.run(out=tmp_path / "run")
    assert 0 <= run.final["online.personal.reward.mean"] <= 1
    assert ct.load(tmp_path / "run").outputs(study.parts()[1].test.inputs[:1]).shape == (1, 10)


@pytest.mark.parametrize("make, words", [
    (lambda: ct.synthetic_bandit(share=1.5), "share is 1.5"),
    (lambda: ct.synthetic_bandit(noise="loud"), "noise is 'loud'"),
    (lambda: ct.synthetic_bandit(features=1), "features is 1"),
    (lambda: ct.classification_bandit({"name": "digit"}), "Did you mean 'digits'"),
    (lambda: ct.classification_bandit(ct.digits(5, partition="iid"), swaps=6), "10 classes make 5 pairs"),
    (lambda: ct.classification_bandit(dataclasses.replace(ct.digits(5), classes=None)), "needs labels"),
])
def test_what_cannot_be_made_is_refused(make, words):
    with pytest.raises(ct.InputError, match=words):
        make()
