"""Summaries of one metric over clients."""

import math

import numpy as np
import pytest

from cantons.metrics import statistics

EXAMPLES = np.ones(20, int)


@pytest.mark.parametrize("larger_is_better, worst", [(True, 0.5), (False, 18.5)])
def test_the_worst_tenth_is_at_the_end_that_is_bad(larger_is_better, worst):
    values = np.random.default_rng(0).permutation(20)
    assert statistics(values, EXAMPLES, larger_is_better)["worst10"] == worst
    few = statistics(values[:3], EXAMPLES[:3], larger_is_better)
    assert few["worst10"] == (min if larger_is_better else max)(values[:3])


@pytest.mark.parametrize("larger_is_better", [True, False])
def test_a_summary_of_zeros_has_no_sign(larger_is_better):
    found = statistics(np.zeros(20, int), EXAMPLES, larger_is_better)
    assert [math.copysign(1, value) for value in found.values()] == [1, 1, 1]
