"""Clients that agree in part: what alpha blends, what the noise does, and what two users have in common."""

import numpy as np
import pytest

from cantons.data import restaurants, synthetic_mixture
from cantons.data.seeds import generator
from cantons.errors import InputError


def own_rows(ragged):
    ends = np.cumsum(ragged.sizes)[:-1]
    return list(zip(np.split(ragged.inputs.astype(float), ends), np.split(ragged.targets, ends), strict=True))


def errors(pairs, model):
    """How often argmax(x model) is not the label, for each client."""
    return np.array([(np.argmax(x @ model, axis=1) != y).mean() for x, y in pairs])


def least_squares(pairs):
    """The linear model nearest to the labels as one-hot rows."""
    x, y = (np.concatenate(part) for part in zip(*pairs, strict=True))
    return np.linalg.lstsq(x, np.eye(y.max() + 1)[y], rcond=None)[0]


def test_at_zero_one_linear_model_serves_all_and_at_one_it_serves_nobody():
    alike, apart = (own_rows(synthetic_mixture(6, alpha=alpha, noise=0.0, examples=2000, test=0).train)
                    for alpha in (0, 1))
    assert errors(alike, least_squares(alike)).max() < 0.03
    assert errors(apart, least_squares(apart)).min() > 0.1
    own = [errors([pair], least_squares([pair]))[0] for pair in apart]
    assert max(own) < 0.03


def test_two_alphas_differ_in_the_blend_alone():
    one, other = (synthetic_mixture(4, alpha=alpha, seed=3) for alpha in (0.2, 0.9))
    np.testing.assert_array_equal(one.train.inputs, other.train.inputs)
    assert (one.train.targets != other.train.targets).any()


def test_without_noise_the_labels_are_those_of_equation_13():
    """Where the labels at 0 and at 1 agree, every blend agrees: what is largest twice is largest in their mean."""
    labels = {alpha: synthetic_mixture(5, alpha=alpha, classes=3, noise=0.0, test=0).train.targets
              for alpha in (0, 0.3, 0.8, 1)}
    agreed = labels[0] == labels[1]
    assert 0.2 < agreed.mean() < 0.6
    for alpha in (0.3, 0.8):
        np.testing.assert_array_equal(labels[alpha][agreed], labels[0][agreed])
        assert (labels[alpha] != labels[0]).any() and (labels[alpha] != labels[1]).any()


def test_noise_flips_the_labels_it_should():
    """With two classes the logits differ by s.x and the noises by N(0, 2): P(flip | x) depends on |s.x| / sqrt(2)."""
    clean, noisy = (synthetic_mixture(1, alpha=0.0, noise=noise, examples=20_000, test=0) for noise in (0.0, 1.0))
    np.testing.assert_array_equal(clean.train.inputs, noisy.train.inputs)
    flipped = (clean.train.targets != noisy.train.targets).mean()
    # P = arccos(rho) / pi for two normal numbers with correlation rho = |s| / sqrt(|s|^2 + 2).
    steepness = np.linalg.norm(np.diff(generator(0, "blended").normal(size=(10, 2)), axis=1))
    wanted = np.arccos(steepness / np.hypot(steepness, np.sqrt(2))) / np.pi
    assert abs(flipped - wanted) < 4 * np.sqrt(wanted * (1 - wanted) / 20_000)


def test_a_client_is_the_same_in_any_company():
    few, many = synthetic_mixture(3), synthetic_mixture(9)
    rows = few.train.sizes.sum()
    np.testing.assert_array_equal(few.train.inputs, many.train.inputs[:rows])
    np.testing.assert_array_equal(few.train.targets, many.train.targets[:rows])


def test_the_two_users_rate_as_example_one_says():
    data = restaurants(5000, noise=0.5, test=0)
    assert data.clients.names == ("A", "B") and data.classes is None
    for (x, y), taste in zip(own_rows(data.train), ((1, -1, 1, -1), (1, -1, -1, 1)), strict=True):
        found = np.linalg.lstsq(x, y, rcond=None)[0]
        np.testing.assert_allclose(found, taste, atol=0.04)  # five standard errors
        assert np.mean((y - x @ found) ** 2) == pytest.approx(0.25, rel=0.1)


@pytest.mark.parametrize("make, options, sentence", [
    (synthetic_mixture, {"clients": 0}, "clients is 0; give 1 or more"),
    (synthetic_mixture, {"alpha": 1.5}, "alpha is 1.5; give a number from 0 to 1"),
    (synthetic_mixture, {"classes": 1}, "classes is 1; give 2 or more"),
    (synthetic_mixture, {"features": 0}, "features is 0"),
    (synthetic_mixture, {"examples": 0}, "examples is 0"),
    (synthetic_mixture, {"noise": -1.0}, "noise is -1.0; give 0 or more"),
    (restaurants, {"examples": 0}, "examples is 0"),
    (restaurants, {"noise": -1.0}, "noise is -1.0"),
])
def test_impossible_options_are_refused(make, options, sentence):
    with pytest.raises(InputError, match=sentence):
        make(**options)
