"""What an evaluation tells of the server: the shared model on whole test sets, and a probe of a cohort."""

import functools
from dataclasses import replace

import jax
import numpy as np
import pytest
from sklearn.metrics import log_loss, roc_auc_score

import cantons as ct
from cantons.data import CENTRAL, pooled, with_central
from cantons.engine.evaluate import BATCH
from cantons.problem import with_central_loss

RECIPES = {"one_way": ct.one_way_transfer(steps=2, batch_size=3, central_batch_size=5),
           "two_way": ct.two_way_transfer(steps=2, batch_size=3, central_batch_size=None)}
ENGINES = {"two devices": ct.Local(devices=2), "vectorised": ct.Local(devices=1, mode="vmap"),
           "plain": ct.Plain(compile=True)}


@pytest.fixture(scope="module")
def mixed():
    """Two classes; the datacenter has more test rows than fit into one portion."""
    random = np.random.default_rng(3)

    def rows(count, shift):
        labels = random.integers(0, 2, count)
        return random.normal(size=(count, 4)) + shift + labels[:, None], labels

    clients = ct.from_clients({f"c{number}": rows(12, number / 9) for number in range(5)}, classes=2, test=0.4)
    return with_central(clients, ct.from_clients({"centre": rows(3 * BATCH, -1.0)}, classes=2, test=0.6))


@pytest.fixture(scope="module")
def problem(mixed):
    return with_central_loss(ct.classification(mixed, ct.mlp(hidden=[6])), "same", [0.3, 0.7])


def final(problem, data, recipe, engine=None, **more):
    return ct.run(problem, data, recipe, rounds=2, cohort=3, engine=engine or ct.Local(devices=1), **more)


def test_a_test_set_is_scored_as_a_whole(problem, mixed):
    result = final(problem, mixed, RECIPES["one_way"])
    assert sorted(mixed.sets) == ["central", "federated", "inference"]
    for name, rows in mixed.sets.items():
        outputs = result.outputs(rows.inputs)
        probabilities = np.asarray(jax.nn.softmax(outputs.astype(np.float64)))
        assert result.final[f"{name}.shared.auc"] == pytest.approx(
            roc_auc_score(rows.targets, outputs[:, 1] - outputs[:, 0]), abs=1e-12)
        assert result.final[f"{name}.shared.accuracy"] == pytest.approx(
            (outputs.argmax(1) == rows.targets).mean(), abs=1e-6)
        assert result.final[f"{name}.shared.loss"] == pytest.approx(log_loss(rows.targets, probabilities), rel=1e-5)


def test_a_set_with_one_class_has_no_curve(problem, mixed):
    ones = replace(mixed, sets={"ones": replace(mixed.sets["central"], targets=0 * mixed.sets["central"].targets)})
    assert np.isnan(final(problem, ones, RECIPES["one_way"]).final["ones.shared.auc"])


@pytest.fixture(scope="module")
def on_one_device(problem, mixed):
    """`on_one_device(name)`: what a run on one device tells in the end, run once."""
    return functools.cache(lambda name: final(problem, mixed, RECIPES[name], precision="float64").final)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", RECIPES)
def test_every_engine_tells_the_same(problem, mixed, on_one_device, name, engine):
    one, other = on_one_device(name), final(problem, mixed, RECIPES[name], ENGINES[engine], precision="float64").final
    told = [key for key in one if key.startswith(("federated.", "central.", "inference.", "server."))]
    assert len(told) >= 11
    for key in told:
        assert other[key] == pytest.approx(one[key], rel=1e-11), key


@pytest.mark.usefixtures("float64")
def test_the_dissimilarity_is_equation_7_with_clients_that_count_alike(problem, mixed):
    recipe = ct.two_way_transfer(steps=1, batch_size=None, central_batch_size=None)
    result = ct.run(problem, mixed, recipe, rounds=1, engine=ct.Local(devices=2), precision="float64")
    shared, private = result.model.parts()

    def gradient(loss, data):
        found = jax.grad(loss)(shared, private, jax.tree.map(np.asarray, data.full()))
        return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(found)])

    clients = np.mean([gradient(problem.loss, mixed.train.client(index)) for index in range(5)], axis=0)
    centre = gradient(problem.central.loss, mixed.central.client(0))
    apart = clients @ clients / 0.3 + centre @ centre / 0.7
    together = (clients + centre) @ (clients + centre)
    assert result.final["server.dissimilarity_G2"] == pytest.approx(apart - together, rel=1e-10)
    assert result.final["server.dissimilarity_B2"] == pytest.approx(apart / together, rel=1e-10)
    # Property 8: w_f w_c |g_f / w_f - g_c / w_c|^2 = (B~^2 - 1) |g|^2, so it cannot be negative.
    assert apart - together == pytest.approx(0.21 * np.sum((clients / 0.3 - centre / 0.7) ** 2), rel=1e-10)


