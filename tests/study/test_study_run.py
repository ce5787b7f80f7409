"""What a run gives back and leaves behind."""

import csv
import json
from html import escape

import jax
import numpy as np
import pytest
from matplotlib import pyplot

import cantons as ct
from cantons.engine.evaluate import mean_scores
from cantons.metrics import nbytes, statistics
from cantons.protocol import Needs


@pytest.fixture(scope="module")
def data():
    return ct.digits(clients=14, new=2)


@pytest.fixture(scope="module")
def problem(data):
    return ct.classification(data, ct.mlp(hidden=(4,)), split="output")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("runs") / "run"


@pytest.fixture(scope="module")
def result(data, problem, folder):
    return ct.run(problem, data, ct.fedavg(batch_size=8), rounds=6, cohort=5, evaluate_every=3, out=folder)


def test_every_model_test_set_and_statistic_has_its_number(result):
    for split in ("test", "train", "new_test", "new_train"):
        for model in ("shared", "personal"):
            for metric in ("accuracy", "loss"):
                for statistic in ("mean", "weighted", "worst10"):
                    assert np.isfinite(result.final[f"{split}.{model}.{metric}.{statistic}"])
    assert result.summary["test_set"] == "held-out rows of each client's two classes"


def test_the_personal_score_of_a_client_is_its_own_models(result, data, problem):
    for client in (0, 7):
        score = mean_scores(problem, *result.model.parts(client), data.test.client(client))
        assert result.clients["test.personal.loss"][client] == pytest.approx(float(score["loss"]), rel=1e-5)


def test_the_shared_score_uses_the_private_part_everyone_starts_from(result, data, problem):
    score = mean_scores(problem, *result.model.parts(), data.test.client(3))
    assert result.clients["test.shared.loss"][3] == pytest.approx(float(score["loss"]), rel=1e-5)


def test_what_is_printed_fits_on_a_screen_and_is_what_was_measured(result, data, folder):
    long = ct.from_clients({"n\n" * 90: (np.zeros((4, 2)), np.arange(4) % 2)}, classes=2)
    shown = [result, data, result.model, ct.load(folder), data.clients, long, ct.Result([], {}, {}, None)]
    for value in shown:
        lines = repr(value).splitlines()
        assert 1 <= len(lines) <= 12 and max(map(len, lines)) <= 160
        html = value._repr_html_()
        assert "n\n" not in html and len(html) < 4000
        for word in lines[-1].split():
            assert escape(word) in html
    for line in repr(result).splitlines()[2:6]:
        place, metric, *numbers = line.replace("new clients", "new_test").split()
        names = f"personal.{metric}.mean", f"personal.{metric}.worst10", f"shared.{metric}.mean"
        for name, number in zip(names, numbers, strict=True):
            assert float(number) == pytest.approx(result.final[f"{place}.{name}"], abs=5e-4)
    assert repr(ct.fedavg(step_size=0.5, batch_size=8)) == "fedavg(step_size=0.5, batch_size=8)"


def test_a_plot_draws_the_history(result):
    lines = {line.get_label(): line for line in result.plot().lines}
    assert lines.keys() == {"test.personal.accuracy.mean", "test.shared.accuracy.mean"}
    (loss,) = result.plot("train.shared.loss.mean").lines
    for name, line in {**lines, "train.shared.loss.mean": loss}.items():
        np.testing.assert_array_equal(line.get_xydata(), [[row["round"], row[name]] for row in result.history])
    with pytest.raises(ct.InputError, match=r"Did you mean 'test\.shared\.loss\.mean'"):
        result.plot("test.shared.los.mean")
    pyplot.close("all")


def test_bytes_are_the_size_of_what_travels_times_how_often(result):
    state = result.model.state
    message = {"shared": state.server.shared, "step_size": np.float32(0)}
    assert result.summary["down_bytes_per_message"] == nbytes(message)
    assert result.final["bytes_up"] == 6 * 5 * result.summary["up_bytes_per_upload"]
    assert sum(result.clients["bytes_up"]) == result.final["bytes_up"]


