"""FFGG, Local FFGG, FedAlt and FedSim on least squares: beside plain NumPy, and where two algorithms are one."""

import jax
import numpy as np
import optax
import pytest

import cantons as ct
from cantons.engine.stepper import shapes_that_travel
from cantons.metrics.traffic import nbytes

pytestmark = pytest.mark.usefixtures("float64")
KEY = jax.random.key(0)
SHARED, PRIVATE = [0, 1, 2], [1, 2]
THETA, W = np.array([1.0, -2.0, 0.5]), np.array([0.3, -0.4])
GAMMA, GAMMA_W = 0.05, 0.1
RATES = {"step_size": GAMMA, "private_step_size": GAMMA_W, "batch_size": None}
START = {"layer0": {"weight": THETA[:, None]}}, {"layer0": {"weight": W[:, None]}}


def parted(data):
    """The mean of (A theta + B w - y)^2."""
    model = ct.linear(bias=False)
    return ct.residual(data, shared_features=SHARED, private_features=PRIVATE, shared_model=model, private_model=model)


@pytest.fixture(scope="module")
def problem(numbers):
    return parted(numbers)


@pytest.fixture(scope="module", params=[1, 2], ids=["one device", "two devices"])
def play(request, played, problem, numbers):
    """`play(recipe, rounds)`: the state after some rounds from THETA and W."""
    engine = ct.Local(devices=request.param)
    return lambda recipe, rounds=3: played(problem, numbers, recipe, rounds, initial=START, engine=engine)


@pytest.fixture(scope="module")
def clients(numbers, own_rows):
    """(A, B, y) of every client."""
    return [(x[:, SHARED], x[:, PRIVATE], y) for x, y in own_rows(numbers)]


def theta(state):
    return np.asarray(state.server.shared["layer0"]["weight"])[:, 0]


def same(one, other, digits=1e-12):
    np.testing.assert_allclose(one, other, rtol=0, atol=digits)


def best(A, B, y, at):
    return np.linalg.lstsq(B, y - A @ at, rcond=None)[0]


def descended(A, B, y, at, steps):
    w = W
    for _ in range(steps):
        w = w - GAMMA_W * 2 / len(y) * B.T @ (A @ at + B @ w - y)
    return w


def ffgg(clients, tune, rounds=3):
    """Algorithm 1."""
    at = THETA
    for _ in range(rounds):
        deltas = [2 / len(y) * A.T @ (A @ at + B @ tune(A, B, y, at) - y) for A, B, y in clients]
        at = at - GAMMA * np.mean(deltas, axis=0)
    return at


def gd(steps):
    return {"name": "gd", "steps": steps, "step_size": GAMMA_W}


def test_ffgg_is_the_paper_s(play, clients):
    same(theta(play(ct.ffgg(step_size=GAMMA, tuner=gd(4)))), ffgg(clients, lambda *one: descended(*one, 4)))


@pytest.mark.parametrize("tuner", ["exact", {"name": "cg", "steps": 2}])
@pytest.mark.parametrize("private_init", ["fixed", "random", "last"])
def test_with_the_best_private_part_it_does_not_matter_where_tuning_begins(play, clients, tuner, private_init):
    found = play(ct.ffgg(step_size=GAMMA, tuner=tuner, private_init=private_init))
    same(theta(found), ffgg(clients, best), 1e-10)


def test_fewer_steps_of_conjugate_gradients_are_not_exact(play, clients):
    assert np.abs(theta(play(ct.ffgg(step_size=GAMMA, tuner={"name": "cg", "steps": 1})))
                  - ffgg(clients, best)).max() > 1e-3


def test_local_ffgg_is_the_paper_s(play, clients):
    """Algorithm 4, two local steps."""
    at = THETA
    for _ in range(3):
        ends = []
        for A, B, y in clients:
            own, w = at, descended(A, B, y, at, 4)
            for _ in range(2):
                w = w - 0.2 * 2 / len(y) * B.T @ (A @ own + B @ w - y)
                own = own - GAMMA * 2 / len(y) * A.T @ (A @ own + B @ w - y)
            ends.append(own)
        at = np.mean(ends, axis=0)
    found = play(ct.local_ffgg(step_size=GAMMA, private_step_size=0.2, steps=2, tuner=gd(4)))
    same(theta(found), at)


