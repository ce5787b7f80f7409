"""The plain engine is the reference of all others, and open to a debugger."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import cantons as ct
from cantons.algorithm import ROUNDS
from cantons.protocol import Algorithm, Diagnostics, Needs, PersonalModel, Problem, PyTree, Sum, TableRows
from cantons.recipe import algorithm

pytestmark = pytest.mark.usefixtures("float64")


def close(left, right):
    jax.tree.map(lambda one, other: np.testing.assert_allclose(one, other, rtol=1e-11, atol=1e-11), left, right)


@pytest.mark.parametrize("name, options", [
    ("central", {}), ("fedavg_finetune", {"batch_size": 2}), ("l2gd", {"batch_size": 2}), ("scaffold", {})])
def test_it_agrees_with_the_local_engine_in_every_number_it_gives(name, options, labels):
    """States, scores of clients and newcomers, traffic, diagnostics. The contract has the states of every method."""
    problem = ct.logistic(labels, split="*/bias")
    results = [ct.run(problem, labels, ROUNDS[name](**options), rounds=3, cohort=4, precision="float64", engine=engine)
               for engine in (ct.Local(), ct.Plain(compile=True))]
    close(*(result.model.state for result in results))
    for left, right in zip(*(result.history for result in results), strict=True):
        assert left.keys() == right.keys()
        numbers = [key for key, value in left.items() if isinstance(value, float) and "second" not in key]
        close([left[key] for key in numbers], [right[key] for key in numbers])


@pytest.mark.parametrize("clock", [ct.rounds(cohort=5, replace=True),
                                   ct.rounds(cohort=4, available=np.eye(7, dtype=bool)[:5])], ids=["replace", "trace"])
def test_spare_slots_and_clients_drawn_twice_are_the_same_there(clock, labels):
    problem = ct.logistic(labels)
    close(*(ct.run(problem, labels, ct.fedavg(), rounds=4, clock=clock, precision="float64", engine=engine).model.state
            for engine in (ct.Local(), ct.Plain(compile=True))))


def test_a_debugger_sees_numbers_not_tracers(numbers, least_squares):
    """Without compiling, an algorithm's functions are called with arrays whose values are known."""
    seen = []

    @algorithm
    def watched(problem, population):
        built = ct.fedavg(batch_size=2, epochs=2).build(problem, population)

        def client_update(key, message, client, data):
            if not isinstance(message.step_size, jax.core.Tracer):  # as when shapes alone are asked for
                seen.append(float(message.step_size))
            return built.client_update(key, message, client, data)

        return built._replace(client_update=client_update)

    plain = ct.run(least_squares, numbers, watched(), rounds=1, precision="float64", engine=ct.Plain())
    assert seen == [0.1] * 7
    close(plain.model.state, ct.run(least_squares, numbers, ct.fedavg(batch_size=2, epochs=2), rounds=1,
                                    precision="float64").model.state)


def test_it_refuses_clocks_of_other_kinds_in_a_sentence(numbers):
    words = "the engine plain runs rounds, no online steps or asynchronous events; use the engine local"
    for recipe, clock in ((ct.fedomd(), ct.online()), (ct.fedavg(), ct.asynchronous())):
        with pytest.raises(ct.InputError, match=words):
            ct.run(ct.regression(numbers, ct.linear()), numbers, recipe, rounds=3, clock=clock, engine=ct.Plain())


# What an evaluation asks an algorithm


def table_problem(rows):
    """A table of numbers; an example is the number of a row, and what should stand there."""

    def errors(shared, inputs, targets):
        return (shared["table"][inputs] - targets) ** 2

    return Problem(
        init=lambda key: ({"table": jnp.zeros(rows)}, ()),
        loss=lambda shared, private, batch: (errors(shared, batch.inputs, batch.targets) * batch.mask).sum()
        / jnp.maximum(batch.mask.sum(), 1),
        predict=lambda shared, private, inputs: shared["table"][inputs],
        score=lambda shared, private, batch: {"loss": errors(shared, batch.inputs, batch.targets)})


