"""Compression of the transferred gradient: right in the mean or in the long run, and counted as it travels."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from starting import start

import cantons as ct
from cantons.algorithm.parts.compress import Compression, compressor_of
from cantons.data import pooled
from cantons.engine import shapes_that_travel
from cantons.errors import InputError
from cantons.metrics import leaves, nbytes

pytestmark = pytest.mark.usefixtures("float64")
INT8, TOP = {"compression": "int8"}, {"compression": "top_k", "top_share": 0.25}
WORK = {"steps": 3, "batch_size": 4, "step_size": 0.05}


def gradients(rounds, seed=0):
    random = np.random.default_rng(seed)
    return {name: jnp.asarray(random.normal(size=(rounds, *shape))) for name, shape in (
        ("weight", (5, 3)), ("bias", (7,)))}


def at(tree, round):
    return jax.tree.map(lambda leaf: leaf[round], tree)


def weight(tree):
    return np.asarray(tree["layer0"]["weight"])


# What a compressor does


def test_rounding_at_random_is_right_in_the_mean_and_never_far_off():
    gradient, keys = at(gradients(1), 0), jax.random.split(jax.random.key(3), 4000)
    small = compressor_of(Compression(**INT8))

    def arrives(key):
        sent, residual = small.compress(key, gradient, ())
        assert residual == () and all(leaf.dtype == jnp.int8 for leaf in jax.tree.leaves(sent.levels))
        return small.decompress(sent, gradient)

    arrived = jax.jit(jax.vmap(arrives))(keys)
    for true, found in zip(jax.tree.leaves(gradient), jax.tree.leaves(arrived), strict=True):
        scale = np.abs(true).max() / 127
        assert (np.abs(found - true) < scale).all()
        exact = true / scale
        chance = exact - np.floor(exact)
        error = scale * np.sqrt(chance * (1 - chance) / len(keys))  # of the mean of 4000 draws
        assert (np.abs(found.mean(axis=0) - true) <= 4.5 * error + 1e-12).all()
        rounded = found.max(axis=0) > found.min(axis=0)
        assert rounded.sum() == true.size - 1  # the largest entry alone is exact
        apart = np.corrcoef(np.asarray(found)[:, rounded].T) - np.eye(int(rounded.sum()))
        assert np.abs(apart).max() < 5 / np.sqrt(len(keys))  # entries are rounded each for itself


@pytest.mark.parametrize("entry", [0.0, np.nan, np.inf])
def test_bytes_keep_what_is_not_finite_from_looking_finite(entry):
    gradient, small = {"weight": jnp.full(3, entry)}, compressor_of(Compression(**INT8))
    found = small.decompress(small.compress(jax.random.key(0), gradient, ()).travels, gradient)["weight"]
    assert (found == 0).all() if entry == 0 else not np.isfinite(found).any()


def test_what_was_sent_and_the_residual_are_all_there_was_to_send():
    rounds, each = 12, gradients(12)
    largest = compressor_of(Compression(**TOP))
    residual = largest.init(at(each, 0))
    sent = jax.tree.map(jnp.zeros_like, residual)
    for round in range(rounds):
        owed = jax.tree.map(jnp.add, at(each, round), residual)
        travels, residual = largest.compress(jax.random.key(round), at(each, round), residual)
        assert [leaf.shape for leaf in jax.tree.leaves(travels.values)] == [(2,), (4,)]  # a quarter of 7 and of 15
        arrived = largest.decompress(travels, residual)
        for whole, part in zip(jax.tree.leaves(owed), jax.tree.leaves(arrived), strict=True):
            kept = np.asarray(part != 0)
            assert (whole[kept] == part[kept]).all()
            assert np.abs(whole[kept]).min() >= np.abs(whole[~kept]).max()
        sent = jax.tree.map(jnp.add, sent, arrived)
    for true, one, left in zip(*map(jax.tree.leaves, (each, sent, residual)), strict=True):
        np.testing.assert_allclose(one + left, true.sum(axis=0), rtol=0, atol=1e-13)
        assert np.abs(left).max() > 0.1
    everything = compressor_of(Compression("top_k", 1.0)).compress(jax.random.key(0), owed, residual)
    assert not any(np.any(leaf) for leaf in jax.tree.leaves(everything.residual))


# What it does to an algorithm


@pytest.fixture(scope="module")
def data(numbers):
    return replace(numbers, central=pooled(numbers.train))


@pytest.fixture(scope="module")
def problem(least_squares):
    return ct.with_central_loss(least_squares, "same", [0.6, 0.4])


def test_all_entries_are_the_gradient_itself(played, problem, data):
    plain, whole = (played(problem, data, ct.one_way_transfer(**WORK, **given), 3).server
                    for given in ({}, {**TOP, "top_share": 1.0}))
    assert plain.residual == () and not np.any(weight(whole.residual))
    np.testing.assert_allclose(weight(whole.shared), weight(plain.shared), rtol=0, atol=1e-15)


def test_the_server_takes_away_from_changes_what_clients_have_added(played, problem, data):
    """g~_f from changes is the mean of the raw gradients, though the centre's came to clients compressed."""
    one, other = (played(problem, data, ct.two_way_transfer(**WORK, **INT8, federated_gradient=name), 4).server
                  for name in ("change", "raw"))
    np.testing.assert_allclose(weight(one.federated_gradient), weight(other.federated_gradient), rtol=0, atol=1e-12)


