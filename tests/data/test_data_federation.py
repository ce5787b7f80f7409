"""A federation says what it is."""

import jax
import numpy as np
import pytest

from cantons.data import Federation, Population, federation, from_sizes, pooled
from cantons.errors import InputError


def small(**options):
    return federation(np.zeros((12, 4, 3)), np.arange(12) % 2, list("aaaabbbbcccc"), test=0.25, **options)


def ragged(sizes):
    return from_sizes(np.zeros((sum(sizes), 2)), np.zeros(sum(sizes)), np.array(sizes))


def test_the_train_and_test_sets_are_those_of_the_clients():
    data = small()
    assert data.train is data.clients.train and data.test is data.clients.test
    assert data.population == 3
    assert data.input_shape == (4, 3)


def test_several_inputs_have_no_single_shape():
    data = federation({"a": np.zeros((2, 1)), "b": np.zeros(2)}, np.zeros(2), [0, 1], name="pairs")
    with pytest.raises(InputError, match="inputs of 'pairs' are several arrays"):
        _ = data.input_shape


def test_describe_counts_everything():
    text = small(classes=2, new=1, central=(np.zeros((5, 1)), np.zeros(5)), name="abc").describe()
    assert text.splitlines() == [
        "abc: 2 clients, 6 training and 2 test examples",
        "training examples per client: 3 to 3, median 3",
        "targets: 2 classes",
        "test set: 25% of each client's own examples",
        "new clients: 1 client, 3 training and 1 test examples",
        "datacenter: 5 examples",
    ]


def test_pooling_gives_all_rows_to_one_client_without_a_copy():
    data = small()
    pool = pooled(data.train)
    assert pool.inputs is data.train.inputs and pool.targets is data.train.targets
    assert pool.sizes.tolist() == [9] and pool.starts.tolist() == [0] and pool.longest == 9
    np.testing.assert_array_equal(jax.tree.map(jax.numpy.asarray, pool).client(0).full().targets,
                                  data.train.targets)


def test_a_client_may_lack_test_rows_but_not_training_rows():
    assert Federation(Population(ragged([1, 2]), ragged([0, 1]), ("a", "b"))).population == 2
    with pytest.raises(InputError, match="no training examples for 'b'"):
        Population(ragged([1, 0]), ragged([0, 1]), ("a", "b"))


def test_train_test_and_names_list_the_same_clients():
    with pytest.raises(InputError, match=r"\(2, 1, 2\) clients; list the same"):
        Population(ragged([1, 2]), ragged([1]), ("a", "b"))
