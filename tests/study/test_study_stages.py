"""Stages, and runs that begin where another ended: its shared part and every client's private part."""

import json
import signal

import jax
import numpy as np
import pytest

import cantons as ct
from cantons.protocol import Start
from cantons.report.collect import collect
from cantons.study.read import check_study, read_study
from cantons.study.reading import read_clients, read_evaluations
from cantons.study.stage_tables import merged_stages

DATA = ct.synthetic(clients=7, features=4, classes=3, largest=40, seed=0, new=2)
NAMES = DATA.clients.names
WHOLE, OUTPUT, HIDDEN = (ct.classification(DATA, ct.mlp(hidden=(3,)), split=split) for split in (
    "none", "output", "input"))
PERSONAL, SHARED = "test.personal.loss.mean", "test.shared.loss.mean"
STILL = {"step_size": 1e-12, "fit_epochs": 1}  # trains without moving
STUDY = """
rounds = 2
cohort = 3
seed = 4

[data]
name = "synthetic"
clients = 7
features = 4
classes = 3
largest = 40
new = 2

[problem]
name = "classification"
model = { name = "mlp", hidden = [3] }

[[stage]]
name = "pretraining"
algorithm = "fedavg"

[[stage]]
name = "training"
problem.split = "output"
algorithm = { name = "fedalt", private_step_size = 0.5 }

[[stage]]
name = "tuning"
rounds = 1
cohort = "none"
problem.split = "output"
algorithm = { name = "independent", parts = "private" }
"""


class Listener(ct.Callback):
    def __init__(self, stop_after=None):
        self.told, self.stop_after, self.rounds = [], stop_after, 0

    def noticed(self, sentence):
        self.told.append(sentence)

    def advanced(self, round, rounds):
        self.rounds += 1
        if self.rounds == self.stop_after:
            signal.raise_signal(signal.SIGINT)


def private_of(result, name):
    return jax.device_get(result.model.parts(name)[1])


def same(left, right):
    jax.tree.map(np.testing.assert_array_equal, left, right)


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory):
    return ct.run(WHOLE, DATA, ct.fedavg(step_size=0.5), rounds=2, cohort=3, out=tmp_path_factory.mktemp("w") / "first")


@pytest.fixture(scope="module")
def personal(pretrained):
    return ct.run(OUTPUT, DATA, ct.fedalt(private_step_size=0.5, fit_epochs=1), rounds=3, cohort=3, initial=pretrained)


def test_a_part_that_was_shared_becomes_private_and_nothing_is_lost(pretrained):
    after = ct.run(OUTPUT, DATA, ct.independent(**STILL), rounds=1, initial=pretrained)
    for row in after.history:
        assert row[PERSONAL] == pytest.approx(pretrained.final[SHARED], rel=1e-6)
        assert row[SHARED] == pytest.approx(pretrained.final[SHARED], rel=1e-6)
        assert row["new_test.personal.loss.mean"] == pytest.approx(pretrained.final["new_test.shared.loss.mean"])


def test_every_client_goes_on_with_its_own_private_part(personal):
    after = ct.run(OUTPUT, DATA, ct.independent(parts="private", **STILL), rounds=1, initial=personal)
    assert after.history[0][PERSONAL] == pytest.approx(personal.final[PERSONAL], rel=1e-6)
    assert after.history[0][SHARED] == pytest.approx(personal.final[SHARED], rel=1e-6)
    weights = [private_of(after, name)["layer1"]["weight"] for name in NAMES]
    assert len({weight.tobytes() for weight in weights}) == len(NAMES)
    for name, weight in zip(NAMES, weights, strict=True):
        np.testing.assert_allclose(weight, private_of(personal, name)["layer1"]["weight"], atol=1e-6)


def test_private_parts_find_their_clients_by_name_and_strangers_begin_with_the_common_one(personal):
    rows = {name: (DATA.train.client(index), DATA.test.client(index)) for index, name in enumerate(NAMES)}
    order = [NAMES[3], NAMES[0]]
    inputs, targets, clients = [], [], []
    for name in order:
        batch = rows[name][0].full()
        real = np.asarray(batch.mask) > 0
        inputs.append(np.asarray(batch.inputs)[real])
        targets.append(np.asarray(batch.targets)[real])
        clients += [name] * int(real.sum())
    clients[-5:] = ["stranger"] * 5
    fewer = ct.federation(np.concatenate(inputs), np.concatenate(targets), clients, classes=3, test=0)
    listener = Listener()
    after = ct.run(OUTPUT, fewer, ct.independent(parts="private", **STILL), rounds=1, initial=personal,
                   callbacks=[listener])
    assert "1 of the 3 clients were not in the run before" in listener.told[0] and "stranger" in listener.told[0]
    for name in order:
        jax.tree.map(lambda left, right: np.testing.assert_allclose(left, right, atol=1e-6),
                     private_of(after, name), private_of(personal, name))
    jax.tree.map(lambda left, right: np.testing.assert_allclose(left, right, atol=1e-6),
                 private_of(after, "stranger"), personal.model.parts()[1])


