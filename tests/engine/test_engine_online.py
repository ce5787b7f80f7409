"""The online clock against a post office in plain Python: letters in boxes, opened when they are due."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import toy_algorithm as toy
from starting import enlarged, scores, start

import cantons as ct
from cantons.engine.devices import floats, replicated
from cantons.engine.in_flight import held_messages
from cantons.protocol import Receipt, Sum

pytestmark = pytest.mark.usefixtures("float64")

POPULATION, STEPS = 7, 26
UP, DOWN = [0, 3, 1, 2, 0, 4, 2], [2, 0, 1, 3, 0, 1, 1]
SOME = np.random.default_rng(5).random((9, POPULATION)) < 0.6  # who speaks when


@pytest.fixture(scope="module")
def joint(numbers):
    return ct.residual(numbers, shared_features=[0, 1], private_features=[1, 2])


def session_of(problem, data, recipe, clock, engine=None, seed=0):
    algorithm, ticking = recipe.build(problem, data.population), clock.build(data.population)
    return start(engine or ct.Local(), problem, algorithm, ticking, data, None, seed)


def played(problem, data, recipe, clock, steps=STEPS, engine=None):
    session = session_of(problem, data, recipe, clock, engine)
    return jax.device_get(session.advance(session.begin(), steps))


class PostOffice:
    """Every letter is an object with a day of arrival; a client's letters never overtake each other."""

    def __init__(self, problem, data, recipe, clock):
        self.session = session_of(problem, data, recipe, clock)
        self.problem, self.algorithm, self.clock = problem, self.session.algorithm, self.session.clock
        start = self.session.begin()
        self.server, arrays = start.server, self.session.arrays
        self.clients = [jax.tree.map(lambda leaf, i=i: leaf[i], start.clients) for i in range(data.population)]
        self.arrays = arrays
        self.population = data.population
        self.messages, self.under_way = [], []  # under way: dicts
        self.held = [0] * self.population
        self.open = [[] for _ in self.clients]  # each client's letters it has not been told of
        self.met = [0] * self.population
        self.charged = np.zeros(self.population)
        self.newest_arrival = [0] * self.population
        self.acted, self.receive = jax.jit(self._acted), jax.jit(self.algorithm.receive)

    def day(self, now):
        keys, plan = self._plan(now)
        for index in range(self.population):
            self._act(index, now, plan, jax.random.fold_in(keys[2], index))
        arrived = [letter for letter in self.under_way if letter["arrives"] == now]
        self.under_way = [letter for letter in self.under_way if letter["arrives"] > now]
        for letter in arrived:
            letter["known_from"] = now + 1  # the message of tomorrow contains it
        if arrived:
            self.server = self.algorithm.server_update(keys[4], self.server, self._aggregate(keys[3], arrived), None)
        self.morning(now + 1)

    def morning(self, now):
        """The server's message goes out, and everybody opens the newest that has come."""
        keys, plan = self._plan(now)
        self.messages.append((self.algorithm.broadcast(keys[1], self.server, None), now))
        for index in range(self.population):
            self._hear(index, now, plan)

    def _plan(self, now):
        keys = jax.random.split(jax.random.fold_in(self.arrays.key, now), 5)
        return keys, self.clock.plan(self.arrays.clock, keys[0], jnp.int32(now))

    def _hear(self, index, now, plan):
        previous = self.held[index]
        self.held[index] = max(previous, now - int(plan.down[index]), 0)
        message = self.messages[self.held[index]][0]
        told = [letter for letter in self.open[index] if letter.get("known_from", np.inf) <= self.held[index]]
        self.open[index] = self.open[index][len(told):]
        client, new = self.clients[index], self.held[index] > previous
        blank = jax.tree.map(jnp.zeros_like, self.acted(self.arrays.key, message, client, self.arrays, index, 0)[1])
        for number, note in enumerate([letter["note"] for letter in told] or [blank]):
            receipt = Receipt(jnp.asarray(new and number == 0), jnp.asarray(bool(told)), note)
            client = self.receive(message, receipt, client)
        self.clients[index] = client

    def _act(self, index, now, plan, key):
        if not plan.acts[index]:
            return
        message, client = self.messages[self.held[index]][0], self.clients[index]
        loss, note, upload, self.clients[index] = self.acted(key, message, client, self.arrays, index, self.met[index])
        self.charged[index] += loss
        self.newest_arrival[index] = max(self.newest_arrival[index], now + int(plan.up[index]))
        letter = {"id": index, "upload": upload, "answers": message, "note": note, "weight": float(plan.counts[index]),
                  "arrives": self.newest_arrival[index]}
        self.under_way.append(letter)
        self.open[index].append(letter)
        self.met[index] += 1

    def _acted(self, key, message, client, arrays, index, met):
        online = self.clock.online
        data = arrays.train.client(index).at(jax.random.fold_in(arrays.key, index), met, online.batch, online.order)
        parts = self.algorithm.personal_model(key, message, client, data.hidden()).parts
        charged = self.problem.score(*parts, data.now())["loss"].mean()
        note = self.algorithm.note(key, message, client, data)
        return charged, note, *self.algorithm.client_update(key, message, client, data)

    def _aggregate(self, key, arrived):
        rule = self.algorithm.aggregate
        if isinstance(rule, Sum):
            summands = [jax.tree.map(lambda leaf, letter=letter: letter["weight"] * leaf,
                                     rule.lift(letter["upload"], letter["answers"])) for letter in arrived]
            return rule.finish(key, jax.tree.map(lambda *leaves: sum(leaves), *summands))
        rows = jax.tree.map(lambda *leaves: jnp.stack(leaves), *[letter["upload"] for letter in arrived])
        return rule.reduce(key, rows, jnp.array([letter["id"] for letter in arrived]),
                           jnp.ones(len(arrived), jnp.int32))


