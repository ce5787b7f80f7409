"""Who is drawn, how often, and what that does to the round."""

import itertools

import jax
import jax.extend
import numpy as np
import pytest
from scipy.stats import chisquare

import cantons as ct
from cantons.errors import InputError
from cantons.protocol import Clock, Plan, Recipe

pytestmark = pytest.mark.usefixtures("float64")


ROUNDS = 6000
TRACE = np.array([[1, 1, 0, 1, 0, 0, 1], [0, 0, 0, 0, 0, 0, 0], [0, 1, 0, 0, 0, 0, 0]], bool)


def plans(recipe, population=7):
    """The plans of many rounds."""
    clock = recipe.build(population)
    keys = jax.random.split(jax.random.key(0), ROUNDS)
    plan = jax.jit(jax.vmap(clock.plan, in_axes=(None, 0, 0)))
    return jax.device_get(plan(clock.arrays, keys, np.arange(ROUNDS, dtype=np.int32)))


def test_everybody_takes_part_by_default():
    found = plans(ct.rounds())
    assert (found.ids == np.arange(7)).all()
    assert found.acts.all() and found.hears.all() and (found.counts == 1).all()


def test_a_cohort_is_distinct_ascending_and_all_three_sets_at_once():
    found = plans(ct.rounds(cohort=3))
    assert found.ids.shape == (ROUNDS, 3)
    assert (np.diff(found.ids, axis=1) > 0).all() and found.ids.min() >= 0 and found.ids.max() < 7
    assert found.acts.all() and found.hears.all() and (found.counts == 1).all()


def test_cohorts_are_uniform_one_by_one_and_in_pairs():
    there = np.zeros((ROUNDS, 7))
    np.put_along_axis(there, plans(ct.rounds(cohort=3)).ids, 1, axis=1)
    assert chisquare(there.sum(axis=0)).pvalue > 0.001
    pairs = [(there[:, i] * there[:, j]).sum() for i, j in itertools.combinations(range(7), 2)]
    assert chisquare(pairs).pvalue > 0.001


def test_the_clients_counted_online_are_uniform_one_by_one_and_in_pairs():
    counts = plans(ct.online(counted=3)).counts
    assert (counts.sum(axis=1) == 3).all() and set(np.unique(counts)) == {0, 1}
    assert chisquare(counts.sum(axis=0)).pvalue > 0.001
    pairs = [(counts[:, i] * counts[:, j]).sum() for i, j in itertools.combinations(range(7), 2)]
    assert chisquare(pairs).pvalue > 0.001


@pytest.mark.parametrize("options", [
    {}, {"cohort": 3}, {"cohort": 5, "replace": True}, {"cohort": 2, "available": TRACE},
], ids=["everybody", "without replacement", "with replacement", "from a trace"])
def test_a_clock_keeps_the_promises_that_let_the_engine_leave_things_out(options):
    clock, found = ct.rounds(**options).build(7), plans(ct.rounds(**options))
    assert found.ids.shape[1] == clock.slots
    assert not clock.full or found.acts.all()
    assert not clock.actors_hear or (found.acts <= found.hears).all()
    assert ((found.counts > 0) <= found.acts).all()


def test_a_cohort_out_of_a_billion_costs_a_cohort():
    clock = ct.rounds(cohort=50).build(10**9)
    traced = jax.make_jaxpr(lambda key: clock.plan((), key, np.int32(0)))(jax.random.key(0))
    assert max(_sizes(traced.jaxpr)) < 1000
    ids = jax.jit(lambda key: clock.plan((), key, np.int32(0)).ids)(jax.random.key(0))
    assert len(np.unique(ids)) == 50 and ids.min() >= 0 and 5 * 10**8 < ids.max() < 10**9


def _sizes(jaxpr):
    """The number of elements of every array in a traced program."""
    for equation in jaxpr.eqns:
        yield from (variable.aval.size for variable in equation.outvars if hasattr(variable.aval, "size"))
        for inner in jax.extend.core.jaxprs_in_params(equation.params):
            yield from _sizes(inner)


