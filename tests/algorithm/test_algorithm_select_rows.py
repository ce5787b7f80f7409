"""Federated select: clients that hold some rows of a table do exactly what clients with the whole table do."""

import jax
import numpy as np
import optax
import pytest

import cantons as ct
from cantons.algorithm.parts.training import OPTIMIZERS, LocalOptimizer, moves_without_gradient
from cantons.checks.case import fitting_case
from cantons.checks.contract import CHECKS, find, sentence_of
from cantons.engine import seed_keys, shapes_that_travel, summands
from cantons.errors import InputError
from cantons.metrics import leaves, nbytes
from cantons.protocol import TableRows

pytestmark = pytest.mark.usefixtures("float64")
THINGS, OWN, CONTEXT, WIDTH = 50, 8, 3, 4
SIZES = 3, 17, 5, 8, 11


@pytest.fixture(scope="module")
def data():
    """Five clients with eight things each, some of them in common."""
    random = np.random.default_rng(0)

    def client(size):
        met = random.choice(THINGS - 10, OWN, replace=False)[random.integers(0, OWN, (size, CONTEXT + 1))]
        met[::4, 0] = -1
        return met[:, :-1].astype(np.int32), met[:, -1].astype(np.int32)

    return ct.from_clients({str(number): client(size) for number, size in enumerate(SIZES)}, classes=THINGS, test=0.2)


@pytest.fixture(scope="module")
def problem(data):
    return ct.with_central_loss(ct.dual_encoder(data, width=WIDTH), "spreadout", [0.6, 0.4])


@pytest.fixture(scope="module")
def close_to_dense(played, problem, data):
    """`close_to_dense(build, options, ...)`: both kinds of clients, and how far their servers are apart."""

    dense = {}

    def compare(build, options, rounds=3, rows=OWN, clock=None, engine=None):
        case = build, str(options), rounds, clock and str(clock.options)
        if case not in dense:  # on one device, whatever engine runs the others
            dense[case] = played(problem, data, build(**options), rounds, clock=clock).server
        whole = dense[case]
        sparse = played(problem, data, build(**options, rows=rows), rounds, clock=clock, engine=engine).server
        assert np.abs(whole.shared["table"] - problem.init(seed_keys(0)[0])[0]["table"])[:40].max() > 1e-4
        for one, other in zip(jax.tree.leaves(whole), jax.tree.leaves(sparse), strict=True):
            np.testing.assert_allclose(other, one, rtol=0, atol=1e-12)

    return compare


STEPS = {"steps": 4, "batch_size": 2, "step_size": 0.05}
EPOCHS = {"epochs": 2, "steps": None, "batch_size": 4, "step_size": 0.05}
WHOLE = {"steps": 2, "batch_size": None, "step_size": 0.05}
METHODS = {"fedavg": ct.fedavg, "parallel": ct.parallel_training, "one_way": ct.one_way_transfer,
           "two_way": ct.two_way_transfer}
ENGINES = {"groups": ct.Local(devices=1, group=2), "two devices": ct.Local(devices=2),
           "pairs on two devices": ct.Local(devices=2, group=2)}


@pytest.mark.parametrize("work", [STEPS, EPOCHS, WHOLE], ids=["steps", "epochs", "whole"])
@pytest.mark.parametrize("method", METHODS)
def test_clients_with_some_rows_do_what_clients_with_all_rows_do(close_to_dense, method, work):
    close_to_dense(METHODS[method], work)


@pytest.mark.parametrize(("method", "engine"), [("parallel", "groups"), ("one_way", "two devices")])
def test_so_it_is_on_every_engine(close_to_dense, method, engine):
    """Vectorised, by threes on two devices and plainly, rounds are the same by the contract below."""
    close_to_dense(METHODS[method], STEPS, engine=ENGINES[engine])


def test_so_it_is_for_a_server_that_remembers(close_to_dense):
    close_to_dense(ct.fedyogi, STEPS, rounds=2)


@pytest.mark.parametrize("engine", ["two devices", "pairs on two devices"])
def test_so_it_is_where_devices_gather_rows_instead_of_adding_tables(close_to_dense, engine, monkeypatch):
    monkeypatch.setattr(summands, "FEW", 0)  # however small the table is
    close_to_dense(ct.one_way_transfer, STEPS, engine=ENGINES[engine])


