"""Dotted keys: what they change is the same in files and in Python, however the part below them was given."""

import inspect
import itertools
import json
import re

import pytest

import cantons as ct
from cantons.ranges import named_in
from cantons.study.dotted_keys import short_keys
from cantons.study.read import check_part, check_study
from cantons.study.registry import REGISTRY, make_recipe

RAW = {"rounds": 2, "data": {"name": "digits", "clients": 6}, "problem": "logistic"}
# Every option that has the name of a part by default, with the options of that part.
NAMED = [(kind, name, option.name, option.default, inner)
         for kind in ("algorithm", "clock") for name, function in REGISTRY[kind].items()
         for option in inspect.signature(function).parameters.values()
         if (named := named_in(option.annotation)) is not None and isinstance(option.default, str)
         for inner in inspect.signature(named.known[option.default]).parameters.values()]


@pytest.fixture(scope="module")
def made():
    data = ct.digits(clients=6)
    return ct.Study(ct.logistic(data), data, ct.ffgg(step_size=1.0), rounds=2)


def test_there_are_tuners_and_others_to_be_tried():
    assert {option for _, _, option, _, _ in NAMED} >= {"tuner", "durations"}


@pytest.mark.parametrize("kind, name, option, default, inner", NAMED)
def test_a_key_below_a_name_makes_it_a_table_with_that_name(made, kind, name, option, default, inner):
    table = {"name": default, inner.name: inner.default}
    whole = check_part("s.toml", kind, {"name": name, option: table})
    key = {f"{option}.{inner.name}": inner.default}
    assert check_part("s.toml", kind, {"name": name}, key) == whole  # the name is the option's default
    assert check_part("s.toml", kind, {"name": name, option: default}, key) == whole  # or is given
    assert check_part("s.toml", kind, {"name": name, option: {"name": default}}, key) == whole
    changed = made.changed({kind: make_recipe(kind, {"name": name}), f"{kind}.{option}.{inner.name}": inner.default})
    recipe = changed.recipe if kind == "algorithm" else changed.options[kind]
    assert recipe.options[option] == table


@pytest.mark.parametrize("algorithm, key, value, found", [
    ({"name": "ffgg", "tuner": {"name": "gd", "steps": 3}}, "algorithm.tuner.step_size", 0.5,
     {"name": "gd", "steps": 3, "step_size": 0.5}),
    ({"name": "ffgg", "tuner": "sgd"}, "algorithm.tuner.epochs", 2, {"name": "sgd", "epochs": 2}),
    ("ffgg", "algorithm.tuner.name", "sgd", {"name": "sgd"}),
    ({"name": "parallel_centre"}, "algorithm.clients.tuner.step_size", 0.5, {"name": "gd", "step_size": 0.5}),
    ({"name": "parallel_centre", "clients": "pfedme"}, "algorithm.clients.tuner.steps", 4, {"name": "gd", "steps": 4}),
])
def test_what_was_given_stays(algorithm, key, value, found):
    study = check_study({**RAW, "algorithm": algorithm}, "s.toml").changed({key: value})
    table = study.algorithm()
    assert table.get("clients", table)["tuner"] == found
    assert study.raw["algorithm"] != algorithm and study.algorithm_recipe() is not None


@pytest.mark.parametrize("changes, option, found", [
    ({"algorithm.tuner": "sgd", "algorithm.tuner.step_size": 0.5}, "tuner", {"name": "sgd", "step_size": 0.5}),
    ({"algorithm.tuner.name": "sgd", "algorithm.tuner.epochs": 3}, "tuner", {"name": "sgd", "epochs": 3}),
    ({"algorithm": "pfedme", "algorithm.tuner": "sgd", "algorithm.tuner.epochs": 2}, "tuner",
     {"name": "sgd", "epochs": 2}),
    ({"algorithm": "fedavg", "algorithm.step_size": 0.7}, "step_size", 0.7),
    ({"algorithm": ct.fedavg(step_size=0.1), "algorithm.step_size": 0.7}, "step_size", 0.7),
    ({"algorithm": "parallel_centre", "algorithm.clients": "pfedme", "algorithm.clients.step_size": 0.7}, "clients",
     ct.pfedme(step_size=0.7)),
])
def test_a_part_is_set_before_its_own_keys_in_whatever_order_they_are_typed(made, changes, option, found):
    written = check_study({**RAW, "algorithm": "ffgg"}, "s.toml")
    for order in itertools.permutations(changes.items()):
        for study in (made, written):
            assert repr(study.changed(dict(order)).algorithm_recipe().options[option]) == repr(found)


