"""A centre beside the clients of any algorithm: beside plain NumPy, and in the cases where two algorithms are one."""


import jax
import numpy as np
import pytest

import cantons as ct
from cantons.algorithm import ALGORITHMS
from cantons.checks.compare import difference
from cantons.engine import real_options
from cantons.protocol import Probe, Start
from cantons.study.plain import plain
from cantons.study.read import read_study
from cantons.study.registry import make_algorithm
from cantons.study.resolve import resolve

pytestmark = pytest.mark.usefixtures("float64")
W_F, W_C = 0.6, 0.4
SHARED, PRIVATE = [0, 1, 2], [1, 2]
THETA, W = np.array([1.0, -2.0, 0.5]), np.array([0.3, -0.4])
START = {"layer0": {"weight": THETA[:, None]}}, {"layer0": {"weight": W[:, None]}}
GAMMA, ETA = 0.05, 0.03
CENTRE = {"central_step_size": ETA, "central_steps": 2, "central_batch_size": None}


@pytest.fixture(scope="module")
def parted(data):
    """The mean of (A theta + B w - y)^2."""
    model = ct.linear(bias=False)
    return ct.residual(data, shared_features=SHARED, private_features=PRIVATE, shared_model=model, private_model=model)


@pytest.fixture(scope="module")
def play(played, parted, data):
    """`play(recipe, rounds)`: the state after some rounds from THETA and W."""

    def after(recipe, rounds=3, weights=(W_F, W_C), **more):
        problem = ct.with_central_loss(parted, "same", list(weights))
        return played(problem, data, recipe, rounds, initial=START, **more)

    return after


def theta(state):
    return np.asarray(state.server.shared["layer0"]["weight"])[:, 0]


def centre_steps(rows, at, own, trained):
    """Where J steps on W_C times the mean of (A theta + B w - y)^2 lead."""
    x, y = rows
    for _ in range(CENTRE["central_steps"]):
        over = 2 * W_C / len(y) * (x[:, SHARED] @ at + x[:, PRIVATE] @ own - y)
        at, own = at - ETA * x[:, SHARED].T @ over, own - trained * ETA * x[:, PRIVATE].T @ over
    return at, own


@pytest.mark.parametrize("private", ["start", "trained"])
def test_ffgg_beside_a_centre_adds_the_two_changes(play, own_rows, data, rows, private):
    """Algorithm 1 of FFGG with exact tuning, and the centre's steps, both from the same theta."""
    at, own = THETA, W
    for _ in range(3):
        deltas = []
        for x, y in own_rows(data):
            best = np.linalg.lstsq(x[:, PRIVATE], y - x[:, SHARED] @ at, rcond=None)[0]
            over = x[:, SHARED] @ at + x[:, PRIVATE] @ best - y
            deltas.append(2 * W_F / len(y) * x[:, SHARED].T @ over)
        there, own = centre_steps(rows, at, own, trained=private == "trained")
        at = at - GAMMA * np.mean(deltas, axis=0) + (there - at)
    found = play(ct.parallel_centre(clients=ct.ffgg(step_size=GAMMA, tuner="exact"), central_private=private, **CENTRE))
    np.testing.assert_allclose(theta(found), at, rtol=0, atol=1e-10)
    np.testing.assert_allclose(np.asarray(found.server.private["layer0"]["weight"])[:, 0], own, rtol=0, atol=1e-10)


def test_with_fedavg_at_the_clients_it_is_parallel_training(play):
    """With sampled batches and schedules too: both draw the same, and count rounds alike."""
    falling = {"name": "inverse", "start": 0.05}
    work = {"steps": 2, "batch_size": 2, "step_size": falling}
    centre = {"central_step_size": falling, "central_steps": 3, "central_batch_size": 5, "central_private": "trained"}
    own = play(ct.parallel_centre(clients=ct.fedavg(**work, weighting="uniform"), **centre), 4)
    theirs = play(ct.parallel_training(**work, **centre), 4)
    assert not difference((own.server.shared, own.server.private, own.clients.private),
                          (theirs.server.shared, theirs.server.private, theirs.clients.private), digits=1e-12)


@pytest.mark.parametrize("clients", [ct.scaffold(steps=2), ct.fedres_avg(steps=2, batch_size=2)],
                         ids=lambda recipe: recipe.name)
def test_a_central_loss_without_weight_leaves_the_clients_algorithm_to_the_bit(play, clients):
    beside, alone = (play(recipe, weights=(1.0, 0.0)) for recipe in (
        ct.parallel_centre(clients=clients, **CENTRE), clients))
    assert not difference((beside.server.clients, beside.clients), (alone.server, alone.clients))


def test_what_has_no_place_for_a_centre_is_refused_and_everything_else_is_built(data, labels):
    network = ct.with_central_loss(ct.classification(labels, ct.mlp(hidden=[3]), split="output"))
    halves = {"shared_features": "first_half", "private_features": "second_half"}
    problems = network, ct.with_central_loss(ct.residual(data, **halves))
    refused = {}
    for name, make in ALGORITHMS.items():
        for problem in problems:
            try:
                ct.parallel_centre(clients=make()).build(problem, labels.population)
                refused.pop(name, None)
                break
            except ct.InputError as error:
                refused[name] = str(error)
    streams = {"fedomd", "fedres_bandit", "fedres_erm", "fedres_online_sgd", "fictitious_play", "online_central",
               "online_independent"}
    with_centres = {"example_transfer", "one_way_transfer", "only_central", "parallel_centre", "parallel_training",
                    "sequential", "two_way_transfer"}
    assert refused.keys() == streams | with_centres | {"central", "independent"}
    assert "it pools the clients' examples" in refused["central"]
    assert "its clients upload nothing" in refused["independent"]
    assert all("it has a datacenter already" in refused[name] for name in with_centres)
    assert all("it learns from a stream" in refused[name] for name in ("online_central", "fedres_online_sgd"))


