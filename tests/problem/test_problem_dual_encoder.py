"""Dual encoders and the spreadout of their tables, beside plain NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import cantons as ct
from cantons.errors import InputError
from cantons.problem import Shapes, problem_from_spec
from cantons.problem.central import norm_of_cosines
from cantons.protocol import Batch

pytestmark = pytest.mark.usefixtures("float64")
SIZE, WIDTH, CONTEXT, ROWS = 30, 4, 3, 25
RANDOM = np.random.default_rng(0)
INPUTS = RANDOM.integers(0, SIZE, (ROWS, CONTEXT))
INPUTS[::3, 0] = -1
INPUTS[5] = -1  # a context in which nothing was met
TARGETS = RANDOM.integers(0, SIZE, ROWS)
MASK = (np.arange(ROWS) < 20).astype(float)
SHARED = {"hidden": {"weight": RANDOM.normal(size=(WIDTH, WIDTH)), "bias": 0.1 * RANDOM.normal(size=WIDTH)},
          "table": RANDOM.normal(size=(SIZE, WIDTH))}
PROBLEM = ct.dual_encoder(Shapes((CONTEXT,)), vocabulary=SIZE, width=WIDTH)


@pytest.fixture
def batch():
    return Batch(jnp.asarray(INPUTS), jnp.asarray(TARGETS), jnp.asarray(MASK))


def cosines(shared):
    """Of each context with all rows of the table, example by example."""
    table = shared["table"] / np.linalg.norm(shared["table"], axis=1, keepdims=True)
    found = []
    for row in INPUTS:
        met = [shared["table"][number] for number in row if number >= 0]
        mean = np.mean(met, axis=0) if met else np.zeros(WIDTH)
        context = np.maximum(mean @ shared["hidden"]["weight"] + shared["hidden"]["bias"], 0)
        found.append(table @ context / max(np.linalg.norm(context), 1e-6))
    return np.array(found)


def test_the_loss_is_the_squared_hinge_of_the_cosine(batch):
    each = np.maximum(0, 0.9 - cosines(SHARED)[np.arange(ROWS), TARGETS]) ** 2
    np.testing.assert_allclose(PROBLEM.score(SHARED, {}, batch)["loss"], each, atol=1e-12)
    np.testing.assert_allclose(PROBLEM.loss(SHARED, {}, batch), each[:20].mean(), atol=1e-12)
    np.testing.assert_allclose(PROBLEM.predict(SHARED, {}, batch.inputs), cosines(SHARED), atol=1e-12)


def test_recall_at_10_is_whether_the_target_is_among_the_ten_nearest(batch):
    nearest = np.argsort(-cosines(SHARED), axis=1)[:, :10]
    expected = np.array([target in ten for target, ten in zip(TARGETS, nearest, strict=True)], float)
    found = np.asarray(PROBLEM.score(SHARED, {}, batch)["recall@10"])
    context = np.arange(ROWS)[np.abs(cosines(SHARED)).max(axis=1) > 0]  # a context of zeros is as near to all
    np.testing.assert_array_equal(found[context], expected[context])
    assert 0 < found.mean() < 1 and PROBLEM.maximise == ("recall@10",)


def test_where_all_vectors_are_one_nothing_is_found(batch):
    collapsed = SHARED | {"table": np.ones((SIZE, WIDTH))}
    assert not np.asarray(PROBLEM.score(collapsed, {}, batch)["recall@10"]).any()


def test_gradients_are_finite_and_stay_in_the_rows_that_the_batch_says(batch):
    gradient = jax.grad(PROBLEM.loss)(jax.tree.map(jnp.asarray, SHARED), {}, batch)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradient))
    touched = np.unique(PROBLEM.tables.rows(batch))
    assert touched[0] == -1 and set(touched[1:]) == set(INPUTS[:20].ravel()) - {-1} | set(TARGETS[:20])
    others = np.setdiff1d(np.arange(SIZE), touched)
    assert len(others) and not np.asarray(gradient["table"])[others].any()


def test_a_batch_in_new_numbers_means_the_same(batch):
    order = RANDOM.permutation(SIZE)
    renumbered = PROBLEM.tables.renumber(batch, lambda numbers: jnp.where(numbers >= 0, order[numbers], -1))
    moved = SHARED | {"table": np.empty_like(SHARED["table"])}
    moved["table"][order] = SHARED["table"]
    np.testing.assert_allclose(PROBLEM.loss(moved, {}, renumbered), PROBLEM.loss(SHARED, {}, batch), atol=1e-15)


def test_a_spec_rebuilds_it(batch):
    mixed = ct.with_central_loss(PROBLEM, "spreadout")
    for problem in (PROBLEM, mixed):
        spec = {name: value for name, value in problem.spec.items() if name not in ("central_loss", "weights")}
        again = problem_from_spec(spec)
        start = again.init(jax.random.key(1))
        assert jax.tree.map(jnp.shape, start[0])["table"] == (SIZE, WIDTH) and not jax.tree.leaves(start[1])
        np.testing.assert_array_equal(again.loss(*start, batch), PROBLEM.loss(*start, batch))
    assert mixed.spec["central_loss"] == {"name": "spreadout"}


@pytest.mark.parametrize("size", [1, 3, WIDTH, 4 * WIDTH, 4 * WIDTH + 1, 100])
def test_spreadout_is_the_norm_of_the_cosines_without_the_diagonal(size):
    table = RANDOM.normal(size=(size, WIDTH))
    rows = table / np.linalg.norm(table, axis=1, keepdims=True)
    gram = rows @ rows.T
    expected = np.linalg.norm(gram - np.diag(np.diag(gram)))
    np.testing.assert_allclose(norm_of_cosines(jnp.asarray(table)), expected, rtol=1e-12)
    central = ct.with_central_loss(PROBLEM, "spreadout", [0.3, 0.7]).central
    assert not central.needs_data
    np.testing.assert_allclose(central.loss(SHARED | {"table": table}, {}, None), 0.7 * expected, rtol=1e-12)
    weak = ct.with_central_loss(PROBLEM, {"name": "spreadout", "strength": 0.01}, [0.3, 0.7]).central
    np.testing.assert_allclose(weak.loss(SHARED | {"table": table}, {}, None), 0.007 * expected, rtol=1e-12)


@pytest.mark.parametrize("size", [4 * WIDTH, 4 * WIDTH + 1])
def test_the_gradient_of_spreadout_is_that_of_the_large_matrix(size):
    def plain(table):
        rows = table / jnp.linalg.norm(table, axis=1, keepdims=True)
        return jnp.sqrt((jnp.where(jnp.eye(size, dtype=bool), 0, rows @ rows.T) ** 2).sum())

    table = jnp.asarray(RANDOM.normal(size=(size, WIDTH)))
    np.testing.assert_allclose(jax.grad(norm_of_cosines)(table), jax.grad(plain)(table), atol=1e-13)


def test_rows_at_right_angles_have_no_spreadout_and_no_gradient():
    np.testing.assert_array_equal(jax.grad(norm_of_cosines)(jnp.eye(WIDTH)), np.zeros((WIDTH, WIDTH)))
    assert norm_of_cosines(jnp.eye(WIDTH)) == 0


def test_mistakes_are_refused(batch):
    with pytest.raises(InputError, match=r"inputs of shape \(3, 2\)"):
        ct.dual_encoder(Shapes((3, 2)), vocabulary=5)
    with pytest.raises(InputError, match="classes=None; give vocabulary"):
        ct.dual_encoder(Shapes((3,)))
    texts = {"ann": (np.zeros((4, 3), np.int32), np.zeros((4, 2), np.int32))}
    with pytest.raises(InputError, match="several targets"):
        ct.dual_encoder(ct.from_clients(texts, classes=3))
    with pytest.raises(InputError, match="inputs of type float64"):
        PROBLEM.loss(SHARED, {}, batch._replace(inputs=jnp.ones((ROWS, CONTEXT))))
    with pytest.raises(InputError, match="strength is -1; give 0 or more"):
        ct.with_central_loss(PROBLEM, {"name": "spreadout", "strength": -1})
    with pytest.raises(InputError, match="spreadout .* no tables"):
        ct.with_central_loss(ct.logistic(Shapes((3,), 2)), "spreadout")
