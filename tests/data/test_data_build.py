"""No row is lost or shared on the way from a table to clients, and bad tables are refused in a sentence."""

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cantons.data import federation, from_clients
from cantons.errors import InputError


def rows(count):
    """Inputs whose first column, and targets, are the number of the row."""
    numbers = np.arange(count)
    return np.stack([numbers, -numbers], axis=1).astype(np.float32), numbers.astype(np.float64)


def owned(ragged, client):
    start = ragged.starts[client]
    return ragged.targets[start : start + ragged.sizes[client]].astype(int).tolist()


def all_populations(data):
    return [data.clients] + ([data.new] if data.new else [])


tables = st.lists(st.integers(0, 6), min_size=2, max_size=60).filter(lambda ids: len(set(ids)) > 1)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(ids=tables, test=st.floats(0, 0.99), new=st.sampled_from([0, 1, 0.3]), seed=st.integers(0, 9))
def test_every_row_is_in_one_set_of_its_own_client(ids, test, new, seed):
    data = federation(*rows(len(ids)), ids, test=test, new=new, seed=seed)
    met = []
    for population in all_populations(data):
        for client, name in enumerate(population.names):
            train, held = owned(population.train, client), owned(population.test, client)
            assert train and train == sorted(train) and held == sorted(held)
            assert all(str(ids[row]) == name for row in train + held)
            assert len(held) == min(round(test * len(train + held)), len(train + held) - 1)
            met += train + held
        for ragged in (population.train, population.test):
            np.testing.assert_array_equal(ragged.inputs[:, 0], ragged.targets)
    assert sorted(met) == list(range(len(ids)))


def test_a_split_depends_on_the_seed_and_not_on_other_clients():
    alone = federation(*rows(20), ["ann"] * 20, test=0.5)
    x, y = rows(50)
    among = federation(x, y, ["ann"] * 20 + ["ada"] * 10 + ["bob"] * 20, test=0.5)
    assert owned(alone.test, 0) == owned(among.test, among.clients.names.index("ann"))
    other_seed = federation(*rows(20), ["ann"] * 20, test=0.5, seed=1)
    assert owned(alone.test, 0) != owned(other_seed.test, 0)


def test_a_mask_chooses_the_test_rows():
    marked = np.array([True, False, False, True])
    data = federation(*rows(4), [0, 0, 1, 1], test=marked)
    np.testing.assert_array_equal(data.test.targets, [0, 3])
    np.testing.assert_array_equal(data.train.targets, [1, 2])
    assert data.test_set == "the rows marked as test"


@pytest.mark.parametrize("new, count", [(0, 0), (0.3, 3), (0.01, 1), (4, 4), (4.0, 4)])
def test_new_clients_are_a_fraction_or_a_number(new, count):
    data = federation(*rows(30), np.repeat(np.arange(10), 3), new=new)
    assert data.population == 10 - count
    assert (data.new.train.population if data.new else 0) == count


def test_small_clients_are_left_out_on_request():
    data = federation(*rows(6), list("aabbbc"), test=0, min_examples=2)
    assert data.clients.names == ("a", "b")
    assert data.notes == ("left out: 1 client with fewer than 2 examples",)


def test_clients_one_by_one_are_the_same_as_rows_with_ids():
    x, y = rows(9)
    together = federation(x, y, ["a"] * 4 + ["b"] * 5, seed=3)
    apart = from_clients({"a": (x[:4], y[:4]), "b": (x[4:], y[4:])}, seed=3)
    for one, other in zip(jax.tree.leaves(together.train), jax.tree.leaves(apart.train), strict=True):
        np.testing.assert_array_equal(one, other)
    assert together.clients.names == apart.clients.names


def test_inputs_may_be_trees():
    inputs = {"user": np.arange(6), "text": np.zeros((6, 5, 2))}
    data = federation(inputs, np.arange(6), [0, 0, 0, 1, 1, 1], test=1 / 3)
    assert data.train.inputs["text"].shape == (4, 5, 2)
    np.testing.assert_array_equal(data.train.inputs["user"], data.train.targets)


def test_labels_become_int32_and_numbers_stay_what_they_are():
    labels = np.array([0, 1, 2, 1], np.uint8)
    assert federation(np.zeros((4, 1)), labels, [0, 0, 1, 1], classes=3).train.targets.dtype == np.int32
    assert federation(np.zeros((4, 1)), labels == 1, [0, 0, 1, 1], classes=2).train.targets.dtype == np.int32
    assert federation(np.zeros((4, 1)), labels, [0, 0, 1, 1]).train.targets.dtype == np.uint8


