"""Scaling is fitted to the training rows and to nothing else."""

import numpy as np
import pytest

from cantons.data import federation, scale_inputs, with_validation
from cantons.errors import InputError

RANDOM = np.random.default_rng(0)
INPUTS = RANDOM.normal([1000.0, -3.0, 5.0], [10.0, 0.1, 0.0], (60, 3)).astype(np.float32)
MARKED = np.arange(60) % 4 == 0


def made(inputs=INPUTS, **options):
    return federation(inputs, np.zeros(60), np.repeat(np.arange(6), 10), test=MARKED, **options)


def test_standard_gives_training_features_mean_0_and_variance_1():
    train = scale_inputs(made(), "standard").train.inputs
    np.testing.assert_allclose(train.mean(axis=0), 0, atol=1e-5)
    np.testing.assert_allclose(train.std(axis=0), [1, 1, 0], atol=1e-5)
    assert train.dtype == np.float32


def test_unit_puts_training_features_within_1():
    train = scale_inputs(made(), "unit").train.inputs
    np.testing.assert_allclose(np.abs(train).max(axis=0), 1, rtol=1e-6)


@pytest.mark.parametrize("how", ["unit", "standard"])
def test_other_rows_are_scaled_alike_and_change_nothing(how):
    loud = np.where(MARKED[:, None], 100 * INPUTS, INPUTS)
    central = (INPUTS[:3], np.zeros(3))
    plain = made(new=2, central=central)
    quiet, other = scale_inputs(plain, how), scale_inputs(made(loud, new=2, central=central), how)
    np.testing.assert_array_equal(quiet.train.inputs, other.train.inputs)
    np.testing.assert_array_equal(quiet.new.train.inputs, other.new.train.inputs)
    assert np.abs(other.test.inputs).max() > 50
    slope, shift = np.polyfit(plain.train.inputs[:, 0], quiet.train.inputs[:, 0], 1)
    pairs = (plain.test, quiet.test), (plain.new.test, quiet.new.test), (plain.central, quiet.central)
    for raw, done in pairs:
        np.testing.assert_allclose(done.inputs[:, 0], slope * raw.inputs[:, 0] + shift, rtol=1e-3, atol=1e-3)


def test_pixels_are_divided_by_255():
    pixels = RANDOM.integers(0, 200, (60, 4, 4), dtype=np.uint8)
    data = made(pixels)
    unit = scale_inputs(data, "unit").train.inputs
    assert unit.dtype == np.float32
    np.testing.assert_allclose(unit, data.train.inputs / 255, rtol=1e-6)


def test_none_touches_nothing():
    data = made()
    assert scale_inputs(data, "none") is data


def test_an_unknown_scale_is_refused():
    with pytest.raises(InputError, match="scale is 'units'; give one of 'none', 'unit', 'standard'"):
        scale_inputs(made(), "units")


def test_rows_to_choose_by_are_scaled_like_the_others():
    plain = with_validation(made(), 0.3)
    both = scale_inputs(plain, "standard")
    scale, shift = np.polyfit(plain.train.inputs[:, 0], both.train.inputs[:, 0], 1)
    np.testing.assert_allclose(both.validation.inputs[:, 0], scale * plain.validation.inputs[:, 0] + shift, atol=1e-3)
