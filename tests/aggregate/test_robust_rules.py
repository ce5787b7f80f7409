"""Robust rules: what they all have in common, what each is in special cases, and NumPy written from the papers.

`byzfl` has most of these rules and wants PyTorch, which tests do without; its NumPy versions were held against ours
once. Its Krum counts one neighbour more than the paper's: what it calls f is our f + 1.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import cantons as ct
from cantons.aggregate import row_algebra
from cantons.aggregate.robust import draw_buckets
from cantons.protocol import Average, SumRule

pytestmark = pytest.mark.usefixtures("float64")

# Rules as a study would name them; each bears two liars among nine, in buckets of two as well where it can.
RULES = {
    "median": ct.median(f=2), "trimmed_mean": ct.trimmed_mean(f=2), "krum": ct.krum(f=2),
    "multi_krum": ct.multi_krum(f=2), "geometric_median": ct.geometric_median(f=2, steps=30),
    "centred_clipping": ct.centred_clipping(f=2, radius=2.0, steps=3), "norm_bound": ct.norm_bound(radius=1.5),
    "median, buckets": ct.median(bucket=2, f=2), "trimmed_mean, mixed": ct.trimmed_mean(f=2, mix=True),
    "krum, mixed": ct.krum(f=2, mix=True), "geometric_median, both": ct.geometric_median(bucket=2, mix=True, f=1),
    "centred_clipping, buckets": ct.centred_clipping(bucket=2, f=1, radius=2.0, steps=20),
    "multi_krum, buckets": ct.multi_krum(bucket=2, f=1),
}
COMPILED = {}  # each rule once for each shape
FIXED_POINT = ("centred_clipping", "norm_bound")  # rules that have a place of their own, and a radius
IDS = np.array([0, 3, 4, 7, 11, 12, 20, 21, 30])
ROWS = np.random.default_rng(1).normal(size=(9, 5)) + 0.3


def play(recipe, rows, weights=None, ids=IDS, key=0):
    """One round of a rule on uploads that are two leaves: the average, the rule's new state, and its report."""
    rule, weights = recipe.build(), jnp.ones(len(rows)) if weights is None else jnp.asarray(weights, float)
    uploads = Average({"a": jnp.asarray(rows)[:, :2], "b": jnp.asarray(rows)[:, 2:]}, weights)
    state = rule.init(jax.tree.map(lambda leaf: leaf[0] * 0, uploads.value))
    if isinstance(rule, SumRule):
        lifted = jax.vmap(lambda upload: rule.lift(state, upload))(uploads)
        total = jax.tree.map(lambda leaf: jnp.tensordot((weights > 0).astype(float), leaf, 1), lifted)
        return rule.finish(jax.random.key(key), state, total, len(rows))
    reduce = COMPILED.setdefault(str(recipe[:2]), jax.jit(rule.reduce))
    return reduce(jax.random.key(key), state, uploads, jnp.asarray(ids), len(rows))


def value(recipe, *args, **options):
    found = play(recipe, *args, **options)[0].value
    return np.concatenate([found["a"], found["b"]])


