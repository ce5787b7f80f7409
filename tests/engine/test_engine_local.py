"""The local engine's own business: groups, devices, memory, and the caller's arrays."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from starting import scores, start

import cantons as ct
from cantons.errors import InputError

pytestmark = pytest.mark.usefixtures("float64")

FEDAVG = ct.fedavg(step_size=0.05, steps=3, batch_size=4)
START = np.array([1.0, -2.0, 0.5])


def close(left, right):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12), left, right)


@pytest.fixture(scope="module")
def one_by_one(played, least_squares, numbers):
    with jax.enable_x64(True):
        return played(least_squares, numbers, FEDAVG, 4, clock=ct.rounds(cohort=4))


@pytest.mark.parametrize("engine", [ct.Local(devices=1, mode="vmap", group=4), ct.Local(devices=1, group=2),
                                    ct.Local(devices=2)],
                         ids=["all at once", "by twos", "one by one on two devices"])
def test_seating_clients_of_like_size_together_changes_nothing(engine, one_by_one, played, least_squares, numbers):
    """A cohort that fills all its slots takes the path without a test for spare ones."""
    close(one_by_one, played(least_squares, numbers, FEDAVG, 4, clock=ct.rounds(cohort=4), engine=engine))


def test_float32_agrees_with_float64_to_its_own_digits(one_by_one, played, least_squares, numbers):
    with jax.enable_x64(False):
        short = played(least_squares, numbers, FEDAVG, 4, clock=ct.rounds(cohort=4))
    assert short.server.shared["layer0"]["weight"].dtype == np.float32
    np.testing.assert_allclose(short.server.shared["layer0"]["weight"], one_by_one.server.shared["layer0"]["weight"],
                               atol=1e-5)


def test_another_seed_draws_another_cohort(played, least_squares, numbers):
    first, second = (played(least_squares, numbers, FEDAVG, 4, clock=ct.rounds(cohort=4), seed=seed)
                     for seed in (0, 1))
    assert (first.uploads != second.uploads).any()


# The caller's arrays


def test_the_callers_initial_values_survive_the_run(played, least_squares, numbers, quadratics):
    shared = {"layer0": {"weight": jnp.asarray(START[:, None])}}
    recipe = ct.fedavg(step_size=0.1, steps=1, batch_size=None, weighting="uniform")
    initial = shared, {"layer0": {"weight": None}}
    first, again = (played(least_squares, numbers, recipe, 3, initial=initial) for _ in range(2))
    assert not shared["layer0"]["weight"].is_deleted()
    np.testing.assert_array_equal(shared["layer0"]["weight"][:, 0], START)
    np.testing.assert_allclose(first.server.shared["layer0"]["weight"][:, 0],
                               quadratics.mean().descended(START, 0.1, 3)[0], atol=1e-12)
    jax.tree.map(np.testing.assert_array_equal, first, again)


def test_initial_values_are_taken_in_the_precision_of_the_run(played, least_squares, numbers):
    """A float32 model may start a run in float64, and the other way round."""
    for given, wanted in ((np.float32, np.float64), (np.float64, np.float32)):
        initial = {"layer0": {"weight": jnp.asarray(START[:, None], given)}}, {"layer0": {"weight": None}}
        with jax.enable_x64(wanted is np.float64):
            state = played(least_squares, numbers, ct.fedsgd(), 2, initial=initial)
        assert state.server.shared["layer0"]["weight"].dtype == wanted


def test_new_clients_begin_where_the_caller_says(compilations):
    """They fit a bias from the one given: k steps shrink its distance to the best one by (1 - 2 step)^k."""
    random = np.random.default_rng(2)
    data = ct.from_clients({str(index): (random.normal(size=(5, 2)), random.normal(size=5)) for index in range(4)},
                           test=0, new=1)
    problem = ct.regression(data, ct.linear(), split="*/bias")
    algorithm = ct.fedavg(step_size=0.1, batch_size=None, fit_epochs=3).build(problem, 3)
    session = start(ct.Local(devices=1), problem, algorithm, ct.rounds().build(3), data, None, 0)
    weight, bias = np.array([0.5, -1.0]), 4.0
    state = session.begin(({"layer0": {"weight": weight[:, None], "bias": None}},
                           {"layer0": {"weight": None, "bias": np.array([bias])}}))
    x, y = data.new.train.inputs, data.new.train.targets
    best = (y - x @ weight).mean()
    fitted = best + 0.8**3 * (bias - best)
    found = scores(session, state, "new")["train"]
    np.testing.assert_allclose(found["personal"]["loss"], [((x @ weight + fitted - y) ** 2).mean()], atol=1e-12)
    np.testing.assert_allclose(found["shared"]["loss"], [((x @ weight + bias - y) ** 2).mean()], atol=1e-12)
    with compilations() as programs:
        jax.tree.map(np.testing.assert_array_equal, found, scores(session, state, "new")["train"])
    assert programs == []


# Scores


def test_scores_are_the_means_over_each_clients_own_examples(numbers, least_squares, own_rows):
    algorithm = FEDAVG.build(least_squares, 7)
    session = start(ct.Local(devices=2, group=2), least_squares, algorithm, ct.rounds().build(7), numbers, None, 0)
    state = session.begin(({"layer0": {"weight": START[:, None]}}, {"layer0": {"weight": None}}))
    found = scores(session, state)
    expected = [((x @ START - y) ** 2).mean() for x, y in own_rows(numbers)]
    for which in ("shared", "personal"):
        np.testing.assert_allclose(found["train"][which]["loss"], expected, atol=1e-12)
        assert np.isnan(found["test"][which]["loss"]).all()  # there are no test examples


# Memory


@pytest.fixture(scope="module")
def wide():
    """Clients whose whole data enters every step: a group needs room for all of it at once."""
    random = np.random.default_rng(3)
    data = ct.from_clients({str(index): (random.normal(size=(64, 200)), random.normal(size=64)) for index in range(8)},
                           test=0)
    return data, ct.regression(data, ct.linear())


def started(wide, **options):
    data, problem = wide
    algorithm = ct.fedavg(batch_size=None).build(problem, 8)
    return start(ct.Local(devices=1, mode="vmap", **options), problem, algorithm, ct.rounds().build(8), data, None, 0)


def test_groups_are_halved_until_a_round_fits_the_memory_allowed(wide):
    roomy = started(wide)
    state = roomy.begin()
    roomy.prepare(state)
    assert roomy.group == 8
    needs = roomy._block.memory_analysis().temp_size_in_bytes / 2**30
    tight = started(wide, memory_gib=0.5 * needs)
    tight.prepare(tight.begin())
    assert tight.group in (1, 2, 4)
    assert tight._block.memory_analysis().temp_size_in_bytes <= 0.5 * needs * 2**30
    close(*(jax.device_get(session.advance(session.begin(), 2)) for session in (roomy, tight)))


def test_memory_that_does_not_hold_a_single_client_is_refused(wide):
    session = started(wide, memory_gib=1e-6, group=2)
    with pytest.raises(InputError, match="GiB of working memory for a single client"):
        session.prepare(session.begin())


# Options


@pytest.mark.parametrize("options, part", [
    ({"mode": "pmap"}, "mode is 'pmap'"),
    ({"devices": 3}, "devices is 3; this process has 2"),
    ({"devices": 0}, "devices is 0"),
    ({"group": 0}, "group is 0"),
    ({"memory_gib": 0.0}, "memory_gib is 0.0"),
])
def test_an_engine_that_cannot_be_had_is_refused(options, part, least_squares, numbers):
    with pytest.raises(InputError, match=part):
        start(ct.Local(**options), least_squares, FEDAVG.build(least_squares, 7), ct.rounds().build(7), numbers)


def test_a_cpu_takes_its_clients_one_by_one_and_a_vectorised_engine_groups_uneven_ones(least_squares, numbers):
    def group(clients=numbers, **options):
        session = start(ct.Local(devices=1, **options), least_squares, FEDAVG.build(least_squares, 7),
                        ct.rounds().build(7), clients)
        return session.group

    assert group() == group(mode="scan") == 1
    assert group(group=3) == 3 and group(group=100) == 7
    assert group(mode="vmap") == 1  # 17 examples against 8 on average: seven uneven clients make seven groups
