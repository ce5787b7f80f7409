"""Classification and regression, from what they compute to what they refuse."""

import json
import os
import subprocess
import sys
from pathlib import Path

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
IMAGES = np.random.default_rng(0).normal(size=(5, 8, 8)).astype(np.float32)
LABELS = np.array([0, 2, 1, 1, 0])
SIGNS = np.array([1.0, -1.0, 1.0, 1.0, -1.0], np.float32)
MASK = np.array([1.0, 1.0, 0.0, 1.0, 0.0], np.float32)
CLASSES = Shapes((8, 8), 3)
NUMBERS = Shapes((8, 8))
PROBLEMS = {
    "mlp": (classification(CLASSES, mlp(hidden=[6]), split="output", l2=0.1), LABELS),
    "cnn": (classification(CLASSES, cnn(channels=[2], dense=4), split="input"), LABELS),
    "logistic": (logistic(CLASSES, l2=0.3), LABELS),
    "regression": (regression(NUMBERS, mlp(hidden=[6]), split="all"), SIGNS),
    "linear": (linear(NUMBERS, labels="sign", split="*/bias"), SIGNS),
}


def drawn(problem):
    """Random parameters: linear models start at zero, where much is true by chance."""
    random = np.random.default_rng(1)
    return jax.tree.map(lambda leaf: random.normal(size=leaf.shape).astype(np.float32) / 4,
                        jax.eval_shape(problem.init, KEY))


@pytest.mark.parametrize("name", PROBLEMS)
def test_masked_rows_change_neither_loss_nor_gradient(name):
    problem, targets = PROBLEMS[name]
    params = drawn(problem)
    gradient = jax.jit(jax.value_and_grad(problem.loss, argnums=(0, 1)))
    kept = MASK == 1
    other_rows = np.where(kept[:, None, None], IMAGES, np.float32(100))
    padded = gradient(*params, Batch(IMAGES, targets, MASK))
    scrambled = gradient(*params, Batch(other_rows, targets, MASK))
    alone = gradient(*params, Batch(IMAGES[kept], targets[kept], np.ones(3, np.float32)))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), padded, scrambled)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), padded, alone)


@pytest.mark.parametrize("name", PROBLEMS)
def test_spec_survives_json_and_gives_the_same_problem(name):
    problem, targets = PROBLEMS[name]
    again = problem_from_spec(json.loads(json.dumps(problem.spec)))
    assert again.spec == problem.spec
    params, batch = drawn(problem), Batch(IMAGES, targets, MASK)
    assert jax.eval_shape(again.init, KEY) == jax.eval_shape(problem.init, KEY)
    before, after = (jax.jit(one.loss)(*params, batch) for one in (problem, again))
    np.testing.assert_array_equal(before, after)


@pytest.mark.parametrize("name", PROBLEMS)
def test_loss_is_the_mean_score_plus_the_penalty(name):
    problem, targets = PROBLEMS[name]
    params = drawn(problem)
    batch = Batch(IMAGES, targets, MASK)
    mean = np.mean(jax.jit(problem.score)(*params, batch)["loss"][MASK == 1])
    penalty = problem.spec["l2"] / 2 * sum(np.sum(leaf**2) for leaf in jax.tree.leaves(params))
    np.testing.assert_allclose(jax.jit(problem.loss)(*params, batch), mean + penalty, rtol=1e-5)


def test_classification_scores_loss_and_accuracy_of_each_example():
    problem, _ = PROBLEMS["mlp"]
    params = drawn(problem)
    outputs = np.asarray(problem.predict(*params, IMAGES))
    assert outputs.shape == (5, 3)
    labels = outputs.argmax(1)
    labels[0] = (labels[0] + 1) % 3
    scores = problem.score(*params, Batch(IMAGES, labels, MASK))
    np.testing.assert_array_equal(scores["accuracy"], [0, 1, 1, 1, 1])
    assert set(scores) == {"loss", "accuracy"}


def test_logistic_starts_undecided():
    problem, labels = PROBLEMS["logistic"]
    start = problem.loss(*problem.init(KEY), Batch(IMAGES, labels, MASK))
    np.testing.assert_allclose(start, np.log(3), rtol=1e-6)


def test_regression_predicts_one_number_per_example():
    problem, _ = PROBLEMS["regression"]
    params = drawn(problem)
    outputs = problem.predict(*params, IMAGES)
    assert outputs.shape == (5,)
    scores = problem.score(*params, Batch(IMAGES, SIGNS, MASK))
    assert set(scores) == {"loss"}
    np.testing.assert_allclose(scores["loss"], (outputs - SIGNS) ** 2, rtol=1e-5)


def test_sign_labels_score_accuracy_and_keep_the_squared_loss():
    problem, _ = PROBLEMS["linear"]
    params = drawn(problem)
    outputs = problem.predict(*params, IMAGES)
    scores = problem.score(*params, Batch(IMAGES, SIGNS, MASK))
    np.testing.assert_array_equal(scores["accuracy"], jnp.sign(outputs) == SIGNS)
    np.testing.assert_allclose(scores["loss"], (outputs - SIGNS) ** 2, rtol=1e-5)


def test_everything_is_float64_when_jax_is():
    with jax.enable_x64(True):
        problem = classification(CLASSES, cnn(channels=[2], dense=4), l2=0.1)
        params = jax.eval_shape(problem.init, jax.random.key(0))
        batch = Batch(np.zeros((2, 8, 8)), np.array([0, 1]), np.ones(2))
        results = jax.eval_shape(jax.value_and_grad(problem.loss), *params, batch)
        assert {leaf.dtype for leaf in jax.tree.leaves((params, results))} == {jnp.dtype("float64")}


def test_an_architecture_without_a_name_gives_no_spec():
    nameless = classification(CLASSES, lambda shape, outputs: mlp(hidden=[6])(shape, outputs), split="output")
    assert nameless.spec is None
    named, _ = PROBLEMS["mlp"]
    params = drawn(named)
    np.testing.assert_array_equal(nameless.predict(*params, IMAGES), named.predict(*params, IMAGES))


def test_building_a_problem_wakes_no_device():
    program = """
import equinox, jax
from cantons.models import cnn
from cantons.problem import Shapes, classification, from_equinox
classification(Shapes((8, 8), 3), cnn(), split="input", augment=["crop", "flip"])
from_equinox(lambda key: equinox.nn.MLP(4, 3, 6, 1, key=key), split="layers/0/*")
try:
    jax.devices()
except RuntimeError:
    print("still asleep")
"""
    # There is no such platform: whoever asks for a device raises.
    root = Path(__file__).parents[2]
    environment = {**os.environ, "JAX_PLATFORMS": "none", "PYTHONPATH": str(root)}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment)
    assert (done.stdout, done.stderr) == ("still asleep\n", "")


def test_refusals_say_what_to_change():
    with pytest.raises(InputError, match="classes=None; give data with integer labels, or use regression"):
        classification(NUMBERS, mlp())
    with pytest.raises(InputError, match="data with 1 classes; give data with 2 or more"):
        classification(Shapes((3,), 1), mlp())
    with pytest.raises(InputError, match="labels is 'signs'; give one of 'real', 'sign'"):
        regression(NUMBERS, linear_model(), labels="signs")
    with pytest.raises(InputError, match=r"l2 is -1.0; give 0 or more"):
        logistic(CLASSES, l2=-1.0)
    with pytest.raises(InputError, match=r"unknown problem 'clasification'. Did you mean 'classification'"):
        problem_from_spec({"name": "clasification"})