def test_the_folder_holds_what_the_result_holds(result, folder):
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [row["round"] for row in rows] == [0, 3, 6]
    assert rows[-1]["test.personal.loss.mean"] == result.final["test.personal.loss.mean"]
    with (folder / "clients.csv").open() as file:
        clients = list(csv.DictReader(file))
    assert [row["client"] for row in clients] == list(result.clients["client"])
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["final"]["round"] == 6
    study = json.loads((folder / "study.json").read_text())
    assert study["algorithm"]["epochs"] == 1, "defaults are filled in"
    assert json.loads((folder / "environment.json").read_text())["versions"]["jax"] == jax.__version__


def test_loading_the_folder_gives_the_same_predictions(result, data, folder):
    inputs = data.test.inputs[:9]
    loaded = ct.load(folder)
    np.testing.assert_array_equal(loaded.outputs(inputs), result.outputs(inputs))
    for client in (2, data.clients.names[5]):
        np.testing.assert_array_equal(loaded.outputs(inputs, client=client), result.outputs(inputs, client=client))


def test_loading_says_what_it_lacks(tmp_path, data):
    with pytest.raises(ct.InputError, match="is not a run folder"):
        ct.load(tmp_path)
    problem = ct.from_functions(lambda key: {"w": jax.numpy.zeros((64, 2))}, lambda params, x: x @ params["w"])
    result = ct.run(problem, data, ct.fedavg(), rounds=1, out=tmp_path / "run")
    with pytest.raises(ct.InputError, match=r"load\(folder, problem=\.\.\.\)"):
        ct.load(tmp_path / "run")
    loaded = ct.load(tmp_path / "run", problem=problem)
    np.testing.assert_array_equal(loaded.outputs(data.test.inputs), result.outputs(data.test.inputs))
    with pytest.raises(ct.InputError, match="unknown client"):
        loaded.outputs(data.test.inputs, client="nobody")
    with pytest.raises(ct.InputError, match="unknown client '99'"):
        loaded.outputs(data.test.inputs, client=99)


def test_the_history_is_a_table(result):
    assert result.arrays["round"].tolist() == [0, 3, 6]
    assert result.frame().shape[0] == 3


def test_callbacks_see_the_whole_run(data, problem):
    class Diary(ct.Callback):
        def __init__(self):
            self.entries = []

        def started(self, study):
            self.entries.append(("started", study["rounds"]))

        def advanced(self, round, rounds):
            self.entries.append(("advanced", round))

        def evaluated(self, record):
            self.entries.append(("evaluated", record["round"]))

        def finished(self, summary):
            self.entries.append(("finished", summary["rounds"]))

    diary = Diary()
    ct.run(problem, data, ct.fedavg(), rounds=2, evaluate_every=1, callbacks=[diary])
    assert diary.entries == [("started", 2), ("evaluated", 0), ("advanced", 1), ("evaluated", 1), ("advanced", 2),
                             ("evaluated", 2), ("finished", 2)]


def test_float64_is_a_setting_of_the_run_and_leaves_the_process_alone(data, problem):
    result = ct.run(problem, data, ct.fedavg(), rounds=1, precision="float64")
    assert {leaf.dtype for leaf in jax.tree.leaves(result.model.state.server.shared)} == {np.dtype("float64")}
    assert result.outputs(data.test.inputs).dtype == np.float64
    assert jax.numpy.zeros(1).dtype == np.float32


def test_the_worst_tenth_is_the_worst_whichever_way_is_better():
    values, examples = np.arange(20.0), np.ones(20)
    assert statistics(values, examples, larger_is_better=True)["worst10"] == 0.5
    assert statistics(values, examples, larger_is_better=False)["worst10"] == 18.5


def test_clients_without_test_examples_do_not_count():
    values = np.array([np.nan, 1.0])
    assert statistics(values, np.array([0, 3]), True) == {"mean": 1.0, "weighted": 1.0, "worst10": 1.0}


