"""Clients that bring their own models: linear ones walk FedRes's path to the last digits, and others may join them."""

import functools
import re
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestClassifier, RandomForestRegressor
from sklearn.linear_model import LogisticRegression, SGDClassifier, SGDRegressor
from starting import start

import cantons as ct
from cantons import local_models as lm
from cantons.local_models.host import ProcessHost, check_outputs
from cantons.local_models.linear import LOSSES as KNOWN
from cantons.local_models.linear import output_gradient
from cantons.local_models.server_side import server_problem
from cantons.local_models.session import LocalModels
from cantons.problem.losses import LOSSES
from cantons.reporting import collect

UP, DOWN = [0, 3, 1, 2, 0, 4, 2], [2, 0, 1, 3, 0, 1, 1]
SOME = np.random.default_rng(5).random((9, 7)) < 0.6  # who speaks when
LATE = {"uplink": UP, "downlink": DOWN, "active": SOME}
SIDES = {"shared_features": [0, 1], "private_features": [1, 2]}
STEP_SIZES = {"step_size": 0.02, "private_step_size": 0.05}


class Heard(ct.Callback):
    def __init__(self):
        self.sentences, self.steps = [], []

    def noticed(self, sentence):
        if not sentence.startswith("no regret"):  # nobody knows the best local models in hindsight: said in every run
            self.sentences.append(sentence)

    def advanced(self, round, rounds):
        self.steps.append(round)


@pytest.fixture(scope="module")
def joint(numbers):
    return ct.residual(numbers, **SIDES)


@pytest.fixture(scope="module")
def signs():
    """Seven ragged clients with labels -1 and 1 as two classes."""
    random = np.random.default_rng(3)
    return ct.from_clients({f"client{number}": (random.normal(size=(size, 3)), random.integers(0, 2, size))
                            for number, size in enumerate((6, 17, 5, 8, 11, 4, 9))}, classes=2, test=0.25)


def same_run(found, expected, close):
    """The same columns, every number of every evaluation that is no time, and the server's last model.

    A regret is missing: it is that of the best linear models, and other models may be better than those. So is the
    remark that everybody is scored with the common start before step 0: local models are their clients' from then on.
    """
    for ours, theirs in zip(found.history, expected.history, strict=True):
        assert ours.keys() == {name for name in theirs if "regret" not in name} - {"personal_models"}
        for name in ours.keys() - {name for name in ours if "second" in name}:
            if isinstance(theirs[name], float):
                np.testing.assert_allclose(ours[name], theirs[name], err_msg=name, **close)
            else:
                assert ours[name] == theirs[name], name
    jax.tree.map(lambda left, right: np.testing.assert_allclose(left, right, **close),
                 found.model.state.server, expected.model.state.server)


CASES = {
    "late and silent": ("numbers", {}, {}, LATE, {}),
    "re-evaluated on arrival": ("numbers", {}, {}, LATE, {"alignment": "none", "combine": "mean"}),
    "random delays, three at a time": (
        "numbers", {}, {}, {"uplink": {"least": 0, "most": UP}, "downlink": {"least": 0, "most": 3}, "batch": 3,
                            "order": "shuffle"}, {"method": "adagrad", "combine": "mean"}),
    "softmax": ("labels", {"loss": "softmax", "classes": 3}, {}, LATE | {"weights": "inverse", "order": "sample"}, {}),
    "logistic": ("signs", {"loss": "logistic"}, {"loss": "logistic", "labels": "sign"}, LATE, {}),
    "squared signs": ("signs", {}, {"loss": "squared", "labels": "sign"}, LATE, {}),
}


@pytest.mark.parametrize("case", CASES)
def test_linear_models_in_numpy_are_fedres_itself(case, request):
    data, of_model, of_problem, of_clock, of_server = CASES[case]
    data = request.getfixturevalue(data)
    problem, clock = ct.residual(data, **SIDES, **of_problem), ct.online(**of_clock)
    options = {"rounds": 12, "clock": clock, "evaluate_every": 1, "precision": "float64"}
    server = {"alignment": "paired"} | of_server
    # A client's own step is plain whatever the server's is.
    recipe = ct.fedres_online_sgd(**STEP_SIZES, **server)
    if "method" in server:
        recipe = plain_clients(recipe, problem, data)
    expected = ct.run(problem, data, recipe, **options)
    found = ct.run_with_models(problem, data, lambda name: lm.Linear(0.05, **of_model), step_size=0.02, **server,
                               **options)
    same_run(found, expected, {"rtol": 1e-10, "atol": 1e-12})
    assert found.clients.keys() == expected.clients.keys() | {"model"}
    rows = data.train.inputs[:4]
    for client in (None, "client3"):
        np.testing.assert_allclose(found.predict(rows, client=client), expected.predict(rows, client=client),
                                   atol=1e-12)