def test_with_one_local_step_local_ffgg_is_ffgg(play):
    """One step at the best private part changes nothing; one more step of gradient descent is one more to tune."""
    one = {"step_size": GAMMA, "steps": 1, "private_step_size": GAMMA_W}
    same(theta(play(ct.local_ffgg(**one, tuner="exact"))), theta(play(ct.ffgg(step_size=GAMMA, tuner="exact"))), 1e-10)
    same(theta(play(ct.local_ffgg(**one, tuner=gd(3)))), theta(play(ct.ffgg(step_size=GAMMA, tuner=gd(4)))))


@pytest.mark.parametrize("devices", [1, 2])
def test_with_nothing_private_ffgg_is_gradient_descent(played, least_squares, numbers, quadratics, devices):
    start = {"layer0": {"weight": THETA[:, None]}}, {"layer0": {"weight": None}}
    found = played(least_squares, numbers, ct.ffgg(step_size=GAMMA), 3, initial=start,
                   engine=ct.Local(devices=devices))
    at = THETA
    for _ in range(3):
        at = at - GAMMA * quadratics.gradients(at).mean(0)
    same(theta(found), at)


def test_where_tuning_begins_is_kept_only_if_it_is_wanted(play):
    fixed, random, last = (play(ct.ffgg(tuner=gd(2), private_init=how), 1) for how in ("fixed", "random", "last"))
    assert not jax.tree.leaves((fixed.clients.private, random.clients.private, random.server.start, last.server.start))
    assert jax.tree.leaves(last.clients.private)
    same(np.asarray(fixed.server.start["layer0"]["weight"])[:, 0], W)
    assert np.abs(theta(fixed) - theta(random)).max() > 1e-4
    same(theta(fixed), theta(last))


def test_a_warm_start_is_where_the_client_s_last_round_ended(play, clients):
    """That of Local FFGG is the private part after its steps, not after its tuning."""
    at, own = THETA, [W] * len(clients)
    for _ in range(3):
        own = [w - GAMMA_W * 2 / len(y) * B.T @ (A @ at + B @ w - y) for (A, B, y), w in zip(clients, own, strict=True)]
        at = at - GAMMA * np.mean([2 / len(y) * A.T @ (A @ at + B @ w - y)
                                   for (A, B, y), w in zip(clients, own, strict=True)], axis=0)
    found = play(ct.ffgg(step_size=GAMMA, tuner=gd(1), private_init="last"))
    same(theta(found), at)
    same(np.asarray(found.clients.private["layer0"]["weight"])[..., 0], own)
    local = play(ct.local_ffgg(step_size=GAMMA, private_step_size=GAMMA_W, tuner=gd(1), private_init="last"))
    tuned = play(ct.ffgg(step_size=GAMMA, tuner=gd(2), private_init="last"))
    same(theta(local), theta(tuned))
    same(local.clients.private["layer0"]["weight"], tuned.clients.private["layer0"]["weight"])


@pytest.mark.parametrize("build", [ct.ffgg, ct.local_ffgg])
def test_an_evaluation_goes_on_from_the_private_part_that_the_client_has_kept(problem, numbers, clients, build):
    """One more step of tuning from there, at the new shared part."""
    result = ct.run(problem, numbers, build(step_size=GAMMA, tuner=gd(1), private_init="last"), rounds=2, initial=START,
                    precision="float64")
    at, losses = theta(result.model.state), []
    own = np.asarray(result.model.state.clients.private["layer0"]["weight"])[..., 0]
    for (A, B, y), w in zip(clients, own, strict=True):
        w = w - GAMMA_W * 2 / len(y) * B.T @ (A @ at + B @ w - y)
        losses.append(((A @ at + B @ w - y) ** 2).mean())
    same(result.clients["train.personal.loss"], losses, 1e-10)