def test_a_probe_changes_nothing(problem, mixed):
    often, seldom = (ct.run(problem, mixed, RECIPES["two_way"], rounds=4, cohort=3, evaluate_every=every)
                     for every in (1, 4))
    for one, other in zip(*(jax.tree.leaves(result.model.state) for result in (often, seldom)), strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_client_drawn_twice_counts_twice(problem, mixed):
    """With replacement and one client in the cohort, the mean is that client's gradient, however often it counts."""
    recipe = ct.one_way_transfer(steps=1, batch_size=None, central_batch_size=None)
    one = ct.run(problem, mixed, recipe, rounds=1, clock=ct.rounds(cohort=1, replace=True), precision="float64")
    assert np.isfinite(one.final["server.dissimilarity_G2"])


def test_a_sweep_tells_the_same_as_single_runs(tmp_path, problem, mixed):
    from cantons.engine import Batched
    from cantons.study.resolve import resolve

    recipes = [ct.one_way_transfer(steps=2, batch_size=3, central_batch_size=5, step_size=size) for size in (0.1, 0.3)]
    runs = [resolve(problem, mixed, recipe, rounds=2, cohort=3, engine=ct.Local()) for recipe in recipes]
    runs[1] = runs[1]._replace(parts=runs[1].parts._replace(problem=problem, clock=runs[0].parts.clock))
    session = Batched(devices=2).start([run.parts for run in runs])
    for recipe, found in zip(recipes, session.evaluate(session.advance(session.begin(), 2)), strict=True):
        alone = final(problem, mixed, recipe).final
        for name, scores in found.sets.items():
            for metric, value in scores.items():
                assert value == pytest.approx(alone[f"{name}.shared.{metric}"], rel=1e-4), (name, metric)
        assert found.server["dissimilarity_G2"] == pytest.approx(alone["server.dissimilarity_G2"], rel=1e-4)


def test_rows_of_some_labels_become_the_datacenter_s():
    data = ct.digits(clients=8, partition="iid")
    mixed = CENTRAL["from_labels"](data, labels=[3, 7])
    assert set(np.unique(mixed.central.targets)) == {3, 7} == set(np.unique(mixed.sets["central"].targets))
    assert not {3, 7} & set(np.unique(mixed.train.targets)) and not {3, 7} & set(np.unique(mixed.test.targets))
    total = sum(len(rows.targets) for rows in (mixed.train, mixed.test, mixed.central, mixed.sets["central"]))
    assert total == len(data.train.targets) + len(data.test.targets)


def test_clients_become_the_datacenter():
    data = ct.digits(clients=8, partition="iid")
    mixed = CENTRAL["from_clients"](data, fraction=0.25, seed=1)
    assert mixed.population == 6
    assert mixed.central.longest + mixed.train.sizes.sum() == data.train.sizes.sum()
    assert len(mixed.sets["inference"].targets) == len(data.test.targets)
    again, other = (CENTRAL["from_clients"](data, fraction=0.25, seed=seed) for seed in (1, 2))
    assert again.clients.names == mixed.clients.names != other.clients.names


def texts():
    """Examples with a label for each of their tokens."""
    rows = {"ann": (np.zeros((4, 3), np.int32), np.zeros((4, 3), np.int32)), "bob": (np.ones((4, 3), np.int32),) * 2}
    return ct.from_clients(rows, classes=3)


@pytest.mark.parametrize(("make", "words"), [
    (lambda data: CENTRAL["from_labels"](texts(), labels=[0]), "one label for each"),
    (lambda data: CENTRAL["from_labels"](data, labels=[10]), "numbered from 0"),
    (lambda data: CENTRAL["from_labels"](data, labels=[]), "labels"),
    (lambda data: CENTRAL["from_labels"](data, labels=list(range(10))), "not all"),
    (lambda data: CENTRAL["from_clients"](data, fraction=0.01), "either side"),
    (lambda data: with_central(data, ct.synthetic(clients=2)), "rows alike"),
    (lambda data: with_central(data, ct.digits(clients=5)), "same task"),
])
def test_a_datacenter_that_makes_no_sense_is_refused(make, words):
    with pytest.raises(ct.InputError, match=words):
        make(ct.digits(clients=8, partition="iid"))


def test_pooled_rows_are_a_handle_on_all(mixed):
    whole, handle = pooled(mixed.train).client(0), mixed.train.pooled()
    key = jax.random.key(0)
    for one, other in zip(jax.tree.leaves(whole.sample(key, 7)), jax.tree.leaves(handle.sample(key, 7)), strict=True):
        np.testing.assert_array_equal(one, other)


def test_the_dissimilarity_goes_by_proportions(mixed):
    """Weights that are all doubled double the gradients: G~^2 is four times as large, and B~^2 the same."""
    recipe = ct.one_way_transfer(steps=1, batch_size=None, central_batch_size=None, step_size=1e-6)
    small, large = (ct.run(with_central_loss(ct.classification(mixed, ct.mlp(hidden=[6])), "same", weights), mixed,
                           recipe, rounds=1, evaluate_every=1, precision="float64").history[0]
                    for weights in ([0.3, 0.7], [0.6, 1.4]))
    assert small["round"] == large["round"] == 0
    assert large["server.dissimilarity_G2"] == pytest.approx(4 * small["server.dissimilarity_G2"], rel=1e-9)
    assert large["server.dissimilarity_B2"] == pytest.approx(small["server.dissimilarity_B2"], rel=1e-9)
