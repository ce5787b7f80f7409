"""Stages, and runs that begin where another ended: its shared part and every client's private part."""

import json
import shutil
import signal
from dataclasses import replace

import equinox as eqx
import jax
import numpy as np
import pytest
from click.testing import CliRunner

import cantons as ct
from cantons.cli.main import cantons
from cantons.engine import seed_keys, starting_point
from cantons.protocol import Start
from cantons.reporting.collect import collect
from cantons.reporting.figures import stages_of
from cantons.study.methods import of_one_study
from cantons.study.read import check_study, read_study
from cantons.study.reading import read_clients, read_evaluations
from cantons.study.resolve import resolve, sample_clients
from cantons.study.stage_tables import merged_stages
from cantons.study.stages import resolve_stages
from cantons.study.sweep import sweep
from cantons.study.warm_start import check_follows, start_from

DATA = ct.synthetic(clients=7, features=4, classes=3, largest=40, seed=0)
NAMES = DATA.clients.names
WHOLE, OUTPUT = (ct.classification(DATA, ct.mlp(hidden=(3,)), split=split) for split in ("none", "output"))
PERSONAL, SHARED = "test.personal.loss.mean", "test.shared.loss.mean"
TUNING = ct.independent(parts="private", step_size=1e-12, fit_epochs=1)  # trains without moving
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


def same(left, right):
    jax.tree.map(np.testing.assert_array_equal, left, right)


@pytest.fixture(scope="module")
def staged(tmp_path_factory):
    folder = tmp_path_factory.mktemp("staged")
    (folder / "study.toml").write_text(STUDY)
    return read_study(folder / "study.toml").run(out=folder / "run")


@pytest.fixture
def pretrained(staged):
    return staged.before["pretraining"]


@pytest.fixture
def personal(staged):
    return staged.before["training"]


def start(problem, initial, data=DATA, recipe=TUNING, notice=lambda sentence: None):
    """Where a run would begin."""
    parts = resolve(problem, data, recipe, rounds=1, engine=ct.Local()).parts
    return start_from(initial, parts, data, notice)


def test_a_part_that_was_shared_becomes_private_and_nothing_is_lost(pretrained, personal):
    assert personal.history[0][SHARED] == pytest.approx(pretrained.final[SHARED], rel=1e-6)
    begun = start(OUTPUT, pretrained)
    assert begun.privates is None  # all clients have the one model
    together = eqx.combine(begun.shared, begun.private)
    same(together, pretrained.model.parts()[0])
    back = start(WHOLE, personal, recipe=ct.fedavg())
    same(back.shared, eqx.combine(*personal.model.parts()))


def test_every_client_goes_on_with_its_own_private_part(personal):
    after = ct.run(OUTPUT, DATA, TUNING, rounds=1, initial=personal)
    for row in after.history:
        assert row[PERSONAL] == pytest.approx(personal.final[PERSONAL], rel=1e-5)
        assert row[SHARED] == pytest.approx(personal.final[SHARED], rel=1e-6)
    begun = start(OUTPUT, personal).privates["layer1"]["weight"]
    assert len({weight.tobytes() for weight in begun}) == len(NAMES)
    np.testing.assert_allclose(after.model.state.clients.private["layer1"]["weight"], begun, atol=1e-6)
    for name, weight in zip(NAMES, begun, strict=True):
        np.testing.assert_allclose(weight, personal.model.parts(name)[1]["layer1"]["weight"], atol=1e-6)


def test_clients_that_keep_no_private_part_are_given_none(personal):
    assert start(OUTPUT, personal, recipe=ct.ffgg(private_init="fixed")).privates is None
    assert start(OUTPUT, personal, recipe=ct.ffgg(private_init="last")).privates is not None


def test_private_parts_find_their_clients_by_name_and_strangers_begin_with_the_common_one(personal):
    names, told = [NAMES[3], "stranger", NAMES[0]], []
    fewer = ct.federation(np.ones((6, 4)), np.arange(6) % 3, np.repeat(names, 2), classes=3, test=0)
    begun = start(OUTPUT, personal, fewer, notice=told.append)
    assert "1 of the 3 clients were not in the run before" in told[0] and "stranger" in told[0]
    everybody, common = start(OUTPUT, personal).privates["layer1"]["weight"], begun.private["layer1"]["weight"]
    for name, weight in zip(fewer.clients.names, begun.privates["layer1"]["weight"], strict=True):
        np.testing.assert_array_equal(weight, common if name == "stranger" else everybody[NAMES.index(name)])
    np.testing.assert_array_equal(begun.own, [name != "stranger" for name in fewer.clients.names])