@pytest.mark.parametrize("how", ["fixed", "random"])
def test_a_random_beginning_is_drawn_anew_each_time(labels, how):
    problem = ct.classification(labels, ct.mlp(hidden=[3]), split="output")
    algorithm = ct.ffgg(tuner=gd(1), private_init=how).build(problem, labels.population)
    shared, private = problem.init(jax.random.key(0))
    message = algorithm.broadcast(None, algorithm.init_server(jax.random.key(1), shared, private), None)
    client = algorithm.init_client(jax.random.key(2), shared, private)
    one, other = (algorithm.model(jax.random.key(seed), message, client, labels.train.client(0))[1] for seed in (3, 4))
    same = all((a == b).all() for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True))
    assert same is (how == "fixed")


def test_one_step_of_stateless_fedsim_is_ffgg_that_does_not_tune(play):
    same(theta(play(ct.fedsim(**RATES, steps=1, state="none"))), theta(play(ct.ffgg(step_size=GAMMA, tuner=gd(0)))))


class Heard(ct.Callback):
    def __init__(self):
        self.sentences = []

    def noticed(self, sentence):
        self.sentences.append(sentence)


@pytest.mark.parametrize("step_size", [1e30, 10.0], ids=["ends in no numbers", "ends high"])
def test_a_tuning_that_diverges_falls_back_to_its_beginning_and_is_counted(play, clients, problem, numbers, step_size):
    wild = {"name": "gd", "steps": 40 if step_size > 10 else 4, "step_size": step_size}
    found = play(ct.ffgg(step_size=GAMMA, tuner=wild))
    same(theta(found), ffgg(clients, lambda *one: W))
    assert (found.clients.diverged == 3).all()
    heard = Heard()
    row = ct.run(problem, numbers, ct.ffgg(tuner=wild), rounds=2, callbacks=[heard]).final
    assert row["clients.diverged_tunings.mean"] == 3.0  # two rounds, and the evaluation
    *_, said = heard.sentences  # the first is about the step size
    assert len(heard.sentences) == 2 and "Theorem 6" in heard.sentences[0]
    assert said.startswith("21 tunings diverged and fell back to their beginnings, of 7 clients: "
                           "client0 3 times, client1 3 times, ") and "client4 3 times and 2 more;" in said


@pytest.mark.parametrize("build", [ct.ffgg, ct.local_ffgg, ct.pfedme])
@pytest.mark.parametrize("tuner", [{"name": "gd"}, {"name": "sgd", "batch_size": 3},
                                   {"name": "optimizer", "batch_size": 3}], ids=lambda tuner: tuner["name"])
def test_a_tuning_that_diverges_at_an_evaluation_is_counted_and_named_too(build, tuner):
    """Of clients who never took part, and of new ones: they are scored with what tuning begins with."""
    random = np.random.default_rng(0)
    data = ct.from_clients({f"client{number}": (random.normal(size=(9, 3)), random.normal(size=9))
                            for number in range(9)}, test=0.3, new=2)
    problem = ct.regression(data, ct.linear(bias=False)) if build is ct.pfedme else parted(data)
    heard, short = Heard(), {"steps": 1} if build is ct.pfedme else {}
    result = ct.run(problem, data, build(tuner={**tuner, "step_size": 1e6}, **short), rounds=1, cohort=1, seed=1,
                    callbacks=[heard])
    counts = np.asarray(result.clients["clients.diverged_tunings"])
    assert sorted(counts) == [1] * 6 + [2]
    assert (result.new_clients["clients.diverged_tunings"] == np.ones(2)).all()
    for table in (result.clients, result.new_clients):
        np.testing.assert_array_equal(table["test.personal.loss"], table["test.shared.loss"])
    said = [sentence for sentence in heard.sentences if "tunings diverged" in sentence]
    assert said[0].startswith(f"8 tunings diverged and fell back to their beginnings, of 7 clients: "
                              f"{data.clients.names[counts.argmax()]} 2 times, ")
    assert said[1].startswith("new clients: 2 tunings diverged and fell back to their beginnings, of 2 clients: ")
    assert all(f"{name} 1 times" in said[1] for name in data.new.names) and len(said) == 2


