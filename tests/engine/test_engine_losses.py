"""Uploads that are not numbers: left out, counted and named, and their clients are as if they had not acted.

Clients 2 and 4 hold numbers so large that their losses overflow. Everything is compared with the same federation
in which those two never take part.
"""

from typing import NamedTuple

import jax
import numpy as np
import pytest
import toy_algorithm as toy
from starting import enlarged

import cantons as ct
from cantons.engine.client import finite
from cantons.protocol import Algorithm, Clock, Plan, PyTree, Recipe, Stack

pytestmark = pytest.mark.usefixtures("float64")

BROKEN, SOUND = [2, 4], [0, 1, 3, 5, 6]
HUGE = 1e200


@pytest.fixture(scope="module")
def overflowing(numbers):
    return enlarged(numbers, np.where(np.isin(np.arange(7), BROKEN), HUGE, 1.0))


def only(clients):
    return ct.rounds(available=np.isin(np.arange(7), clients)[None])


def weight(state):
    return state.server.shared["layer0"]["weight"][:, 0]


@pytest.mark.parametrize("recipe", [
    ct.fedavg(step_size=0.05, batch_size=None),
    ct.scaffold(step_size=0.05, steps=2, batch_size=None),
    toy.median_descent(step_size=0.05),
], ids=["a weighted mean", "a mean with state", "a stack"])
def test_the_others_aggregate_is_the_one_without_the_broken_clients(recipe, played, least_squares, overflowing):
    after = played(least_squares, overflowing, recipe, 4, clock=only(range(7)))
    without = played(least_squares, overflowing, recipe, 4, clock=only(SOUND))
    np.testing.assert_array_equal(after.uploads - without.uploads, np.where(np.isin(np.arange(7), BROKEN), 4, 0))
    assert np.abs(weight(after)).min() > 0
    np.testing.assert_allclose(weight(after), weight(without), atol=1e-12)
    jax.tree.map(lambda left, right: np.testing.assert_allclose(left, right, atol=1e-12), after.server, without.server)


def test_a_lost_upload_leaves_its_client_bit_for_bit_as_it_was(played, numbers, overflowing):
    problem = ct.regression(numbers, ct.linear(), split="*/bias")
    before, after = (played(problem, overflowing, ct.scaffold(step_size=0.05, batch_size=None), rounds)
                     for rounds in (0, 3))
    jax.tree.map(lambda left, right: np.testing.assert_array_equal(left[BROKEN], right[BROKEN]),
                 before.clients, after.clients)
    np.testing.assert_array_equal(after.clients.visits[SOUND], 3)
    np.testing.assert_allclose(after.server.control["layer0"]["weight"],
                               after.clients.own_control["layer0"]["weight"].mean(axis=0), atol=1e-12)


def test_lost_uploads_travelled_and_are_counted_but_not_acknowledged(played, least_squares, overflowing):
    after = played(least_squares, overflowing, ct.fedavg(step_size=0.05, batch_size=None), 3, clock=only(range(7)))
    np.testing.assert_array_equal(after.uploads, 3)
    np.testing.assert_array_equal(after.rejected, [0, 0, 3, 0, 3, 0, 0])
    np.testing.assert_array_equal(after.acknowledged, np.isin(np.arange(7), BROKEN))  # the last one is on its way
    assert after.skipped == 0


def test_the_record_names_the_clients_left_out(least_squares, overflowing):
    told = []

    class Listener(ct.Callback):
        def noticed(self, sentence):
            told.append(sentence)

        def advised(self, sentence):
            assert "e+199" in sentence

    result = ct.run(least_squares, overflowing, ct.fedavg(step_size=0.05, batch_size=None), rounds=4,
                    evaluate_every=2, precision="float64", callbacks=[Listener()])
    assert [row["rejected_uploads"] for row in result.history] == [0, 4, 8]
    assert result.final["rejected_clients"] == ["client2", "client4"]
    assert result.final["skipped_rounds"] == 0
    assert len(told) == 2 and all("4 uploads" in sentence and "client2, client4" in sentence for sentence in told)


def test_when_every_upload_is_lost_the_server_stays_and_the_rounds_are_skipped(played, least_squares,
                                                                                numbers):
    data = enlarged(numbers, np.full(7, HUGE))
    before, after = (played(least_squares, data, ct.scaffold(step_size=0.05, steps=2, batch_size=None), rounds,
                            clock=only(range(7))) for rounds in (0, 3))
    jax.tree.map(np.testing.assert_array_equal, before.server, after.server)
    jax.tree.map(np.testing.assert_array_equal, before.clients, after.clients)
    assert (after.round, after.skipped) == (3, 3)
    np.testing.assert_array_equal(after.rejected, 3)


