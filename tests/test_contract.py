"""What every algorithm we ship must do, whoever wrote it: the registry is read, so a new file is covered at once.

The clock here is a script, an argument of the compiled program: who is there in which round is the test's to say.
Clients are watched: beside their state they keep the last message and the last upload, as they travelled.
"""

import functools
import re
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import toy_algorithm as toy
from starting import restored, start

import cantons as ct
from cantons.algorithm import ROUNDS as ALGORITHMS
from cantons.data import pooled
from cantons.engine.aggregation import aggregation_of
from cantons.engine.devices import replicated
from cantons.metrics import leaves, nbytes
from cantons.protocol import Algorithm, Clock, Needs, Plan, PyTree, Stack, Sum, adds
from cantons.study.checkpoint import Checkpoints

pytestmark = pytest.mark.usefixtures("float64")

# Options that make a round short; an algorithm that is not listed runs with its defaults.
OPTIONS = {
    "central": {"steps": 2, "batch_size": 5},
    "fedadam": {"batch_size": None, "fit_epochs": 1},
    "fedavg": {"epochs": 2, "batch_size": 4, "fit_epochs": 1},
    "fedavg_finetune": {"batch_size": None, "tune_epochs": 1},
    "fedavgm": {"batch_size": None, "fit_epochs": 1},
    "fedopt": {"batch_size": None, "fit_epochs": 1, "client_optimizer": "momentum", "clip_norm": 1.0},
    "fedprox": {"batch_size": None, "epochs": 3, "fit_epochs": 1},
    "fedres_avg": {"steps": 3, "batch_size": 4, "fit_epochs": 1},
    "fedres_naive": {"steps": 3, "batch_size": 4, "fit_epochs": 1},
    "fedres_sgd": {"steps": 3, "batch_size": 4, "fit_epochs": 1},
    "fedsgd": {"fit_epochs": 1},
    "fedyogi": {"batch_size": None, "fit_epochs": 1},
    "independent": {"batch_size": None, "fit_epochs": 1},
    "l2gd": {"batch_size": None, "fit_epochs": 1},
    "scaffold": {"steps": 3, "batch_size": 4, "fit_epochs": 1},
}

# What travels, down and up; {shared} and {private} stand for every array of that part of the model.
RESIDUAL = ["shared/{shared}", "step_size", "private_step_size"], ["change/{shared}"]
AVERAGING = ["shared/{shared}", "step_size"], ["change/{shared}", "weight"]
TRAVELS = {
    **dict.fromkeys(("fedadam", "fedavg", "fedavg_finetune", "fedavgm", "fedopt", "fedprox", "fedsgd", "fedyogi"),
                    AVERAGING),
    "central": (["shared/{shared}", "private/{private}", "step_size"], []),  # private parts are one part there
    "fedres_avg": (["shared/{shared}", "control/{shared}", "step_size", "private_step_size"],
                   ["change/{shared}", "control_change/{shared}"]),
    "fedres_naive": RESIDUAL,
    "fedres_sgd": RESIDUAL,
    "independent": (["step_size"], []),
    "l2gd": (["shared/{shared}", "pulls", "local_steps", "step_size"], ["{shared}"]),
    "scaffold": (["shared/{shared}", "control/{shared}", "step_size"],
                 ["change/{shared}", "control_change/{shared}"]),
}

POPULATION = 7
EVERYBODY = tuple(range(POPULATION))
SCRIPT = 12  # rounds after which the script starts again

each_algorithm = pytest.mark.parametrize("name", sorted(ALGORITHMS))


class Watched(NamedTuple):
    """A client with a logbook."""

    state: PyTree
    sent: PyTree
    upload: PyTree


def watched(algorithm, message, upload):
    """The same algorithm, whose clients remember the last message and upload, of the shapes given."""
    blank = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), (message, upload))

    def client_update(key, message, client, data):
        upload, state = algorithm.client_update(key, message, client.state, data)
        return upload, Watched(state, message, upload)

    return algorithm._replace(
        init_client=lambda key, *parts: Watched(algorithm.init_client(key, *parts), *blank),
        receive=lambda message, receipt, client: client._replace(
            state=algorithm.receive(message, receipt, client.state)),
        request=lambda client, data: algorithm.request(client.state, data),
        client_update=client_update,
        model=lambda key, message, client, data: algorithm.model(key, message, client.state, data),
    )


