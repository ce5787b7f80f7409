"""Events of the asynchronous clock, on least squares in a shared and a private part, tuned exactly."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from starting import restored, start

import cantons as ct
from cantons.clock.staleness import staleness_of
from cantons.engine.init import seed_keys
from cantons.errors import InputError

pytestmark = pytest.mark.usefixtures("float64")

CLIENTS, STEP = 5, 0.05
DATA = ct.synthetic_least_squares(CLIENTS, rows=12, shared=3, private=2, targets="own")
PROBLEM = ct.residual(DATA, shared_features=[0, 1, 2], private_features=[3, 4], shared_model=ct.linear(bias=False),
                      private_model=ct.linear(bias=False))
FFGG = ct.ffgg(step_size=STEP, tuner="exact")
UNEVEN = {"name": "log_normal", "spread": 1.0, "jitter": 0.5}


@pytest.fixture(scope="module")
def session_of():
    """One session for each clock, with its devices."""
    kept = {}

    def find(algorithm=FFGG, devices=1, **options):
        key = algorithm.name, str(algorithm.options), devices, str(options)
        if key not in kept:
            clock = (ct.asynchronous(**options) if options else ct.rounds()).build(CLIENTS)
            kept[key] = start(ct.Local(devices=devices), PROBLEM, algorithm.build(PROBLEM, CLIENTS), clock, DATA)
        return kept[key]

    return find


def follow(session, events):
    """The states before and after each event, on the host."""
    state, found = session.begin(), []
    for number in range(events + 1):
        state = session.advance(state, number)
        found.append(jax.device_get(state))
    return found


def played(session, events):
    return jax.device_get(session.advance(session.begin(), events))


def theta(state):
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(state.server.shared)])


def same(left, right):
    """All but what is in flight, bit for bit."""
    jax.tree.map(np.testing.assert_array_equal, left._replace(in_flight=()), right._replace(in_flight=()))


def events_of(session, count):
    """The events alone, without any learning."""
    clock, (_, key, _) = session.clock, seed_keys(0)
    events = clock.asynchronous

    def step(jobs, round):
        event, jobs = events.next(clock.arrays, key, jobs, round)
        return jobs, (event, jobs)

    first, ids = events.begin(clock.arrays, key)
    _, found = jax.lax.scan(step, first, jnp.arange(count, dtype=jnp.int32))
    return (first, ids), *jax.device_get(found)


def test_a_buffer_for_everybody_at_one_speed_is_synchronous_rounds_bit_for_bit(session_of):
    rounds = played(session_of(), 4)
    events = played(session_of(buffer=CLIENTS, next="same"), 4)
    # All have got the message of the round to come already.
    same(rounds._replace(ledger=rounds.ledger + np.array([0, 1, 0, 0, 0], np.int32)), events)
    assert events.in_flight.time[0] == 4 and events.in_flight.longest == 0


@pytest.mark.parametrize("devices", [1, 2])
@pytest.mark.parametrize("recipe", [
    ct.fedavg(step_size=0.1, batch_size=4), ct.ffgg(step_size=0.1, delta_batch_size=4, private_init="random")],
    ids=lambda recipe: recipe.name)
def test_the_only_client_of_a_federation_makes_rounds_bit_for_bit(recipe, devices):
    """Also where it draws batches, and the beginnings of tunings."""
    data = ct.synthetic_least_squares(1, rows=12, shared=3, private=2)
    problem = ct.regression(data, ct.mlp(hidden=[3]), split="output")
    algorithm, engine = recipe.build(problem, 1), ct.Local(devices=devices)
    rounds, events = (played(start(engine, problem, algorithm, clock.build(1), data), 5)
                      for clock in (ct.rounds(), ct.asynchronous(next="drawn", durations=UNEVEN)))
    same(rounds._replace(ledger=rounds.ledger + np.array([0, 1, 0, 0, 0], np.int32)), events)


def test_a_job_draws_by_its_number_whenever_it_ends(session_of):
    """The first jobs of all, one event after another, send what the first round sends."""
    recipe = ct.fedavg(step_size=0.1, batch_size=4, weighting="uniform")
    first, once = (theta(state) for state in follow(session_of(recipe), 1))
    events = theta(played(session_of(recipe, next="same"), CLIENTS))
    np.testing.assert_allclose(events - first, CLIENTS * (once - first), atol=1e-12)


def test_at_one_speed_every_delay_is_one_less_than_the_clients_once_all_have_answered(session_of):
    _, event, _ = events_of(session_of(next="same"), 4 * CLIENTS)
    delays = np.arange(4 * CLIENTS) - event.version[:, 0]
    np.testing.assert_array_equal(delays[:CLIENTS], np.arange(CLIENTS))  # all began at the start
    np.testing.assert_array_equal(delays[CLIENTS:], CLIENTS - 1)
    np.testing.assert_array_equal(event.ids[:, 0], np.arange(4 * CLIENTS) % CLIENTS)  # ties by id


@pytest.mark.parametrize("devices", [1, 2])
@pytest.mark.parametrize("next", ["same", "drawn"])
def test_the_server_is_behind_the_virtual_iterate_by_the_jobs_under_way(next, session_of, devices):
    """Equation (16): theta - theta_hat = gamma * the sum of active Deltas, at every event."""
    session, events = session_of(devices=devices, next=next, durations=UNEVEN), 12
    states = follow(session, events)
    (_, ids), event, after = events_of(session, events)
    thetas = [theta(state) for state in states]

    @jax.jit
    def delta_at(shared, client):
        data = DATA.train.client(client)
        message = session.algorithm.broadcast(jax.random.key(0), states[0].server._replace(shared=shared), None)
        idle = jax.tree.map(lambda leaf: leaf[0], states[0].clients)
        tuned = session.algorithm.model(jax.random.key(0), message, idle, data).private
        return jax.grad(PROBLEM.loss)(shared, tuned, data.full())

    def delta(client, version):
        """Delta of a client at the server's point after so many events."""
        found = delta_at(states[version].server.shared, client)
        return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(found)])

    active = [(int(client), 0) for client in ids]
    virtual = thetas[0] - STEP * sum(delta(*job) for job in active)
    for number in range(events):
        np.testing.assert_allclose(thetas[number] - virtual, STEP * sum(delta(*job) for job in active), atol=1e-12)
        active.remove((int(event.ids[number, 0]), int(event.version[number, 0])))
        begins = int(event.begins[number, 0])
        active.append((begins, number + 1))
        virtual = virtual - STEP * delta(begins, number + 1)
        rows = after.rows.client[number].tolist(), after.rows.version[number].tolist()
        assert sorted(active) == sorted(zip(*rows, strict=True))