def test_a_private_part_that_nobody_learned_alone_is_nobodys_own(personal):
    """The last layer was private and the first shared; where they change places, all begin alike and are fitted."""
    turned = ct.classification(DATA, ct.mlp(hidden=(3,)), split="input")
    begun = start(turned, personal, recipe=TUNING)
    assert begun.privates is None
    partly = ct.classification(DATA, ct.mlp(hidden=(3,)), split="all")
    assert start(partly, personal, recipe=TUNING).own.all()


def test_a_run_folder_and_its_model_begin_a_run_as_its_result_does(pretrained):
    found = [jax.device_get(start(OUTPUT, initial)) for initial in (
        pretrained, str(pretrained.folder), ct.load(pretrained.folder))]
    same(found[0], found[1])
    same(found[0], found[2])


def test_private_parts_of_other_shapes_are_refused():
    shared, private = OUTPUT.init(jax.random.key(0))
    rows = jax.tree.map(lambda leaf: np.stack([np.asarray(leaf)] * 2), private)
    with pytest.raises(ct.InputError, match=r"initial.privates has the shapes \(2, 3\)"):
        ct.run(OUTPUT, DATA, TUNING, rounds=1, initial=Start(shared, private, rows))
    with pytest.raises(ct.InputError, match=r"initial.privates has the shapes"):
        ct.run(OUTPUT, DATA, TUNING, rounds=1, initial=Start(shared, private, {"layer9": rows}))
    with pytest.raises(ct.InputError, match="initial is a int; give a result"):
        ct.run(OUTPUT, DATA, TUNING, rounds=1, initial=3)


@pytest.mark.parametrize("problem, words", [
    (ct.classification(DATA, ct.mlp(hidden=(5,))), r"layer0/bias of shape \(3,\), and this problem has it of shape"),
    (ct.classification(DATA, ct.linear()), r"a parameter layer1/bias of shape \(3,\), and this problem has none")])
def test_a_problem_of_other_shapes_is_refused(pretrained, problem, words):
    with pytest.raises(ct.InputError, match=words):
        ct.run(problem, DATA, ct.fedavg(), rounds=1, initial=pretrained)
    with pytest.raises(ct.InputError, match=words):
        check_follows(WHOLE, problem)


def test_parameters_that_the_run_before_has_not_begin_as_the_problem_begins_them(pretrained):
    deeper, told = ct.classification(DATA, ct.mlp(hidden=(3, 3))), []
    begun = start(deeper, pretrained, recipe=ct.fedavg(), notice=told.append)
    assert "begin anew" in told[0] and "layer2/weight" in told[0]
    same(begun.shared["layer2"], starting_point(deeper, seed_keys(0)[0]).shared["layer2"])
    same(begun.shared["layer0"], pretrained.model.parts()[0]["layer0"])


def test_what_is_both_shared_and_private_cannot_be_split_anew():
    check_follows(ct.residual(DATA), ct.residual(DATA))
    with pytest.raises(ct.InputError, match="shared and a private parameter .*cannot be split anew"):
        check_follows(ct.residual(DATA), ct.logistic(DATA))


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
    assert group.runs[0].stages == stages_of([group]) == {"pretraining": 2, "training": 4}
    assert not stages_of([group, replace(group, runs=(replace(group.runs[0], stages={}),))])
    assert json.loads((staged.folder / "study.json").read_text())["stages"].keys() == {"1-pretraining", "2-training"}