CLOCKS = {
    "delays of each client": {"uplink": UP, "downlink": DOWN},
    "silent clients": {"uplink": UP, "downlink": DOWN, "active": SOME},
    "random delays": {"uplink": {"least": 0, "most": UP}, "downlink": {"least": 0, "most": 3}, "active": SOME},
    "shuffled batches": {"uplink": 1, "batch": 3, "order": "shuffle"},
    "weights": {"uplink": 2, "active": SOME, "weights": "inverse", "order": "sample"},
}
RECIPES = {
    "full": ct.fedres_online_sgd(step_size=0.02),
    "paired adagrad": ct.fedres_online_sgd(step_size=0.1, alignment="paired", method="adagrad", combine="mean"),
    "none": ct.fedres_online_sgd(step_size=0.02, alignment="none"),
    "rounds method": ct.scaffold(step_size=0.02, batch_size=None),
}


@pytest.mark.parametrize(("ticking", "method"), [
    *[(ticking, "full") for ticking in CLOCKS],
    ("silent clients", "paired adagrad"), ("random delays", "none"), ("delays of each client", "none"),
    ("random delays", "rounds method"),
])
def test_every_letter_arrives_when_it_is_due(ticking, method, joint, numbers):
    clock, recipe = ct.online(**CLOCKS[ticking]), RECIPES[method]
    post = PostOffice(joint, numbers, recipe, clock)
    post.morning(0)
    for now in range(STEPS):
        post.day(now)
    state = played(joint, numbers, recipe, clock)
    jax.tree.map(lambda left, right: np.testing.assert_allclose(left, right, atol=1e-12), state.server, post.server)
    rows = jax.tree.map(lambda *leaves: np.stack(leaves), *post.clients)
    jax.tree.map(lambda left, right: np.testing.assert_allclose(left, right, atol=1e-12), state.clients, rows)
    np.testing.assert_allclose(state.in_flight.scores["loss"], post.charged, atol=1e-11)
    np.testing.assert_array_equal(state.in_flight.met, post.met)
    np.testing.assert_array_equal(state.uploads, post.met)


def test_a_late_client_is_evaluated_with_the_message_it_holds(joint, numbers):
    session = session_of(joint, numbers, RECIPES["full"], ct.online(downlink=DOWN))
    states = [session.begin()]
    for now in range(6):
        states.append(session.advance(jax.tree.map(jnp.copy, states[-1]), now + 1))
    messages, places = held_messages(states[-1].in_flight)
    for index, late in enumerate(DOWN):
        jax.tree.map(lambda ring, model, place=places[index]: np.testing.assert_array_equal(ring[place], model),
                     messages, states[6 - late].server.shared)
    losses = scores(session, states[-1])["train"]["personal"]["loss"]
    train = session.arrays.train
    for index, late in enumerate(DOWN):
        private = jax.tree.map(lambda leaf, index=index: leaf[index], states[-1].clients.private)
        expected = joint.loss(states[6 - late].server.shared, private, train.client(index).full())
        np.testing.assert_allclose(losses[index], expected, rtol=1e-12)