def script(*cohorts):
    """Round after round the next of the cohorts; the slots they leave are spare."""
    ids = np.full((SCRIPT, POPULATION), POPULATION, np.int32)
    for number in range(SCRIPT):
        cohort = cohorts[number % len(cohorts)]
        ids[number, : len(cohort)] = cohort
    there = ids < POPULATION
    return Plan(ids, there, there.astype(np.int32), there)


SCRIPTED = Clock(POPULATION, False, script(EVERYBODY), lambda arrays, key, round: jax.tree.map(
    lambda part: part[round % SCRIPT], arrays))


def built(name, problem):
    return ALGORITHMS[name](**OPTIONS.get(name, {})).build(problem, POPULATION)


def travelling(algorithm, problem, data):
    """The message and the upload of one client, as shapes."""

    def exchange(key, train):
        shared, private = problem.init(key)
        client = algorithm.init_client(key, shared, private)
        message = algorithm.broadcast(key, algorithm.init_server(key, shared, private), pooled(train).client(0))
        sent = algorithm.select(message, algorithm.request(client, train.client(0)))
        return sent, algorithm.client_update(key, sent, client, train.client(0))[0]

    wide = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), data.train)
    return jax.eval_shape(exchange, jax.random.key(0), wide)


class Stage:
    """An algorithm on an engine, compiled once for all the tests that look at it."""

    def __init__(self, algorithm, problem, data, engine):
        central = pooled(data.train) if algorithm.needs.central == "pooled" else None
        self.session = start(engine, problem, algorithm, SCRIPTED, data, central, seed=3)
        self.start = jax.device_get(self.session.begin())

    def play(self, state, *cohorts, rounds=1):
        """`rounds` more rounds of the script, on a copy: a state may be played from twice."""
        self.session.arrays = self.session.arrays._replace(clock=replicated(self.session.mesh, script(*cohorts)))
        until = int(state.round) + rounds
        return jax.device_get(self.session.advance(restored(self.session, state), until))

    @functools.cached_property
    def warm(self):
        """A state in which clients already differ."""
        return self.play(self.start, EVERYBODY, (0, 2, 3, 5), rounds=2)


@pytest.fixture(scope="module")
def problem(labels):
    return ct.logistic(labels, split="*/bias")


@pytest.fixture(scope="module")
def stage(problem, labels):
    """`stage(name)`: the algorithm, watched, with its clients one by one on one device."""

    def make(name):
        algorithm = built(name, problem)
        return Stage(watched(algorithm, *travelling(algorithm, problem, labels)), problem, labels, ct.Local(devices=1))

    return functools.cache(make)


def same_bits(left, right):
    jax.tree.map(np.testing.assert_array_equal, left, right)


def close(left, right):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12), left, right)


def rows(tree, ids):
    return jax.tree.map(lambda leaf: leaf[np.array(ids)], tree)


# One state, one key, one answer


@each_algorithm
def test_the_same_call_gives_the_same_bits(name, stage):
    stage = stage(name)
    same_bits(stage.play(stage.warm, (1, 4, 6)), stage.play(stage.warm, (1, 4, 6)))


@each_algorithm
def test_an_algorithm_built_twice_says_the_same_and_leaves_its_arguments_alone(name, problem, labels):
    def traced():
        algorithm = built(name, problem)
        handle = jax.tree.map(jnp.asarray, pooled(labels.train)).client(0)
        key, (shared, private) = jax.random.key(0), problem.init(jax.random.key(1))
        server = algorithm.init_server(key, shared, private)
        client = algorithm.init_client(key, shared, private)
        message = algorithm.broadcast(key, server, handle)
        given = server, client, message
        before = jax.tree.flatten(given)

        def round():
            upload, moved = algorithm.client_update(key, message, client, handle)
            return upload, moved, algorithm.model(key, message, client, handle)

        text = str(jax.make_jaxpr(round)())
        leaves, structure = jax.tree.flatten(given)
        assert structure == before[1]
        assert all(left is right for left, right in zip(leaves, before[0], strict=True))
        return re.sub(r"0x[0-9a-f]+", "", text)  # where functions lie in memory

    assert traced() == traced()


# Clients are known by id, not by place


