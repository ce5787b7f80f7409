"""Methods with keys of their own, and tuned comparisons: the same from words, tables and Python, and by hand."""

import json
import shlex
from unittest import mock

import jax
import pytest
from click.testing import CliRunner

import cantons as ct
from cantons.cli.main import cantons
from cantons.reporting import markup
from cantons.study.default_steps import default_steps
from cantons.study.methods import of_one_study, of_studies

STUDY = """
rounds = 2
cohort = 3
[data]
name = "digits"
clients = 6
[problem]
name = "logistic"
[algorithm]
name = "fedavg"
step_size = 0.5
batch_size = 8
"""
TABLES = """
[[method]]
algorithm = "fedavg"

[[method]]
name = "FedRep"
algorithm = { name = "fedrep", head_epochs = 5 }
problem.split = "*bias"
cohort = 2

[[method]]
name = "late"
clock = { name = "asynchronous", concurrency = 2 }
"""
WORDS = ["fedavg", "fedrep; name=FedRep; problem.split=*bias; algorithm.head_epochs=5; cohort=2",
         "name=late; clock={name='asynchronous', concurrency=2}"]
TIMES = ("seconds", "seconds_per_round", "updates_per_second", "evaluation_seconds")


@pytest.fixture(autouse=True, scope="module")
def no_drawings():
    """Drawing takes most of the time."""
    with mock.patch.object(markup, "svg", lambda draw, name: ""):
        yield


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "study.toml").write_text(STUDY)
    (tmp_path / "methods.toml").write_text(STUDY + TABLES)
    return tmp_path


class Notices(ct.Callback):
    def __init__(self):
        self.said = []

    def noticed(self, sentence):
        self.said.append(sentence)


def settled(methods):
    """The studies that would run, with every default filled in."""
    return {method.name: {key: value for key, value in method.study.resolved().study.items() if key != "problem"}
            | {"split": method.study.resolved().study["problem"]["split"]} for method in methods}


def test_methods_are_the_same_from_words_from_tables_and_from_python(here):
    data = ct.digits(clients=6)
    made = ct.Study(ct.logistic(data), data, ct.fedavg(step_size=0.5, batch_size=8), rounds=2, cohort=3)
    tables = [{"algorithm": "fedavg"}, {"name": "FedRep", "algorithm": {"name": "fedrep", "head_epochs": 5},
                                        "problem": {"split": "*bias"}, "cohort": 2},
              {"name": "late", "clock": ct.asynchronous(concurrency=2)}]
    words = of_one_study("study.toml", [], WORDS, {}, ct.Callback())
    assert [method.name for method in words] == ["fedavg", "FedRep", "late"]
    found = settled(words)
    assert found == settled(of_studies(["methods.toml"], {}, ct.Callback()))
    assert found == settled(of_one_study(made, [], tables, {}, ct.Callback()))
    assert found == settled(of_one_study(made, [], WORDS[:2] + tables[2:], {}, ct.Callback()))
    assert found["FedRep"]["algorithm"] | {"name": "fedrep", "head_epochs": 5, "step_size": 0.5, "batch_size": 8} == (
        found["FedRep"]["algorithm"])  # what the study says holds for it too
    assert found["FedRep"]["split"] == "*bias" and found["fedavg"]["split"] != "*bias"
    assert (found["late"]["clock"]["name"], found["FedRep"]["clock"]["cohort"]) == ("asynchronous", 2)


def test_an_algorithm_is_a_method_and_keys_of_all_come_before_its_own(here):
    notices = Notices()
    found = of_one_study("study.toml", ["fedprox,mu=0.25", ct.fedsgd()], ["fedprox,mu=0.5; rounds=7", "rounds=9"],
                         {"algorithm.step_size": 0.125, "rounds": 4}, notices)
    assert [method.name for method in found] == [
        "fedprox, mu=0.25", "fedsgd, step_size=0.1, batch_size=None", "fedprox, mu=0.5, rounds=7", "fedavg, rounds=9"]
    assert [method.study.settings.rounds for method in found] == [4, 4, 7, 9]
    assert [method.study.algorithm().get("step_size") for method in found] == [0.125, 0.1, 0.125, 0.125]
    named = of_one_study("study.toml", ["fedprox,mu=0.25"], [], {}, notices, tuned=["algorithm.mu"])
    assert [method.name for method in named] == ["fedprox"]