@pytest.mark.parametrize("recipe", [ct.ffgg(step_size=GAMMA, tuner="exact"), ct.fedalt(**RATES, state="none")],
                         ids=["ffgg", "fedalt"])
def test_the_gradient_norm_is_that_of_the_shared_part_where_the_client_predicts(problem, numbers, clients, recipe):
    """||F_m|| of all rows, however many batches that takes; with the best private part it has a closed form."""
    many = ct.from_clients({f"c{number}": (np.tile(np.c_[A], (40, 1)), np.tile(y, 40))
                            for number, (A, _, y) in enumerate(clients)}, test=0)
    result = ct.run(parted(many), many, recipe, rounds=1, initial=START, precision="float64")
    at, own = theta(result.model.state), [descended(*rows, theta(result.model.state), 5) for rows in clients]
    if recipe.name == "ffgg":
        own = [best(*rows, at) for rows in clients]
    norms = [np.linalg.norm(2 / len(y) * A.T @ (A @ at + B @ w - y)) for (A, B, y), w in zip(clients, own, strict=True)]
    same(result.clients["clients.gradient_norm"], norms, 1e-10)


def test_delta_may_be_of_a_fresh_batch(play):
    """As many draws as it takes have the mean of all examples; one has not."""
    whole, some = (theta(play(ct.ffgg(step_size=GAMMA, tuner="exact", delta_batch_size=size), 1))
                   for size in (None, 20_000))
    np.testing.assert_allclose(some, whole, atol=5e-3)
    assert (some != whole).all()


ONE_ROW = {"name": "optimizer", "optimizer": "sgd", "steps": 1, "batch_size": 1, "step_size": 0.5}


@pytest.mark.parametrize("recipe", [
    ct.ffgg(tuner=ONE_ROW, delta_batch_size=1), ct.local_ffgg(tuner=ONE_ROW, private_step_size=0.1, batch_size=1),
    ct.fedalt(private_step_size=0.5, batch_size=1)], ids=lambda recipe: recipe.name)
def test_the_batch_of_the_shared_part_s_step_is_not_the_one_that_the_private_part_has_seen(recipe):
    """Tuning fits one of four rows exactly: the gradient is 0 where the next batch is that row, once in four times."""
    data = ct.from_clients({"c": (np.ones((4, 1)), np.arange(4.0))}, test=0)
    model = ct.linear(bias=False)
    problem = ct.residual(data, shared_features=[0], private_features=[0], shared_model=model, private_model=model)
    algorithm, parts = recipe.build(problem, 1), jax.tree.map(lambda leaf: leaf * 0, problem.init(KEY))
    message = algorithm.broadcast(KEY, algorithm.init_server(KEY, *parts), None)
    client, rows = algorithm.init_client(KEY, *parts), data.train.client(0)
    sent = jax.jit(jax.vmap(lambda key: algorithm.client_update(key, message, client, rows)[0][0]))(
        jax.random.split(KEY, 400))
    assert 0.15 < (np.abs(sent["layer0"]["weight"]) < 1e-12).mean() < 0.35


@pytest.mark.parametrize(("build", "length"), [(ct.ffgg, 0.01 * GAMMA), (ct.local_ffgg, 0.01)])
def test_a_server_with_adam_first_steps_along_signs(play, build, length):
    """The step size of FFGG is the server's, and its steps are multiplied by it; that of Local FFGG is the clients'."""
    found = play(build(step_size=GAMMA, tuner=gd(2), server_optimizer="adam", server_step_size=0.01), 1)
    same(np.abs(theta(found) - THETA), length, length * 1e-4)


def test_uploads_are_the_shared_part_and_nothing_else(problem, numbers):
    sizes = {name: ct.run(problem, numbers, build(tuner=gd(1)), rounds=1).summary["up_bytes_per_upload"]
             for name, build in (("ffgg", ct.ffgg), ("local_ffgg", ct.local_ffgg))}
    assert sizes == {"ffgg": 4 * len(SHARED), "local_ffgg": 4 * len(SHARED)}


