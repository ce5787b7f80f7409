"""A recipe: options chosen now, the rest when problem and population are known."""

import inspect

import pytest
import toy_algorithm as toy

import cantons as ct
from cantons.algorithm import ALGORITHMS
from cantons.errors import InputError


def test_a_recipe_writes_down_every_option_with_its_default():
    recipe = ct.fedprox(mu=0.5, steps=3)
    assert recipe.name == "fedprox"
    assert recipe.options == {"mu": 0.5, "step_size": 0.1, "epochs": 1, "steps": 3, "batch_size": 32,
                              "client_optimizer": "sgd", "clip_norm": None, "server_step_size": 1.0,
                              "weighting": "examples", "fit_epochs": 5, "predict_with": "shared"}


def test_a_recipe_from_elsewhere_says_where():
    assert toy.sign_vote().name == "toy_algorithm:sign_vote"


@pytest.mark.parametrize("name", sorted(ALGORITHMS))
def test_its_signature_is_its_options_and_each_has_a_default(name):
    parameters = inspect.signature(ALGORITHMS[name]).parameters.values()
    assert not {"problem", "population"} & {parameter.name for parameter in parameters}
    assert all(parameter.kind is parameter.KEYWORD_ONLY for parameter in parameters)
    assert all(parameter.default is not parameter.empty for parameter in parameters)


@pytest.mark.parametrize("choose, options, part", [
    (ct.fedavg, {"stepsize": 0.1}, "unknown option of fedavg 'stepsize'. Did you mean 'step_size'"),
    (ct.fedavg, {"problem": None}, "unknown option of fedavg 'problem'"),
    (ct.rounds, {"population": 3}, "unknown option of rounds 'population'"),
    (toy.some_count, {}, "some_count needs the option counted"),
])
def test_an_option_too_many_or_too_few_is_named_at_once(choose, options, part):
    with pytest.raises(InputError, match=part):
        choose(**options)