def test_a_method_sets_a_part_before_its_keys_and_says_which_common_keys_it_replaces(here):
    words = ["ffgg; algorithm.tuner.step_size=0.25; algorithm.tuner=sgd", "ffgg,tuner.step_size=0.25,tuner=sgd"]
    tables = [{"algorithm.tuner.step_size": 0.25, "algorithm.tuner": "sgd", "algorithm": "ffgg"},
              {"algorithm": {"name": "ffgg", "tuner.step_size": 0.25, "tuner": "sgd"}}]
    for method in of_one_study("study.toml", [], words + tables, {}, Notices()):
        assert method.study.algorithm_recipe().options["tuner"] == {"name": "sgd", "step_size": 0.25}
    notices = Notices()
    common = {"algorithm": "ffgg", "algorithm.tuner.step_size": 0.25}
    plain, own = of_one_study("study.toml", ["ffgg", "ffgg,tuner=sgd"], [], common, notices)
    assert plain.study.algorithm()["tuner"] == {"name": "gd", "step_size": 0.25}
    assert own.study.algorithm()["tuner"] == "sgd"
    assert notices.said == ["ffgg, tuner=sgd has its own algorithm.tuner: algorithm.tuner.step_size is not for it."]


@pytest.mark.parametrize("words, label", [
    ("ffgg; algorithm.tuner.name=gd", "ffgg, tuner=gd"),
    ("ffgg; algorithm.tuner.step_size=0.25", "ffgg, tuner.step_size=0.25"),  # ffgg has a step_size of its own
    ("ffgg,tuner.step_size=0.25,step_size=1.0", "ffgg, tuner.step_size=0.25, step_size=1.0"),
    ("fedrep; problem.split=*bias; algorithm.head_epochs=5", "fedrep, split=*bias, head_epochs=5"),
])
def test_methods_are_called_by_keys_that_cannot_be_taken_for_others(here, words, label):
    [method] = of_one_study("study.toml", [], [words], {}, Notices())
    assert method.name == label == method.study.name


def test_methods_stand_in_the_order_in_which_they_were_typed_and_the_first_is_the_reference(here):
    words = "--rounds 1 --seeds 1 --method 'ffgg; name=A' --algorithm fedalt --method 'fedavg; name=B'"
    done = CliRunner().invoke(cantons, ["compare", "study.toml", *shlex.split(words)])
    assert done.exit_code == 0, done.output
    table = done.stdout.partition("\n\n")[0]
    assert table.index("\nA ") < table.index("\nfedalt ") < table.index("\nB ")
    assert "against A:" in done.stdout


def test_step_sizes_that_were_not_tuned_are_named(here):
    grid = {"algorithm.step_size": [0.5], "algorithm.tuner.step_size": [0.25, 0.5]}
    methods = ["ffgg; name=tuned", "pfedme,tuner.step_size=0.25; name=given", "fedavg_finetune"]
    asked = {"method": methods, "tune_seeds": 1, "seeds": 1, "rounds": 1, "progress": None}
    found = ct.compare("study.toml", **asked, tune=grid, out="both")
    assert found.rows[0]["chosen"].startswith("step_size=0.5, tuner.step_size=0.")
    assert "Left at their defaults: tune_step_size of fedavg_finetune (0.05)." in found.sentences
    found = ct.compare("study.toml", **asked, tune={"algorithm.step_size": [0.5]}, out="one")
    sentence = "Left at their defaults: tuner.step_size of tuned (0.1), tune_step_size of fedavg_finetune (0.05)."
    assert sentence in found.sentences and sentence in found.report.read_text()
    assert "Left at" not in str(ct.compare("study.toml", **{**asked, "method": methods[:1]}, out="no"))


