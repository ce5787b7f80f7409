"""What every online algorithm must do, whoever wrote it: the registry is read, so a new file is covered at once."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from starting import restored, start

import cantons as ct
from cantons.algorithm import ONLINE
from cantons.data import synthetic_bandit
from cantons.metrics import leaves
from cantons.study.checkpoint import Checkpoints

pytestmark = pytest.mark.usefixtures("float64")

OPTIONS = {"fedres_bandit": {"every": 2}}
CLOCKS = {
    "late": {"uplink": [0, 2, 1, 0, 3, 1, 2], "downlink": [1, 0, 2, 0, 1, 1, 0]},
    "now and then": {"sync": 3, "counted": 4, "active": np.random.default_rng(2).random((5, 7)) < 0.8},
}

# What travels, down and up; {shared} and {private} stand for every array of that part of the model.
EXAMPLES = ["seen", "outputs", "targets"]
TRAVELS = {
    "fedomd": (["{shared}"], ["{shared}"]),
    "fedres_bandit": (["{shared}"], ["used", "example/seen", "example/outputs", "example/targets"]),
    "fedres_erm": (["{shared}"], ["seen", "targets", "change"]),
    "fedres_online_sgd": (["{shared}"], EXAMPLES),
    "fictitious_play": (["{shared}"], EXAMPLES),
    "online_central": (["{shared}"], EXAMPLES),
    "online_independent": ([], []),
}

each_algorithm = pytest.mark.parametrize("name", sorted(ONLINE))


@pytest.fixture(scope="module")
def stage(numbers):
    """`stage(name)`: the data and the problem an algorithm is made for."""
    joint = ct.residual(numbers, shared_features=[0, 1], private_features=[1, 2])
    arms = synthetic_bandit(clients=7, contexts=12, test_contexts=3, actions=3, seed=0)
    bandit = ct.bandit(arms, shared_features="first_half", private_features="second_half")
    return lambda name: (bandit, arms) if name == "fedres_bandit" else (joint, numbers)


@functools.cache  # a session can begin as often as one likes, and compiles once
def session_of(stage, name, clock="late", engine=None):
    problem, data = stage(name)
    algorithm = ONLINE[name](**OPTIONS.get(name, {})).build(problem, data.population)
    return start(engine or ct.Local(), problem, algorithm, ct.online(**CLOCKS[clock]).build(7), data, None, 0)


def same(left, right, **tolerance):
    jax.tree.map(lambda one, other: np.testing.assert_allclose(one, other, **tolerance), left, right)


@each_algorithm
def test_only_what_is_listed_travels(name, stage):
    session = session_of(stage, name)
    state = session.begin()
    parts = {"shared": leaves(session._parts[0]), "private": leaves(session._parts[1])}
    for found, listed in zip(session.travel(state), TRAVELS[name], strict=True):
        wanted = [re.sub(r"\{(\w+)\}", path, line) for line in listed
                  for path, *_ in (parts[re.search(r"\{(\w+)\}", line)[1]] if "{" in line else [("",)])]
        assert sorted(path for path, *_ in leaves(found)) == sorted(wanted)


@each_algorithm
@pytest.mark.parametrize("clock", CLOCKS)
def test_blocks_of_any_length_are_one_program_and_one_path(name, clock, stage, compilations):
    session = session_of(stage, name, clock)
    whole = jax.device_get(session.advance(session.begin(), 12))
    state = session.begin()
    with compilations() as found:
        for until in (1, 2, 5, 12):
            state = session.advance(state, until)
    assert not found
    jax.tree.map(np.testing.assert_array_equal, jax.device_get(state), whole)


@each_algorithm
def test_clients_one_by_one_or_in_groups_on_two_devices_walk_the_same_path(name, stage):
    states = []
    for engine in (ct.Local(mode="scan"), ct.Local(group=2, devices=2)):
        session = session_of(stage, name, "late", engine)
        states.append(jax.device_get(session.advance(session.begin(), 10)))
    same(*states, atol=1e-9, rtol=1e-9)


@each_algorithm
def test_a_checkpoint_is_all_there_is(name, stage, tmp_path):
    session = session_of(stage, name)
    whole = jax.device_get(session.advance(session.begin(), 12))
    half = session.advance(session.begin(), 5)
    checkpoints = Checkpoints(tmp_path / "checkpoints")
    checkpoints.save(5, half, {})
    loaded, _, complaints = checkpoints.newest(session.begin())
    assert not complaints
    after = session.advance(restored(session, loaded), 12)
    jax.tree.map(np.testing.assert_array_equal, jax.device_get(after), whole)


@each_algorithm
def test_a_client_that_is_always_silent_never_learns(name, stage):
    problem, data = stage(name)
    algorithm = ONLINE[name](**OPTIONS.get(name, {})).build(problem, data.population)
    clock = ct.online(uplink=1, active=np.arange(7)[None] != 3).build(7)
    session = start(ct.Local(), problem, algorithm, clock, data, None, 0)
    before, after = session.begin(), session.advance(session.begin(), 10)
    assert after.in_flight.scores["loss"][3] == 0
    assert after.uploads[3] == (0 if algorithm.idle_upload is None else 10)  # who is silent may still be there
    key, handle = jax.random.key(0), session.arrays.train.client(3)
    parts = []
    for state in (before, after):
        client = jax.tree.map(lambda leaf: leaf[3], state.clients)
        parts.append(algorithm.model(key, algorithm.broadcast(key, before.server, None), client, handle)[1])
    jax.tree.map(np.testing.assert_array_equal, *parts)


@each_algorithm
def test_a_step_is_charged_before_it_is_learned_from(name, stage):
    """The first score is that of the models everybody begins with, whatever the examples teach."""
    problem, _ = stage(name)
    session = session_of(stage, name)
    start = session.begin()
    keys = jax.vmap(jax.random.fold_in, in_axes=(None, 0))(
        jax.random.split(jax.random.fold_in(session.arrays.key, 0), 5)[2], jnp.arange(7))
    expected = []
    for index in range(7):
        handle = session.arrays.train.client(index).at(session.arrays.key, jnp.int32(0), 1, "cycle")
        message = session.algorithm.broadcast(keys[index], start.server, None)
        client = jax.tree.map(lambda leaf, index=index: leaf[index], start.clients)
        if session.algorithm.score is not None:
            expected.append(session.algorithm.score(keys[index], message, client, handle)["loss"])
        else:
            parts = session.algorithm.model(keys[index], message, client, handle)
            expected.append(problem.score(*parts, handle.now())["loss"][0])
    after = session.advance(session.begin(), 1)
    np.testing.assert_allclose(after.in_flight.scores["loss"], expected, atol=1e-12)
