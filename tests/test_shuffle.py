"""The shuffle is a permutation for every n, and no permutation is likelier than another.

Exactly computed for ideal coins, the total variation from uniform after 24 rounds is 3e-8 for n = 2 and at
most 8e-6 for n = 3..6; after 16 rounds 8e-6 and 4e-4. With a million keys none of these tests could tell 16
rounds from 24, while 12 rounds failed (neighbours stay together at z = 6.5), and 8 failed everywhere.
"""

from math import factorial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import chi2

from cantons import shuffle

KEYS = jax.random.split(jax.random.key(0), 20_000)


def permutations(size):
    return np.asarray(jax.jit(jax.vmap(lambda key: shuffle.permutation(key, size)(jnp.arange(size))))(KEYS))


def surprise(counts, freedom=None):
    """The chance of counts as unequal as these, or more so, if all cells were equally likely."""
    expected = counts.mean()
    return chi2.sf(((counts - expected) ** 2 / expected).sum(), freedom or counts.size - 1)


@pytest.fixture(scope="module")
def fifties():
    return permutations(50)


def how_often(size):
    """How often each of the size! permutations came up."""
    _, counts = np.unique(permutations(size), axis=0, return_counts=True)
    return np.pad(counts, (0, factorial(size) - len(counts)))


def test_every_size_is_permuted():
    sizes, places = jnp.arange(1, 201), jnp.arange(200)

    def one(key, size):
        return shuffle.permutation(key, size)(jnp.minimum(places, size - 1))

    landed = np.asarray(jax.jit(jax.vmap(one))(KEYS[:200], sizes))
    for size, row in zip(range(1, 201), landed, strict=True):
        np.testing.assert_array_equal(np.sort(row[:size]), np.arange(size))


def test_a_place_lands_alike_whoever_asks_with_it():
    order = jax.jit(shuffle.permutation(KEYS[0], 1_000_000))
    np.testing.assert_array_equal(order(jnp.array([5, 999_999])), order(jnp.array([7, 5, 999_999]))[1:])


def test_other_keys_shuffle_otherwise(fifties):
    assert len(np.unique(fifties, axis=0)) == len(KEYS)


@pytest.mark.parametrize("size", [2, 3, 4, 5])
def test_all_permutations_are_equally_likely(size):
    assert surprise(how_often(size)) > 0.001


def test_the_count_of_permutations_would_notice_too_few_rounds(monkeypatch):
    monkeypatch.setattr(shuffle, "ROUNDS", 6)
    assert surprise(how_often(4)) < 1e-9


def test_every_place_lands_everywhere_alike(fifties):
    counts = np.stack([np.bincount(column, minlength=50) for column in fifties.T])
    assert surprise(counts * np.sqrt(49 / 50), freedom=49 * 49) > 0.001  # rows and columns sum to the same


def test_neighbours_part(fifties):
    adjacent = (np.abs(np.diff(fifties, axis=1)) == 1).mean()
    assert abs(adjacent - 2 / 50) < 4 * np.sqrt(0.04 * 0.96 / (49 * len(KEYS)))