def plain_clients(recipe, problem, data):
    """The same server; clients take plain gradient steps."""

    def build(problem, population):
        server = recipe.build(problem, population)
        client = ct.fedres_online_sgd(**STEP_SIZES, alignment="paired").build(problem, population)
        return server._replace(init_client=client.init_client, client_update=client.client_update, model=client.model)

    return recipe._replace(build=build)


def test_no_regret_is_reported_where_the_best_local_models_are_not_known(joint, numbers):
    options = {"rounds": 6, "clock": ct.online(), "evaluate_every": 2}
    known = ct.run(joint, numbers, ct.fedres_online_sgd(), **options)
    found = ct.run_with_models(joint, numbers, lambda name: lm.Linear(), **options)
    assert {"online.regret", "online.regret_bound"} <= known.final.keys()
    for row in found.history:
        assert not [name for name in row if "regret" in name]


def test_in_single_precision_too(joint, numbers):
    options = {"rounds": 25, "clock": ct.online(**LATE)}
    expected = ct.run(joint, numbers, ct.fedres_online_sgd(**STEP_SIZES, alignment="paired"), **options)
    found = ct.run_with_models(joint, numbers, lambda name: lm.Linear(0.05), step_size=0.02, **options)
    same_run(found, expected, {"rtol": 1e-6, "atol": 1e-6})


def test_the_server_is_sent_features_predictions_and_targets_only(joint, numbers):
    result = ct.run_with_models(joint, numbers, lambda name: lm.Linear(), rounds=2, clock=ct.online(batch=5))
    assert result.summary["up_bytes_per_upload"] == 5 * (2 + 1 + 1) * 4  # two global features, as float32


def session_of(problem, data, models):
    served = server_problem(problem)
    algorithm = ct.fedres_online_sgd(alignment="paired").build(served, data.population)
    host = ProcessHost(dict(enumerate(models)), data.clients.names)
    return start(LocalModels(host), served, algorithm, ct.online(**LATE).build(data.population), data)


def test_the_server_is_compiled_once(joint, numbers, compilations):
    session = session_of(joint, numbers, [lm.Linear() for _ in range(7)])
    stage = session.begin()
    for step in range(2):
        stage = session.advance(stage, step + 1)
        session.evaluate(stage)
    with compilations() as found:
        stage = session.advance(stage, 12)
        session.evaluate(stage)
        session.clients.left_out[2] = "for no reason"
        session.advance(stage, 13)
    assert not found


def mixed(name):
    number = int(name.split()[0])
    return [
        lambda: lm.Linear(0.02),
        lambda: lm.PartialFit(SGDRegressor(learning_rate="constant", eta0=0.02, alpha=0, random_state=0)),
        lambda: lm.Refit(RandomForestRegressor(5, random_state=0), every=20),
        # Its default schedule begins with steps so large that one of the two clients would do better without it.
        lambda: lm.PartialFit(SGDClassifier(loss="log_loss", learning_rate="constant", eta0=0.1, random_state=0),
                                 classes=(-1, 1)),
    ][number % 4]()


@pytest.fixture(scope="module")
def digits():
    data = ct.digits(clients=8)
    return data, ct.residual(data, shared_features="first_half", private_features="second_half", loss="squared",
                             labels="sign")


