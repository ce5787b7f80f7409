"""Classification and regression, from what they compute to what they refuse."""

import json
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cantons.errors import InputError
from cantons.models import cnn, mlp
from cantons.models import linear as linear_model
from cantons.problem import Shapes, classification, linear, logistic, problem_from_spec, regression
from cantons.protocol import Batch

KEY = jax.random.key(0)
IMAGES = jax.random.normal(jax.random.key(1), (5, 8, 8))
LABELS = jnp.array([0, 2, 1, 1, 0])
SIGNS = jnp.array([1.0, -1.0, 1.0, 1.0, -1.0])
MASK = jnp.array([1.0, 1.0, 0.0, 1.0, 0.0])
CLASSES = Shapes((8, 8), 3)
NUMBERS = Shapes((8, 8))
PROBLEMS = {
    "mlp": (classification(CLASSES, mlp(hidden=[6]), split="output", l2=0.1), LABELS),
    "cnn": (classification(CLASSES, cnn(channels=[2], dense=4), split="input"), LABELS),
    "logistic": (logistic(CLASSES, l2=0.3), LABELS),
    "regression": (regression(NUMBERS, mlp(hidden=[6]), split="all"), SIGNS),
    "linear": (linear(NUMBERS, labels="sign", split="*/bias"), SIGNS),
}


def moved(problem):
    """Parameters away from the start, where linear models are all zero."""
    leaves, structure = jax.tree.flatten(problem.init(KEY))
    keys = jax.random.split(KEY, len(leaves))
    return structure.unflatten([leaf + 0.1 * jax.random.normal(k, leaf.shape)
                                for k, leaf in zip(keys, leaves, strict=True)])


@pytest.mark.parametrize("name", PROBLEMS)
def test_masked_rows_change_neither_loss_nor_gradient(name):
    problem, targets = PROBLEMS[name]
    params = moved(problem)
    gradient = jax.jit(jax.value_and_grad(problem.loss, argnums=(0, 1)))
    kept = MASK == 1
    other_rows = jnp.where(kept[:, None, None], IMAGES, 100.0)
    padded = gradient(*params, Batch(IMAGES, targets, MASK))
    scrambled = gradient(*params, Batch(other_rows, targets, MASK))
    alone = gradient(*params, Batch(IMAGES[kept], targets[kept], jnp.ones(3)))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), padded, scrambled)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), padded, alone)


@pytest.mark.parametrize("name", PROBLEMS)
def test_spec_survives_json_and_gives_the_same_problem(name):
    problem, targets = PROBLEMS[name]
    again = problem_from_spec(json.loads(json.dumps(problem.spec)))
    assert again.spec == problem.spec
    params, batch = moved(problem), Batch(IMAGES, targets, MASK)
    jax.tree.map(np.testing.assert_array_equal, again.init(KEY), problem.init(KEY))
    for before, after in ((problem.loss, again.loss), (problem.score, again.score)):
        jax.tree.map(np.testing.assert_array_equal, before(*params, batch), after(*params, batch))


@pytest.mark.parametrize("name", PROBLEMS)
def test_loss_is_the_mean_score_plus_the_penalty(name):
    problem, targets = PROBLEMS[name]
    params = moved(problem)
    batch = Batch(IMAGES, targets, MASK)
    mean = (problem.score(*params, batch)["loss"] * MASK).sum() / 3
    penalty = sum((leaf**2).sum() for leaf in jax.tree.leaves(params)) * problem.spec["l2"] / 2
    np.testing.assert_allclose(problem.loss(*params, batch), mean + penalty, rtol=1e-5)


def test_classification_scores_loss_and_accuracy_of_each_example():
    problem, _ = PROBLEMS["mlp"]
    params = problem.init(KEY)
    outputs = problem.predict(*params, IMAGES)
    assert outputs.shape == (5, 3)
    best = outputs.argmax(1)
    scores = problem.score(*params, Batch(IMAGES, best.at[0].add(1) % 3, MASK))
    np.testing.assert_array_equal(scores["accuracy"], [0, 1, 1, 1, 1])
    assert set(scores) == {"loss", "accuracy"}


def test_logistic_starts_undecided():
    problem, labels = PROBLEMS["logistic"]
    np.testing.assert_allclose(problem.loss(*problem.init(KEY), Batch(IMAGES, labels, MASK)), np.log(3), rtol=1e-6)


def test_regression_predicts_one_number_per_example():
    problem, _ = PROBLEMS["regression"]
    params = problem.init(KEY)
    outputs = problem.predict(*params, IMAGES)
    assert outputs.shape == (5,)
    scores = problem.score(*params, Batch(IMAGES, SIGNS, MASK))
    assert set(scores) == {"loss"}
    np.testing.assert_allclose(scores["loss"], (outputs - SIGNS) ** 2, rtol=1e-5)


def test_sign_labels_score_accuracy_and_keep_the_squared_loss():
    problem, _ = PROBLEMS["linear"]
    params = moved(problem)
    outputs = problem.predict(*params, IMAGES)
    scores = problem.score(*params, Batch(IMAGES, SIGNS, MASK))
    np.testing.assert_array_equal(scores["accuracy"], jnp.sign(outputs) == SIGNS)
    np.testing.assert_allclose(scores["loss"], (outputs - SIGNS) ** 2, rtol=1e-5)


def test_everything_is_float64_when_jax_is():
    with jax.enable_x64(True):
        problem = classification(CLASSES, cnn(channels=[2], dense=4), l2=0.1)
        params = problem.init(jax.random.key(0))
        batch = Batch(np.zeros((2, 8, 8)), np.array([0, 1]), jnp.ones(2))
        value, gradient = jax.jit(jax.value_and_grad(problem.loss))(*params, batch)
        assert {leaf.dtype for leaf in jax.tree.leaves((params, value, gradient))} == {jnp.dtype("float64")}


def test_an_architecture_without_a_name_gives_no_spec():
    problem = classification(CLASSES, lambda shape, outputs: mlp(hidden=[6])(shape, outputs), split="output")
    assert problem.spec is None
    np.testing.assert_array_equal(problem.predict(*problem.init(KEY), IMAGES),
                                  PROBLEMS["mlp"][0].predict(*PROBLEMS["mlp"][0].init(KEY), IMAGES))


def test_building_a_problem_wakes_no_device():
    program = "from cantons.problem import *; classification(Shapes((8, 8), 3), __import__('cantons.models')" \
              ".models.cnn(), split='input')"
    # No such platform: whoever asks for a device raises.
    subprocess.run([sys.executable, "-c", program], check=True, env={"JAX_PLATFORMS": "none", "PYTHONPATH": "."})


def test_refusals_say_what_to_change():
    with pytest.raises(InputError, match="classes=None; give data with integer labels, or use regression"):
        classification(NUMBERS, mlp())
    with pytest.raises(InputError, match="data with 1 classes; give data with 2 or more"):
        classification(Shapes((3,), 1), mlp())
    with pytest.raises(InputError, match="labels is 'signs'; give one of 'real', 'sign'"):
        regression(NUMBERS, linear_model(), labels="signs")
    with pytest.raises(InputError, match=r"l2 is -1.0; give 0 or more"):
        logistic(CLASSES, l2=-1.0)
    with pytest.raises(InputError, match="unknown problem 'clasification'. Did you mean 'classification'"):
        problem_from_spec({"name": "clasification"})