def test_a_run_folder_and_its_model_begin_a_run_as_its_result_does(pretrained):
    found = [ct.run(OUTPUT, DATA, ct.fedalt(), rounds=1, initial=initial) for initial in (
        pretrained, str(pretrained.folder), ct.load(pretrained.folder))]
    for other in found[1:]:
        same(found[0].model.state, other.model.state)
        assert other.final[PERSONAL] == found[0].final[PERSONAL]


def test_private_parts_may_be_given_by_hand():
    shared, private = OUTPUT.init(jax.random.key(0))
    rows = jax.tree.map(lambda leaf: np.stack([np.asarray(leaf) + index for index in range(len(NAMES))]), private)
    after = ct.run(OUTPUT, DATA, ct.independent(parts="private", **STILL), rounds=1,
                   initial=Start(shared, private, rows))
    np.testing.assert_allclose(after.model.state.clients.private["layer1"]["weight"], rows["layer1"]["weight"],
                               atol=1e-6)
    fewer = jax.tree.map(lambda leaf: leaf[:2], rows)
    with pytest.raises(ct.InputError, match=r"initial.privates has the shapes \(2, 3\)"):
        ct.run(OUTPUT, DATA, ct.fedalt(), rounds=1, initial=Start(shared, private, fewer))


@pytest.mark.parametrize("problem, words", [
    (ct.classification(DATA, ct.mlp(hidden=(5,))), r"layer0/bias of shape \(3,\), and this problem has it of shape"),
    (ct.classification(DATA, ct.linear()), r"a parameter layer1/bias of shape \(3,\), and this problem has none")])
def test_a_problem_of_other_shapes_is_refused(pretrained, problem, words):
    with pytest.raises(ct.InputError, match=words):
        ct.run(problem, DATA, ct.fedavg(), rounds=1, initial=pretrained)


def test_parameters_that_the_run_before_has_not_begin_as_the_problem_begins_them(pretrained):
    deeper, listener = ct.classification(DATA, ct.mlp(hidden=(3, 3))), Listener()
    after = ct.run(deeper, DATA, ct.independent(**STILL), rounds=1, initial=pretrained, callbacks=[listener])
    assert "begin anew" in listener.told[0] and "layer2/weight" in listener.told[0]
    fresh = ct.run(deeper, DATA, ct.independent(**STILL), rounds=1)
    (shared, _), (own, _) = after.model.parts(), fresh.model.parts()
    same(shared["layer2"], own["layer2"])
    same(shared["layer0"], pretrained.model.parts()[0]["layer0"])


def test_what_is_both_shared_and_private_cannot_be_split_anew():
    before = ct.run(ct.residual(DATA), DATA, ct.fedres_avg(), rounds=1)
    with pytest.raises(ct.InputError, match="shared and a private parameter .*cannot be split anew"):
        ct.run(ct.logistic(DATA), DATA, ct.fedavg(), rounds=1, initial=before)


@pytest.fixture(scope="module")
def staged(tmp_path_factory):
    folder = tmp_path_factory.mktemp("staged")
    (folder / "study.toml").write_text(STUDY)
    return read_study(folder / "study.toml").run(out=folder / "run")


def test_stages_are_runs_each_from_the_end_of_the_one_before(staged):
    first, second = staged.before.values()
    assert list(staged.before) == ["pretraining", "training"]
    assert second.history[0][SHARED] == pytest.approx(first.final[SHARED], rel=1e-6)
    assert staged.history[0][SHARED] == staged.final[SHARED] == pytest.approx(second.final[SHARED], rel=1e-6)
    alone = ct.run(OUTPUT, DATA, ct.fedalt(private_step_size=0.5), rounds=2, cohort=3, seed=second.model.seed,
                   initial=first)
    same(alone.model.state, second.model.state)
    assert staged.model.seed == 4 and len({4, first.model.seed, second.model.seed}) == 3  # no cohorts come twice
    assert staged.final[PERSONAL] < second.final[PERSONAL]


def test_the_run_folder_is_that_of_the_last_stage_and_tells_of_all(staged):
    same(ct.load(staged.folder).state, staged.model.state)
    [group] = collect([staged.folder])
    assert group.rounds.tolist() == [0, 1, 2, 3, 4, 5] and group.label == "study"
    parts = [*(stage.final["bytes_up"] for stage in staged.before.values()), staged.final["bytes_up"]]
    assert group.final("bytes_up")[0] == sum(parts)
    assert group.curve(PERSONAL)[0, 2] == staged.before["training"].history[0][PERSONAL]
    assert json.loads((staged.folder / "study.json").read_text())["stages"].keys() == {"1-pretraining", "2-training"}


