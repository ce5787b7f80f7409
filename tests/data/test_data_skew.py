"""Skew, on federations small enough to count by hand."""

import numpy as np
import pytest

from cantons.data import digits, federation, label_counts, label_skew, size_quantiles
from cantons.errors import InputError


def made(labels, owners, **options):
    return federation(np.zeros((len(labels), 1)), np.array(labels), list(owners), test=0, **{"classes": 3} | options)


def test_counts_have_a_row_per_client_and_a_column_per_class():
    counts = label_counts(made([0, 0, 1, 1], "aaab"))
    np.testing.assert_array_equal(counts, [[2, 1, 0], [0, 1, 0]])


def test_counts_are_of_the_training_rows_alone():
    data = digits(10, partition="iid", test=0.5)
    np.testing.assert_array_equal(label_counts(data).sum(axis=1), data.train.sizes)


def test_several_labels_per_example_all_count():
    data = federation(np.zeros((3, 2)), np.array([[0, 1], [1, 1], [2, 0]]), list("aba"), test=0, classes=3)
    np.testing.assert_array_equal(label_counts(data), [[2, 1, 1], [0, 2, 0]])


def test_skew_is_0_for_equal_clients_and_largest_for_disjoint_ones():
    assert label_skew(made([0, 1, 2, 0, 1, 2], "aaabbb")) == 0
    np.testing.assert_allclose(label_skew(made([0, 1, 2], "abc")), 2 / 3)
    # A client's labels are half 0s and half 1s; everybody's are 3/4 and 1/4; and the other's only 0s.
    np.testing.assert_allclose(label_skew(made([0, 1, 0, 0], "aabb")), 1 / 4)


def test_smaller_alpha_means_more_skew():
    skews = [label_skew(digits(20, partition="dirichlet", alpha=alpha)) for alpha in (0.1, 1, 100)]
    assert skews[0] > skews[1] > skews[2]


def test_sizes_have_quantiles():
    data = made([0, 1, 2, 0, 1, 2, 0], "aaaabbc")
    np.testing.assert_array_equal(size_quantiles(data), [1, 1.5, 2, 3, 4])
    np.testing.assert_array_equal(size_quantiles(data, [0.5]), [2])


def test_numbers_have_no_labels_to_count():
    with pytest.raises(InputError, match="the targets of 'data' are numbers, not labels"):
        label_counts(made([0.5, 1.5], "ab", classes=None))