def test_other_delays_are_the_same_program(joint, numbers, compilations):
    first = session_of(joint, numbers, RECIPES["full"], ct.online(uplink=UP, downlink=DOWN, max_delay=4))
    first.advance(first.begin(), 3)
    other = ct.online(uplink=DOWN, downlink=UP, max_delay=4).build(POPULATION)
    state = first.begin()
    arrays = first.arrays._replace(clock=replicated(first.mesh, floats(other.arrays)))
    with compilations() as found:
        after = first._block(arrays, state, np.int32(STEPS))
    assert not found
    expected = played(joint, numbers, RECIPES["full"], ct.online(uplink=DOWN, downlink=UP))
    jax.tree.map(lambda left, right: np.testing.assert_allclose(left, right, atol=1e-13), after.clients,
                 expected.clients)


def test_the_engine_does_not_matter(joint, numbers):
    """As it is, one by one, in threes on two devices, and on two devices."""
    clock = ct.online(uplink=UP, downlink=DOWN, active=SOME)
    expected, *others = (played(joint, numbers, RECIPES["full"], clock, engine=engine) for engine in (
        None, ct.Local(mode="scan"), ct.Local(group=3, devices=2), ct.Local(devices=2)))
    for found in others:
        jax.tree.map(lambda left, right: np.testing.assert_allclose(left, right, atol=1e-12), found, expected)


def test_an_upload_that_is_not_a_number_stays_at_home(joint, numbers):
    broken = enlarged(numbers, np.where(np.arange(POPULATION) == 2, 1e200, 1.0))
    clock = ct.online(uplink=UP, downlink=DOWN)
    without = ct.online(uplink=UP, downlink=DOWN, active=np.arange(POPULATION)[None] != 2)
    overflow = ct.fedres_online_sgd(step_size=0.02, alignment="paired")
    found, expected = (played(joint, broken, overflow, one) for one in (clock, without))
    assert found.rejected[2] > 0 == expected.rejected.sum()


def test_a_method_for_streams_refuses_rounds(joint, numbers):
    with pytest.raises(ct.InputError, match="online clock"):
        ct.run(joint, numbers, ct.fedres_online_sgd(), rounds=2)


@pytest.mark.parametrize(("options", "words"), [
    ({"uplink": -1}, "uplink is -1; give 0 or more"),
    ({"downlink": 1.5}, "downlink is 1.5; give a whole number, 0 or more, or a list of whole numbers"),
    ({"uplink": [1, 2]}, "uplink has 2 delays for 7 clients"),
    ({"uplink": {"least": 3, "most": 1}}, "uplink draws from 3 to 1; least must not be above most"),
    ({"uplink": {"mean": 3}}, "two keys, least and most"),
    ({"uplink": 5, "max_delay": 4}, "max_delay"),
    ({"order": "sorted"}, "order"),
    ({"batch": 0}, "batch"),
    ({"weights": "inverse"}, "give the trace"),
    ({"active": np.ones((3, 5))}, "one column for each of the 7 clients"),
    ({"active": {"rate": 0.5}}, "random arrivals have the key probability"),
    ({"active": {"probability": 0}}, "active.probability is 0; give a number above 0 and at most 1"),
    ({"active": {"probability": [0.5, 0.5]}}, "active has 2 probabilities for 7 clients"),
])
def test_a_clock_that_cannot_tick_says_why(options, words):
    with pytest.raises(ct.InputError, match=words):
        ct.online(**options).build(POPULATION)


def test_a_run_that_was_stopped_goes_on_to_the_same_bits(joint, numbers, tmp_path):
    options = {"clock": ct.online(uplink=UP, downlink=DOWN), "precision": "float64", "evaluate_every": 5}
    whole = ct.run(joint, numbers, RECIPES["full"], rounds=20, **options)

    class Stop(ct.Callback):
        def evaluated(self, record):
            if record["round"] == 10:
                raise RuntimeError("the lights went out")

    with pytest.raises(RuntimeError):
        ct.run(joint, numbers, RECIPES["full"], rounds=20, out=tmp_path / "run", checkpoint_every=5, callbacks=[Stop()],
               **options)
    again = ct.run(joint, numbers, RECIPES["full"], rounds=20, out=tmp_path / "run", checkpoint_every=5, resume=True,
                   **options)
    jax.tree.map(np.testing.assert_array_equal, again.model.state, whole.model.state)
    assert again.final["online.personal.loss.mean"] == whole.final["online.personal.loss.mean"]
    back = ct.load(tmp_path / "run", data=numbers)
    np.testing.assert_allclose(back.outputs(numbers.train.inputs[:3], client=1),
                               whole.outputs(numbers.train.inputs[:3], client=1))