def test_a_mixed_federation_beats_the_shared_model_on_held_out_rows(digits):
    data, problem = digits
    clock = ct.online(uplink=1, downlink=1, batch=4)
    found = ct.run_with_models(problem, data, mixed, rounds=100, step_size=0.03, combine="mean", clock=clock,
                               evaluate_every=100)
    alone = ct.run(problem, data, ct.online_central(step_size=0.03, combine="mean"), rounds=100, clock=clock,
                   evaluate_every=100)
    assert found.final["test.personal.accuracy.mean"] > 0.85
    assert found.final["test.personal.accuracy.mean"] > found.final["test.shared.accuracy.mean"] + 0.1
    assert found.final["test.personal.accuracy.mean"] > alone.final["test.shared.accuracy.mean"] + 0.1
    gains = found.clients["test.personal.loss"] < found.clients["test.shared.loss"]
    assert gains.all(), "every kind of model helps its client"
    assert set(found.clients["model"]) == {"Linear", "SGDRegressor", "RandomForestRegressor", "SGDClassifier"}
    again = ct.run_with_models(problem, data, mixed, rounds=100, step_size=0.03, combine="mean", clock=clock,
                               evaluate_every=100)
    assert again.final["test.personal.loss.mean"] == found.final["test.personal.loss.mean"]


class Spoiled(lm.Linear):
    """A linear model that says something else after some questions."""

    def __init__(self, after, answer):
        super().__init__(0.05)
        self.after, self.answer, self.asked = after, answer, 0

    def predict(self, x):
        self.asked += 1
        return super().predict(x) if self.asked <= self.after else self.answer(x)


BAD = {
    "NaN": (lambda x: np.full(len(x), np.nan), "predicted NaN or infinity"),
    "infinity": (lambda x: np.full(len(x), np.inf), "predicted NaN or infinity"),
    "a wrong shape": (lambda x: np.zeros((len(x), 2)), r"returned an array of shape \(1, 2\) for \(1,\)"),
    "a word": (lambda x: "yes", "returned a str that is no array of numbers"),
    "nothing": (lambda x: None, "returned nothing"),
}


@pytest.mark.parametrize("answer", BAD)
def test_a_client_with_a_bad_answer_is_left_out_and_named_once(answer, joint, numbers):
    # The first question is the evaluation before step 0, then come a prediction and an update's a step.
    models = {name: lm.Linear(0.05) for name in numbers.clients.names}
    models["client2"] = spoiled = Spoiled(1 + 2 * 4, BAD[answer][0])
    heard, options = Heard(), {"rounds": 12, "step_size": 0.02, "evaluate_every": 12, "precision": "float64"}
    found = ct.run_with_models(joint, numbers, models, callbacks=[heard], clock=ct.online(uplink=UP), **options)
    assert [sentence.split(":")[0] for sentence in heard.sentences] == ["step 4"]
    assert re.search(f"client 'client2' {BAD[answer][1]}; it is left out from now on", heard.sentences[0])
    assert found.final["rejected_clients"] == ["client2"] and found.final["rejected_uploads"] == 1
    assert spoiled.asked == 1 + 2 * 4 + 1, "it is not asked again"
    assert found.clients["train.personal.loss"][2] == found.clients["train.shared.loss"][2]
    assert np.isfinite(found.clients["online.personal.loss"]).all()
    np.testing.assert_array_equal(found.predict(numbers.train.inputs[:2], client=2),
                                  found.predict(numbers.train.inputs[:2]))
    # For the others it is as though that client had fallen silent.
    silent = np.ones((12, 7), bool)
    silent[4:, 2] = False
    expected = ct.run_with_models(joint, numbers, lambda name: lm.Linear(0.05),
                                  clock=ct.online(uplink=UP, active=silent), **options)
    jax.tree.map(lambda left, right: np.testing.assert_allclose(left, right, atol=1e-13),
                 found.model.state.server, expected.model.state.server)


def test_a_bad_answer_about_test_rows_counts_too(joint, numbers):
    heard = Heard()
    models = [lm.Linear() for _ in range(7)]
    models[5] = Spoiled(0, BAD["NaN"][0])
    found = ct.run_with_models(joint, numbers, models, rounds=3, callbacks=[heard])
    assert found.history[0]["rejected_clients"] == found.final["rejected_clients"] == ["client5"]
    assert len(heard.sentences) == 1 and "evaluation after step 0" in heard.sentences[0]
    assert heard.steps == [1, 2, 3]


