"""Empirical risk minimisation and fictitious play, against loops written from the paper with NumPy's least squares."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from starting import start

import cantons as ct
from cantons.algorithm.fedres_erm import Server
from cantons.engine.mapping import Fanout
from cantons.engine.online import online_step
from cantons.solve.least_squares import features, vector

pytestmark = pytest.mark.usefixtures("float64")

SHARED, PRIVATE = [0, 1, 2], [2, 3]
SOME = np.random.default_rng(7).random((11, 4)) < 0.6  # who speaks when
UP, DOWN = [0, 2, 1, 3], [1, 0, 2, 1]


def clients(count=4, size=40, width=4, noise=0.1, seed=0):
    """Streams of clients that share something, and have something of their own."""
    random = np.random.default_rng(seed)
    common = random.normal(size=width)

    def one():
        inputs = random.normal(size=(size, width))
        own = common + 0.5 * random.normal(size=width)
        return inputs, inputs @ own + 1 + noise * random.normal(size=size)

    return {f"client{number}": one() for number in range(count)}


@pytest.fixture(scope="module")
def data():
    return ct.from_clients(clients(), test=0)


@pytest.fixture(scope="module")
def problem(data):
    """Linear models with a bias on overlapping features."""
    return ct.residual(data, shared_features=SHARED, private_features=PRIVATE)


def solved_by_gradients(problem):
    """The same problem for those who do not know that it is least squares."""
    return problem._replace(residual=problem.residual._replace(quadratic=False))


def starting_at(problem, shared, private):
    """The parts that these vectors are."""
    parts = problem.init(jax.random.key(0))
    return tuple(jax.flatten_util.ravel_pytree(part)[1](jnp.asarray(value, float))
                 for part, value in zip(parts, (shared, private), strict=True))


def watched(problem, data, recipe, clock, steps, initial=None):
    """The losses of each step [steps, clients], and shared and private vectors before the first and after each."""
    algorithm = recipe.build(problem, data.population)
    session = start(ct.Local(devices=1), problem, algorithm, clock.build(data.population), data, None, seed=0)
    step = functools.partial(online_step, problem, algorithm, session.clock, Fanout(session.mesh, session.group))

    @jax.jit
    def play(arrays, state):
        def found(state):
            scores = state.in_flight.scores["loss"]
            return scores, vector(state.server.shared), jax.vmap(lambda _, part: vector(part))(
                scores, state.clients.private)  # there may be no part

        def one(state, _):
            state = step(arrays, state)
            return state, found(state)

        end, after = jax.lax.scan(one, state, length=steps)
        return jax.tree.map(lambda first, rest: jnp.concatenate([first[None], rest]), found(state), after), end

    (scores, servers, privates), state = jax.device_get(play(session.arrays, session.begin(initial)))
    return np.diff(scores, axis=0), servers, privates, state


def best(rows, targets, last, ties="nearest"):
    """Least squares over all rows; of equally good answers the nearest to the last, or the shortest."""
    if not len(rows):
        return last
    begin = last if ties == "nearest" else np.zeros_like(last)
    return begin + np.linalg.lstsq(rows, targets - rows @ begin, rcond=1e-8)[0]


class Paper:
    """Algorithms 1 and 2, or equations (5) and (6), with all old examples kept, and delays by looking back."""

    def __init__(self, data, own_rows, again, up=0, down=0, active=None, batch=1, ties="nearest", weights=None,
                 shared=None, private=None):
        def with_bias(columns, inputs):
            # Parameters as one vector: the names are sorted, so the bias comes first.
            return np.concatenate([np.ones((len(inputs), 1)), inputs[:, columns]], axis=1)

        self.streams = [(with_bias(SHARED, x), with_bias(PRIVATE, x), y) for x, y in own_rows(data)]
        self.population = len(self.streams)
        self.again, self.batch, self.ties = again, batch, ties
        self.up, self.down = np.broadcast_to(up, self.population), np.broadcast_to(down, self.population)
        self.active = np.ones((1, self.population), bool) if active is None else active
        self.weights = np.ones(self.population) if weights is None else weights
        self.servers = [np.zeros(4) if shared is None else np.array(shared, float)]
        self.private = np.zeros((self.population, 3)) if private is None else np.tile(private, (self.population, 1))
        self.privates, self.losses = [], []
        self.met = [[] for _ in self.streams]  # per client: (step, rows, shared model that predicted, private one)

    def play(self, steps):
        for now in range(steps):
            self._clients(now)
            self._server(now)
        return np.array(self.losses), np.array(self.servers), np.array(self.privates)

    def _clients(self, now):
        losses = np.zeros(self.population)
        for index, (seen, own, targets) in enumerate(self.streams):
            shared = self.servers[max(now - self.down[index], 0)]
            rows, left = [np.zeros((0, 3))], [np.zeros(0)]
            for _, picked, then, _ in self.met[index]:
                rows.append(own[picked])
                left.append(targets[picked] - seen[picked] @ (shared if self.again else then))
            self.private[index] = best(np.concatenate(rows), np.concatenate(left), self.private[index], self.ties)
            if self.active[now % len(self.active), index]:
                count = len(self.met[index])
                new = np.arange(count * self.batch, (count + 1) * self.batch) % len(targets)
                losses[index] = ((targets[new] - seen[new] @ shared - own[new] @ self.private[index]) ** 2).mean()
                self.met[index].append((now, new, shared, self.private[index].copy()))
        self.losses.append(losses)
        self.privates.append(self.private.copy())

    def _server(self, now):
        rows, left, anything = [np.zeros((0, 4))], [np.zeros(0)], False
        for index, (seen, own, targets) in enumerate(self.streams):
            there = [meeting for meeting in self.met[index] if meeting[0] + self.up[index] <= now]
            anything |= any(step + self.up[index] == now for step, *_ in there)
            for _, picked, _, then in there:
                private = there[-1][3] if self.again else then
                scale = np.sqrt(self.weights[index])
                rows.append(scale * seen[picked])
                left.append(scale * (targets[picked] - own[picked] @ private))
        last = self.servers[-1]
        self.servers.append(best(np.concatenate(rows), np.concatenate(left), last, self.ties) if anything else last)


EVERYBODY = np.ones_like(SOME)
# All but the batches are one program, compiled once: other numbers go in.
CLOCKS = {
    "no delay": {"active": EVERYBODY, "max_delay": 3},
    "delays of each client": {"uplink": UP, "downlink": DOWN, "active": EVERYBODY, "max_delay": 3},
    "silent clients": {"uplink": UP, "downlink": DOWN, "active": SOME, "max_delay": 3},
    "weights": {"downlink": 1, "active": SOME, "weights": "inverse", "max_delay": 3},
    "batches": {"uplink": 1, "batch": 3},
}
METHODS = {"erm": (ct.fedres_erm, True), "play": (ct.fictitious_play, False)}
each_method = pytest.mark.parametrize("method", METHODS)


@each_method
@pytest.mark.parametrize("ticking", CLOCKS)
def test_every_step_is_the_papers(method, ticking, problem, data, own_rows):
    recipe, again = METHODS[method]
    options = CLOCKS[ticking]
    start = [0.5, -1.0, 2.0, 0.3], [1.0, 0.2, -0.4]
    losses, servers, privates, _ = watched(problem, data, recipe(), ct.online(**options), 30,
                                           starting_at(problem, *start))
    paper = Paper(data, own_rows, again, options.get("uplink", 0), options.get("downlink", 0), options.get("active"),
                  options.get("batch", 1), shared=start[0], private=start[1],
                  weights=np.float32(len(SOME) / SOME.sum(axis=0)).astype(float) if "weights" in options else None)
    expected = paper.play(30)
    np.testing.assert_allclose(losses, expected[0], rtol=1e-7, atol=1e-8)
    np.testing.assert_allclose(servers, expected[1], rtol=1e-7, atol=1e-8)
    np.testing.assert_allclose(privates[:-1], expected[2], rtol=1e-7, atol=1e-8)


@each_method
def test_ties_go_to_the_shortest_model_if_you_like(method, problem, data, own_rows):
    recipe, again = METHODS[method]
    start = [0.5, -1.0, 2.0, 0.3], [1.0, 0.2, -0.4]
    losses, servers, *_ = watched(problem, data, recipe(ties="minimum_norm"), ct.online(uplink=1), 9,
                                  starting_at(problem, *start))
    paper = Paper(data, own_rows, again, up=1, ties="minimum_norm", shared=start[0], private=start[1])
    expected = paper.play(9)
    np.testing.assert_allclose(servers, expected[1], rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(losses, expected[0], rtol=1e-8, atol=1e-8)


@each_method
def test_without_data_everybody_keeps_the_initial_model(method, problem, data):
    recipe, _ = METHODS[method]
    start = starting_at(problem, [0.5, -1.0, 2.0, 0.3], [1.0, 0.2, -0.4])
    silent = np.zeros((1, 4), bool)
    silent[0, 2] = True
    _, servers, privates, _ = watched(problem, data, recipe(ties="minimum_norm", radius=1.0),
                                      ct.online(uplink=3, active=silent), 3, start)
    np.testing.assert_array_equal(servers, np.tile(vector(start[0]), (4, 1)))
    np.testing.assert_array_equal(privates[:, [0, 1, 3]], np.tile(vector(start[1]), (4, 3, 1)))


# What must hold whatever the data


def summed_loss(streams, shared, privates, steps):
    """Of the first examples of all clients."""
    return sum(((targets - seen @ shared - own @ private)[:steps] ** 2).sum()
               for (seen, own, targets), private in zip(streams, privates, strict=True))


@pytest.mark.parametrize("radius", [None, 0.8])
def test_neither_sides_step_raises_the_empirical_loss(radius, problem, data, own_rows):
    streams = Paper(data, own_rows, again=True).streams
    _, servers, privates, _ = watched(problem, data, ct.fedres_erm(radius=radius), ct.online(), 12)
    for now in range(1, 11):
        pairs = (servers[now], privates[now]), (servers[now + 1], privates[now]), (servers[now + 1], privates[now + 1])
        before, after, later = (summed_loss(streams, *pair, now + 1) for pair in pairs)
        assert later <= after * (1 + 1e-12) <= before * (1 + 2e-12)


@each_method
def test_without_local_features_the_server_is_pooled_least_squares(method, data, own_rows):
    problem = ct.residual(data, private_features="none")
    _, servers, privates, _ = watched(problem, data, METHODS[method][0](), ct.online(uplink=2), 14)
    rows = np.concatenate([np.concatenate([np.ones((12, 1)), x[:12]], axis=1) for x, _ in own_rows(data)])
    targets = np.concatenate([y[:12] for _, y in own_rows(data)])
    np.testing.assert_allclose(servers[-1], np.linalg.lstsq(rows, targets)[0], atol=1e-11)
    assert privates.shape == (15, 4, 0)


def test_without_global_features_both_are_every_clients_own_least_squares(data, own_rows):
    problem = ct.residual(data, shared_features="none")
    found = [watched(problem, data, recipe(), ct.online(uplink=2, downlink=1), 15) for recipe, _ in METHODS.values()]
    np.testing.assert_allclose(found[0][0], found[1][0], rtol=1e-6, atol=1e-9)
    for index, (x, y) in enumerate(own_rows(data)):
        rows = np.concatenate([np.ones((14, 1)), x[:14]], axis=1)
        np.testing.assert_allclose(found[0][2][14, index], np.linalg.lstsq(rows, y[:14])[0], atol=1e-11)


def test_where_examples_are_fitted_exactly_erm_finds_the_models_behind_them():
    data = ct.from_clients(clients(noise=0, size=200), test=0)
    losses, *_ = watched(ct.residual(data), data, ct.fedres_erm(), ct.online(), 100)
    assert losses[-20:].max() < 1e-10


def test_a_lost_upload_leaves_no_trace_on_either_side():
    """The third example of client 1 makes a product of features overflow: neither side may count any of it."""
    fine = clients()
    data = ct.from_clients(fine, test=0)
    data.train.inputs[data.train.starts[1] + 2, 2] = 1e200  # which no reader would let in
    problem = ct.residual(data, shared_features=SHARED, private_features=PRIVATE)
    with np.errstate(invalid="ignore"):  # what it is charged may not be finite either
        _, servers, privates, state = watched(problem, data, ct.fedres_erm(), ct.online(), 20)
    assert state.rejected[1] >= 1 and (np.delete(state.rejected, 1) == 0).all()
    assert np.isfinite(servers).all() and np.isfinite(privates).all()
    met = state.clients.normal.examples.astype(int)
    assert (np.delete(met, 1) == 20).all() and met[1] == 20 - state.rejected[1]
    assert state.server.normal.examples == met.sum()
    told, rows, targets = state.clients.told.sum(axis=0), [], []
    for count, (inputs, values), lost in zip(met, fine.values(), [False, True, False, False], strict=True):
        counted = [row for row in range(40) if not (lost and row == 2)][:count]
        rows.append(np.concatenate([np.ones((count, 1)), inputs[counted][:, SHARED]], axis=1))
        targets.append(values[counted])
    rows, targets = np.concatenate(rows), np.concatenate(targets)
    np.testing.assert_allclose(state.server.normal.curvature, rows.T @ rows, atol=1e-10)
    np.testing.assert_allclose(state.server.normal.moment, rows.T @ targets - told, atol=1e-10)


def test_what_the_server_adds_up_is_what_the_newest_private_models_say(problem, data):
    """With a silent client and no delay: sum_i C_i w_i, although only changes were sent."""
    *_, state = watched(problem, data, ct.fedres_erm(), ct.online(active=SOME), 17)
    normal = state.server.normal
    targets, told = np.zeros(4), state.clients.told.sum(axis=0)
    for index, met in enumerate(state.in_flight.met):
        batch = jax.tree.map(jnp.asarray, data.train).client(index).full()
        rows = features(problem.residual.shared, state.server.shared, problem.residual.features(batch.inputs))
        targets += np.asarray(rows[:met].T @ batch.targets[:met])
    np.testing.assert_allclose(normal.moment, targets - told, atol=1e-11)


def test_an_upload_has_neither_local_features_nor_a_private_model(problem, data):
    algorithm = ct.fedres_erm().build(problem, 4)
    client = algorithm.init_client(jax.random.key(0), *problem.init(jax.random.key(0)))
    handle = jax.tree.map(jnp.asarray, data.train).client(0).at(jax.random.key(0), jnp.int32(0), 2, "cycle")
    upload, _ = algorithm.client_update(jax.random.key(0), problem.init(jax.random.key(0))[0], client, handle)
    assert jax.tree.map(jnp.shape, upload)._asdict() == {"features": (2, 3), "targets": (2,), "change": (4,)}
    np.testing.assert_array_equal(upload.features, handle.now().inputs[:, SHARED])


def test_the_ball_is_respected_all_along(problem, data):
    for recipe, _ in METHODS.values():
        _, servers, privates, _ = watched(problem, data, recipe(radius=0.7, private_radius=0.4), ct.online(), 20)
        assert np.linalg.norm(servers, axis=1).max() == pytest.approx(0.7, rel=1e-12)
        assert np.linalg.norm(privates, axis=2).max() == pytest.approx(0.4, rel=1e-12)


# Any loss, any model


@each_method
@pytest.mark.parametrize("options", [{"radius": 1.0}, {"ties": "minimum_norm"}], ids=["ball", "ties"])
def test_the_solver_does_what_the_closed_form_does(method, options, problem, data):
    """To six digits; with a ball and fewer examples than parameters the two may settle ties differently."""
    recipe, _ = METHODS[method]
    clock = ct.online(uplink=UP, downlink=DOWN, active=SOME, batch=4 if "radius" in options else 2)
    exact = watched(problem, data, recipe(**options), clock, 10)
    solved = watched(solved_by_gradients(problem), data, recipe(**options, memory=40, solver_steps=1500), clock, 10)
    for left, right in zip(exact[:2], solved[:2], strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-6, atol=1e-6)


@each_method
def test_uploads_that_arrive_together_and_late_are_all_kept(method, problem, data):
    recipe, _ = METHODS[method]
    clock = ct.online(uplink={"least": 0, "most": 5}, downlink={"least": 0, "most": 2}, active=SOME)
    exact = watched(problem, data, recipe(), clock, 14)
    solved = watched(solved_by_gradients(problem), data, recipe(memory=20, solver_steps=1500), clock, 14)
    np.testing.assert_allclose(exact[1], solved[1], rtol=1e-5, atol=1e-5)


@each_method
def test_a_full_memory_drops_the_oldest(method, data, own_rows):
    """With local features alone the newest five examples are what a client fits, and the server keeps the same."""
    problem = ct.residual(data, shared_features=[0], private_features=[1, 2], shared_model=ct.linear(bias=False))
    recipe, _ = METHODS[method]
    *_, state = watched(solved_by_gradients(problem), data, recipe(memory=5, solver_steps=2),
                        ct.online(uplink={"least": 0, "most": 4}, batch=2), 13)
    for index, (x, y) in enumerate(own_rows(data)):
        met = int(state.clients.met[index])
        assert met == 26
        newest = [(place, row) for row in range(met - 5, met) for place in [row % 5]]
        for place, row in newest:
            np.testing.assert_array_equal(state.clients.inputs[index, place], x[row])
            assert state.clients.targets[index, place] == y[row]
        arrived = int(state.server.met[index])
        assert 26 - 2 * 4 <= arrived <= 26
        for row in range(arrived - 5, arrived):
            np.testing.assert_array_equal(state.server.features[index, row % 5], x[row, [0]])
            assert state.server.targets[index, row % 5] == y[row]


def test_networks_and_classes_learn_too():
    random = np.random.default_rng(0)
    common = random.normal(size=(4, 3))

    def client():
        inputs = random.normal(size=(60, 4))
        return inputs, (inputs @ (common + random.normal(size=(4, 3)))).argmax(axis=1)

    data = ct.from_clients({f"client{number}": client() for number in range(3)}, classes=3, test=0)
    problem = ct.residual(data, shared_model=ct.mlp(hidden=(6,)))
    for recipe, _ in METHODS.values():
        losses, *_ = watched(problem, data, recipe(radius=4.0, memory=60, solver_steps=20), ct.online(uplink=1), 50)
        assert np.isfinite(losses).all()
        assert losses[25:].mean() < 0.6 * losses[:5].mean()


# Appendix C


def appendix_c(steps, seed):
    random = np.random.default_rng(seed)
    a, b, noise = random.normal(size=steps), random.normal(size=steps), 0.5 * random.normal(size=steps)
    inputs = np.stack([a + noise, b, 1 - a, 1 - b], axis=1)
    data = ct.from_clients({"alone": (inputs, np.ones(steps))}, test=0)
    model = ct.linear(bias=False)
    return data, ct.residual(data, shared_features=[0, 1], private_features=[2, 3], shared_model=model,
                             private_model=model)


def test_fictitious_play_is_stuck_where_erm_and_gradient_descent_are_not():
    """The setting of Appendix C: late losses, because the first few rounds dominate a mean."""
    data, problem = appendix_c(3000, seed=0)
    start = starting_at(problem, [1.0, 0.0], [1.0, 0.0])
    late = {}
    for name, recipe in (("erm", ct.fedres_erm()), ("play", ct.fictitious_play()),
                         ("sgd", ct.fedres_online_sgd(step_size=0.05))):
        losses, servers, *_ = watched(problem, data, recipe, ct.online(), 3000, start)
        late[name] = losses[2000:].mean()
        if name == "play":
            assert servers[-1, 0] > 0.3  # on its way from 1 to 0
        else:
            np.testing.assert_allclose(servers[-1], [0, 1], atol=1e-3)
    assert max(late["erm"], late["sgd"]) < 1e-4 * late["play"]


# What is refused


@pytest.mark.parametrize("options, sentence", [
    ({"ties": "shortest"}, "ties is 'shortest'; give one of 'nearest', 'minimum_norm'."),
    ({"radius": 0.0}, "radius is 0.0; give a number above 0."),
    ({"private_radius": -1.0}, "private_radius is -1.0; give a number above 0."),
    ({"memory": 0}, "memory is 0; give 1 or more."),
    ({"solver_steps": 0}, "solver_steps is 0; give 1 or more."),
])
@each_method
def test_options_that_make_no_sense_are_refused(method, options, sentence, problem):
    with pytest.raises(ct.InputError, match=sentence):
        METHODS[method][0](**options).build(problem, 4)


def test_a_memory_shorter_than_a_step_is_refused(problem, data):
    with pytest.raises(ct.InputError, match="memory is 2, and a client meets 3 examples in a step; give 3 or more."):
        watched(solved_by_gradients(problem), data, ct.fedres_erm(memory=2), ct.online(batch=3), 1)


def test_only_least_squares_is_solved_in_closed_form(data):
    def closed(**options):
        problem = ct.residual(data, **options)
        parts = problem.init(jax.random.key(0))
        return isinstance(ct.fedres_erm().build(problem, 4).init_server(jax.random.key(0), *parts), Server)

    assert closed() and closed(labels="sign") and closed(private_features="none", private_model=ct.mlp())
    assert not closed(clip=1.0) and not closed(loss="logistic") and not closed(private_model=ct.mlp())


def test_a_problem_without_two_models_is_refused(least_squares):
    with pytest.raises(ct.InputError, match="needs a joint prediction"):
        ct.fictitious_play().build(least_squares, 7)


@pytest.mark.parametrize("recipe", [ct.fedres_erm(), ct.fictitious_play()], ids=["erm", "fictitious play"])
def test_two_classes_are_fitted_as_signs(recipe):
    """Classes 0 and 1 with labels "sign" are the targets -1 and 1, not 0 and 1."""
    random = np.random.default_rng(4)
    rows = [(random.normal(size=(9, 4)), random.integers(0, 2, 9)) for _ in range(3)]
    losses = []
    for kind, classes in (("class", 2), ("sign", None)):
        data = ct.from_clients({str(number): (inputs, drawn if kind == "class" else 2.0 * drawn - 1)
                                for number, (inputs, drawn) in enumerate(rows)}, classes=classes, test=0)
        problem = ct.residual(data, shared_features=[0, 1], private_features=[2, 3], loss="squared", labels="sign")
        result = ct.run(problem, data, recipe, rounds=12, clock=ct.online(uplink=1), precision="float64")
        losses.append([row["online.personal.loss.mean"] for row in result.history])
    np.testing.assert_allclose(*losses, rtol=1e-9)


def test_examples_with_several_targets_are_refused():
    texts = {name: np.tile(np.arange(6, dtype=np.int32), (4, 1)) for name in "ab"}
    data = ct.from_clients({name: (rows[:, :3], rows[:, 3:] % 3) for name, rows in texts.items()}, classes=3, test=0)
    with pytest.raises(ct.InputError, match="one target of an example has shape"):
        ct.run(ct.residual(data), data, ct.fictitious_play(), rounds=1, clock=ct.online())
