"""Rows that are scaled already are refused, and raw rows are not, whatever they look like."""

import itertools

import numpy as np
import pandas
import pytest
from hypothesis import given
from hypothesis import strategies as st

import cantons as ct
from cantons.study.own_rows import refuse_own_rows

STARS = list(itertools.product([2, 3, 4, 5], [0, 1]))


def scaled_to_unit(levels):
    """A federation of these raw rows, and what its scaling makes of others."""
    frame = pandas.DataFrame(np.array(levels, float)).add_prefix("column").assign(target=np.arange(len(levels)) % 2)
    data = ct.from_clients({"odd": frame[1::2], "even": frame[::2]}, targets="target", scale="unit", test=0)
    return data, lambda rows: data.encoding.scale(np.asarray(rows, float))


@given(st.data())
def test_a_raw_row_on_a_small_grid_of_levels_is_never_refused(draw):
    """Whichever levels were trained on, and whether or not the row was: it may look like the scaling of another one."""
    columns = []
    for _ in range(draw.draw(st.integers(1, 3))):
        parts = draw.draw(st.integers(1, 7))  # levels are such parts of 1
        levels = draw.draw(st.sets(st.integers(0, 12), min_size=2, max_size=5))
        columns.append((parts, sorted(levels | ({1} if parts > 1 else set()))))
    trained = itertools.product(*(np.array(levels) / parts for parts, levels in columns))
    data, scale = scaled_to_unit(list(trained))
    rows = np.array([[draw.draw(st.integers(0, 13)) / parts for parts, _ in columns] for _ in range(3)])
    for some in (rows, rows[:1]):
        refuse_own_rows(data, some, scale(some))


@given(st.data())
def test_scaled_rows_of_whole_levels_are_refused_where_two_of_their_numbers_are_fractions(draw):
    width = draw.draw(st.integers(1, 3))
    levels = list(itertools.product(*([2, 3, 5, 7 + place] for place in range(width))))
    data, scale = scaled_to_unit(levels)
    inputs = np.asarray(data.train.inputs)
    rows = inputs[draw.draw(st.lists(st.integers(0, len(inputs) - 1), min_size=1, max_size=3))]
    if np.count_nonzero(rows % 1) < 2:
        refuse_own_rows(data, rows, scale(rows))
    elif not any((inputs == row).all(axis=1).any() for row in scale(rows)):
        with pytest.raises(ct.InputError, match="scaled already"):
            refuse_own_rows(data, rows, scale(rows))


def test_one_star_is_not_taken_for_five():
    data, scale = scaled_to_unit(STARS)
    for rows in ([[1, 1]], [[1, 0]], [[0, 1], [1, 1]]):
        refuse_own_rows(data, np.array(rows, float), scale(rows))
    with pytest.raises(ct.InputError, match="scaled already"):
        refuse_own_rows(data, np.asarray(data.train.inputs), scale(data.train.inputs))


@pytest.mark.parametrize("levels", [[1, 1.5, 2], [1, 4 / 3, 5 / 3, 2]], ids=["halves", "thirds"])
def test_few_levels_that_are_fractions_may_be_met_raw_and_scaled(levels):
    data, scale = scaled_to_unit(list(itertools.product(levels, levels)))
    inputs = np.asarray(data.train.inputs)
    row = inputs[(inputs % 1 != 0).all(axis=1)].max(axis=0, keepdims=True)  # raw, it is below all others
    refuse_own_rows(data, row, scale(row))