def test_options_of_a_problem_that_need_one_another_have_no_order_either(made):
    changes = {"problem": "classification", "problem.model": "mlp", "problem.model.hidden": [4],
               "problem.split": "layer1/*"}
    for order in itertools.permutations(changes.items()):
        spec = made.changed(dict(order)).problem.spec
        assert spec["split"] == "layer1/*" and spec["model"]["hidden"] == [4]


def test_every_point_of_a_sweep_is_another_study_in_whatever_order_its_keys_are_typed(made, tmp_path):
    grid = {"algorithm.tuner.step_size": [0.01, 0.5], "algorithm.tuner": ["gd", "sgd"]}
    found = ct.sweep(made, grid, seeds=1, out=tmp_path / "typed", progress=False)
    assert not found.failures
    tuners = {folder.name: json.loads((folder / "study.json").read_text())["algorithm"]["tuner"]
              for folder in (tmp_path / "typed").glob("*-0")}
    assert {f"tuner.step_size={tuner['step_size']},tuner={tuner['name']}-0" for tuner in tuners.values()} == set(tuners)
    assert len(tuners) == 4


def test_keys_of_a_part_are_tuned_together_with_the_part(made, tmp_path):
    found = ct.compare(made, algorithm=["ffgg", "fedavg"], seeds=1, out=tmp_path, progress=False, tune={
        "algorithm.tuner.epochs": [1, 2], "algorithm.tuner": ["sgd"]})
    ffgg, fedavg = (found.tuned[group.label].chosen for group in found.groups)
    assert ffgg.keys() == {"algorithm.tuner.epochs", "algorithm.tuner"} and not fedavg


def test_the_study_that_was_changed_is_as_before(made):
    tuner = {"name": "gd", "steps": 3}
    with_table = made.changed({"algorithm.tuner": tuner})
    assert with_table.changed({"algorithm.tuner.step_size": 0.5}).recipe.options["tuner"] == {**tuner, "step_size": 0.5}
    assert with_table.recipe.options["tuner"] == tuner == {"name": "gd", "steps": 3}
    written = check_study({**RAW, "algorithm": {"name": "ffgg", "tuner": tuner}}, "s.toml")
    written.changed({"algorithm.tuner.step_size": 0.5})
    assert written.algorithm()["tuner"] == tuner == {"name": "gd", "steps": 3}


def test_a_split_and_a_loss_that_are_names_have_keys_too(made):
    adapted = made.changed({"problem.split": "adapter"}).changed({"problem.split.rank": 2})
    assert adapted.problem.spec["split"] == {"name": "adapter", "rank": 2}
    table = {"name": "logistic", "central_loss": "spreadout", "group_losses": {"a": "spreadout"}}
    found = check_part("s.toml", "problem", table, {"central_loss.strength": 0.5, "group_losses.a.strength": 2.0})
    assert found["central_loss"] == {"name": "spreadout", "strength": 0.5}
    assert found["group_losses"] == {"a": {"name": "spreadout", "strength": 2.0}}


@pytest.mark.parametrize("key, sentence", [
    ("algorithm.step_size.peak", "because step_size is 1.0 and has no keys of its own; give a schedule whole"),
    ("algorithm.tuner.step_size.x", "tuner.step_size"),
    ("algorithm.tuner.stepsize", "Did you mean 'step_size'?"),
    ("algorithm.tunr.step_size", "Did you mean 'tuner'?"),
    ("algorithm.server_optimizer.x", "server_optimizer"),
])
def test_what_has_no_keys_is_refused_alike_in_files_and_in_python(made, key, sentence):
    written = check_study({**RAW, "algorithm": {"name": "ffgg", "step_size": 1.0}}, "s.toml")
    for study in (made, written):
        with pytest.raises(ct.InputError) as refused:
            study.changed({key: 0.1})
        assert sentence in str(refused.value)


