"""Every row goes to exactly one client, and the same seed deals the same rows."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cantons.data import dirichlet, iid, natural, shards
from cantons.errors import InputError

PARTITIONS = {
    "iid": lambda labels, clients, seed: iid(len(labels), clients, seed=seed),
    "dirichlet": lambda labels, clients, seed: dirichlet(labels, clients, alpha=1.0, seed=seed),
    "shards": lambda labels, clients, seed: shards(labels, clients, seed=seed),
}
LABELS = np.random.default_rng(0).integers(0, 10, 5000)

cases = st.tuples(st.lists(st.integers(-2, 4), min_size=20, max_size=80).map(np.array), st.integers(1, 5),
                  st.integers(0, 1000))


def label_counts(numbers):
    """How many rows of each label each client has."""
    return np.stack([np.bincount(LABELS[numbers == client], minlength=10) for client in np.unique(numbers)])


@pytest.mark.parametrize("partition", PARTITIONS.values(), ids=PARTITIONS)
@settings(max_examples=30, deadline=None, derandomize=True)
@given(case=cases)
def test_every_row_has_one_client_and_every_client_a_row(partition, case):
    labels, clients, seed = case
    numbers = partition(labels, clients, seed)
    assert numbers.shape == labels.shape
    assert set(numbers) == set(range(clients))
    np.testing.assert_array_equal(numbers, partition(labels, clients, seed))


@pytest.mark.parametrize("partition", PARTITIONS.values(), ids=PARTITIONS)
def test_another_seed_deals_otherwise(partition):
    assert (partition(LABELS, 10, 0) != partition(LABELS, 10, 1)).any()


@given(st.integers(1, 200), st.integers(1, 20))
@settings(max_examples=50, deadline=None, derandomize=True)
def test_iid_clients_differ_by_at_most_one_row(rows, clients):
    sizes = np.bincount(iid(max(rows, clients), clients, seed=0))
    assert sizes.max() - sizes.min() <= 1


def test_small_alpha_skews_the_labels_and_large_alpha_does_not():
    def largest_share(alpha):
        counts = label_counts(dirichlet(LABELS, 10, alpha=alpha, seed=0))
        return (counts.max(axis=1) / counts.sum(axis=1)).mean()

    assert largest_share(0.1) > 0.4 > 0.15 > largest_share(1000.0)


def test_dirichlet_keeps_the_smallest_client_large_enough():
    assert np.bincount(dirichlet(LABELS, 20, alpha=0.3, min_size=60, seed=0)).min() >= 60


def test_a_shard_spans_at_most_two_labels():
    counts = label_counts(shards(LABELS, 50, per_client=2, seed=0))
    assert (np.count_nonzero(counts, axis=1) <= 4).all()  # 100 shards, ten to a label
    np.testing.assert_array_equal(counts.sum(axis=1), 100)


@given(st.lists(st.integers(-5, 5) | st.just(99), min_size=1))
@settings(max_examples=50, deadline=None, derandomize=True)
def test_natural_numbers_name_the_ids(ids):
    numbers, names = natural(np.array(ids))
    assert [names[number] for number in numbers] == list(map(str, ids))
    assert len(set(ids)) == len(names)


@pytest.mark.parametrize("bad, sentence", [
    (lambda: iid(3, 4), "4 clients with at least 1 of 3 rows each are too many; give at most 3 clients"),
    (lambda: iid(3, 0), "clients is 0; give 1 or more"),
    (lambda: iid(3, 2, seed=-1), "seed is -1; give 0 or more"),
    (lambda: shards(LABELS[:7], 4), "4 clients with at least 2 of 7 rows each are too many; give at most 3"),
    (lambda: shards(LABELS, 4, per_client=0), "per_client is 0"),
    (lambda: dirichlet(LABELS[:50], 6, alpha=1.0, min_size=10), "give at most 5 clients"),
    (lambda: dirichlet(LABELS, 5, alpha=0.0), "alpha is 0.0; give a number above 0"),
    (lambda: dirichlet(LABELS, 5, alpha=1.0, min_size=0), "min_size is 0"),
    (lambda: dirichlet(LABELS, 100, alpha=0.01), "1000 draws with alpha 0.01; raise alpha, or lower clients"),
    (lambda: natural([0.5, 1.5]), "client ids are of type float64"),
    (lambda: natural([[1, 2]]), r"shape \(1, 2\); give one integer or string per row"),
])
def test_what_cannot_be_dealt_is_refused(bad, sentence):
    with pytest.raises(InputError, match=sentence):
        bad()