def test_who_is_left_out_is_still_charged_for_every_step(joint, numbers):
    models = [lm.Linear() for _ in range(7)]
    models[5] = Spoiled(0, BAD["NaN"][0])
    found = ct.run_with_models(joint, numbers, models, rounds=4, step_size=1e-12, precision="float64")
    targets = numbers.train.targets[numbers.train.starts[5]:]
    np.testing.assert_allclose(found.clients["online.personal.loss"][5], (targets[:4] ** 2).mean(), rtol=1e-9)


def test_a_number_too_large_for_the_precision_is_infinite(float64):
    assert not check_outputs([1e300], (1,))[1]
    with jax.enable_x64(False):
        assert check_outputs([1e300], (1,))[1] == "predicted NaN or infinity"


def test_an_error_in_a_model_says_whose_it_is(joint, numbers):
    models = [lm.Linear() for _ in range(7)]
    models[3].update = lambda x, y, shared_prediction: 1 / 0
    with pytest.raises(ZeroDivisionError) as found:
        ct.run_with_models(joint, numbers, models, rounds=3)
    assert found.value.__notes__ == ["in the local model of client 'client3'"]


class Deaf:
    def predict(self, x):
        return np.zeros(len(x))


ONE = lm.Linear()
WRONG = {
    "no update": (lambda name: Deaf(), "model of client 'client0', a Deaf, has no update"),
    "an estimator": (lambda name: SGDRegressor(), "has no update; .* wrap it in PartialFit or Refit"),
    "no predict": ([object()] * 7, "client 'client0', a object, has no predict"),
    "one too few": ([lm.Linear()] * 6, "6 models for 7 clients"),
    "one for two": ([ONE] * 7, "'client0' and 'client1' bring the same object"),
    "one for all": (ONE, "models is a Linear; give a mapping"),
    "one missing": ({f"client{number}": lm.Linear() for number in range(6)}, "client 'client6' brings no model"),
    "a stranger": ({"client9": lm.Linear()}, "unknown client 'client9'"),
}


@pytest.mark.parametrize("case", WRONG)
def test_models_that_cannot_be_used_are_refused(case, joint, numbers):
    with pytest.raises(ct.InputError, match=WRONG[case][1]):
        ct.run_with_models(joint, numbers, WRONG[case][0], rounds=1)


def test_what_cannot_be_run_is_refused(joint, numbers, least_squares):
    def run(problem=joint, **options):
        return ct.run_with_models(problem, numbers, lambda name: lm.Linear(), **{"rounds": 1} | options)

    with pytest.raises(ct.InputError, match="residual\\(data"):
        run(least_squares)
    with pytest.raises(ct.InputError, match="alignment is 'full'"):
        run(alignment="full")
    with pytest.raises(ct.InputError, match="online clock"):
        run(clock=ct.rounds())
    with pytest.raises(ct.InputError, match="rounds is 0"):
        run(rounds=0)
    with pytest.raises(ct.InputError, match="engine is 'plain'; local models run in this process"):
        run(engine=ct.Plain())
    with pytest.raises(ct.InputError, match="clients that learn at once; use label_delay = 0"):
        run(clock=ct.online(label_delay=2))
    with pytest.raises(ct.InputError, match="predict for the others; use score = \"own\""):
        run(clock=ct.online(score="everyone"))


def test_the_networks_of_the_problem_need_no_name(joint, numbers):
    """What local models see and how outputs are scored, the problem says by values."""
    named = ct.residual(numbers, **SIDES, shared_model=ct.linear())
    unnamed = ct.residual(numbers, **SIDES, shared_model=lambda shape, outputs: ct.linear()(shape, outputs))
    assert unnamed.spec is None
    ours, theirs = (ct.run_with_models(problem, numbers, lambda name: lm.Linear(), rounds=4, evaluate_every=2)
                    for problem in (unnamed, named))
    same_run(ours, theirs, {"rtol": 0, "atol": 0})


def test_factories_may_stand_for_single_clients(joint, numbers):
    models = {name: functools.partial(lambda name, step_size: lm.Linear(step_size), step_size=0.1)
              for name in numbers.clients.names}
    models["client1"] = lm.Linear(0.1)
    found = ct.run_with_models(joint, numbers, models, rounds=2)
    assert found.model.models[1] is models["client1"] and found.model.models[0].step_size == 0.1