@pytest.mark.parametrize("build", [ct.fedalt, ct.fedsim, ct.fedrep, ct.fedper])
def test_uploads_of_the_others_are_the_shared_part_and_a_weight(problem, numbers, build):
    upload = shapes_that_travel(problem, build().build(problem, numbers.population), numbers.train)[1]
    assert nbytes(upload) == 8 * (len(SHARED) + 1)


@pytest.mark.parametrize(("tuner", "sentence"), [
    ("newtons", "tuner"), ({"name": "gd", "steps": -1}, "tuner.steps is -1"), ({"name": "gd", "pace": 1}, "pace")])
def test_an_odd_tuner_is_refused(tuner, sentence):
    with pytest.raises(ct.InputError, match=sentence):
        ct.ffgg(tuner=tuner)


# FedAlt and FedSim


def rounds_of(clients, turn, kept, weights=None, rounds=3):
    at, own = THETA, [W] * len(clients)
    for _ in range(rounds):
        ends = [turn(*rows, at, w if kept else W) for rows, w in zip(clients, own, strict=True)]
        at, own = np.average([end for end, _ in ends], axis=0, weights=weights), [w for _, w in ends]
    return at, own


def alternate(A, B, y, theta, w, private_steps=2, steps=3, rates=(GAMMA, GAMMA_W)):
    for _ in range(private_steps):
        w = w - rates[1] * 2 / len(y) * B.T @ (A @ theta + B @ w - y)
    for _ in range(steps):
        theta = theta - rates[0] * 2 / len(y) * A.T @ (A @ theta + B @ w - y)
    return theta, w


def together(A, B, y, theta, w, steps=3, rates=(GAMMA, GAMMA_W)):
    for _ in range(steps):
        residual = 2 / len(y) * (A @ theta + B @ w - y)
        theta, w = theta - rates[0] * A.T @ residual, w - rates[1] * B.T @ residual
    return theta, w


METHODS = {"fedalt": (ct.fedalt(private_steps=2, steps=3, **RATES), alternate),
           "fedsim": (ct.fedsim(steps=3, **RATES), together)}


@pytest.mark.parametrize("state", ["kept", "none"])
@pytest.mark.parametrize("name", METHODS)
def test_it_is_the_paper_s(play, clients, name, state):
    recipe, turn = METHODS[name]
    found = play(recipe.again(**{**recipe.options, "state": state}))
    at, own = rounds_of(clients, turn, state == "kept")
    same(theta(found), at)
    if state == "kept":
        same(np.asarray(found.clients.private["layer0"]["weight"])[..., 0], own)
    else:
        assert not jax.tree.leaves(found.clients.private)


def test_clients_may_count_by_their_batches(played):
    """Clients whose rows are all alike, so that every batch has the gradient of all rows."""
    random, copies = np.random.default_rng(0), (3, 9, 20)
    rows = [(random.normal(size=3), random.normal()) for _ in copies]
    data = ct.from_clients({f"c{number}": (np.tile(x, (count, 1)), np.full(count, y)) for number, ((x, y), count)
                            in enumerate(zip(rows, copies, strict=True))}, test=0)
    clients = [(x[None, SHARED], x[None, PRIVATE], np.array([y])) for x, y in rows]
    for weighting, weights in (("batches", [1, 3, 5]), ("uniform", None)):
        found = played(parted(data), data, ct.fedsim(steps=3, **{**RATES, "batch_size": 4}, weighting=weighting), 2,
                       initial=START)
        same(theta(found), rounds_of(clients, together, True, weights, 2)[0])


def test_in_the_first_round_it_does_not_matter_whether_clients_keep_anything(play):
    for recipe, _ in METHODS.values():
        one, other = (play(recipe.again(**{**recipe.options, "state": state}), 1) for state in ("kept", "none"))
        same(theta(one), theta(other), 0)