@pytest.mark.parametrize("clients, gathers", [(5, True), (6, False)])
def test_rows_are_gathered_where_they_are_at_most_a_quarter_of_the_table(clients, gathers):
    summand = TableRows(np.arange(2), np.ones((2, 3)), 40), np.ones(3)
    added, gathered = summands.split(summand, clients)
    assert gathered[0] is (summand[0] if gathers else None)
    assert gathered[1] is None
    assert added[0] is (None if gathers else summand[0])
    assert added[1] is summand[1]


@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("method", ["one_way", "two_way"])
def test_so_it_is_for_cohorts_with_and_without_replacement(close_to_dense, method, replace):
    close_to_dense(METHODS[method], STEPS, rounds=5, clock=ct.rounds(cohort=3, replace=replace))


@pytest.mark.parametrize("method", ["parallel", "one_way", "two_way"])
def test_so_it_is_for_changes_per_step_and_a_server_with_adam(close_to_dense, method):
    close_to_dense(METHODS[method], {**EPOCHS, "weighting": "per_step", "server_optimizer": "adam",
                                     "server_step_size": 0.01})


def test_room_that_is_not_filled_changes_nothing(close_to_dense):
    for rows in (OWN + 1, THINGS, 2 * THINGS):
        close_to_dense(ct.one_way_transfer, STEPS, rows=rows)


def test_clients_may_have_momentum_where_no_gradient_is_transferred(close_to_dense):
    close_to_dense(ct.parallel_training, {**STEPS, "client_optimizer": "momentum", "clip_norm": 0.1})


def test_without_the_correction_one_way_transfer_is_another_method(played, problem, data):
    """A row's central gradient would be followed by those alone who hold it."""
    algorithm = ct.one_way_transfer(**STEPS, rows=OWN).build(problem, data.population)
    dense = ct.one_way_transfer(**STEPS).build(problem, data.population)
    diluted = algorithm._replace(server_update=lambda key, server, total, central: dense.server_update(
        key, server, total.aggregate, central))
    recipe = ct.one_way_transfer(**STEPS)
    whole, naive = (played(problem, data, recipe._replace(build=lambda *given, built=built: built), 1).server.shared[
        "table"] for built in (dense, diluted))
    assert np.abs(whole - naive).max() > 1e-3


def test_a_run_scores_and_predicts_with_whole_tables(problem, data):
    """Test examples look at things that a client never trained on."""
    results = [ct.run(problem, data, ct.fedavg(**STEPS, rows=rows), rounds=4, precision="float64")
               for rows in (None, OWN)]
    for name in ("test.shared.recall@10.mean", "test.personal.recall@10.mean", "test.personal.loss.mean"):
        assert results[0].final[name] == pytest.approx(results[1].final[name], abs=1e-12)
    everything = np.arange(THINGS)[:, None].repeat(CONTEXT, axis=1)
    np.testing.assert_allclose(results[1].outputs(everything, client=2), results[0].outputs(everything), atol=1e-12)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("check", CHECKS["rounds"], ids=sentence_of)
def test_the_contract_holds(check, method, cases):
    found = find(check, cases(method))
    assert found.status in ("ok", "skipped"), found.sentence
    assert (found.status == "skipped") == (found.check == "a new client fits its private part before it predicts")


@pytest.fixture(scope="module")
def cases():
    made = {}

    def case(method):
        if method not in made:
            made[method] = fitting_case(METHODS[method](**STEPS, rows=10))[1]
        return made[method]

    return case


# What is refused


def refusal(problem, data, recipe):
    with pytest.raises(InputError) as said:
        ct.run(problem, data, recipe, rounds=1)
    assert "\n" not in str(said.value)
    return str(said.value)


def test_more_rows_than_there_is_room_for_are_refused(problem, data):
    said = refusal(problem, data, ct.parallel_training(**EPOCHS, rows=7))
    assert said.startswith("rows is 7, and a client may look at 8 different rows in a round; give rows = 8 or more")
    assert "may look at 4 different" in refusal(problem, data, ct.fedavg(steps=1, batch_size=1, rows=3))


def test_without_the_check_an_upload_without_room_is_rejected(played, problem, data):
    state = played(problem, data, ct.parallel_training(**WHOLE, rows=7), 1)
    assert state.rejected[1] == 1 and np.isfinite(state.server.shared["table"]).all()