def test_a_saved_run_can_be_reported_beside_others(digits, tmp_path):
    data, problem = digits
    options = {"rounds": 4, "clock": ct.online(batch=2)}
    found = ct.run_with_models(problem, data, lambda name: lm.Linear(0.02), out=tmp_path / "own", **options)
    ct.run(problem, data, ct.fedres_online_sgd(step_size=0.02), out=tmp_path / "ours", **options)
    groups = collect([tmp_path / "own", tmp_path / "ours"])
    assert groups[0].final("test.personal.accuracy.mean")[0] == found.final["test.personal.accuracy.mean"]
    assert groups[0].study["models"] == {"Linear": 8} and found.folder == tmp_path / "own"
    with pytest.raises(ct.InputError, match="already holds a run"):
        ct.run_with_models(problem, data, lambda name: lm.Linear(0.02), out=tmp_path / "own", **options)
    with pytest.raises(ct.InputError, match="brought models of their own, which only you can make again"):
        ct.load(tmp_path / "own")


def test_new_clients_are_served_by_the_shared_model(labels):
    problem = ct.residual(labels, **SIDES)
    models = lm.PartialFit(SGDClassifier(loss="log_loss", random_state=0), classes=3)
    found = ct.run_with_models(problem, labels, lambda name: lm.PartialFit(models.estimator, classes=3), rounds=6)
    assert found.final["new_test.personal.loss.mean"] == found.final["new_test.shared.loss.mean"]
    assert found.final["rejected_clients"] == []


def test_new_clients_are_served_by_the_shared_model_of_now(labels):
    """Also where messages are rare: a newcomer is not given an old one."""
    found = ct.run_with_models(ct.residual(labels, **SIDES), labels, lambda name: lm.Linear(loss="softmax", classes=3),
                               rounds=10, evaluate_every=1, clock=ct.online(sync=4, uplink=1, downlink=2))
    for row in found.history:
        assert row["new_test.personal.loss.mean"] == row["new_test.shared.loss.mean"]


X, Y = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [0.0, 0.0]] * 5), np.array([1.0, -1.0, 0.0, 0.0] * 5)


def test_a_regressor_learns_what_the_shared_model_leaves_over():
    models = [lm.PartialFit(SGDRegressor(learning_rate="constant", eta0=0.1, alpha=0)),
              lm.Refit(RandomForestRegressor(5, bootstrap=False), every=10),
              lm.Refit(HistGradientBoostingRegressor(min_samples_leaf=1), every=50)]
    for model in models:
        np.testing.assert_array_equal(model.predict(X), 0)  # before it has learned anything
        for _ in range(100):
            model.update(X, Y + 3, np.full(len(Y), 3.0))
        np.testing.assert_allclose(model.predict(X), Y, atol=0.02)


@pytest.mark.parametrize("estimator", [SGDClassifier(random_state=0), SGDClassifier(loss="log_loss", random_state=0)],
                         ids=["margins", "probabilities"])
def test_a_classifier_answers_in_outputs(estimator):
    of_three = lm.PartialFit(estimator, classes=3)
    assert of_three.predict(X).shape == (20, 3)
    of_signs = lm.PartialFit(estimator, classes=(-1, 1))
    odds = lm.PartialFit(estimator, classes=(-1, 1), scale="logit")
    assert of_signs.predict(X).shape == (20,)
    for _ in range(20):
        of_three.update(X, (Y + 1).astype(int), np.zeros((20, 3)))
        for model in (of_signs, odds):
            model.update(X[Y != 0], Y[Y != 0], np.zeros(10))
    outputs = of_three.predict(X)
    np.testing.assert_allclose(outputs.sum(axis=1), 0, atol=1e-12)
    assert (outputs[Y == 1].argmax(axis=1) == 2).all() and (outputs[Y == -1].argmax(axis=1) == 0).all()
    for model in (of_signs, odds):
        assert (np.sign(model.predict(X[Y != 0])) == Y[Y != 0]).all()
    assert abs(of_signs.predict(X)).max() <= 1