def test_in_python_too_a_default_that_tuning_chose_was_not_left_alone(tmp_path):
    data = ct.digits(clients=4)
    found = ct.compare(ct.Study(ct.logistic(data), data, ct.fedavg(), rounds=2), algorithm=["fedavg", "fedprox"],
                       tune={"algorithm.step_size": [0.1, 1e-6]}, seeds=1, tune_seeds=1, out=tmp_path, progress=None)
    assert all(row["chosen"] == "step_size=0.1" for row in found.rows)
    assert not any("Left at" in sentence for sentence in found.sentences)


def test_step_sizes_that_follow_others_are_not_left_at_a_default():
    assert default_steps(ct.fedadam(step_size=0.1), {"step_size": 0.1}) == {"server_step_size": 0.01}
    assert not default_steps(ct.two_way_transfer(step_size=0.1), {"step_size": 0.1}).keys() & {"merge_step_size"}
    assert default_steps(ct.fedalt(), {}) == {"step_size": 0.1}  # nor is the server's one
    assert default_steps(ct.ffgg(tuner="exact"), {"step_size": 0.1}) == {}
    assert default_steps(ct.ffgg(tuner={"name": "optimizer", "steps": 3}), {}) == {
        "step_size": 0.1, "tuner.step_size": 0.01}
    both = ct.parallel_centre(clients=ct.ffgg(step_size=0.5))
    assert {"clients.tuner.step_size": 0.1}.items() <= default_steps(both, dict(both.options)).items()
    assert "clients.step_size" not in default_steps(both, dict(both.options))


def test_the_algorithm_may_be_left_to_the_methods(here):
    text = STUDY.partition("[algorithm]")[0]
    (here / "bare.toml").write_text(text + '\n[[method]]\nalgorithm = "fedavg"\n[[method]]\nalgorithm = "ditto"\n')
    assert [method.name for method in of_studies(["bare.toml"], {}, ct.Callback())] == ["fedavg", "ditto"]


@pytest.mark.parametrize("words, sentence", [
    ("compare study.toml --method 'fedavgg'", "Did you mean 'fedavg'"),
    ("compare study.toml --method 'fedavg; problem.splitt=x'", "Did you mean 'split'"),
    ("compare study.toml --method 'fedavg; roundz=3'", "Did you mean 'rounds'"),
    ("compare study.toml --method 'fedavg; problem'", "write an algorithm and what else is its own"),
    ("compare study.toml --method 'fedavg; rounds=3; rounds=4'", "method got rounds twice"),
    ("compare study.toml --method 'fedavg; seed=3'", "leave seed alone"),
    ("compare study.toml --method 'fedavg; name=3'", "a method has the name 3"),
    ("compare study.toml --method 'fedavg; data.clients=7' --method fedavg", "has other data than"),
    ("compare study.toml --method ''", "unknown algorithm ''"),
    ("compare study.toml --method fedavg --method fedavg", "two of the methods are called 'fedavg'"),
    ("compare study.toml study.toml --method fedavg", "give a single study"),
    ("compare methods.toml --method fedavg", "has methods of its own"),
    ("compare study.toml --algorithm fedavg --tune algorithm.stepsize=0.1,0.2", "Did you mean 'step_size'"),
    ("compare study.toml --algorithm fedavg --tune algorithm.step_size", "--tune got"),
    ("compare study.toml --algorithm fedavg --tune seed=1,2", "say how many with --seeds"),
    ("compare study.toml --algorithm fedavg --save study.toml", "exists and was not written by this command"),
    ("run methods.toml", "has several methods ([[method]]); compare runs them"),
    ("sweep methods.toml --grid rounds=1,2", "has several methods ([[method]]); compare runs them"),
    ("compare three.toml", "three.toml: method is 3"),
    ("compare empty.toml", "empty.toml: method is []"),
    ("compare odd.toml", "odd.toml: method 1 is 3"),
    ("compare none.toml", "none.toml has no [algorithm], and neither has one of its methods"),
])
def test_what_is_no_method_is_refused_in_a_sentence_before_anything_runs(here, words, sentence):
    (here / "three.toml").write_text("method = 3\n" + STUDY)
    (here / "empty.toml").write_text("method = []\n" + STUDY)
    (here / "odd.toml").write_text("method = [3]\n" + STUDY)
    (here / "none.toml").write_text(STUDY.partition("[algorithm]")[0] + '[[method]]\nname = "a"\n')
    before = sorted(here.iterdir())
    done = CliRunner().invoke(cantons, shlex.split(words))
    assert done.exit_code == 1 and sentence in done.output and len(done.output.splitlines()) == 1, done.output
    assert sorted(here.iterdir()) == before