@pytest.mark.parametrize("options", [
    {"next": "same", "durations": UNEVEN, "buffer": 2}, {"next": "drawn", "durations": UNEVEN, "buffer": 3}])
def test_any_number_of_devices_and_a_kill_change_nothing(options, session_of):
    one, two = session_of(**options), session_of(devices=2, **options)
    alone = played(one, 9)
    same(alone, played(two, 9))
    resumed = one.advance(restored(one, played(one, 4)), 9)
    jax.tree.map(np.testing.assert_array_equal, alone, jax.device_get(resumed))


@pytest.mark.parametrize("options", [{"next": "drawn", "concurrency": 3}, {"next": "drawn", "buffer": 3},
                                     {"next": "same", "concurrency": 4, "buffer": 2}])
def test_messages_jobs_and_traffic_are_what_a_ledger_by_hand_says(options, session_of):
    """Each job ends with the message it began with, in the order its client got them, and at its own time."""
    session, events = session_of(durations=UNEVEN, **options), 30
    (_, ids), event, _ = events_of(session, events)
    kept, under_way, begun = {0: 0}, {(int(client), 0): 0 for client in ids}, np.bincount(ids, minlength=CLIENTS)
    for number in range(events):
        rows = [row for row in range(event.ids.shape[1]) if event.ids[number, row] < CLIENTS]
        clients = event.ids[number, rows]
        assert len(rows) and len(set(clients.tolist())) == len(rows)
        for row in rows:
            client, job = int(event.ids[number, row]), int(event.job[number, row])
            assert job == min(other for one, other in under_way if one == client)
            version = under_way.pop((client, job))
            assert version == event.version[number, row] and kept[int(event.place[number, row])] == version
        kept[int(event.free[number])] = number + 1
        for client in event.begins[number][event.begins[number] < CLIENTS]:
            under_way[int(client), int(begun[client])] = number + 1
            begun[client] += 1
        assert len(under_way) == session.clock.asynchronous.places + session.clock.slots - 1
        assert set(under_way.values()) <= set(kept.values())
    assert (event.elapsed >= 0).all()
    state = played(session, events)
    np.testing.assert_array_equal(state.downloads, begun)
    np.testing.assert_array_equal(state.uploads, np.bincount(event.ids[event.ids < CLIENTS], minlength=CLIENTS))
    delays = (np.arange(events)[:, None] - event.version)[event.ids < CLIENTS]
    counts = session.evaluate(session.advance(session.begin(), events))[0].progress.events
    assert (counts.arrivals, counts.delays, counts.longest) == (len(delays), delays.sum(), delays.max())
    np.testing.assert_allclose(counts.time, event.elapsed.sum(dtype=float), rtol=2e-7)