def test_stateless_fedalt_with_one_shared_step_is_ffgg(play):
    alt = ct.fedalt(private_steps=4, steps=1, **RATES, state="none")
    tuned = ct.ffgg(step_size=GAMMA, tuner={"name": "gd", "steps": 4, "step_size": GAMMA_W})
    same(theta(play(alt)), theta(play(tuned)))


def test_fedsim_with_one_step_is_gradient_descent_on_both_parts(play, clients):
    at, own = THETA, [W] * len(clients)
    for _ in range(3):
        residuals = [2 / len(y) * (A @ at + B @ w - y) for (A, B, y), w in zip(clients, own, strict=True)]
        own = [w - GAMMA_W * B.T @ residual for (_, B, _), w, residual in zip(clients, own, residuals, strict=True)]
        gradients = [A.T @ residual for (A, _, _), residual in zip(clients, residuals, strict=True)]
        at = at - GAMMA * np.mean(gradients, axis=0)
    found = play(ct.fedsim(steps=1, **RATES))
    same(theta(found), at)
    same(np.asarray(found.clients.private["layer0"]["weight"])[..., 0], own)


# All four, in rounds that differ from each other


def tuned(A, B, y, theta, w, rates=(GAMMA, GAMMA_W)):
    return alternate(A, B, y, theta, descended(A, B, y, theta, 4), 0, 1, rates)


def tuned_locally(A, B, y, theta, w, rates=(GAMMA, GAMMA_W)):
    w = descended(A, B, y, theta, 4)
    for _ in range(2):
        theta, w = alternate(A, B, y, theta, w, 1, 1, rates)
    return theta, w


ALL = {"ffgg": (ct.ffgg(step_size=GAMMA, tuner=gd(4)), tuned),
       "local_ffgg": (ct.local_ffgg(step_size=GAMMA, private_step_size=GAMMA_W, steps=2, tuner=gd(4)), tuned_locally),
       **METHODS}
SCHEDULES = {"step_size": ({"name": "step_decay", "start": GAMMA, "factor": 0.5, "every": 1}, (0.5, 1.0)),
             "private_step_size": ({"name": "step_decay", "start": GAMMA_W, "factor": 2.0, "every": 1}, (1.0, 2.0))}


def replayed(clients, turn, rates=(1.0, 1.0), optimizer=None):
    """Three rounds whose step sizes are multiplied by `rates` from one to the next; the server's is optax's."""
    optimizer = optimizer or optax.sgd(1.0)
    at, own, state = THETA, [W] * len(clients), optimizer.init(THETA)
    for number in range(3):
        now = GAMMA * rates[0]**number, GAMMA_W * rates[1]**number
        ends, own = zip(*(turn(*rows, at, w, rates=now) for rows, w in zip(clients, own, strict=True)), strict=True)
        move, state = optimizer.update(at - np.mean(ends, axis=0), state)
        at = at + np.asarray(move)
    return at


@pytest.mark.parametrize(("name", "option"), [
    (name, option) for name in ALL for option in SCHEDULES if (name, option) != ("ffgg", "private_step_size")])
def test_every_round_has_the_step_size_of_its_schedule(play, clients, name, option):
    (recipe, turn), (schedule, rates) = ALL[name], SCHEDULES[option]
    found = play(recipe.again(**{**recipe.options, option: schedule}))
    same(theta(found), replayed(clients, turn, rates))
    assert np.abs(theta(found) - replayed(clients, turn)).max() > 1e-3


@pytest.mark.parametrize("name", ALL)
def test_the_server_s_adam_sees_the_mean_change_as_a_gradient(play, clients, name):
    """And remembers those of the rounds before. FFGG's sees the gradient itself, and its steps are gamma times as long.
    """
    recipe, turn = ALL[name]
    found = play(recipe.again(**{**recipe.options, "server_optimizer": "adam", "server_step_size": 0.05}))
    adam = optax.chain(optax.scale(1 / GAMMA), optax.adam(0.05 * GAMMA)) if name == "ffgg" else optax.adam(0.05)
    same(theta(found), replayed(clients, turn, optimizer=adam))