@pytest.mark.parametrize("size", [1, 10_007])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_one_number_that_is_none_spoils_an_upload_wherever_it_stands(value, size):
    check = jax.jit(finite)
    for dtype in (np.float32, np.float64):
        sound = {"a": np.full(size, -1.0, dtype), "b": [np.full((2, size), np.finfo(dtype).max, dtype)]}
        assert check(sound)
        for place in {0, size // 2, size - 1}:
            for leaf in range(2):
                leaves, structure = jax.tree.flatten(sound)
                leaves[leaf] = leaves[leaf].copy()
                leaves[leaf].reshape(-1)[place] = value
                assert not check(structure.unflatten(leaves))


def test_an_upload_without_real_numbers_is_always_sound():
    for upload in ((), {"votes": np.ones(3, np.int8), "there": np.array(True)}, np.zeros((0, 4))):
        assert finite(upload)


class Seen(NamedTuple):
    shared: PyTree
    rows: jax.Array
    ids: jax.Array
    counts: jax.Array


def test_a_stack_rule_sees_no_number_that_did_not_arrive(played, least_squares, overflowing):
    """Lost uploads, those of clients that are not counted, and spare slots are rows of zeros with a count of 0."""

    def build(problem, population):
        gradient = jax.grad(problem.loss)
        slots = 8  # seven clients, by twos on two devices
        return Algorithm(
            init_server=lambda key, shared, private: Seen(shared, np.zeros((slots, 3)), np.zeros(slots, np.int32),
                                                 np.zeros(slots, np.int32)),
            init_client=lambda key, shared, private: private,
            broadcast=lambda key, server, central: server.shared,
            client_update=lambda key, shared, private, data: (gradient(shared, private, data.full()), private),
            aggregate=Stack(lambda key, uploads, ids, counts: (uploads["layer0"]["weight"][..., 0], ids, counts)),
            server_update=lambda key, server, seen, central: Seen(server.shared, *seen),
            model=lambda key, shared, private, data: (shared, private),
        )

    there = np.ones(7, bool)
    counts = np.array([1, 0, 1, 2, 1, 0, 1], np.int32)
    clock = Clock(7, True, Plan(np.arange(7, dtype=np.int32), there, counts, there), lambda plan, key, round: plan)
    server = played(least_squares, overflowing, Recipe("stack", {}, build), 1, engine=ct.Local(devices=2, group=2),
                    clock=Recipe("some count", {}, lambda population: clock)).server
    np.testing.assert_array_equal(server.ids, [0, 1, 2, 3, 4, 5, 6, 7])
    np.testing.assert_array_equal(server.counts, [1, 0, 0, 2, 0, 0, 1, 0])
    np.testing.assert_array_equal(np.abs(server.rows).max(axis=1) > 0, server.counts > 0)


def test_a_client_that_acts_without_the_message_cannot_know_it(played, least_squares, numbers):
    """It sees NaN in its place, so its upload is no number and is left out like any other such upload."""
    ids, there = np.arange(7, dtype=np.int32), np.ones(7, bool)
    deaf = np.isin(ids, BROKEN)

    def state(acts, hears):
        plan = Plan(ids, acts, acts.astype(np.int32), hears)
        clock = Clock(7, False, plan, lambda plan, key, round: plan)
        return played(least_squares, numbers, ct.fedavg(step_size=0.05, batch_size=None), 2,
                      clock=Recipe("deaf", {}, lambda population: clock))

    after, without = state(there, ~deaf), state(~deaf, ~deaf)
    np.testing.assert_array_equal(weight(after), weight(without))
    np.testing.assert_array_equal(after.rejected, np.where(deaf, 2, 0))
    np.testing.assert_array_equal(after.clients.visits, np.where(deaf, 0, 2))
    np.testing.assert_array_equal(after.downloads, np.where(deaf, 0, 2))


def test_bookkeeping_by_heard_survives_any_sets_of_actors_counted_and_hearers(played, least_squares, overflowing):
    """Who hears, acts and is counted is drawn at random, and two clients' uploads are always lost."""
    random, rounds = np.random.default_rng(0), 60
    hears = random.random((rounds, 7)) < 0.7
    acts = hears & (random.random((rounds, 7)) < 0.7)
    counts = (acts & (random.random((rounds, 7)) < 0.6)).astype(np.int32)
    plans = Plan(np.tile(np.arange(7, dtype=np.int32), (rounds, 1)), acts, counts, hears)
    clock = Clock(7, False, plans, lambda plans, key, round: jax.tree.map(lambda part: part[round], plans))
    state = played(least_squares, overflowing, toy.gradient_table(step_size=0.02), rounds,
                   clock=Recipe("at random", {}, lambda population: clock))
    np.testing.assert_array_equal(state.downloads, hears.sum(axis=0))
    np.testing.assert_array_equal(state.uploads, counts.sum(axis=0))
    np.testing.assert_array_equal(state.rejected, np.where(np.isin(np.arange(7), BROKEN), counts.sum(axis=0), 0))
    known = np.where(state.acknowledged[:, None, None], state.clients.told["layer0"]["weight"],
                     state.clients.pending["layer0"]["weight"]).sum(axis=0)
    np.testing.assert_allclose(known, state.server.total["layer0"]["weight"], atol=1e-12)
    assert np.abs(known).max() > 0