@pytest.mark.parametrize("attempt, sentence", [
    (lambda: ct.compare("study.toml", method=[3]), "method is an int; give words"),
    (lambda: ct.compare("study.toml", method={"algorithm": 3}), "algorithm is an int; give names"),
    (lambda: ct.compare("study.toml", tune={"algorithm.step_size": 0.1}), "tune has algorithm.step_size = 0.1"),
    (lambda: ct.compare("study.toml", tune={"rounds": [1, 2]}, tune_seeds=0), "tune_seeds is 0"),
])
def test_python_refuses_it_too(here, attempt, sentence):
    with pytest.raises(ct.InputError, match=sentence):
        attempt()
    assert not (here / "results").exists()


def rows_of(folder):
    return [{key: value for key, value in json.loads(line).items() if key not in TIMES}
            for line in (folder / "metrics.jsonl").read_text().splitlines()]


def same_bits(one, other):
    assert rows_of(one) == rows_of(other)
    for leaf, again in zip(jax.tree.leaves(ct.load(one).state), jax.tree.leaves(ct.load(other).state), strict=True):
        assert leaf.tobytes() == again.tobytes()


def test_methods_that_lack_what_is_tuned_are_named_in_one_sentence(here):
    notices = Notices()
    ct.compare("study.toml", algorithm=["fedavg", "ffgg", "fedprox"], tune={"algorithm.tuner.step_size": [0.5]},
               tune_seeds=1, seeds=1, rounds=1, out="out", callbacks=[notices])
    assert [sentence for sentence in notices.said if "not tuned" in sentence] == [
        "algorithm.tuner.step_size is not tuned for methods without it: fedavg, fedprox."]