@each_algorithm
def test_a_client_sends_the_same_whoever_else_is_there(name, stage):
    stage = stage(name)
    pair, crowd = stage.play(stage.warm, (2, 5)), stage.play(stage.warm, EVERYBODY)
    same_bits(rows(pair.clients, [2, 5]), rows(crowd.clients, [2, 5]))


@each_algorithm
def test_the_order_of_a_cohort_is_irrelevant(name, stage):
    stage = stage(name)
    ascending, shuffled = stage.play(stage.warm, (1, 2, 4, 6)), stage.play(stage.warm, (4, 1, 6, 2))
    same_bits(ascending.clients, shuffled.clients)
    close(ascending, shuffled)  # the sums are taken in another order


@each_algorithm
def test_absent_clients_keep_their_state_bit_for_bit(name, stage):
    stage = stage(name)
    absent = [0, 2, 3, 6]
    after = stage.play(stage.warm, (1, 4, 5), (4,), rounds=3)
    for part in ("clients", "acknowledged", "downloads", "uploads", "rejected"):
        same_bits(rows(getattr(stage.warm, part), absent), rows(getattr(after, part), absent))


# A state is all there is


@each_algorithm
def test_a_state_saved_and_loaded_goes_on_to_the_same_bits(name, stage, tmp_path):
    stage = stage(name)
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(int(stage.warm.round), stage.warm, {"said": "of it"})
    loaded, about, complaints = Checkpoints(tmp_path).newest(stage.start)
    assert about["said"] == "of it" and not complaints
    same_bits(stage.warm, loaded)
    same_bits(stage.play(stage.warm, (0, 3), EVERYBODY, rounds=3), stage.play(loaded, (0, 3), EVERYBODY, rounds=3))


# One program per shape


def test_compilations_are_counted(compilations):
    with compilations() as found:
        jax.jit(lambda number: number + 1)(jnp.zeros(()))
    assert len(found) >= 1


@each_algorithm
def test_blocks_of_any_length_and_later_evaluations_compile_nothing_new(name, stage, compilations):
    session = stage(name).session
    state = session.advance(restored(session, stage(name).start), 1)
    session.evaluate(state)
    with compilations() as found:
        for until in (4, 11):  # blocks of three and of seven rounds
            state = session.advance(state, until)
            session.evaluate(state)
    assert found == []


# The same answer everywhere


@each_algorithm
def test_the_engine_does_what_a_plain_loop_over_the_clients_does(name, stage, problem, labels, plain_loop):
    after = stage(name).play(stage(name).start, EVERYBODY, (1, 2, 6), rounds=3)
    loop = plain_loop(problem, labels, ALGORITHMS[name](**OPTIONS.get(name, {})), seed=3)
    loop.play(1).play(1, cohort=(1, 2, 6)).play(1)
    close(after.server, loop.server)
    close(after.clients.state, jax.tree.map(lambda *states: np.stack(states), *loop.clients))


class Servers(NamedTuple):
    shared: PyTree
    each: dict[str, PyTree]


def side_by_side(algorithms):
    """Many algorithms as one, and so one compilation for all: what an engine can run, it can run in a bundle."""

    def each(function):
        return {name: function(name, algorithm) for name, algorithm in algorithms.items()}

    def client_update(key, message, client, data):
        pairs = each(lambda name, one: one.client_update(key, message[name], client[name], data))
        return tuple({name: pair[place] for name, pair in pairs.items()} for place in (0, 1))

    rules = {name: aggregation_of(algorithm.aggregate) for name, algorithm in algorithms.items()}
    if all(rule.adds for rule in rules.values()):
        rule = Sum(lift=lambda upload, message: {name: rule.carry((), upload[name], message[name])
                                                 for name, rule in rules.items()},
                   finish=lambda key, total: {name: rule.close(key, (), total[name], None, None, POPULATION)[0]
                                              for name, rule in rules.items()})
    else:
        rule = Stack(lambda key, uploads, ids, counts: {
            name: rule.close(key, (), uploads[name], ids, counts, POPULATION)[0] for name, rule in rules.items()})
    return Algorithm(
        init_server=lambda key, shared, private: Servers(
            shared, each(lambda name, one: one.init_server(key, shared, private))),
        init_client=lambda key, *parts: each(lambda name, one: one.init_client(key, *parts)),
        broadcast=lambda key, server, central: each(
            lambda name, one: one.broadcast(key, server.each[name], central)),
        receive=lambda message, receipt, client: each(
            lambda name, one: one.receive(message[name], receipt, client[name])),
        request=lambda client, data: each(lambda name, one: one.request(client[name], data)),
        select=lambda message, request: each(lambda name, one: one.select(message[name], request[name])),
        client_update=client_update,
        aggregate=rule,
        server_update=lambda key, server, aggregate, central: server._replace(each=each(
            lambda name, one: one.server_update(key, server.each[name], aggregate[name], central))),
        model=lambda key, message, client, data: message,
        needs=Needs(central="pooled"),
    )