def test_the_datacenter_has_rows_of_its_own():
    data = federation(*rows(4), [0, 0, 1, 1], central=rows(7))
    assert data.central.sizes.tolist() == [7]


X, Y, IDS = np.zeros((4, 2)), np.zeros(4), list("aabb")
NAN, INFINITE = X.copy(), Y.copy()
NAN[3, 1], INFINITE[2] = np.nan, np.inf
PAIR = (X, Y)


@pytest.mark.parametrize("bad, sentence", [
    (lambda: federation(NAN, Y, IDS), r"inputs hold nan in row 1 \(from 0\) of client 'b'; remove such rows"),
    (lambda: federation(X, INFINITE, IDS), r"targets hold inf in row 0 \(from 0\) of client 'b'"),
    (lambda: federation(X, Y, IDS, central=(NAN, Y)), r"inputs of central hold nan in row 3 \(from 0\);"),
    (lambda: federation(X, Y, IDS, central=(X[:0], Y[:0])), "central has no rows"),
    (lambda: federation(X, Y[:3], IDS), "inputs and targets have 4 and 3 rows; give one row per example"),
    (lambda: federation(X, Y, IDS[:3]), "there are 3 client ids for 4 rows; give one id per row"),
    (lambda: federation(X[:0], Y[:0], []), "there are no rows, so there are no clients"),
    (lambda: federation((), (), []), "inputs and targets have no rows"),
    (lambda: federation([[0.0], [1.0]], Y[:2], [0, 1]), "inputs hold a single value where an array"),
    (lambda: federation(X.astype(str), Y, IDS), "inputs are of type <U32; turn them into numbers"),
    (lambda: federation(X, Y, IDS, classes=2), "targets are of type float64, but labels of 2 classes"),
    (lambda: federation(X, np.array([0, 1, 2, 5]), IDS, classes=3),
     r"targets hold label 5 in row 1 \(from 0\) of client 'b'; labels of 3 classes are 0 to 2"),
    (lambda: federation(X, np.array([0, 1, -1, 0]), IDS, classes=3), "targets hold label -1 in row 0"),
    (lambda: federation(X, np.zeros(4, int), IDS, classes=1), "classes is 1; give 2 or more"),
    (lambda: federation(X, Y, IDS, test=1.0), "test is 1.0; give a fraction from 0 to below 1"),
    (lambda: federation(X, Y, IDS, test=-0.1), "test is -0.1"),
    (lambda: federation(X, Y, IDS, test=np.zeros(4)), "test is an array of float64 and shape"),
    (lambda: federation(X, Y, IDS, test=np.zeros(3, bool)), "one boolean for each of the 4 rows"),
    (lambda: federation(X, Y, IDS, test=np.array([1, 1, 0, 0], bool)), "no training examples for 'a'; leave"),
    (lambda: federation(X, Y, IDS, new=-0.5), "new is -0.5 with 2 clients; give a fraction below 1"),
    (lambda: federation(X, Y, IDS, new=2), "new is 2 with 2 clients"),
    (lambda: federation(X, Y, IDS, new=1.5), "new is 1.5 with 2 clients"),
    (lambda: federation(X, Y, IDS, new=0.9), "leave at least one to train"),
    (lambda: federation(X, Y, IDS, min_examples=3), "min_examples is 3 and no client has more than 2"),
    (lambda: federation(X, Y, IDS, seed=-1), "seed is -1"),
    (lambda: from_clients({}), "there are no clients"),
    (lambda: from_clients({"a": PAIR, "b": (X[:0], Y[:0])}), "no examples for 'b'; leave such clients out"),
    (lambda: from_clients({f"c{i}": (X[:0], Y[:0]) for i in range(8)}), "'c3', 'c4' and 3 more; leave"),
    (lambda: from_clients({"a": PAIR, "b": (X, Y[:3])}), "targets of client 'b' have 4 and 3 rows"),
    (lambda: from_clients({"a": PAIR, "b": (X[:, :1], Y)}),
     r"inputs of client 'b' have shape \(1,\) per example and those of client 'a' \(2,\); all"),
    (lambda: from_clients({"a": PAIR, "b": (X, X)}), "targets of client 'b' have shape"),
    (lambda: from_clients({"a": PAIR, "b": ({"x": X}, Y)}), r"client 'b' have shape \{'x': '\(2,\)'\} per"),
    (lambda: from_clients({"a": PAIR, "b": (NAN, Y)}), r"inputs hold nan in row 3 \(from 0\) of client 'b'"),
])
def test_bad_tables_are_refused_in_a_sentence(bad, sentence):
    with pytest.raises(InputError, match=sentence) as error:
        bad()
    assert str(error.value).endswith(".") and "\n" not in str(error.value)
