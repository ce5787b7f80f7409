"""Least squares with a shared and a private part: what `synthetic_least_squares` promises about them."""

import numpy as np
import pytest

import cantons as ct

SMALL = {"clients": 3, "rows": 40, "shared": 5, "private": 3}


def made(**options):
    """Inputs [clients, rows, columns] and targets of every client."""
    data = ct.synthetic_least_squares(**{**SMALL, **options})
    clients = len(data.train.sizes)
    return data.train.inputs.reshape(clients, -1, data.input_shape[0]), data.train.targets.reshape(clients, -1)


def errors(inputs, targets, models):
    return ((np.einsum("mnd,md->mn", inputs, models) - targets) ** 2).mean(1)


def best(inputs, targets):
    return np.stack([np.linalg.lstsq(x, y, rcond=None)[0] for x, y in zip(inputs, targets, strict=True)])


@pytest.mark.parametrize("options", [{}, {"targets": "own", "noise": 0.1}, {"heterogeneity": 3.0}, {"rows": 4}])
def test_compact_rows_have_the_mean_squared_error_of_all_rows(options):
    models = np.random.default_rng(0).normal(size=(3, 8))
    few, all_rows = made(**options), made(**options, compact=False)
    assert few[0].shape[1] == 9
    np.testing.assert_allclose(errors(*few, models), errors(*all_rows, models), rtol=1e-12)


def test_rows_of_h_have_nothing_to_do_with_the_private_part():
    inputs, _ = made(compact=False)
    assert not inputs[:, :40, 5:].any() and inputs[:, 40:, 5:].all()
    assert 0 < inputs[:, :40, :5].max() <= 1 / 5 and 1 / 5 < inputs[:, 40:, 5:].max() <= 1 / 3


def test_shared_targets_have_one_theta_for_all_clients_and_a_w_for_each():
    models = best(*made(compact=False))
    np.testing.assert_allclose(errors(*made(compact=False), models), 0, atol=1e-24)
    np.testing.assert_allclose(models[:, :5], models[:1, :5].repeat(3, 0), rtol=1e-10)
    assert np.abs(np.diff(models[:, 5:], axis=0)).min() > 1e-3


def test_own_targets_have_a_theta_for_each_half_of_the_rows():
    inputs, targets = made(targets="own", compact=False)
    assert errors(inputs, targets, best(inputs, targets)).min() > 1e-3
    halves = [best(inputs[:, half], targets[:, half])[:, :5] for half in (slice(40), slice(40, None))]
    assert len(np.unique(np.concatenate(halves).round(8), axis=0)) == 6


def test_noise_is_added_to_every_target_and_moves_nothing_else():
    clean, noisy = (made(rows=4000, noise=noise, compact=False) for noise in (0.0, 0.5))
    np.testing.assert_array_equal(clean[0], noisy[0])
    assert (noisy[1] - clean[1]).std(axis=1) == pytest.approx([0.5] * 3, rel=0.05)


def test_heterogeneity_is_the_spectral_norm_by_which_clients_differ():
    alike = made(heterogeneity=0.0, compact=False)[0]
    np.testing.assert_array_equal(alike, alike[:1].repeat(3, 0))
    apart = made(heterogeneity=7.0, compact=False)[0] - alike
    blocks = apart[:, :40, :5], apart[:, 40:, :5], apart[:, 40:, 5:]
    assert [np.linalg.norm(block, 2, axis=(1, 2)) for block in blocks] == [pytest.approx([7.0] * 3)] * 3


@pytest.mark.parametrize("targets", ["shared", "own"])
def test_a_client_keeps_its_models_whatever_its_rows_and_however_many_clients_there_are(targets):
    few, many = (made(targets=targets, rows=rows, clients=clients, compact=False) for rows, clients in (
        (40, 3), (90, 5)))
    for half in (0, 1):
        one, other = (best(x[:3, half * rows:(half + 1) * rows], y[:3, half * rows:(half + 1) * rows])
                      for (x, y), rows in ((few, 40), (many, 90)))
        np.testing.assert_allclose(one, other, atol=1e-9)


@pytest.mark.parametrize(("options", "sentence"), [
    ({"clients": 0}, "clients is 0"), ({"rows": 0}, "rows is 0"), ({"private": 0}, "private is 0"),
    ({"noise": -1.0}, "noise is -1.0; give 0 or more"), ({"heterogeneity": -1.0}, "heterogeneity"),
    ({"targets": "none"}, "targets")])
def test_odd_options_are_refused(options, sentence):
    with pytest.raises(ct.InputError, match=sentence):
        ct.synthetic_least_squares(**{**SMALL, **options})