class Table(NamedTuple):
    shared: PyTree


@algorithm
def row_sparse(problem, population, *, step_size: float = 0.2):
    """Clients ask for the one row of the table that their examples are about, and send a gradient for it."""

    def whole(sent):
        return {"table": jnp.zeros(population).at[sent["row"]].set(sent["value"])}

    def client_update(key, sent, client, data):
        gradient = jax.grad(problem.loss)(whole(sent), client, data.full())["table"]
        return {"row": sent["row"], "gradient": gradient[sent["row"]]}, client

    return Algorithm(
        init_server=lambda key, shared, private: Table(shared),
        init_client=lambda key, shared, private: private,
        broadcast=lambda key, server, central: server.shared["table"],
        request=lambda key, client, data: data.full().inputs[0],
        select=lambda table, row: {"row": row, "value": table[row]},
        client_update=client_update,
        aggregate=Sum(lift=lambda upload, sent: TableRows(upload["row"][None], upload["gradient"][None], population),
                      finish=lambda key, total: total),
        server_update=lambda key, server, total, central: Table({"table": server.shared["table"] - step_size * total}),
        model=lambda key, table, client, data: ({"table": table}, client))


@pytest.mark.parametrize("engine", [ct.Local(devices=1), ct.Local(devices=2, group=2), ct.Plain(compile=True)],
                         ids=["scan", "groups", "plain"])
def test_an_evaluation_scores_the_whole_model_whatever_a_client_asked_for(engine):
    """Each client's row walks to its own target; a test example may look at a row that its client never held."""
    goals = np.array([3.0, -1.0, 0.5, 8.0])
    owner = np.repeat(np.arange(4), 3)
    row = (owner + np.tile([0, 0, 1], 4)) % 4  # the last example of each is a test, about the row of the next client
    data = ct.federation(row, goals[row], owner, test=np.tile([False, False, True], 4))
    result = ct.run(table_problem(4), data, row_sparse(), rounds=5, precision="float64", engine=engine)
    np.testing.assert_allclose(result.model.state.server.shared["table"], goals * (1 - 0.6**5), atol=1e-12)
    for which in ("personal", "shared"):
        np.testing.assert_allclose(result.clients[f"train.{which}.loss"], (goals * 0.6**5) ** 2, atol=1e-12)
        np.testing.assert_allclose(result.clients[f"test.{which}.loss"], np.roll((goals * 0.6**5) ** 2, -1), atol=1e-12)
    assert result.summary["down_bytes_per_message"] == 8 + 8  # one row's number and value
    assert result.summary["up_bytes_per_upload"] == 8 + 8 + 8  # the number it asked with, and again with its gradient
    np.testing.assert_allclose(result.outputs(np.array([2]), client=2), goals[2] * (1 - 0.6**5), atol=1e-12)


# Diagnostics


def test_diagnostics_of_server_and_clients_reach_the_record_and_the_columns(least_squares, numbers):
    @algorithm
    def told(problem, population):
        base = ct.fedavg().build(problem, population)
        return base._replace(diagnostics=Diagnostics(
            server=lambda server: {"round": server.round},
            client=lambda message, client, model, data: {"visits": client.visits.astype(float)}))

    for engine in (ct.Local(), ct.Plain(compile=True)):
        result = ct.run(least_squares, numbers, told(), rounds=4, cohort=3, engine=engine)
        assert result.final["server.round"] == 4
        assert result.final["clients.visits.mean"] == pytest.approx(4 * 3 / 7)
        np.testing.assert_array_equal(result.clients["clients.visits"], result.model.state.uploads)


@pytest.mark.parametrize("base", [ct.ffgg(tuner={"name": "gd", "step_size": 1e6}), ct.pfedme(), ct.fedavg()],
                         ids=lambda base: base.name)