def test_time_goes_on_where_a_single_float_would_stop(session_of):
    session, late = session_of(next="same"), 2.0**25
    state = played(session, CLIENTS)
    state = state._replace(in_flight=state.in_flight._replace(time=np.array([late, 0], np.float32)))
    state = session.advance(restored(session, state), 8 * CLIENTS)  # each of them takes one unit
    assert session.evaluate(state)[0].progress.events.time == late + 7


def test_a_staleness_factor_scales_the_step_of_one_answer(session_of):
    """Inside a weighted mean of one upload it would cancel."""
    table = {"name": "polynomial", "a": 0.5}
    plain, weak = (follow(session_of(next="same", **more), 2) for more in ({}, {"staleness": table}))
    np.testing.assert_array_equal(theta(plain[1]), theta(weak[1]))  # no delay yet
    step, smaller = (theta(states[2]) - theta(states[1]) for states in (plain, weak))
    np.testing.assert_allclose(smaller, step * 2**-0.5, rtol=1e-12)


def test_staleness_factors_are_those_of_the_paper():
    delays = jnp.arange(8)
    np.testing.assert_allclose(staleness_of({"name": "polynomial", "a": 1.0})(delays), 1 / (1 + np.arange(8)))
    np.testing.assert_allclose(staleness_of({"name": "hinge", "a": 2.0, "b": 4})(delays),
                               [1, 1, 1, 1, 1, 1 / 3, 1 / 5, 1 / 7])
    assert staleness_of("constant") is None


def test_durations_follow_from_the_seed_the_client_and_the_job_alone(session_of):
    """The first jobs of a client are as long, whoever else is at work; more clients change nothing either."""
    firsts = {}
    for clients, options in ((5, {"next": "same"}), (5, {"concurrency": 3, "buffer": 2}), (9, {})):
        clock = ct.asynchronous(durations=UNEVEN, **options).build(clients)
        jobs, ids = clock.asynchronous.begin(clock.arrays, seed_keys(0)[1])
        for client, left in zip(ids.tolist(), jobs.rows.left.tolist(), strict=True):
            assert firsts.setdefault(client, left) == left
    assert len(set(firsts.values())) == 9


@pytest.mark.parametrize(("options", "words"), [
    ({"concurrency": 6}, "concurrency is 6 but there are only 5 clients; give at most 5."),
    ({"concurrency": 2, "buffer": 3}, "buffer is 3 but only 2 jobs are under way at a time; give at most 2."),
    ({"durations": np.array([1.0, 1.0, 0.0, 1.0, 1.0])}, "durations has 0.0 for job 0 of client 2; a job takes"),
    ({"durations": -np.ones((5, 2))}, "durations has -1.0 for job 0 of client 0"),
    ({"durations": [[1.0, 2.0], [1.0]]}, "durations needs one number for each client, or a row of numbers"),
    ({"durations": {"name": "log_normal", "spread": 1e9}}, "spread is 1000000000.0; give a number from 0"),
    ({"durations": np.ones(4)}, "durations has 4 rows for 5 clients; give one for each."),
    ({"durations": {"name": "trace", "path": "nowhere.npz"}}, "cannot read an array 'durations' from nowhere.npz"),
    ({"durations": {"name": "trace"}}, "path"),
    ({"durations": "fast"}, "unknown duration 'fast'"),
    ({"staleness": {"name": "polynomial", "a": -1.0}}, "staleness.a is -1.0; give 0 or more"),
])
def test_odd_clocks_are_refused(options, words):
    with pytest.raises(InputError, match=words):
        ct.asynchronous(**options).build(CLIENTS)


@pytest.mark.parametrize(("recipe", "options", "words"), [
    (ct.l2gd(), {}, "l2gd under the clock asynchronous: its uploads must come together, because its server keeps"),
    (ct.scaffold(), {"staleness": "polynomial"}, "its aggregation is its own, .* use staleness = \"constant\""),
])
def test_algorithms_that_make_no_sense_are_refused(recipe, options, words):
    with pytest.raises(InputError, match=words):
        ct.run(PROBLEM, DATA, recipe, rounds=2, clock=ct.asynchronous(**options))
