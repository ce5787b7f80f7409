"""Synthetic(alpha, beta): linear clients, ragged sizes, and what the two parameters do."""

import numpy as np
import pytest

from cantons.data import synthetic
from cantons.errors import InputError


def rows_of(data, client):
    ragged = data.train
    own = slice(ragged.starts[client], ragged.starts[client] + ragged.sizes[client])
    return ragged.inputs[own].astype(float), ragged.targets[own]


def spread(data):
    """How far apart the clients' mean inputs are."""
    return np.std([rows_of(data, client)[0].mean() for client in range(data.population)])


def test_regression_is_exactly_linear_for_each_client_and_not_for_all():
    data = synthetic(5, features=8, regression=True, test=0)

    def worst(x, y):
        bias = np.column_stack([x, np.ones(len(x))])
        return np.abs(bias @ np.linalg.lstsq(bias, y, rcond=None)[0] - y).max()

    assert max(worst(*rows_of(data, client)) for client in range(5)) < 1e-4
    assert worst(data.train.inputs.astype(float), data.train.targets) > 1


def test_variances_fall_with_the_feature_as_j_to_the_minus_1_2():
    data = synthetic(40, largest=3000, test=0)
    inputs, _ = rows_of(data, data.train.sizes.argmax())
    np.testing.assert_allclose(inputs.var(axis=0), np.arange(1, 61) ** -1.2, rtol=0.2)


def test_alpha_changes_no_label_but_does_change_regression():
    calm, wild = (synthetic(6, alpha=alpha) for alpha in (0.0, 5.0))
    np.testing.assert_array_equal(calm.train.targets, wild.train.targets)
    calm, wild = (synthetic(6, alpha=alpha, regression=True) for alpha in (0.0, 5.0))
    assert np.abs(calm.train.targets - wild.train.targets).max() > 1


def test_beta_moves_the_inputs_apart():
    assert spread(synthetic(20, beta=0.0)) < 0.3 < 2 < spread(synthetic(20, beta=5.0))


def test_sizes_are_ragged_and_bounded():
    data = synthetic(40, largest=300, test=0)
    assert 50 <= data.train.sizes.min() < 60 and data.train.sizes.max() == 300


def test_a_client_is_the_same_in_any_company():
    few, many = synthetic(3), synthetic(9)
    for client in range(3):
        for one, other in zip(rows_of(few, client), rows_of(many, client), strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("options, sentence", [
    ({"clients": 0}, "clients is 0; give 1 or more"),
    ({"alpha": -1.0}, "alpha is -1.0; give 0 or more"),
    ({"beta": -1.0}, "beta is -1.0"),
    ({"features": 0}, "features is 0"),
    ({"classes": 1}, "classes is 1; give 2 or more"),
    ({"largest": 0}, "largest is 0"),
])
def test_impossible_options_are_refused(options, sentence):
    with pytest.raises(InputError, match=sentence):
        synthetic(**options)