def test_an_incremental_method_survives_delay(numbers, least_squares):
    """The toy commits on `heard`; with one upload of each client under way at a time it is exact whatever the delay."""
    recipe = toy.gradient_table(step_size=0.02)
    late = played(least_squares, numbers, recipe, ct.online(uplink=1, active=np.arange(6)[:, None] % 3 == np.zeros(7)),
                  steps=30)
    np.testing.assert_allclose(late.server.total["layer0"]["weight"],
                               late.clients.told["layer0"]["weight"].sum(axis=0), atol=1e-12)


# Arrivals at random


def test_random_arrivals_are_a_trace_that_is_drawn_on_the_way(joint, numbers):
    chances = [0.1, 0.3, 0.5, 0.7, 0.9, 1.0, 0.5]
    clock = ct.online(active={"probability": chances, "seed": 4}, weights="inverse").build(POPULATION)
    trace = np.array([clock.plan(clock.arrays, jax.random.key(0), jnp.int32(step)).acts for step in range(400)])
    assert trace[:, 5].all() and np.abs(trace.mean(axis=0) - chances).max() < 0.1
    np.testing.assert_allclose(clock.arrays.weights, 1 / np.array(chances), rtol=1e-6)
    drawn, told = (played(joint, numbers, ct.fedres_online_sgd(step_size=0.02), ct.online(active=active))
                   for active in ({"probability": chances, "seed": 4}, trace))
    jax.tree.map(np.testing.assert_array_equal, drawn, told)


def test_random_arrivals_and_random_meetings_have_nothing_to_do_with_each_other():
    clock = ct.online(active={"probability": 0.5}, sync={"probability": 0.5}).build(POPULATION)
    plans = [clock.plan(clock.arrays, jax.random.key(0), jnp.int32(step)) for step in range(100)]
    acts, meets = np.array([plan.acts for plan in plans]), np.array([plan.sends for plan in plans])
    assert np.abs((acts == meets[:, None]).mean(axis=0) - 0.5).max() < 0.2


# Methods made for rounds, on a stream


def test_fedavg_with_one_step_is_fedomd_that_meets_in_every_step(least_squares, numbers):
    clock = ct.online(batch=2, order="shuffle")
    averaged = played(least_squares, numbers, ct.fedavg(step_size=0.05, batch_size=None), clock)
    mirrored = played(least_squares, numbers, ct.fedomd(step_size=0.05), clock)
    for found, expected in ((averaged.server.shared, mirrored.server.shared),
                            (averaged.in_flight.scores, mirrored.in_flight.scores)):
        jax.tree.map(lambda one, other: np.testing.assert_allclose(one, other, atol=1e-12), found, expected)


@pytest.mark.parametrize("recipe", [ct.fedavg_finetune(batch_size=1), ct.scaffold(batch_size=1)],
                         ids=lambda recipe: recipe.name)
def test_what_has_not_come_yet_changes_nothing(recipe, least_squares, numbers, own_rows):
    def other_future(pair):
        return [np.concatenate([part[:4], part[4:] + 1]) for part in pair]

    changed = ct.from_clients({name: other_future(pair) for name, pair in
                               zip(numbers.clients.names, own_rows(numbers), strict=True)}, test=0)
    states = [played(least_squares, data, recipe, ct.online(batch=2), steps) for data in (numbers, changed)
              for steps in (2, 3)]
    jax.tree.map(np.testing.assert_array_equal, states[0], states[2])
    assert (states[1].in_flight.scores["loss"] != states[3].in_flight.scores["loss"]).any()


def test_who_tunes_before_it_predicts_does_not_tune_on_what_it_predicts(least_squares, numbers):
    tuned, plain = (played(least_squares, numbers, recipe(batch_size=1), ct.online(batch=2))
                    for recipe in (ct.fedavg_finetune, ct.fedavg))
    jax.tree.map(np.testing.assert_array_equal, tuned.in_flight.scores, plain.in_flight.scores)
