"""Attacks by themselves: what liars send, of what they see and nothing else."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cantons.aggregate import mean
from cantons.attack import a_little_is_enough, inner_product, label_flip, mimic, noise
from cantons.attack.corrupt import _see_all
from cantons.protocol import Average

KEY = jax.random.key(0)
LIARS = np.array([False, True, False, False])
WEIGHT = np.array([1.0, 1.0, 1.0, 0.0])  # the last one did not arrive
SEEN = [0, 2]


def rows(seed=0):
    values = np.random.default_rng(seed).normal(size=(4, 3)).astype(np.float32)
    return values, {"a": jnp.asarray(values), "b": jnp.asarray(values[:, :1])}


@pytest.mark.parametrize(("attack", "expected"), [
    (inner_product(epsilon=5.0), lambda seen: -5 * seen.mean(axis=0)),
    (a_little_is_enough(z=1.5), lambda seen: seen.mean(axis=0) - 1.5 * seen.std(axis=0)),
    (mimic(target=1), lambda seen: seen[1]), (mimic(target=9), lambda seen: seen[1]), (mimic(), lambda seen: seen[0])])
def test_liars_that_know_all_look_at_honest_uploads_that_arrived(attack, expected):
    values, tree = rows()
    rule = _see_all(mean().build(), attack.build().together, LIARS)
    found, *_ = rule.reduce(KEY, (), Average(tree, jnp.asarray(WEIGHT, jnp.float32)), jnp.arange(4), 4.0)
    sent = np.stack([values[0], expected(values[SEEN]), values[2]])
    np.testing.assert_allclose(found.value["a"], sent.mean(axis=0), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found.value["b"], sent.mean(axis=0)[:1], rtol=1e-5, atol=1e-6)


def test_flipped_labels_are_others_and_no_label_stays_none():
    flip = label_flip().build().targets
    labels = jnp.array([[0, 4, -1], [2, -1, 1]])
    np.testing.assert_array_equal(flip(5, labels), [[4, 0, -1], [2, -1, 3]])
    np.testing.assert_array_equal(flip(None, jnp.array([1.5, -2.0])), [-1.5, 2.0])


def test_noise_is_drawn_for_every_coordinate_with_its_scale():
    honest = Average({"a": jnp.ones(20_000), "b": jnp.ones(20_000)}, jnp.asarray(7.0))
    sent = noise(scale=3.0).build().upload(KEY, honest)
    one, other = (np.asarray(sent.value[name]) - 1 for name in "ab")
    assert abs(np.corrcoef(one, other)[0, 1]) < 0.05 and sent.weight == 7
    np.testing.assert_allclose([one.std(), other.std()], 3.0, rtol=0.03)