@pytest.fixture(scope="module")
def bundle(problem, labels):
    """`bundle(kind)`: all algorithms whose aggregation is of that kind, side by side, by threes on two devices."""

    def make(kind):
        algorithms = {name: built(name, problem) for name in sorted(ALGORITHMS)}
        alike = {name: one for name, one in algorithms.items() if adds(one.aggregate) is kind}
        return Stage(side_by_side(alike), problem, labels, ct.Local(devices=2, group=3))

    return functools.cache(make)


@each_algorithm
def test_one_by_one_on_one_device_or_vectorised_by_threes_on_two_the_answer_is_the_same(name, stage, bundle, problem):
    """Clients of like size are seated together, and five slots stay empty; tests/engine has the other ways to run."""
    cohorts = EVERYBODY, (2, 3, 5), (0, 1, 2, 4, 5)
    alone, together = stage(name), bundle(adds(built(name, problem).aggregate))
    expected = alone.play(alone.start, *cohorts, rounds=3)
    found = together.play(together.start, *cohorts, rounds=3)
    close(expected.server, found.server.each[name])
    close(expected.clients.state, found.clients[name])
    close(expected._replace(server=0, clients=0), found._replace(server=0, clients=0))


# Nothing else crosses


def spelled_out(templates, shared, private):
    """(path, shape) of every array that the templates stand for."""
    parts = {"{shared}": shared, "{private}": private}
    found = []
    for template in templates:
        mark = next((mark for mark in parts if mark in template), None)
        found += [(template, ())] if mark is None else [
            (template.replace(mark, path), shape) for path, shape, _ in leaves(parts[mark])]
    return found


@pytest.mark.parametrize("split", ["none", "output"])
@each_algorithm
def test_messages_and_uploads_carry_exactly_what_they_say(name, split, labels):
    assert name in TRAVELS, f"say in TRAVELS what {name} sends down and up"
    problem = ct.classification(labels, ct.mlp(hidden=[5]), split=split)
    algorithm, parts = built(name, problem), jax.eval_shape(problem.init, jax.random.key(0))
    for tree, expected in zip(travelling(algorithm, problem, labels), TRAVELS[name], strict=True):
        sent = [(path, shape) for path, shape, _ in leaves(tree)]
        assert sorted(sent) == sorted(spelled_out(expected, *parts))
        if split == "output" and algorithm.needs.central != "pooled":
            private_shapes = {shape for _, shape, _ in leaves(parts[1])}
            assert private_shapes == {(5, 3), (3,)}  # no array of the shared part looks like these
            assert not private_shapes & {shape for _, shape in sent}


@each_algorithm
def test_what_an_absent_client_keeps_private_reaches_nobody(name, stage):
    stage = stage(name)
    stranger, present = 6, [0, 1, 2, 3, 4, 5]
    # NaN wherever client 6 keeps a number: had anybody looked at it, it would show.
    secret = stage.warm._replace(clients=jax.tree.map(_with_row_of_nan(stranger), stage.warm.clients))
    known, hidden = (stage.play(state, present, (0, 3), rounds=2) for state in (stage.warm, secret))
    same_bits(known.server, hidden.server)
    same_bits(rows(known.clients, present), rows(hidden.clients, present))


