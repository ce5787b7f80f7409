"""The properties section 6.1 of Federated Residual Learning asks of its tasks."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cantons.data import draw_tasks, feature_halves, task_protocol
from cantons.errors import InputError

LABELS = np.random.default_rng(0).integers(0, 10, 3000)
INPUTS = np.arange(3000.0)[:, None]


def draw(labels=LABELS, clients=20, **options):
    defaults = {"holdout": 0.3, "most": 30, "least": 1, "test_most": None, "seed": 0}
    return draw_tasks(labels, clients, **(defaults | options))


@settings(max_examples=40, deadline=None, derandomize=True)
@given(kinds=st.integers(4, 15), clients=st.integers(1, 40), most=st.integers(1, 30), seed=st.integers(0, 99))
def test_tasks_are_balanced_disjoint_and_have_a_single_other_class(kinds, clients, most, seed):
    labels = np.random.default_rng(seed).integers(0, kinds, 3000)
    tasks = draw(labels, clients, most=most, seed=seed)
    assert tasks.merged.sum() == int(0.3 * kinds + 1e-9)
    assert not tasks.merged[tasks.opposed].any()
    assert len(np.unique(tasks.train)) == tasks.train.size  # no row twice, in or between clients
    each = tasks.train.shape[1] // 2
    for rows, held, other in zip(tasks.train, tasks.test, tasks.opposed, strict=True):
        for own in (rows, held):
            in_common = tasks.merged[labels[own]]
            assert 2 * in_common.sum() == len(own)
            assert set(labels[own][~in_common]) <= {other}
            assert len(np.unique(own)) == len(own)
        assert len(rows) == 2 * each
        assert not np.isin(held, tasks.train).any()


def test_n_is_the_most_or_a_fair_share_of_the_common_class():
    plenty, scarce = draw(clients=5, holdout=0.01), draw(clients=50, holdout=0.01)
    assert plenty.train.shape == (5, 60)
    # One row in a hundred is held out, so nearly all of A is dealt.
    each = scarce.train.shape[1] // 2
    assert each < 30 and 0.9 < each * 50 / scarce.merged[LABELS].sum() < 1


def test_the_same_seed_draws_the_same_tasks_and_another_one_others():
    one, same, other = draw(), draw(), draw(seed=1)
    np.testing.assert_array_equal(one.train, same.train)
    assert one.train.shape != other.train.shape or (one.train != other.train).any()


def test_training_rows_come_in_random_order():
    tasks = draw(clients=5)
    runs = np.diff(tasks.merged[LABELS[tasks.train]].astype(int), axis=1) != 0
    assert (runs.sum(axis=1) > 15).all()  # sorted by class there would be one change, at random 30


def test_few_test_rows_on_request():
    assert {len(rows) for rows in draw(test_most=4).test} == {8}


def test_the_common_class_is_drawn_again_until_everybody_is_served():
    rare = np.repeat(np.arange(10), [2000, *[20] * 9])  # an A without class 0 cannot serve 40 clients
    tasks = [draw(rare, 40, most=2, least=2, seed=seed) for seed in range(10)]
    assert all(one.merged[0] and one.train.shape == (40, 4) for one in tasks)
    assert max(one.draws for one in tasks) > 1


def test_clients_are_named_by_their_task_and_the_labels_are_binary():
    names = np.array(list("abcdefghij"))
    data = task_protocol(INPUTS, names[LABELS], 20, seed=3)
    tasks = draw(seed=3)
    assert data.classes == 2 and set(data.train.targets) == {0, 1} and data.train.targets.dtype == np.int32
    assert data.clients.names[4] == f"4 (A vs {names[tasks.opposed[4]]})"
    other = names[tasks.opposed[0]]
    assert f"“0 (A vs {other})” is client 0, who tells A from {other}" in data.notes[0]
    assert data.notes[1].startswith(f"A, the common class, merges {', '.join(names[tasks.merged])} (draw")
    rows = data.train.inputs[:, 0].astype(int)
    np.testing.assert_array_equal(rows, tasks.train.ravel())
    np.testing.assert_array_equal(data.train.targets, tasks.merged[LABELS[rows]])


def test_labels_may_be_signs():
    classes, signs = (task_protocol(INPUTS, LABELS, 20, labels_as=kind) for kind in ("class", "sign"))
    assert signs.classes is None and signs.train.targets.dtype == np.float32
    np.testing.assert_array_equal(signs.test.targets, 2 * classes.test.targets - 1)


@given(st.integers(2, 60), st.integers(0, 5))
@settings(max_examples=30, deadline=None, derandomize=True)
def test_halves_divide_the_features(width, seed):
    shared, local = feature_halves(width, seed=seed)
    assert len(shared) == width // 2
    np.testing.assert_array_equal(np.sort(np.concatenate([shared, local])), np.arange(width))


@pytest.mark.parametrize("bad, sentence", [
    (lambda: draw(clients=0), "clients is 0"),
    (lambda: draw(holdout=1.0), "holdout is 1.0; give a number between 0 and 1"),
    (lambda: draw(least=0), "least is 0"),
    (lambda: draw(most=3, least=4), "most is 3; give 4 or more"),
    (lambda: draw(LABELS % 3), "merges 30% of the classes, and there are only 3; it needs at least 4"),
    (lambda: task_protocol(INPUTS, LABELS, 3, labels_as="sing"), "labels_as is 'sing'; give one of 'class'"),
    (lambda: task_protocol(INPUTS[:5], LABELS, 3), "inputs and targets have 5 and 3000 rows"),
    (lambda: task_protocol(np.full((3000, 1), np.nan), LABELS, 3), r"inputs hold nan in row \d+ \(from 0\)"),
    (lambda: feature_halves(1), "width is 1; give 2 or more"),
])
def test_impossible_tasks_are_refused(bad, sentence):
    with pytest.raises(InputError, match=sentence):
        bad()


def test_too_many_clients_are_told_how_many_can_be_served():
    with pytest.raises(InputError, match=r"tasks of 5000 clients: .* at most \d+ could") as error:
        draw(clients=5000)
    possible = int(str(error.value).split("at most ")[1].split()[0])
    assert len(draw(clients=possible).train) == possible
    with pytest.raises(InputError, match=f"at most {possible} could"):
        draw(clients=possible + 1)