def test_the_model_that_is_scored_is_the_one_that_predicts_with_its_numbers(base, numbers):
    """Also where a method is another one with a `model` of its own."""
    problem = ct.residual(numbers, shared_features=[0], private_features=[1, 2], shared_model=ct.linear(bias=False),
                          private_model=ct.linear(bias=False))

    def shifted(parts):
        return jax.tree.map(lambda leaf: leaf + 1, parts)

    @algorithm
    def numbered(problem, population):
        built = base.build(problem, population)

        def model(key, message, client, data):
            shared, private = built.personal_model(key, message, client, data).parts
            return PersonalModel(shifted(shared), shifted(private), {"half": 0.5 * data.size})

        return built._replace(model=model)

    @algorithm
    def paired(problem, population):
        built = base.build(problem, population)
        return built._replace(model=lambda key, message, client, data: shifted(
            built.personal_model(key, message, client, data).parts))

    for engine in (ct.Local(), ct.Plain(compile=True)):
        results = [ct.run(problem, numbers, recipe, rounds=2, engine=engine) for recipe in (base, numbered(), paired())]
        for result in results:
            batch = numbers.train.client(2).full()
            parts = result.model.parts(2)
            scored = problem.score(*parts, batch)["loss"]
            np.testing.assert_allclose(result.clients["train.personal.loss"][2],
                                       (scored * batch.mask).sum() / batch.mask.sum(), rtol=1e-5)
        np.testing.assert_array_equal(results[1].clients["clients.half"], np.asarray(numbers.train.sizes) / 2)
        assert not any("diverged_tunings" in name for result in results[1:] for name in result.clients)
        jax.tree.map(lambda one, other: np.testing.assert_array_equal(one, other),
                     results[1].model.parts(2), results[2].model.parts(2))


def test_drift_is_how_far_a_client_stands_from_the_message_it_holds(least_squares, numbers):
    result = ct.run(least_squares, numbers, ct.l2gd(), rounds=5, precision="float64")
    state = result.model.state
    own = np.asarray(state.clients.own["layer0"]["weight"])[..., 0]
    shared = np.asarray(state.server.shared["layer0"]["weight"])[:, 0]
    np.testing.assert_allclose(result.clients["clients.drift"], np.linalg.norm(own - shared, axis=1), atol=1e-12)


@pytest.mark.parametrize("recipe", [ct.l2gd(penalty=0.0), ct.fedprox(predict_with="local")], ids=["l2gd", "fedprox"])
def test_drift_of_a_client_that_never_acted_is_that_of_the_model_it_predicts_with(least_squares, numbers, recipe):
    result = ct.run(least_squares, numbers, recipe, rounds=1, cohort=1, precision="float64")
    shared = np.asarray(result.model.parts()[0]["layer0"]["weight"])
    for index, drift in enumerate(result.clients["clients.drift"]):
        own = np.asarray(result.model.parts(index)[0]["layer0"]["weight"])
        np.testing.assert_allclose(drift, np.linalg.norm(own - shared), atol=1e-12)


def test_the_clipped_fraction_is_that_of_the_gradients_beyond_the_norm(least_squares, numbers, quadratics):
    """One full-batch step from zero: a client is clipped if its gradient there is longer than the bound."""
    lengths = np.linalg.norm(quadratics.gradients(np.zeros(3)), axis=1)
    bound = float(np.median(lengths))
    start = {"layer0": {"weight": np.zeros((3, 1))}}, {"layer0": {"weight": None}}
    result = ct.run(least_squares, numbers, ct.fedavg(batch_size=None, clip_norm=bound), rounds=1, precision="float64",
                    initial=start)
    np.testing.assert_array_equal(result.clients["clients.clipped"], (lengths > bound).astype(float))
    assert 0 < result.final["clients.clipped.mean"] < 1


def test_needs_and_diagnostics_have_defaults_that_ask_for_nothing():
    assert Algorithm._field_defaults["needs"] == Needs()
    assert Diagnostics().server(None) == {} and Diagnostics().client(None, None, None, None) == {}