def test_it_needs_and_measures_what_the_clients_algorithm_does(parted, data):
    def build(clients):
        return ct.parallel_centre(clients=clients, central_batch_size=41).build(ct.with_central_loss(parted), 7)

    needs = build(ct.fedres_avg()).needs
    assert (needs.private, needs.counts_once, needs.central, needs.central_rows) == (True, True, "loss", 41)
    probe = Probe(lambda key, server, client, data: server.control, lambda server, mean, central: {"it": server.round})
    scaffold = ct.scaffold()
    probed = scaffold._replace(build=lambda *given: (base := scaffold.build(*given))._replace(
        diagnostics=base.diagnostics._replace(probe=probe)))
    for recipe in (scaffold, probed):
        built = build(recipe)
        server = built.init_server(jax.random.key(0), *START)
        assert built.diagnostics.server(server) == {"control_norm": 0.0}
    assert built.diagnostics.probe.client(None, server, None, None) is server.clients.control
    assert built.diagnostics.probe.finish(server, None, None) == {"it": 0}
    with pytest.raises(ct.InputError, match="draws batches of 41 examples of the datacenter, which has 40"):
        resolve(ct.with_central_loss(parted), data, ct.parallel_centre(central_batch_size=41), rounds=1,
                engine=ct.Local())


@pytest.mark.parametrize("given", [{"name": "ffgg"}, ct.rounds()], ids=["a table", "a clock"])
def test_clients_are_a_recipe_of_an_algorithm(parted, given):
    with pytest.raises(ct.InputError, match="not an algorithm; give one, such as ffgg"):
        ct.parallel_centre(clients=given).build(ct.with_central_loss(parted), 7)


# An algorithm among the options of another

STUDY = """
rounds = 2
[data]
name = "digits"
clients = 6
partition = "iid"
[central]
name = "from_clients"
fraction = 0.5
[problem]
name = "classification"
model = { name = "mlp", hidden = [3] }
split = "output"
central_loss = "same"
[algorithm]
name = "parallel_centre"
central_steps = 2
[algorithm.clients]
name = "ffgg"
step_size = 0.1
tuner = { name = "gd", steps = 2, step_size = 0.1 }
delta_batch_size = "none"
"""


def composed(step_size, tuner_step_size=0.1):
    return ct.parallel_centre(central_steps=2, clients=ct.ffgg(
        step_size=step_size, tuner={"name": "gd", "steps": 2, "step_size": tuner_step_size}))


@pytest.fixture
def study(tmp_path):
    path = tmp_path / "study.toml"
    path.write_text(STUDY)
    return path


def test_runs_that_differ_in_the_inner_numbers_are_one_program_and_each_is_the_run_alone(play, parted, data):
    recipes = [composed(0.05), composed(0.1, 0.02)]
    assert real_options(recipes[1]).items() >= {
        "clients.step_size": 0.1, "clients.tuner.step_size": 0.02, "central_step_size": 0.1}.items()
    engine, problem = ct.Local(devices=1).together(), ct.with_central_loss(parted, "same", [W_F, W_C])
    session = engine.start([resolve(problem, data, recipe, rounds=2, engine=engine, precision="float64").parts
                            for recipe in recipes], print)
    together = session.whole(session.advance(session.begin([Start(*START)] * 2), 2))
    alone = [play(recipe, 2).server for recipe in recipes]
    assert not difference([one.state.server for one in together], alone, digits=1e-12)
    assert difference(*alone, digits=1e-3)
    other = ct.parallel_centre(central_steps=2, clients=ct.local_ffgg(step_size=0.05))
    with pytest.raises(ct.InputError, match="differ in its real numbers alone"):
        engine.start([resolve(problem, data, recipe, rounds=2, engine=engine).parts for recipe in (*recipes, other)],
                     print)


def test_a_recipe_in_a_study_file_is_the_recipe_in_python_and_in_a_run_folder(study):
    problem, data, recipe, _ = read_study(study).parts()
    assert recipe.table() == composed(0.1).table()
    written = plain(resolve(problem, data, recipe, rounds=1, engine=ct.Local()).study)["algorithm"]
    assert written["clients"]["tuner"] == {"name": "gd", "steps": 2, "step_size": 0.1}
    assert make_algorithm(written).table() == recipe.table()
    by_name = read_study(study, {"algorithm.clients": "fedres_avg"}).parts()[2]
    assert by_name.table()["clients"] == ct.fedres_avg().table()


@pytest.mark.parametrize("change, sentence", [
    ({"name": "fgg"}, "algorithm.clients.name: unknown algorithm 'fgg'"),
    ({"step_size": -1.0}, "algorithm.clients.step_size = -1.0; give a number above 0"),
    ({"steps": 3}, "unknown option in \\[algorithm.clients\\] 'steps'"),
    ({"name": "independent", "step_size": 0.1}, "independent cannot be the clients' algorithm"),
])
def test_what_is_wrong_with_the_inner_table_is_said_with_its_place(study, change, sentence):
    changes = {"algorithm.clients": {"name": "ffgg"} | change}
    with pytest.raises(ct.InputError, match=sentence):
        read_study(study, changes).resolved()