def test_drawn_with_replacement_a_client_has_one_slot_and_counts_as_often_as_it_was_drawn():
    found = plans(ct.rounds(cohort=5, replace=True))
    there = found.ids < 7
    assert (found.counts.sum(axis=1) == 5).all()
    assert ((found.counts > 0) == there).all() and (found.acts == there).all() and (found.hears == there).all()
    assert ((np.diff(found.ids, axis=1) > 0) | (found.ids[:, 1:] == 7)).all()  # spare slots come last
    drawn = np.zeros((ROUNDS, 8))
    np.put_along_axis(drawn, found.ids, found.counts, axis=1)
    assert chisquare(drawn[:, :7].sum(axis=0)).pvalue > 0.001
    # How often one client is drawn in a round is binomial: its variance is n p (1 - p).
    np.testing.assert_allclose(drawn[:, :7].var(axis=0), 5 / 7 * 6 / 7, rtol=0.1)


@pytest.mark.parametrize("recipe", [ct.rounds(cohort=5, replace=True), ct.rounds(cohort=2, available=TRACE)],
                         ids=["with replacement", "from a trace"])
def test_the_seed_alone_decides_who_is_drawn_whatever_the_precision(recipe):
    wide = plans(recipe)
    with jax.enable_x64(False):
        narrow = plans(recipe)
    jax.tree.map(np.testing.assert_array_equal, wide, narrow)


def test_a_client_drawn_twice_counts_twice_and_works_once(played, least_squares, numbers, quadratics):
    plan = Plan(np.array([1, 4, 7], np.int32), np.array([True, True, False]), np.array([2, 1, 0], np.int32),
                np.array([True, True, False]))
    clock = Recipe("twice", {}, lambda population: Clock(3, False, plan, lambda plan, key, round: plan))
    recipe = ct.fedavg(step_size=0.1, steps=1, batch_size=None, weighting="uniform")
    state = played(least_squares, numbers, recipe, 1, clock=clock)
    moves = -0.1 * quadratics.gradients(np.zeros(3))
    np.testing.assert_allclose(state.server.shared["layer0"]["weight"][:, 0], (2 * moves[1] + moves[4]) / 3,
                               atol=1e-12)
    np.testing.assert_array_equal(state.clients.visits, [0, 1, 0, 0, 1, 0, 0])
    np.testing.assert_array_equal(state.uploads, [0, 1, 0, 0, 1, 0, 0])


def test_only_available_clients_are_drawn_all_of_them_where_there_are_few():
    found = plans(ct.rounds(cohort=2, available=TRACE))
    for number, (ids, acts) in enumerate(zip(found.ids, found.acts, strict=True)):
        present = np.flatnonzero(TRACE[number % 3])  # the trace starts again when it ends
        assert set(ids[acts]) <= set(present) and acts.sum() == min(2, len(present))
        assert (ids[~acts] == 7).all() and (np.diff(ids) >= 0).all()
    drawn = np.bincount(found.ids[::3].ravel(), minlength=8)[[0, 1, 3, 6]]
    assert chisquare(drawn).pvalue > 0.001


def test_a_round_without_anybody_changes_nothing_and_is_counted(played, least_squares, numbers):
    recipe, clock = ct.fedadam(step_size=0.05, batch_size=None), ct.rounds(cohort=2, available=TRACE)
    one, two, three = (played(least_squares, numbers, recipe, rounds, clock=clock) for rounds in (1, 2, 3))
    jax.tree.map(np.testing.assert_array_equal, one._replace(round=0, skipped=0), two._replace(round=0, skipped=0))
    assert (one.skipped, two.skipped, three.skipped) == (0, 1, 1)
    np.testing.assert_array_equal(three.uploads - two.uploads, [0, 1, 0, 0, 0, 0, 0])


def test_a_trace_is_read_from_a_file(tmp_path):
    np.savez(tmp_path / "trace.npz", available=TRACE)
    from_file = ct.rounds(cohort=2, available=str(tmp_path / "trace.npz")).build(7)
    np.testing.assert_array_equal(from_file.arrays, ct.rounds(cohort=2, available=TRACE).build(7).arrays)


@pytest.mark.parametrize("options, part", [
    ({"cohort": 8}, "cohort is 8 but there are only 7 clients"),
    ({"cohort": 0}, "cohort is 0"),
    ({"available": TRACE, "replace": True}, "set replace = false"),
    ({"available": TRACE[:, :5]}, r"shape \(3, 5\)"),
    ({"available": TRACE[:0]}, r"shape \(0, 7\)"),
    ({"available": "nowhere.npz"}, "cannot read an array 'available' from nowhere.npz"),
])
def test_a_cohort_that_cannot_be_drawn_is_refused(options, part):
    with pytest.raises(InputError, match=part):
        ct.rounds(**options).build(7)