def test_rows_outside_the_table_are_refused(data):
    small = ct.with_central_loss(ct.dual_encoder(data, vocabulary=12, width=WIDTH), "spreadout")
    said = refusal(small, data, ct.parallel_training())
    assert "the training examples look at row" in said and "which have 12 rows, numbered from 0" in said


def test_a_problem_without_tables_has_no_rows_to_hold(least_squares, numbers):
    for build in (ct.fedavg, ct.fedopt, ct.fedadam, ct.fedyogi, ct.fedavgm):
        assert "no tables" in refusal(least_squares, numbers, build(rows=3))


@pytest.mark.parametrize("build", [ct.one_way_transfer, ct.two_way_transfer])
def test_a_transferred_gradient_wants_plain_steps(problem, data, build):
    for options in ({"client_optimizer": "adam"}, {"clip_norm": 1.0}):
        raw = {"federated_gradient": "raw"} if build is ct.two_way_transfer else {}
        assert "leave rows out" in refusal(problem, data, build(**options, **raw, rows=OWN))


def decaying(step_size):
    return optax.chain(optax.add_decayed_weights(0.1), optax.sgd(step_size))


@pytest.mark.parametrize("build", [ct.fedavg, ct.fedadam, ct.parallel_training])
def test_clients_must_not_move_rows_that_have_no_gradient(problem, data, build):
    for optimizer in ("adamw", "yogi", decaying):
        assert "weight decay" in refusal(problem, data, build(client_optimizer=optimizer, rows=OWN))
    build(client_optimizer="adamw").build(problem, data.population)  # whole tables may be decayed


def test_the_other_optimisers_leave_them_where_they_are():
    assert [name for name in OPTIMIZERS if moves_without_gradient(LocalOptimizer(name))] == ["adamw", "yogi"]


# What travels


@pytest.fixture(scope="module")
def movies():
    """Table 3's sizes: 3952 movies, and clients that look at 160 of them."""
    random = np.random.default_rng(1)

    def client():
        own = random.choice(3952, 160, replace=False).astype(np.int32)
        return np.concatenate([own[:-1, None], np.full((159, 1), -1, np.int32)], axis=1), own[1:]

    return ct.from_clients({str(number): client() for number in range(3)}, classes=3952, test=0)


def traffic(recipe, movies):
    """Bytes of each array that goes down and up in a run, by its name."""
    problem = ct.with_central_loss(ct.dual_encoder(movies, width=16), "spreadout")
    with jax.enable_x64(False):
        down, up = shapes_that_travel(problem, recipe.build(problem, movies.population), movies.train)
        result = ct.run(problem, movies, recipe, rounds=1)
    assert result.final["bytes_down"] == 3 * nbytes(down) and result.final["bytes_up"] == 3 * nbytes(up)
    return [{name: int(np.prod(shape)) * np.dtype(kind).itemsize for name, shape, kind in leaves(tree)}
            for tree in (down, up)]


TABLE = 160 * 16 * 4


def test_the_table_s_traffic_is_that_of_table_12(movies):
    whole = {"steps": None, "epochs": 1, "batch_size": 16}
    down, up = traffic(ct.parallel_training(**whole), movies)
    assert down["shared/table"] + up["change/table"] == 2 * 3952 * 16 * 4 == 494 * 1024
    for build, copies in ((ct.parallel_training, 2), (ct.one_way_transfer, 3), (ct.two_way_transfer, 3)):
        down, up = traffic(build(**whole, rows=160), movies)
        tables = sum(size for name, size in (down | up).items() if name.endswith("table"))
        assert tables == copies * TABLE == {2: 20, 3: 30}[copies] * 1024


def test_ids_the_hidden_layer_and_weights_are_listed_apart(movies):
    down, up = traffic(ct.one_way_transfer(steps=None, batch_size=16, rows=160), movies)
    hidden = {"hidden/weight": 16 * 16 * 4, "hidden/bias": 16 * 4}
    assert down == {f"{part}/{name}": size for part in ("shared", "central_gradient") for name, size in {
        **hidden, "table": TABLE}.items()} | {"step_size": 4}
    assert up == {"request": 160 * 4, "upload/rows": 160 * 4, "upload/upload/change/table": TABLE,
                  "upload/upload/weight": 4, "upload/upload/steps": 4,
                  **{f"upload/upload/change/{name}": size for name, size in hidden.items()}}