def test_a_tuned_comparison_is_a_sweep_and_runs_made_by_hand(here):
    """By bits; called again, it computes nothing, and the values that were chosen are in the table."""
    notices = Notices()
    grid = {"algorithm.step_size": [0.001, 0.5], "algorithm.mu": [0.1]}
    asked = {"algorithm": ["fedavg", "fedprox"], "tune": grid, "tune_seeds": 1, "seeds": 2, "out": "out"}
    found = ct.compare("study.toml", **asked, callbacks=[notices])
    assert "algorithm.mu is not tuned for methods without it: fedavg." in notices.said
    for name in ("fedavg", "fedprox"):
        own = {key: values for key, values in grid.items() if name == "fedprox" or key != "algorithm.mu"}
        swept = ct.sweep("study.toml", own, seeds=1, out=f"hand/{name}", set={"algorithm.name": name})
        assert found.tuned[name].chosen == swept.best
        assert len(list((here / "hand" / name).glob("*-0"))) == 2
        for run in (here / "hand" / name).glob("*-0"):
            same_bits(run, here / "out" / "tuning" / name / run.name)
        changes = [f"--set={key}={value}" for key, value in {"algorithm.name": name, **swept.best}.items()]
        done = CliRunner().invoke(cantons, ["run", "study.toml", "--seed", "2", "--out", f"hand/{name}-2", *changes])
        assert done.exit_code == 0, done.output
        same_bits(here / "hand" / f"{name}-2", here / "out" / f"{name}-2")
    steps = [found.tuned[name].chosen["algorithm.step_size"] for name in ("fedavg", "fedprox")]
    assert [row["chosen"] for row in found.rows] == [f"step_size={steps[0]}", f"step_size={steps[1]}, mu=0.1"]
    assert "Every method was tuned over the same 2 points, with 1 seed each, by validation rows" in " ".join(
        str(found).split())
    assert [run.study["seed"] for run in found.groups[0].runs] == [1, 2]
    assert not any("validation" in key for row in rows_of(found.folders[0]) for key in row), "it trains on all rows"

    class Nothing(ct.Callback):
        def advanced(self, round, rounds):
            raise AssertionError("nothing is left to compute")

    assert ct.compare("study.toml", **asked, callbacks=[Nothing()]).rows == found.rows
    with pytest.raises(ct.InputError, match="holds another study"):
        ct.compare("study.toml", **asked, set={"cohort": 2})


def test_a_sweep_begins_anew_where_other_runs_are_only_if_it_is_told_to(here):
    grid, other = {"algorithm.step_size": [0.1, 0.5]}, {"set": {"cohort": 2}, "rounds": 1, "seeds": 1}
    ct.sweep("study.toml", grid, seeds=1, out="out")
    kept = rows_of(here / "out" / "step_size=0.1-0")
    with pytest.raises(ct.InputError, match="holds another study: its clock.cohort is 3, here it is 2"):
        ct.sweep("study.toml", grid, out="out", **other)
    assert rows_of(here / "out" / "step_size=0.1-0") == kept and len(kept) == 3
    anew, fresh = (ct.sweep("study.toml", grid, out=out, overwrite=True, **other) for out in ("out", "fresh"))
    assert anew.frame().equals(fresh.frame())
    for run in (here / "fresh").glob("*-0"):
        same_bits(run, here / "out" / run.name)
    stamp = (here / "out" / "step_size=0.1-0" / "metrics.jsonl").stat().st_mtime_ns
    ct.sweep("study.toml", grid, out="out", overwrite=True, **other)  # its own runs are kept
    assert (here / "out" / "step_size=0.1-0" / "metrics.jsonl").stat().st_mtime_ns == stamp


def test_notices_say_which_method_they_are_of_while_it_is_tuned_and_afterwards(here):
    notices = Notices()
    (here / "study.toml").write_text(STUDY.replace("batch_size = 8", ""))
    ct.compare("study.toml", algorithm=["fedavg", "fedprox,mu=0.5"], rounds=2, seeds=2, tune_seeds=1, progress=None,
               tune={"algorithm.step_size": [1e30, 1e31]}, callbacks=[notices])
    told = [sentence.partition(": ")[0] for sentence in notices.said if "step_size may help" in sentence
            or "step_size or clip_norm may help" in sentence]
    tuning = [sentence for sentence in notices.said if ": step_size=1e+30-0: " in sentence]
    assert {sentence.partition(": step_size")[0] for sentence in tuning} == {"fedavg", "fedprox, mu=0.5"}
    assert set(told) == {*(f"{name}{seed}" for name in ("fedavg", "fedprox, mu=0.5")
                           for seed in ("", ", seed 1", ", seed 2"))}


def test_an_option_that_methods_of_one_algorithm_lack_is_told_once(here, capsys):
    ct.compare("study.toml", algorithm=["fedavg", "ffgg", "ffgg,tuner=lbfgs", "ffgg,tuner=sgd"], rounds=1, seeds=1)
    assert capsys.readouterr().err.count("ffgg has no batch_size: what study.toml says about that is not for it.") == 1
