"""What study.json says of parts that were given by their names, or by some of their options: everything."""

import inspect
import json

import numpy as np
import pytest

import cantons as ct
from cantons.problem import Shapes
from cantons.protocol import Recipe
from cantons.ranges import check, named_in, whole
from cantons.reporting.collect import collect, differences
from cantons.reporting.studies import studies
from cantons.study.fingerprint import fingerprint
from cantons.study.plain import plain
from cantons.study.registry import REGISTRY
from cantons.study.resolve import resolve
from cantons.study.whole_parts import whole_problem, whole_recipe

# Every part that an option may name, with the type of the option.
NAMED = {f"{kind} {name}.{option.name}={which}": (option.annotation, which)
         for kind in ("algorithm", "clock") for name, function in REGISTRY[kind].items()
         for option in inspect.signature(function).parameters.values()
         if (named := named_in(option.annotation)) is not None
         for which, build in named.known.items()
         if all(each.default is not each.empty for each in inspect.signature(build).parameters.values())}


@pytest.fixture(scope="module")
def data():
    return ct.digits(clients=6)


def written(data, algorithm, **options):
    problem = ct.logistic(data, **options)
    return resolve(problem, data, algorithm, rounds=2, engine=ct.Local()).study


@pytest.mark.parametrize("case", NAMED)
def test_what_is_written_of_a_name_has_every_option_and_can_be_read_back(case):
    hint, name = NAMED[case]
    table = whole(hint, name)
    build = named_in(hint).known[name]
    assert table.keys() == {"name", *inspect.signature(build).parameters}
    read = json.loads(json.dumps(plain(table), allow_nan=False))
    check("option", hint, read)
    assert whole(hint, read) == plain(table) == read


@pytest.mark.parametrize("same", [
    ["gd", {"name": "gd"}, {"name": "gd", "steps": 10}, {"step_size": 0.1, "name": "gd"}],
    ["sgd", {"name": "sgd", "clip_norm": None}, {"batch_size": 32, "name": "sgd"}],
])
def test_equal_studies_have_equal_fingerprints_however_their_parts_are_given(data, same):
    found = [fingerprint(written(data, ct.ffgg(tuner=tuner), split="*bias"), {}) for tuner in same]
    assert all(each == found[0] for each in found)
    assert found[0] != fingerprint(written(data, ct.ffgg(tuner="newton_cg"), split="*bias"), {})


def test_splits_and_parts_in_parts_are_whole_too(data):
    study = written(data, ct.ffgg(), split="adapter")
    assert study["problem"]["split"] == {"name": "adapter", "rank": 4, "scale": 1.0}
    assert written(data, ct.ffgg(), split="*bias")["problem"]["split"] == "*bias"
    clients = whole_recipe(ct.parallel_centre(clients=ct.pfedme(tuner={"name": "gd", "steps": 3})))["clients"]
    assert clients["tuner"] == {"name": "gd", "steps": 3, "step_size": 0.1}
    nobodys = Recipe("mine", {"tuner": "gd"}, lambda: None)  # of which nobody knows what its options may be
    assert whole_recipe(nobodys) == {"name": "mine", "tuner": "gd"}


def test_each_of_several_augmentations_is_whole():
    problem = ct.classification(Shapes((12, 12), 3), ct.cnn(), augment=["flip", {"name": "crop"}])
    assert whole_problem(problem.spec)["augment"] == [{"name": "flip"}, {"name": "crop", "padding": 4}]


def test_losses_of_a_datacenter_and_of_groups_are_whole_however_they_are_given():
    spread = {"name": "spreadout", "strength": 1.0}
    rows = ct.with_central_loss(ct.dual_encoder(Shapes((5,), 8), width=4), "spreadout")
    assert whole_problem(rows.spec)["central_loss"] == spread
    several = [{"web": "same", "apart": "spreadout"}, {"web": {"name": "same"}, "apart": {"name": "spreadout"}}]
    for losses in several:
        rows = ct.with_central_loss(ct.dual_encoder(Shapes((5,), 8), width=4), losses)
        assert whole_problem(rows.spec)["central_loss"] == {"web": {"name": "same"}, "apart": spread}
    data = ct.at_random(ct.digits(clients=6), names=("few", "many"))
    for loss, weight in (("same", 1), ({"name": "same"}, 1.0)):
        problem = ct.with_group_losses(ct.logistic(data), data, {"few": loss}, {"few": weight, "many": 2})
        found = whole_problem(problem.spec)
        assert found["group_losses"] == {"few": {"name": "same"}, "many": {"name": "same"}}
        assert json.dumps(found["group_weights"]) == '{"few": 1.0, "many": 2.0}'


def test_a_run_with_parts_in_names_is_resumed_and_read_back_and_its_parts_have_one_row_each(data, tmp_path):
    problem = ct.logistic(data, split="adapter")
    for tuner in ("gd", "sgd"):
        out = tmp_path / tuner
        ct.run(problem, data, ct.ffgg(tuner=tuner), rounds=1, out=out, progress=False)
        ct.run(problem, data, ct.ffgg(tuner={"name": tuner}), rounds=2, out=out, resume=True, progress=False)
        assert ct.load(out).client(data.clients.names[0]).predict(np.zeros((3, 8, 8))).shape == (3,)
    groups = collect([tmp_path / "gd", tmp_path / "sgd"])
    assert [group.label for group in groups] == ["ffgg, gd", "ffgg, sgd"]
    apart = differences([group.study for group in groups])
    assert apart["algorithm.tuner.name"] == ["gd", "sgd"] and apart["algorithm.tuner.epochs"] == [None, 1]
    assert "algorithm.tuner" not in apart
    shown, folded = studies(groups).split("<details", 1)
    assert all(f"algorithm.tuner.{option}" in shown and f"algorithm.tuner.{option}" not in folded
               for option in ("name", "steps", "epochs", "batch_size"))