@pytest.mark.parametrize("table, key, sentence", [
    ({"split": "output"}, "split.rank", "split: output has no options; leave 'rank' out."),
    ({"augment": ["flip"]}, "augment.padding", "because augment is ['flip'] and has no keys of its own; give an "
     "augmentation whole"),
])
def test_a_part_without_such_keys_says_so(table, key, sentence):
    with pytest.raises(ct.InputError, match=re.escape(sentence)):
        check_part("s.toml", "problem", {"name": "classification", "model": "mlp", **table}, {key: 2})


def test_a_sweep_tells_keys_with_the_same_last_word_apart(made, tmp_path):
    found = ct.sweep(made, {"algorithm.tuner.step_size": [0.1, 0.5], "algorithm.step_size": [1.0]}, seeds=1,
                     out=tmp_path, progress=False)
    assert {path.name for path in tmp_path.glob("*-0")} == {
        f"tuner.step_size={step},step_size=1.0-0" for step in (0.1, 0.5)}
    assert "tuner.step_size  step_size" in str(found) and not found.failures


def test_a_sweep_over_a_key_of_a_part_is_not_taken_for_one_over_the_same_key_of_the_whole(made, tmp_path):
    inner, outer = (ct.sweep(made, {key: [0.1, 0.5]}, seeds=1, out=tmp_path, progress=False)
                    for key in ("algorithm.tuner.step_size", "algorithm.step_size"))
    assert "tuner.step_size" in str(inner) and "tuner.step_size" not in str(outer)
    assert len(list(tmp_path.glob("step_size=*-0"))) == len(list(tmp_path.glob("tuner.step_size=*-0"))) == 2


@pytest.mark.parametrize("order", [1, -1])
def test_a_key_below_a_name_that_the_study_gives_to_all_stages(order):
    raw = {**RAW, "algorithm": {"name": "ffgg", "tuner": "sgd"}, "problem": {"name": "logistic", "split": "adapter"},
           "stage": [{"name": "a"}, {"name": "b", "algorithm": {"step_size": 0.3}},
                     {"name": "c", "algorithm": "independent"}]}
    changes = {"stage.a.problem.split.rank": 2, "stage.b.algorithm.tuner.epochs": 3, "algorithm.tuner.batch_size": 5,
               "algorithm.tuner": "sgd", "stage.c.algorithm.step_size": 0.7, "stage.c.algorithm": "fedavg"}
    found = check_study(raw, "s.toml").changed(dict(list(changes.items())[::order])).stages
    assert found["a"].raw["problem"]["split"] == {"name": "adapter", "rank": 2}
    assert found["a"].raw["algorithm"]["tuner"] == {"name": "sgd", "batch_size": 5}
    assert found["b"].raw["algorithm"]["tuner"] == {"name": "sgd", "batch_size": 5, "epochs": 3}
    assert found["b"].raw["algorithm"]["step_size"] == 0.3 and found["b"].raw["problem"]["split"] == "adapter"
    assert found["c"].raw["algorithm"] == {"name": "fedavg", "step_size": 0.7}
    with pytest.raises(ct.InputError, match="tuner"):
        check_study(raw, "s.toml").changed({"stage.c.algorithm.tuner.epochs": 3})


@pytest.mark.parametrize("keys, names", [
    (["rounds", "algorithm.step_size", "problem.model.hidden"], ["rounds", "step_size", "model.hidden"]),
    (["algorithm.tuner.step_size"], ["tuner.step_size"]),
    (["problem.rank", "algorithm.rank"], ["problem.rank", "algorithm.rank"]),
    (["a.x.step", "a.y.step", "a.step"], ["x.step", "y.step", "step"]),
    (["algorithm.tuner.name", "name"], ["tuner", "name"]),
])
def test_keys_are_as_short_as_they_can_be_told_apart(keys, names):
    assert list(short_keys(keys).values()) == names