@each_algorithm
def test_the_message_to_a_client_does_not_change_with_its_private_part(name, stage, problem):
    stage = stage(name)
    algorithm, key = stage.session.algorithm, jax.random.key(0)
    shared, private = problem.init(key)
    other = jax.tree.map(lambda leaf: leaf + 1.0, private)
    row = algorithm.init_client(key, shared, other)
    state = stage.start._replace(clients=jax.tree.map(_with_row(2), stage.start.clients, row))
    before, after = (stage.play(state, EVERYBODY) for state in (stage.start, state))
    same_bits(before.clients.sent, after.clients.sent)
    others = [0, 1, 3, 4, 5, 6]
    same_bits(rows(before.clients, others), rows(after.clients, others))


@each_algorithm
def test_what_travelled_is_as_large_as_what_is_reported(name, stage):
    stage = stage(name)
    reported = [nbytes(tree) for tree in stage.session.travel(stage.session.begin())]
    travelled = [sum(leaf[0].nbytes for leaf in jax.tree.leaves(tree))
                 for tree in (stage.warm.clients.sent, stage.warm.clients.upload)]
    assert reported == travelled


def test_a_record_counts_the_bytes_of_every_travel(numbers, least_squares):
    result = ct.run(least_squares, numbers, ct.scaffold(batch_size=None), rounds=5, cohort=3, evaluate_every=5)
    weight = 3 * 4  # three inputs, four bytes
    down, up = 2 * weight + 4, 2 * weight  # model and control, and the step size on the way down
    assert (result.final["bytes_down"], result.final["bytes_up"]) == (5 * 3 * down, 5 * 3 * up)
    assert sum(result.clients["bytes_up"]) == result.final["bytes_up"]
    assert result.final["bytes_per_client"] == 5 * 3 * (down + up) / POPULATION


def _with_row_of_nan(index):
    def change(leaf):
        return _with_row(index)(leaf, np.nan) if np.issubdtype(leaf.dtype, np.floating) else leaf

    return change


def _with_row(index):
    def change(leaf, row):
        leaf = np.array(leaf)
        leaf[index] = row
        return leaf

    return change


# A new algorithm takes one file


@pytest.mark.parametrize("recipe, combine", [
    (toy.sign_vote(step_size=0.05), lambda gradients: np.sign(np.sign(gradients).sum(axis=0))),
    (toy.median_descent(step_size=0.05), lambda gradients: np.median(gradients, axis=0)),
], ids=["a sum of one-byte votes", "the median of a stack"])
def test_an_algorithm_from_another_file_runs_as_it_is(recipe, combine, numbers, least_squares, own_rows):
    """Some clients are never there: their slots are spare, and neither a sum nor a stack may count them."""
    there = np.array([True, False, True, True, True, False, True])
    result = ct.run(least_squares, numbers, recipe, rounds=4, evaluate_every=4, precision="float64",
                    clock=ct.rounds(available=there[None]), engine=ct.Local(devices=2, group=2))
    weight = np.zeros(3)
    for _ in range(4):
        gradients = [2 / len(x) * x.T @ (x @ weight - y) for x, y in own_rows(numbers)]
        weight = weight - 0.05 * combine(np.array(gradients)[there])
    np.testing.assert_allclose(result.model.state.server.shared["layer0"]["weight"][:, 0], weight, atol=1e-12)
    assert result.final["rejected_uploads"] == result.final["skipped_rounds"] == 0


def test_all_act_some_count_all_hear_and_the_table_stays_true(numbers, least_squares, own_rows):
    """The server's total is what its clients were told is in it, and what they will be told next."""
    rounds = 600
    result = ct.run(least_squares, numbers, toy.gradient_table(step_size=0.05), rounds=rounds,
                    evaluate_every=rounds, clock=toy.some_count(counted=3), precision="float64")
    state = result.model.state
    assert (state.downloads == rounds).all() and state.uploads.sum() == rounds * 3
    heard = state.acknowledged[:, None, None]
    known = jax.tree.map(lambda told, pending: np.where(heard, told, pending).sum(axis=0),
                         state.clients.told, state.clients.pending)
    close(known, state.server.total)
    # Every client's gradient is in the table, if late, so the limit is the optimum of the mean loss.
    curvature = sum(x.T @ x / len(x) for x, _ in own_rows(numbers))
    optimum = np.linalg.solve(curvature, sum(x.T @ y / len(x) for x, y in own_rows(numbers)))
    np.testing.assert_allclose(state.server.shared["layer0"]["weight"][:, 0], optimum, atol=1e-6)