@pytest.mark.parametrize("build", [ct.one_way_transfer, ct.two_way_transfer])
def test_the_server_keeps_what_it_has_not_sent(problem, data, build):
    """Clients' losses weigh nothing and the centre stands still: the model moves along what is sent, and only so."""
    work = {"steps": 1, "batch_size": None, "central_batch_size": None, "step_size": 0.05, **TOP}
    still = {} if build is ct.one_way_transfer else {"central_step_size": 1e-12, "central_steps": 1}
    alone = problem._replace(loss=lambda *given: 0.0 * problem.loss(*given))
    session = start(ct.Local(devices=1), alone, build(**work, **still).build(alone, data.population),
                    ct.rounds().build(data.population), data, data.central)
    state, owed = session.begin(), 0.0
    for round in range(1, 5):
        before = jax.device_get(state.server)
        state = session.advance(state, round)
        gradient = before.central_gradient if still else jax.grad(problem.central.loss)(
            before.shared, {"layer0": {"weight": None}}, data.central.pooled().full())
        moved = (weight(before.shared) - weight(state.server.shared)) / 0.05
        owed = owed + weight(gradient) - moved
        np.testing.assert_allclose(weight(state.server.residual), owed, rtol=0, atol=1e-9)
        assert (np.abs(moved) > 1e-9).sum() == (0 if still and round == 1 else 1)


def test_bytes_are_those_of_the_compressed_form(labels, problem, data):
    """A network 4-5-3: arrays of 20, 5, 15 and 3 entries. Down: the model, the step size, and the gradient."""
    beside = replace(labels, central=pooled(labels.train))
    mixed = ct.with_central_loss(ct.classification(beside, ct.mlp(hidden=[5])))
    model = 4 * (20 + 5 + 15 + 3)
    gradients = {"none": model, "int8": 43 + 4 * 4, "top_k": (4 + 4) * (5 + 2 + 4 + 1)}
    with jax.enable_x64(False):
        for build, numbers_up in ((ct.one_way_transfer, 1), (ct.two_way_transfer, 2)):
            for name, expected in gradients.items():
                algorithm = build(compression=name, top_share=0.25).build(mixed, beside.population)
                down, up = shapes_that_travel(mixed, algorithm, beside.train, beside.central)
                assert (nbytes(down), nbytes(up)) == (model + 4 + expected, model + 4 * numbers_up)
        result = ct.run(problem, data, ct.one_way_transfer(**WORK, **INT8), rounds=2, cohort=3, evaluate_every=2)
    assert result.final["bytes_down"] == 2 * 3 * (3 * 4 + 4 + (3 + 4))  # three weights


# With rows of a table


@pytest.fixture(scope="module")
def things():
    random = np.random.default_rng(0)
    clients = {str(number): tuple(random.integers(0, 30, (6, 3)).astype(np.int32)[:, part] for part in (
        slice(0, 2), 2)) for number in range(4)}
    data = ct.from_clients(clients, classes=30, test=0)
    return ct.with_central_loss(ct.dual_encoder(data, width=4), "spreadout"), data


@pytest.mark.parametrize("build", [ct.one_way_transfer, ct.two_way_transfer])
def test_clients_with_some_rows_follow_the_same_rounded_gradient(played, things, build):
    work = {"steps": 2, "batch_size": 2, "step_size": 0.05, **INT8}
    whole, sparse = (played(*things, build(**work, rows=rows), 3).server for rows in (None, 18))
    for one, other in zip(jax.tree.leaves(whole), jax.tree.leaves(sparse), strict=True):
        np.testing.assert_allclose(other, one, rtol=0, atol=1e-12)
    algorithm = build(**work, rows=18).build(things[0], 4)
    sent = {name: (shape, kind) for name, shape, kind in leaves(shapes_that_travel(*things[:1], algorithm,
                                                                                  things[1].train)[0])}
    assert sent["central_gradient/levels/table"] == ((18, 4), "int8")


@pytest.mark.parametrize("build", [ct.one_way_transfer, ct.two_way_transfer])
def test_the_largest_entries_of_a_table_are_no_rows_of_it(things, build):
    with pytest.raises(InputError, match="top_k.*leave rows out"):
        ct.run(*things, build(**TOP, rows=18), rounds=1)


@pytest.mark.parametrize("share", [0.0, -0.1, 1.1, float("nan")])
def test_a_share_is_above_0_and_at_most_1(share):
    with pytest.raises(InputError, match="top_share"):
        ct.one_way_transfer(compression="top_k", top_share=share)
