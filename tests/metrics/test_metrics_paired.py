"""Paired differences, held against closed forms, enumeration and SciPy."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from cantons.metrics import LEVEL, adjust_for_several, fewest_pairs, paired

numbers = st.integers(-6, 6)  # of which many are tied, and some are 0


def enumerated(values):
    """The signed-rank test by its definition: all signs are as likely, whatever the ranks, tied or not."""
    there = np.array([value for value in values if value])
    if len(there) < 2:
        return 1.0
    ranks = stats.rankdata(np.abs(there))
    sums = np.array([sum(rank for rank, sign in zip(ranks, signs, strict=True) if sign)
                     for signs in itertools.product((0, 1), repeat=len(there))])
    seen = ranks[there > 0].sum()
    return min(1.0, 2 * min((sums <= seen + 1e-9).mean(), (sums >= seen - 1e-9).mean()))


@settings(max_examples=25, deadline=None)
@given(st.lists(numbers, min_size=1, max_size=8))
def test_the_test_is_its_definition_with_ties_and_zeros(values):
    assert paired(np.array(values, float)).p == pytest.approx(enumerated(values))


@pytest.mark.parametrize("size", [3, 12, 13, 40])
def test_without_ties_the_test_is_the_exact_one_of_scipy(size):
    values = np.random.default_rng(size).normal(0.3, 1, size)
    assert paired(values).p == pytest.approx(stats.wilcoxon(values, method="exact").pvalue)


def test_the_interval_is_that_of_a_mean_where_there_are_many_pairs():
    values = np.random.default_rng(0).normal(0.2, 1, 2000)
    found, error = paired(values), values.std(ddof=1) / np.sqrt(len(values))
    assert (found.low, found.high) == (pytest.approx(values.mean() - 1.96 * error, abs=0.1 * error),
                                       pytest.approx(values.mean() + 1.96 * error, abs=0.1 * error))


def test_the_interval_is_the_percentile_interval_of_scipy():
    values = np.random.default_rng(5).exponential(1.0, 40)
    theirs = stats.bootstrap((values,), np.mean, n_resamples=20_000, method="percentile", rng=1).confidence_interval
    found = paired(values)
    assert (found.low, found.high) == (pytest.approx(theirs.low, abs=0.02), pytest.approx(theirs.high, abs=0.02))


def test_an_interval_of_95_percent_holds_the_truth_about_that_often():
    random = np.random.default_rng(1)
    found = [paired(random.normal(1.0, 2.0, 30)) for _ in range(300)]
    assert 0.90 < np.mean([each.low < 1.0 < each.high for each in found]) < 0.98


@settings(max_examples=25, deadline=None)
@given(st.lists(numbers, min_size=1, max_size=10), st.randoms())
def test_the_order_of_pairs_does_not_matter_and_signs_turn_with_the_roles(values, dice):
    mixed = list(values)
    dice.shuffle(mixed)
    found, other = paired(np.array(values, float)), paired(-np.array(values, float))
    assert paired(np.array(mixed, float)) == found
    assert found.low <= found.mean + 1e-12 and found.mean <= found.high + 1e-12
    assert (other.mean, other.p, other.signs) == (-found.mean, pytest.approx(found.p), found.signs[::-1])
    assert sum(found.signs) == found.number == len(values)


def test_no_difference_is_exactly_none_and_what_is_below_the_unit_is_none():
    for values in (np.zeros(20), np.full(20, 1e-9)):
        found = paired(values, unit=1e-6)
        assert (found.mean, found.low, found.high, found.p, found.signs) == (0, 0, 0, 1, (0, 20, 0))


@pytest.mark.parametrize("size", range(2, 10))
def test_fewer_pairs_than_the_fewest_can_never_be_significant(size):
    """The clearest differences there are: all on one side."""
    found = paired(np.arange(1.0, size + 1))
    assert (found.p < LEVEL) == found.tested == (size >= fewest_pairs())
    assert (3 * found.p < LEVEL) == (size >= fewest_pairs(tests=3))
    if not found.tested:
        assert (found.low, found.high) == (1, size), "no interval is made of so few"


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=5))
def test_holms_correction_is_the_closure_of_bonferronis(p_values):
    """A method is told apart if every set of methods that has it is, by the smallest p of the set times its size."""
    places = range(len(p_values))
    sets = [each for size in range(1, len(p_values) + 1) for each in itertools.combinations(places, size)]
    wanted = [max(min(1.0, len(each) * min(p_values[one] for one in each)) for each in sets if place in each)
              for place in places]
    assert adjust_for_several(p_values) == pytest.approx(wanted)


def test_what_cannot_be_summarised_is_refused():
    for values in ([], [np.nan, 1.0]):
        with pytest.raises(ValueError, match="finite"):
            paired(np.array(values))
