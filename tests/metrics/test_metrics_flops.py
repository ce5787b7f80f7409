"""C.3's formulas with the sizes of Tables 10 and 11."""

import pytest

from cantons.errors import InputError
from cantons.metrics import dual_encoder_flops


def test_table_3_but_for_its_baseline():
    """99.98% is saved, as the text says; the printed 125.16 is not what the formula gives."""
    mixed, baseline = dual_encoder_flops(16), dual_encoder_flops(16, vocabulary=3952)
    assert mixed == 16 * 16 + 3 * 16**3 + 3 * 16**3 + 2 * 16 == 24864
    assert baseline == 24864 + 3952**2 * 8 + 3952 * 16 == 125034528
    assert round(100 * (1 - mixed / baseline), 2) == 99.98
    assert round(baseline / 1e6, 2) == 125.03 != 125.16


def test_sizes_below_one_are_refused():
    for sizes in ({"batch_size": 0}, {"batch_size": 1, "width": 0}, {"batch_size": 1, "vocabulary": 0}):
        with pytest.raises(InputError, match="is 0"):
            dual_encoder_flops(**sizes)
