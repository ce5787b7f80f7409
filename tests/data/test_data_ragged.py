"""One pass over a client's rows meets each of them once, whatever the sizes."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cantons.data import from_sizes, pack
from cantons.errors import InputError

CLIENTS, LONGEST = 5, 12
ROWS = CLIENTS * LONGEST
BATCHES = [1, 5, 20]

# One client always has LONGEST rows, so that a compiled pass serves every draw of the others' sizes.
some_sizes = st.lists(st.integers(1, LONGEST), min_size=CLIENTS - 1, max_size=CLIENTS - 1).map(
    lambda others: [*others, LONGEST])


def numbered(sizes):
    """Every row's target is its own number."""
    rows = np.arange(ROWS)
    return jax.tree.map(jnp.asarray, from_sizes(rows[:, None].astype(np.float32), rows, np.array(sizes)))


def note(carry, batch):
    """Write down one batch: how many came before it, its rows, its mask."""
    count, rows, mask = carry
    size = batch.targets.shape[0]
    return count + 1, rows.at[count, :size].set(batch.targets), mask.at[count, :size].set(batch.mask)


BLANK = (0, jnp.full((LONGEST, 20), -1), jnp.zeros((LONGEST, 20)))


@partial(jax.jit, static_argnums=1)
def passes(data, batch):
    """Every client's shuffled and ordered pass."""
    def one(client, key):
        own = data.client(client)
        return own.epoch(key, batch, note, BLANK), own.fold(batch, note, BLANK)

    return jax.vmap(one)(jnp.arange(CLIENTS), jax.random.split(jax.random.key(0), CLIENTS))


def check_passes(data, sizes, batch):
    shuffled, ordered = jax.tree.map(np.asarray, passes(data, batch))
    ends = np.cumsum(sizes)
    for client, (start, end) in enumerate(zip(ends - sizes, ends, strict=True)):
        for (count, rows, mask), sort in ((shuffled, np.sort), (ordered, lambda met: met)):
            assert count[client] == -(-(end - start) // min(batch, LONGEST))
            assert set(np.unique(mask[client])) <= {0.0, 1.0}
            met = rows[client][mask[client] == 1]
            np.testing.assert_array_equal(sort(met), np.arange(start, end))


@settings(max_examples=25, deadline=None, derandomize=True)
@given(some_sizes, st.sampled_from(BATCHES))
def test_a_pass_meets_every_row_once_and_an_ordered_one_in_order(sizes, batch):
    check_passes(numbered(sizes), np.array(sizes), batch)


@pytest.mark.parametrize("batch", [5, 12])
def test_so_does_a_pass_over_equal_clients(batch):
    data = numbered([LONGEST] * CLIENTS)
    assert data.uniform
    check_passes(data, np.full(CLIENTS, LONGEST), batch)


def test_two_rows_come_in_either_order():
    two = jax.tree.map(jnp.asarray, from_sizes(np.zeros((2, 1)), np.arange(2), np.array([2])))

    def first(key):
        return two.client(0).epoch(key, 1, lambda met, batch: jnp.where(met < 0, batch.targets[0], met), -1)

    found = jax.vmap(first)(jax.random.split(jax.random.key(0), 40))
    assert 5 < np.sum(found) < 35


def test_another_key_gives_another_order():
    @jax.jit
    @partial(jax.vmap, in_axes=(None, 0))
    def order(data, key):
        return data.client(2).epoch(key, LONGEST, note, BLANK)[1][0]

    orders = order(numbered([LONGEST] * CLIENTS), jax.random.split(jax.random.key(0), 10))
    assert len(np.unique(orders, axis=0)) == 10


@jax.jit
def samples_and_full(data):
    def one(client, key):
        return data.client(client).sample(key, 40), data.client(client).full()

    return jax.vmap(one)(jnp.arange(CLIENTS), jax.random.split(jax.random.key(1), CLIENTS))


@settings(max_examples=20, deadline=None, derandomize=True)
@given(some_sizes)
def test_samples_and_full_stay_inside_the_client(sizes):
    sample, full = jax.tree.map(np.asarray, samples_and_full(numbered(sizes)))
    ends = np.cumsum(sizes)
    for client, (start, end) in enumerate(zip(ends - sizes, ends, strict=True)):
        assert sample.targets.shape[1] == 40 and (sample.mask == 1).all()
        assert ((start <= sample.targets[client]) & (sample.targets[client] < end)).all()
        np.testing.assert_array_equal(full.mask[client], np.arange(LONGEST) < end - start)
        np.testing.assert_array_equal(full.targets[client][: end - start], np.arange(start, end))


def test_samples_are_uniform_with_replacement():
    data = numbered([3, 4, 5, 6, LONGEST]).client(1)
    counts = np.bincount(np.asarray(data.sample(jax.random.key(0), 8000).targets) - 3, minlength=4)
    assert (np.abs(counts - 2000) < 160).all()  # four standard deviations


def test_packing_keeps_every_leaf_aligned():
    first, second = {"a": np.zeros((2, 3)), "b": np.arange(2)}, {"a": np.ones((1, 3)), "b": np.array([7])}
    packed = pack([first, second], [np.array([0, 1]), np.array([2])])
    np.testing.assert_array_equal(packed.inputs["b"], [0, 1, 7])
    np.testing.assert_array_equal(packed.starts, [0, 2])
    assert packed.longest == 2 and not packed.uniform


def test_offline_data_has_no_now():
    with pytest.raises(InputError, match="no clock"):
        numbered([1] * CLIENTS).client(0).now()
