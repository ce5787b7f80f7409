"""The coordinate-wise median: half of the clients may lie about a coordinate before it leaves the range of the others.

Yin, Chen, Kannan and Bartlett, "Byzantine-Robust Distributed Learning: Towards Optimal Statistical Rates", ICML 2018,
Definition 1.
"""

from __future__ import annotations

from cantons.aggregate.robust import Combined, Defence, robust
from cantons.aggregate.row_algebra import sort_columns
from cantons.options import Flat
from cantons.protocol import Array, PyTree, StackRule
from cantons.recipe import rule


@rule
def median(*, defence: Flat[Defence]) -> StackRule:
    """The median of every coordinate over the clients whose uploads arrived; weights are ignored.

    It must see every upload, so an engine that only sums cannot do it. It costs no bytes beyond the uploads.
    """
    return robust("median", lambda state, rows, weight: Combined(middle(rows, weight > 0)), defence)


def middle(rows: PyTree, there: Array) -> PyTree:
    """The median of every coordinate over the rows that are there."""
    last = there.sum() - 1
    return sort_columns(rows, there, lambda values: (values[last // 2] + values[(last + 1) // 2]) / 2)
