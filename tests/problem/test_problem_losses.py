"""Losses against their formulas."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import cantons as ct
from cantons.errors import InputError
from cantons.problem import problem_from_spec
from cantons.problem.losses import LOSSES, likeliest, logistic, masked_mean, same_sign, softmax, squared

OUTPUTS = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
LABELS = np.array([0, 2, 1, 1, 0])


def test_softmax_is_minus_the_log_probability_of_the_label():
    exponentials = np.exp(np.asarray(OUTPUTS, np.float64))
    chosen = exponentials[np.arange(5), LABELS] / exponentials.sum(1)
    np.testing.assert_allclose(softmax(OUTPUTS, LABELS), -np.log(chosen), rtol=1e-5)


def test_softmax_gradient_is_probability_minus_label_and_sums_to_zero():
    gradient = jax.jit(jax.grad(lambda outputs: softmax(outputs, LABELS).sum()))(OUTPUTS)
    np.testing.assert_allclose(gradient, jax.nn.softmax(OUTPUTS) - np.eye(3)[LABELS], atol=1e-6)
    np.testing.assert_allclose(gradient.sum(1), 0.0, atol=1e-6)


def test_softmax_of_huge_outputs_stays_finite():
    outputs = jnp.array([[1e4, -1e4]])
    np.testing.assert_allclose(softmax(outputs, jnp.array([1])), [2e4])


def test_an_example_with_several_labels_has_the_mean_of_their_losses():
    outputs = np.random.default_rng(1).normal(size=(2, 4, 3)).astype(np.float32)
    labels = np.array([[0, 2, 1, 1], [2, 2, 0, 1]])
    one_by_one = softmax(outputs.reshape(8, 3), labels.reshape(8)).reshape(2, 4)
    np.testing.assert_allclose(softmax(outputs, labels), one_by_one.mean(1), rtol=1e-6)
    right = outputs.argmax(-1) == labels
    np.testing.assert_allclose(likeliest(jnp.array(outputs), labels), right.mean(1))


def test_squared_has_no_factor_one_half_and_adds_the_outputs():
    np.testing.assert_allclose(squared(jnp.array([[3.0, 1.0]]), jnp.array([[1.0, 4.0]])), [4.0 + 9.0])
    np.testing.assert_allclose(squared(jnp.array([[3.0], [5.0]]), jnp.array([1.0, 5.0])), [4.0, 0.0])


def test_logistic_is_softmax_with_two_classes():
    outputs, signs = OUTPUTS[:, 0], np.array([-1.0, 1.0, -1.0, 1.0, 1.0], np.float32)
    pairs = np.stack([np.zeros(5, np.float32), outputs], axis=1)
    np.testing.assert_allclose(logistic(outputs, signs), softmax(pairs, (signs > 0).astype(int)), rtol=1e-5)
    np.testing.assert_allclose(logistic(jnp.array([-1e4]), jnp.array([1.0])), [1e4])


def test_correct_is_the_largest_output_or_the_same_sign():
    ones = np.array([1, 1])
    np.testing.assert_array_equal(likeliest(jnp.array([[1.0, 2.0], [3.0, 0.0]]), ones), [True, False])
    np.testing.assert_array_equal(same_sign(jnp.array([[0.2], [-2.0]]), ones), [True, False])


def test_masked_mean_divides_by_the_rows_that_count():
    values, mask = jnp.array([1.0, 5.0, 3.0]), jnp.array([1.0, 0.0, 1.0])
    assert masked_mean(values, mask) == 2.0
    assert masked_mean(values, jnp.zeros(3)) == 0.0


@pytest.mark.parametrize("name", LOSSES)
def test_losses_are_float64_when_jax_is(name):
    with jax.enable_x64(True):
        targets = np.array([1, 1]) if "softmax" in name else np.array([1.0, -1.0])
        outputs = np.ones((2, 3) if "softmax" in name else 2)
        assert jax.eval_shape(LOSSES[name].per_example, outputs, targets).dtype == jnp.float64


def test_targets_that_do_not_fit_are_refused():
    with pytest.raises(InputError, match="targets of type float32; give integer labels"):
        softmax(OUTPUTS, jnp.ones(5))
    with pytest.raises(InputError, match=r"outputs have shape \(5, 3\) and the labels \(5, 2\)"):
        softmax(OUTPUTS, jnp.ones((5, 2), int))
    with pytest.raises(InputError, match=r"outputs have shape \(5, 3\) and the targets \(5,\)"):
        squared(OUTPUTS, jnp.ones(5))
    with pytest.raises(InputError, match=r"outputs have shape \(5,\) and the targets \(5, 1\)"):
        logistic(jnp.ones(5), jnp.ones((5, 1)))


def test_a_loss_that_is_already_a_mean_is_refused():
    with pytest.raises(InputError, match=r"values of shape \(\) for 4 examples"):
        masked_mean(jnp.float32(1.0), jnp.ones(4))


def test_targets_of_several_arrays_need_a_problem_made_for_them():
    data = ct.synthetic_bandit(clients=2, contexts=4, test_contexts=2)
    for make in (lambda: ct.regression(data, ct.linear()), lambda: ct.residual(data)):
        with pytest.raises(ct.InputError, match="the targets are several arrays .*such as bandit"):
            make()


def test_labels_of_minus_one_are_neither_trained_on_nor_scored():
    random = np.random.default_rng(0)
    tokens = random.integers(0, 5, (6, 4)).astype(np.int32)
    labels = np.where(random.random((6, 4)) < 0.4, -1, tokens)
    labels[:, 0] = tokens[:, 0]  # one at least in each row
    data = ct.federation(tokens, labels, np.arange(6) % 2, classes=5, test=0)
    assert data.unlabelled and not ct.federation(tokens, tokens, np.arange(6) % 2, classes=5).unlabelled
    problem = ct.classification(data, ct.gru(5, width=3, units=4))
    outputs = random.normal(size=(6, 4, 5)).astype(np.float32)
    told = labels >= 0
    each = np.where(told, np.asarray(softmax(outputs.reshape(24, 5), tokens.reshape(24))).reshape(6, 4), 0)
    loss = LOSSES["masked_softmax"]
    np.testing.assert_allclose(loss.per_example(outputs, labels), each.sum(1) / told.sum(1), rtol=1e-5)
    np.testing.assert_allclose(loss.correct(outputs, labels),
                               ((outputs.argmax(-1) == tokens) & told).sum(1) / told.sum(1), rtol=1e-6)
    gradient = jax.grad(lambda outputs: loss.per_example(outputs, labels).sum())(outputs)
    np.testing.assert_array_equal(np.abs(gradient).sum(-1) > 0, told)

    assert problem.spec["unlabelled"] and not problem.every_label and not problem_from_spec(problem.spec).every_label
    other = ct.from_functions(lambda key: jnp.zeros((5, 5)), lambda table, tokens: table[tokens])
    with pytest.raises(InputError, match="some targets are -1, for no label, and the loss of this problem would take"):
        ct.run(other, data, ct.fedavg(), rounds=1)
    with pytest.raises(InputError, match="targets hold label -1"):
        ct.federation(tokens, labels.min(1), np.arange(6) % 2, classes=5)
    with pytest.raises(InputError, match="targets hold label -2"):
        ct.federation(tokens, labels - 1, np.arange(6) % 2, classes=5)