def test_a_classifier_is_not_fitted_to_one_class():
    model = lm.Refit(LogisticRegression(), classes=3, every=1, window=4)
    model.update(X[:2], np.array([1, 1]), np.zeros((2, 3)))
    assert not model.fitted
    model.update(X[:2], np.array([1, 0]), np.zeros((2, 3)))
    model.update(X[:2], np.array([1, 0]), np.zeros((2, 3)))
    assert model.predict(X).shape == (20, 3) and len(model.examples[0]) == 4
    assert model.predict(X)[:, 2].max() < 0  # a class it has not met is unlikely, not impossible
    np.testing.assert_allclose(np.exp(model.predict(X)[:, 2] - np.logaddexp.reduce(model.predict(X), axis=1)), 0.01,
                               rtol=0.02)


@pytest.mark.parametrize(("make", "words"), [
    (lambda: lm.PartialFit(RandomForestRegressor()), "no partial_fit; Refit"),
    (lambda: lm.PartialFit(SGDClassifier()), "SGDClassifier is a classifier; say which classes"),
    (lambda: lm.Refit(RandomForestRegressor(), classes=3), "no classifier and learns residuals"),
    (lambda: lm.Refit(RandomForestClassifier(), classes=(0, 1)), "classes is \\(0, 1\\)"),
    (lambda: lm.Refit(RandomForestRegressor(), every=0), "every is 0"),
    (lambda: lm.Linear(loss="softmax"), "give both or neither"),
    (lambda: lm.Linear(loss="hinge"), "loss is 'hinge'"),
])
def test_options_that_make_no_sense_say_so(make, words):
    with pytest.raises(ct.InputError, match=words):
        make()


@pytest.mark.parametrize("loss", KNOWN)
def test_gradients_are_the_derivatives_of_the_losses(loss, float64):
    random = np.random.default_rng(0)
    outputs = random.normal(size=(6, 3) if loss == "softmax" else 6)
    y = random.integers(0, 3, 6) if loss == "softmax" else random.choice([-1.0, 1.0], 6)
    expected = jax.grad(lambda outputs: LOSSES[loss].per_example(outputs, jnp.asarray(y)).sum())(outputs)
    np.testing.assert_allclose(output_gradient(loss, outputs, y), expected, atol=1e-14)


@pytest.mark.parametrize(("module", "make"), [("torch", lambda: lm.Torch(None)),
                                              ("vowpalwabbit", lm.VowpalWabbit)])
def test_a_missing_package_is_one_sentence(module, make, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ct.InputError, match=f"needs {module}, which is not installed: pip install"):
        make()


@pytest.mark.parametrize("loss", KNOWN)
def test_a_torch_layer_walks_the_linear_path(loss, numbers, labels, signs):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'cantons[torch]'")
    data, of_problem = {"squared": (numbers, {}), "softmax": (labels, {}),
                        "logistic": (signs, {"loss": "logistic", "labels": "sign"})}[loss]
    problem, classes = ct.residual(data, **SIDES, **of_problem), 3 if loss == "softmax" else None
    layer = torch.nn.Linear(2, classes or 1, dtype=torch.float64)
    torch.nn.init.zeros_(layer.weight)
    torch.nn.init.zeros_(layer.bias)
    options = {"rounds": 12, "step_size": 0.02, "clock": ct.online(**LATE), "precision": "float64"}
    expected = ct.run_with_models(problem, data, lambda name: lm.Linear(0.05, loss=loss, classes=classes), **options)
    found = ct.run_with_models(problem, data, lambda name: lm.Torch(layer, loss=loss, step_size=0.05), **options)
    same_run(found, expected, {"rtol": 1e-10, "atol": 1e-12})
    assert found.clients["model"][0] == "Linear"


def test_a_torch_module_keeps_its_optimiser():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'cantons[torch]'")
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    model = lm.Torch(module, optimizer=lambda parameters: torch.optim.Adam(parameters, 0.05))
    for _ in range(200):
        model.update(X, Y + 3, np.full(len(Y), 3.0))
    np.testing.assert_allclose(model.predict(X), Y, atol=0.05)
    assert model.module is not module


def test_vowpal_wabbit_learns_residuals():
    pytest.importorskip("vowpalwabbit", reason="Vowpal Wabbit is not installed: pip install 'cantons[vw]'")
    model = lm.VowpalWabbit("--learning_rate 0.5")
    np.testing.assert_array_equal(model.predict(X), 0)
    for _ in range(50):
        model.update(X, Y + 3, np.full(len(Y), 3.0))
    np.testing.assert_allclose(model.predict(X), Y, atol=0.05)