def close(left, right, tolerance=1e-9):
    np.testing.assert_allclose(left, right, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", RULES)
def test_order_padding_weights_and_finite_lies_do_not_matter(name):
    rule, expected = RULES[name], value(RULES[name], ROWS)
    order = np.random.default_rng(2).permutation(9)
    close(value(rule, ROWS[order], ids=IDS[order]), expected)
    padded = np.concatenate([ROWS, np.full((3, 5), 77.0)]), [1.0] * 9 + [0.0] * 3
    close(value(rule, *padded, ids=np.concatenate([IDS, np.full(3, 99)])), expected)
    close(value(rule, ROWS, [1, 1e6, 2, 1, 1, 1, 3, 1, 0.5]), expected)  # a liar claims a million examples
    lie = np.where(np.arange(9)[:, None] == 3, 1e200, ROWS)  # whose square is infinite
    assert np.isfinite(value(rule, lie)).all()


@pytest.mark.parametrize("name", RULES)
def test_equal_rows_are_their_own_aggregate_and_rules_move_with_the_rows(name):
    rule, shift = RULES[name], np.arange(5.0) - 2
    if name == "norm_bound":
        close(value(rule, np.tile(shift / 4, (9, 1))), shift / 4)
        return
    if not name.startswith(FIXED_POINT):
        close(value(rule, np.tile(shift, (9, 1))), shift)
        close(value(rule, ROWS + shift), value(rule, ROWS) + shift, 1e-7)
        close(value(rule, -3 * ROWS), -3 * value(rule, ROWS), 1e-5)  # but for Weiszfeld's smoothing
    else:
        close(value(rule, np.tile(shift / 2, (9, 1))), shift / 2)


def test_special_cases_are_the_mean_the_median_and_nothing():
    mean = ROWS.mean(axis=0)
    close(value(ct.trimmed_mean(), ROWS), mean)
    close(value(ct.trimmed_mean(f=4), ROWS), value(ct.median(), ROWS))
    close(value(ct.median(), ROWS), np.median(ROWS, axis=0))
    close(value(ct.centred_clipping(radius=None), ROWS), mean)
    close(value(ct.norm_bound(radius=1e30), ROWS), mean)
    close(value(ct.multi_krum(), ROWS), mean)
    for recipe in (ct.median, ct.trimmed_mean, ct.geometric_median, ct.krum):
        close(value(recipe(bucket=9), ROWS), mean)
        close(value(recipe(mix=True), ROWS), mean)  # with f = 0 all are everybody's neighbours
        np.testing.assert_array_equal(value(recipe(bucket=1), ROWS), value(recipe(), ROWS))


def test_the_median_has_the_bits_of_numpys():
    with jax.enable_x64(False):
        rows = jax.random.normal(jax.random.key(0), (8, 5), jnp.float32)
        np.testing.assert_array_equal(value(ct.median(), rows, ids=jnp.arange(8)), jnp.nanmedian(rows, axis=0))


def test_krum_does_not_count_a_row_as_its_own_neighbour():
    rows = jnp.array([0, 1, 2.1, 3.3, 10])[:, None] * jnp.ones(5)
    average, _, report = play(ct.krum(f=1), rows, ids=jnp.arange(5))
    close(average.value["a"], [1, 1])
    np.testing.assert_array_equal(report.rejected, [True, False, True, True, True])


def test_whoever_shares_a_bucket_is_set_aside_with_it():
    rows = np.where(np.arange(9)[:, None] == 4, 50.0, ROWS)
    _, _, report = play(ct.multi_krum(bucket=2, keep=4), rows)
    buckets = np.asarray(draw_buckets(jax.random.key(0), IDS, jnp.ones(9, bool), 2))
    np.testing.assert_array_equal(report.rejected, buckets == buckets[4])
    assert sorted(np.bincount(buckets)) == [1, 2, 2, 2, 2]


def test_buckets_are_of_those_who_arrived_and_differ_from_round_to_round():
    there = jnp.array([True, False, True, True, True, False, True, True, True])
    some = np.asarray(draw_buckets(jax.random.key(5), IDS, there, 3))
    alone = np.asarray(draw_buckets(jax.random.key(5), IDS[np.asarray(there)], jnp.ones(7, bool), 3))
    np.testing.assert_array_equal(some[np.asarray(there)], alone)
    assert (some[~np.asarray(there)] >= 3).all()
    draws = {tuple(np.asarray(draw_buckets(jax.random.key(key), IDS, there, 3))) for key in range(9)}
    assert len(draws) > 5


def test_long_leaves_are_sorted_in_blocks(monkeypatch):
    rows = np.random.default_rng(3).normal(size=(9, 23))
    monkeypatch.setattr(row_algebra, "BLOCK", 7)
    COMPILED.clear()
    for recipe, expected in ((ct.median(), np.median(rows, axis=0)),
                             (ct.trimmed_mean(f=1), np.sort(rows, axis=0)[1:-1].mean(axis=0))):
        close(value(recipe, rows), expected)
    COMPILED.clear()


def test_centred_clipping_remembers_and_rules_report_whom_they_clip():
    rule = ct.centred_clipping(radius=0.5, max_weight=2.0).build()
    uploads = Average(jnp.asarray(ROWS), jnp.full(9, 7.0))
    first, state, report = rule.reduce(jax.random.key(0), rule.init(uploads.value[0]), uploads, IDS, 9)
    second, *_ = rule.reduce(jax.random.key(0), state, uploads, IDS, 9)
    np.testing.assert_array_equal(state, first.value)
    assert np.linalg.norm(first.value) < min(0.5, np.linalg.norm(second.value))
    assert report.numbers["clipped"] == pytest.approx(1) and first.weight == 18
    close(play(ct.norm_bound(radius=1.5), ROWS)[2].numbers["clipped"],
          (np.linalg.norm(ROWS, axis=1) > 1.5).mean())


# From the papers, in NumPy


def numpy_mix(rows, f):
    near = np.argsort(((rows[:, None] - rows) ** 2).sum(axis=2), axis=1)[:, :len(rows) - f]
    return rows[near].mean(axis=1)


def numpy_krum(rows, f, keep):
    distances = np.sort(((rows[:, None] - rows) ** 2).sum(axis=2), axis=1)[:, 1:len(rows) - f - 1]
    return rows[np.argsort(distances.sum(axis=1))[:keep]].mean(axis=0)


def numpy_geometric_median(rows):
    point = rows.mean(axis=0)
    for _ in range(2000):
        pull = 1 / np.maximum(1e-6, np.linalg.norm(rows - point, axis=1))
        point = pull @ rows / pull.sum()
    return point


def test_a_geometric_median_leaves_a_row_that_is_the_median_of_every_coordinate():
    rows = np.zeros((5, 5))
    rows[1:, :2] = [[3, -1], [-1, 3], [4, -1], [-1, 4]]
    expected = numpy_geometric_median(rows)
    assert expected[0] > 0.1 and (np.median(rows, axis=0) == 0).all()
    close(value(ct.geometric_median(steps=300), rows, ids=np.arange(5)), expected, 1e-6)
    close(value(ct.geometric_median(), rows, ids=np.arange(5)), expected, 0.05)


def numpy_centred_clipping(rows, radius, steps):
    point = np.zeros(rows.shape[1])
    for _ in range(steps):
        change = rows - point
        point = point + (change * np.minimum(1, radius / np.linalg.norm(change, axis=1))[:, None]).mean(axis=0)
    return point


def test_rules_are_those_of_the_papers_to_six_digits():
    rows = ROWS
    close(value(ct.krum(f=2), ROWS), numpy_krum(rows, 2, 1), 1e-6)
    close(value(ct.multi_krum(f=2), ROWS), numpy_krum(rows, 2, 7), 1e-6)
    close(value(ct.multi_krum(f=1, keep=3), ROWS), numpy_krum(rows, 1, 3), 1e-6)
    close(value(ct.geometric_median(steps=300), ROWS), numpy_geometric_median(rows), 1e-6)
    close(value(ct.centred_clipping(radius=0.7, steps=4), ROWS), numpy_centred_clipping(rows, 0.7, 4), 1e-6)
    close(value(ct.median(f=3, mix=True), ROWS), np.median(numpy_mix(rows, 3), axis=0), 1e-6)
    close(value(ct.trimmed_mean(f=3), ROWS), np.sort(rows, axis=0)[3:-3].mean(axis=0), 1e-6)


# What is refused


@pytest.mark.parametrize("recipe, cohort, words", [
    (ct.median(f=4), 7, "median bears at most 3 liars in a cohort of 7, and f is 4"),
    (ct.krum(f=3), 7, "krum bears at most 2 liars in a cohort of 7, and f is 3"),
    (ct.krum(f=1, bucket=2), 7, "krum bears at most 0 liars in the 4 buckets that a cohort of 7 makes"),
    (ct.trimmed_mean(f=2, bucket=2), 7, "at most 1 liar in the 4 buckets .* lower f, or bucket"),
    (ct.median(bucket=8), 7, "buckets of 8 uploads, and a cohort has 7"),
    (ct.multi_krum(), 2, "multi_krum can do nothing with a cohort of 2")])
def test_more_liars_than_a_rule_bears_and_buckets_beyond_the_cohort_are_refused(recipe, cohort, words, least_squares,
                                                                              numbers):
    with pytest.raises(ct.InputError, match=words):
        ct.run(least_squares, numbers, ct.fedavg(), rounds=1, cohort=cohort, aggregate=recipe)


def test_one_device_or_two_padding_or_none_give_the_same_run(labels):
    recipe = ct.centred_clipping(radius=0.1, bucket=2, mix=True, f=1)
    problem = ct.logistic(labels, split="*/bias")
    one, two = (ct.run(problem, labels, ct.fedavg(), rounds=3, cohort=5, precision="float64", aggregate=recipe,
                       engine=engine) for engine in (ct.Local(mode="scan", devices=1), ct.Local(group=3, devices=2)))
    jax.tree.map(lambda left, right: np.testing.assert_allclose(left, right, rtol=1e-12, atol=1e-12),
                 one.model.state, two.model.state)