@pytest.mark.parametrize("options, sentence", [
    ({"rounds": 0}, "rounds is 0; give 1 or more"),
    ({"rounds": 2, "cohort": 99}, "cohort is 99 but there are only 12 clients"),
    ({"rounds": 2, "precision": "float16"}, "precision is 'float16'"),
    ({"rounds": 2, "resume": True}, "resume needs the folder"),
    ({"rounds": 2, "cohort": 2, "clock": ct.rounds(cohort=2)}, "cohort or clock, not both"),
    ({"rounds": 2, "engine": ct.Local(devices=99)}, "devices is 99"),
])
def test_bad_settings_end_in_a_sentence(data, problem, options, sentence):
    with pytest.raises(ct.InputError, match=sentence):
        ct.run(problem, data, ct.fedavg(), **options)


def test_a_split_the_algorithm_cannot_use_is_refused(data):
    everything = ct.logistic(data, split="all")
    with pytest.raises(ct.InputError, match="fedavg needs a shared part"):
        ct.run(everything, data, ct.fedavg(), rounds=1)
    assert ct.run(everything, data, ct.independent(), rounds=1).final["round"] == 1

    recipe = ct.fedavg()
    personal = recipe._replace(build=lambda *given: recipe.build(*given)._replace(needs=Needs(private=True)))
    with pytest.raises(ct.InputError, match="fedavg needs a private part"):
        ct.run(ct.logistic(data), data, personal, rounds=1)


def test_a_federation_without_test_examples_trains_and_scores_nan():
    data = ct.digits(clients=6, partition="iid", test=0.0)
    result = ct.run(ct.logistic(data), data, ct.fedavg(), rounds=1)
    assert np.isnan(result.final["test.personal.loss.mean"])
    assert np.isfinite(result.final["train.personal.loss.mean"])


def test_what_a_client_is_served_is_what_was_scored_even_after_fine_tuning(data, problem):
    result = ct.run(problem, data, ct.fedavg_finetune(batch_size=4), rounds=2)
    score = mean_scores(problem, *result.model.parts(3), data.test.client(3))
    assert result.clients["test.personal.loss"][3] == pytest.approx(float(score["loss"]), rel=1e-5)


def test_new_clients_are_personalised_though_a_schedule_has_ended_at_zero(data, problem):
    fading = {"name": "linear", "peak": 0.5, "rounds": 2, "end": 0.0}
    result = ct.run(problem, data, ct.fedavg(step_size=fading, batch_size=4), rounds=3)
    assert abs(result.final["new_train.personal.loss.mean"] - result.final["new_train.shared.loss.mean"]) > 1e-3


def test_scaffold_rests_when_its_step_size_is_zero(data, problem):
    fading = {"name": "linear", "peak": 0.5, "rounds": 2, "end": 0.0}
    result = ct.run(problem, data, ct.scaffold(step_size=fading, batch_size=4), rounds=4)
    assert result.final["rejected_uploads"] == 0


def test_scaffold_refuses_to_count_an_upload_twice(data, problem):
    with pytest.raises(ct.InputError, match="scaffold breaks when one upload counts twice"):
        ct.run(problem, data, ct.scaffold(), rounds=1, clock=ct.rounds(cohort=3, replace=True))
    assert ct.run(problem, data, ct.fedavg(), rounds=1, clock=ct.rounds(cohort=30, replace=True)).final["round"] == 1


def test_a_starting_point_of_another_shape_is_refused(data, problem):
    with pytest.raises(ct.InputError, match=r"initial has shape None at .*layer0"):
        ct.run(problem, data, ct.fedavg(), rounds=1, initial=({}, {}))


@pytest.mark.parametrize("split, parts", [("none", lambda model: (model, ())), ("output", lambda model: (
    {"layer0": model["layer0"]}, {"layer1": model["layer1"]}))])
