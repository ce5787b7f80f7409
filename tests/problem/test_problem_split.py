"""A split deals every parameter to exactly one side."""

import re

import equinox as eqx
import jax
import numpy as np
import pytest

from cantons.errors import InputError
from cantons.models import Model, mlp
from cantons.problem import Shapes, classification, paths
from cantons.problem.split import is_shared

KEY = jax.random.key(0)
MODEL = mlp(hidden=[4, 5])((3,), 2)
PARAMS = MODEL.init(KEY)
RULES = ["none", "all", "input", "output", "layer1/*", "*/bias", "layer0/weight", "layer[01]/*"]


def private_paths(rule, model=MODEL, params=PARAMS):
    _, private = eqx.partition(params, is_shared(params, rule, model))
    return paths(private)


def test_paths_follow_the_leaves():
    tree = {"b": [1.0, {"c": 2.0}], "a": 3.0}
    assert dict(zip(paths(tree), jax.tree.leaves(tree), strict=True)) == {"a": 3.0, "b/0": 1.0, "b/1/c": 2.0}


def test_rules_name_what_they_say():
    assert private_paths("none") == []
    assert private_paths("all") == paths(PARAMS)
    assert private_paths("input") == ["layer0/bias", "layer0/weight"]
    assert private_paths("output") == ["layer2/bias", "layer2/weight"]
    assert private_paths("*/bias") == ["layer0/bias", "layer1/bias", "layer2/bias"]
    assert private_paths("layer1/weight") == ["layer1/weight"]


@pytest.mark.parametrize("rule", RULES)
def test_the_two_parts_are_disjoint_complete_and_combine_back(rule):
    shared, private = eqx.partition(PARAMS, is_shared(PARAMS, rule, MODEL))
    assert sorted(paths(shared) + paths(private)) == sorted(paths(PARAMS))
    jax.tree.map(np.testing.assert_array_equal, eqx.combine(shared, private), PARAMS)


@pytest.mark.parametrize("rule", RULES)
def test_prediction_does_not_depend_on_the_split(rule):
    problem = classification(Shapes((3,), 2), mlp(hidden=[4, 5]), split=rule)
    inputs = np.random.default_rng(0).normal(size=(6, 3))
    outputs = problem.predict(*problem.init(KEY), inputs)
    np.testing.assert_array_equal(outputs, MODEL.apply(PARAMS, inputs))


def test_one_bare_array_can_be_all_private():
    assert private_paths("all", Model(lambda key: 1.0, lambda params, inputs: inputs), 1.0) == [""]


def test_a_rule_that_matches_nothing_is_refused_with_the_paths_there_are():
    with pytest.raises(InputError, match=r"split is 'head', which matches no parameter; there are layer0/[^?]*$"):
        is_shared(PARAMS, "head", MODEL)


def test_a_misspelt_split_is_answered_with_the_nearest_one_and_with_all_of_them():
    with pytest.raises(InputError, match=r"the splits called adapter, all, .*output\. Did you mean 'output'\?"):
        is_shared(PARAMS, "ouput", MODEL)


@pytest.mark.parametrize(("params", "below"), [
    (PARAMS, "layer0/*"), ({"layer0.weight": 1.0, "layer01": 1.0}, "layer0.*")])
def test_the_name_of_a_layer_is_answered_with_its_pattern(params, below):
    with pytest.raises(InputError, match=re.escape(f"Did you mean '{below}'?")):
        is_shared(params, "layer0", MODEL)
    is_shared(params, below, MODEL)


def test_a_layer_that_the_model_does_not_name_is_refused():
    nameless = MODEL._replace(input_layer=None)
    with pytest.raises(InputError, match=r"split is 'input', but this model .* such as 'layer0/bias'"):
        is_shared(PARAMS, "input", nameless)
    assert is_shared(PARAMS, "output", nameless)["layer2"] == {"weight": False, "bias": False}