def test_a_staged_run_that_was_stopped_in_every_stage_goes_on_to_the_same_bits(staged, tmp_path):
    study = read_study(staged.folder.parent / "study.toml")
    for stage, rounds in enumerate((1, 2, 2)):  # of its stages 2, 2 and 1
        listener = Listener(rounds)
        with pytest.raises(KeyboardInterrupt):
            study.run(out=tmp_path / "run", resume=stage > 0, callbacks=[listener])
        assert f"--resume --out {tmp_path / 'run'}" in listener.told[-1]
        assert len(list(tmp_path.glob("run/**/checkpoints"))) == stage + 1
    with pytest.raises(ct.InputError, match="already holds a run"):
        study.run(out=tmp_path / "run")
    after = study.run(out=tmp_path / "run", resume=True)
    same(after.model.state, staged.model.state)
    assert after.final[PERSONAL] == staged.final[PERSONAL]
    assert read_clients(after.folder) == read_clients(staged.folder)
    for stage in ("1-pretraining", "2-training"):
        old, new = (read_evaluations(folder / "stages" / stage)[-1] for folder in (staged.folder, after.folder))
        assert old[PERSONAL] == new[PERSONAL]


@pytest.mark.parametrize("rounds, where, results", [
    (1, "stage 1 of 3 (pretraining)", ["1-pretraining"]),
    (3, "stage 2 of 3 (training)", ["1-pretraining", "2-training"])])
def test_a_run_that_stopped_before_its_last_stage_says_where_results_are(staged, tmp_path, rounds, where, results):
    study, folder = read_study(staged.folder.parent / "study.toml"), tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        study.run(out=folder, callbacks=[Listener(rounds)])
    np.save(tmp_path / "rows.npy", DATA.test.inputs[:2])
    for ask in (["report", str(folder)], ["predict", str(tmp_path / "rows.npy"), "--run", str(folder)],
                ["export", "--run", str(folder)]):
        answer = CliRunner().invoke(cantons, ask)
        words = " ".join(answer.output.split())
        assert answer.exit_code == 1 and f"{folder} is a run in stages that stopped in {where}" in words
        assert "--resume" in words and all(str(folder / "stages" / name) in words for name in results)
    with pytest.raises(ct.InputError, match="stopped in stage"):
        ct.load(folder)
    for name in results:
        assert collect([folder / "stages" / name]) and ct.load(folder / "stages" / name)
    study.run(out=folder, resume=True)
    assert collect([folder]) and ct.load(folder)


def test_a_run_that_stopped_before_the_first_evaluation_of_its_last_stage_says_so(staged, tmp_path):
    class Killed(ct.Callback):
        def started(self, study):
            if len(study.get("stages", ())) == 2:
                raise KeyboardInterrupt

    study, folder = read_study(staged.folder.parent / "study.toml"), tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        study.run(out=folder, callbacks=[Killed()])
    for ask in (ct.load, lambda path: collect([path])):
        with pytest.raises(ct.InputError, match=r"stopped in stage 3 of 3 \(the last\).*/stages/2-training"):
            ask(folder)


def test_of_a_finished_run_and_of_a_stage_nobody_says_that_it_stopped(staged, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(staged.folder, folder)
    for part in (folder, folder / "stages" / "2-training"):
        for file in (*(part / "checkpoints").iterdir(), part / "clients.csv"):
            file.unlink()
        for ask in (ct.load, lambda path: collect([path])):
            with pytest.raises(ct.InputError) as refused:
                ask(part)
            assert "stopped in stage" not in str(refused.value)


def test_every_stage_scores_the_same_sample_of_clients():
    stages = {name: {"problem": problem} for name, problem in (("a", WHOLE), ("b", OUTPUT))}
    first, last = resolve_stages(DATA, stages, algorithm=ct.fedavg(), rounds=1, evaluate_clients=4, seed=2).values()
    np.testing.assert_array_equal(first.parts.scored["clients"], last.parts.scored["clients"])
    np.testing.assert_array_equal(last.parts.scored["clients"], sample_clients(DATA, 2, 4)["clients"])


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


def test_sweeps_and_other_algorithms_are_not_for_stages(staged, tmp_path):
    study = staged.folder.parent / "study.toml"
    with pytest.raises(ct.InputError, match="a sweep runs its points as one program, and these have stages"):
        sweep(study, {"stage.training.rounds": [1, 2]}, 1, tmp_path, {}, ct.Callback())
    with pytest.raises(ct.InputError, match="has stages, each with an algorithm of its own"):
        of_one_study(study, ["fedavg"], [], {}, ct.Callback())


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