def test_a_starting_point_needs_no_more_than_its_arrays(data, split, parts):
    """The parts of a problem have None where the other part has an array; who brings weights need not."""
    one, own = (ct.classification(data, ct.mlp(hidden=[4]), split=split) for split in ("none", split))
    model, nothing = one.init(jax.random.key(7))
    begun = [ct.run(problem, data, ct.ffgg(), rounds=1, initial=initial).history[0] for problem, initial in (
        (one, (model, nothing)), (own, parts(model)))]
    assert begun[0]["test.shared.loss.mean"] == pytest.approx(begun[1]["test.shared.loss.mean"], rel=1e-6)
    shared, private = parts(model)
    rows = jax.tree.map(lambda leaf: np.stack([leaf] * data.population), private)
    with_rows = ct.run(own, data, ct.ffgg(private_init="last"), rounds=1, initial=(shared, private, rows)).history[0]
    assert begun[0]["test.shared.loss.mean"] == pytest.approx(with_rows["test.shared.loss.mean"], rel=1e-6)


class Listener(ct.Callback):
    def __init__(self):
        self.told = []

    def noticed(self, sentence):
        self.told.append(sentence)


def test_a_run_that_diverges_without_uploads_is_told(data):
    listener = Listener()
    steep = ct.regression(data, ct.linear(), labels="real")
    ct.run(steep, data, ct.independent(step_size=1e9, epochs=5), rounds=5, callbacks=[listener])
    assert any("the training loss is not a number" in sentence for sentence in listener.told)


def test_a_step_size_beyond_sense_is_told(data):
    listener = Listener()
    ct.run(ct.logistic(data), data, ct.fedavg(step_size=1e30), rounds=2, callbacks=[listener])
    assert len(listener.told) == 1 and "a smaller step_size may help" in listener.told[0]


def rows_of(*sizes, kind=np.float32, labels=lambda rows: np.arange(rows) % 2):
    """A federation of clients with so many rows of three numbers."""
    rows = sum(sizes)
    inputs = np.random.default_rng(0).integers(0, 9, (rows, 3)).astype(kind)
    clients = np.repeat(np.arange(len(sizes)), sizes)
    return ct.federation(inputs, labels(rows), clients, classes=2, test=0.5)


ODD = {
    "single rows": lambda: rows_of(*[1] * 5), "one row": lambda: rows_of(1), "one client": lambda: rows_of(30),
    "labels all alike": lambda: rows_of(8, 8, labels=lambda rows: np.ones(rows, int)),
    "float16": lambda: rows_of(8, 9, kind=np.float16), "uint8": lambda: rows_of(8, 9, kind=np.uint8),
    "100,000 clients": lambda: rows_of(*[1] * 100_000), "1 row against 100,000": lambda: rows_of(1, 100_000),
}


@pytest.mark.parametrize("make", ODD.values(), ids=ODD)
def test_odd_sizes_and_kinds_of_data_train(make):
    data = make()
    cohort = min(3, data.population)
    result = ct.run(ct.logistic(data), data, ct.fedavg(batch_size=4), rounds=2, cohort=cohort)
    assert np.isfinite(result.final["train.personal.loss.mean"])
    assert (result.final["uploads"], result.final["rejected_uploads"]) == (2 * cohort, 0)
    assert np.isfinite(result.outputs(data.train.inputs[:1])).all()


def test_a_client_is_called_by_its_name_even_if_that_is_a_number():
    rows = np.random.default_rng(0).normal(size=(30, 3)).astype(np.float32)
    data = ct.federation(rows, np.arange(30) % 2, np.repeat(["2", "5", "9"], 10), classes=2)
    result = ct.run(ct.logistic(data, split="all"), data, ct.independent(), rounds=2)
    np.testing.assert_array_equal(result.outputs(rows, client="2"), result.outputs(rows, client=2))
    for client in (0, "0", 1, "1"):
        with pytest.raises(ct.InputError, match=f"unknown client '{client}'"):
            result.outputs(rows, client=client)