@pytest.mark.parametrize("stop_after", [1, 3, 5])
def test_a_staged_run_that_was_stopped_in_any_stage_goes_on_to_the_same_bits(staged, tmp_path, stop_after):
    study = read_study(staged.folder.parent / "study.toml")
    listener = Listener(stop_after)
    with pytest.raises(KeyboardInterrupt):
        study.run(out=tmp_path / "run", callbacks=[listener])
    assert f"--resume --out {tmp_path / 'run'}" in listener.told[-1]
    with pytest.raises(ct.InputError, match="already holds a run"):
        study.run(out=tmp_path / "run")
    after = study.run(out=tmp_path / "run", resume=True)
    same(after.model.state, staged.model.state)
    assert after.final[PERSONAL] == staged.final[PERSONAL]
    assert read_clients(after.folder) == read_clients(staged.folder)
    for stage in ("1-pretraining", "2-training"):
        old, new = (read_evaluations(folder / "stages" / stage)[-1] for folder in (staged.folder, after.folder))
        assert old[PERSONAL] == new[PERSONAL]


@pytest.mark.parametrize("changes, words", [
    ({"stage.pretraining.rounds": 3}, "its stages.1-pretraining.rounds is 2, here it is 3"),
    ({"stage.training.algorithm.private_step_size": 0.1}, "its stages.2-training.algorithm.private_step_size is 0.5"),
    ({"stage.tuning.algorithm.epochs": 2}, "its algorithm.epochs is 1, here it is 2")])
def test_a_stage_that_was_changed_after_it_was_run_is_refused(staged, changes, words):
    study = read_study(staged.folder.parent / "study.toml", changes)
    with pytest.raises(ct.InputError, match=words):
        study.run(out=staged.folder, resume=True)
    with pytest.raises(ct.InputError, match=words):
        study.check_folder(staged.folder)


@pytest.mark.parametrize("stage, words", [
    ({"name": "b", "roundz": 3}, "stage b: unknown key 'roundz'. Did you mean 'rounds'"),
    ({"name": "b", "seed": 3}, "stage b: seed is common to all stages"),
    ({"name": "b", "data": {"name": "digits"}}, "stage b: data is common to all stages"),
    ({"name": "a"}, "two stages are called 'a'"),
    ({"rounds": 3}, "stage 2 has no name"),
    ({"name": "b", "problem": {"split": 3}}, "stage b: problem.split = 3"),
    ({"name": "b", "algorithm": "fedavgg"}, "stage b: algorithm.name: unknown algorithm 'fedavgg'"),
    (3, "stage 2 is 3; give a table")])
def test_a_stage_that_makes_no_sense_is_refused_by_its_name(stage, words):
    raw = {"rounds": 1, "data": {"name": "digits"}, "problem": {"name": "logistic"}, "algorithm": "fedavg"}
    with pytest.raises(ct.InputError, match=words):
        check_study({**raw, "stage": [{"name": "a"}, stage]}, "study.toml")


def test_no_stages_and_stages_of_other_shapes_are_refused_before_anything_runs(tmp_path):
    with pytest.raises(ct.InputError, match="there are no stages"):
        ct.run_stages(DATA, {})
    with pytest.raises(ct.InputError, match="empty list of stages"):
        check_study({"stage": []}, "study.toml")
    wider = ct.classification(DATA, ct.mlp(hidden=(5,)))
    with pytest.raises(ct.InputError, match=r"stage b: the run before has the parameter layer0/bias of shape \(3,\)"):
        ct.run_stages(DATA, {"a": {"problem": WHOLE}, "b": {"problem": wider}}, algorithm=ct.fedavg(), rounds=1,
                      out=tmp_path / "run")
    with pytest.raises(ct.InputError, match="stage b: it has no rounds"):
        ct.run_stages(DATA, {"a": {"rounds": 1}, "b": {}}, algorithm=ct.fedavg(), problem=WHOLE)
    assert not (tmp_path / "run").exists()


def test_a_table_with_a_name_replaces_the_studys_and_one_without_changes_its_keys():
    raw = {"cohort": 5, "rounds": 3, "aggregate": "median", "algorithm": {"name": "fedavg", "epochs": 2}, "stage": [
        {"name": "a", "algorithm": {"epochs": 3}}, {"name": "b", "algorithm": {"name": "ffgg"}, "aggregate": "none"},
        {"name": "c", "clock": {"name": "online"}}, {"name": "d", "rounds": 1, "cohort": 2}]}
    found = merged_stages(raw, "study.toml")
    assert found["a"]["algorithm"] == {"name": "fedavg", "epochs": 3} and found["a"]["cohort"] == 5
    assert found["b"]["algorithm"] == {"name": "ffgg"} and "aggregate" not in found["b"]
    assert "cohort" not in found["c"] and found["c"]["clock"] == {"name": "online"}
    assert found["d"]["rounds"] == 1 and found["d"]["cohort"] == 2 and "stage" not in found["d"]
