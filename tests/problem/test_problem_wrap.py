"""Wrapped models compute what they compute unwrapped."""

import sys

import equinox as eqx
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cantons.errors import InputError
from cantons.problem import from_equinox, from_flax, from_functions, from_torch, paths, to_torch
from cantons.protocol import Batch

KEY = jax.random.key(0)
INPUTS = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
LABELS = np.array([0, 2, 1, 1, 0])
BATCH = Batch(INPUTS, LABELS, np.ones(5, np.float32))


def plain_init(key):
    return {"body": jax.random.normal(key, (4, 6)), "head": [jax.random.normal(key, (6, 3)), jnp.zeros(3)]}


def plain_apply(params, inputs):
    return jnp.tanh(inputs @ params["body"]) @ params["head"][0] + params["head"][1]


class Net(nn.Module):
    norm: bool = False

    @nn.compact
    def __call__(self, inputs):
        hidden = nn.relu(nn.Dense(6)(inputs))
        return nn.Dense(3)(nn.BatchNorm(use_running_average=False)(hidden) if self.norm else hidden)


class Table(eqx.Module):
    """A module with integers beside its layer."""

    layer: eqx.nn.Linear
    order: jax.Array

    def __call__(self, example):
        return self.layer(example[self.order])


def equinox_mlp(key):
    return eqx.nn.MLP(4, 3, 6, 1, activation=lambda x: jnp.tanh(x), key=key)  # a new lambda at each build


def cross_entropy(outputs):
    return -jax.nn.log_softmax(outputs)[jnp.arange(5), LABELS]


@pytest.mark.parametrize("split", ["none", "all", "head/*", "body"])
def test_plain_functions_compute_what_they_did(split):
    problem = from_functions(plain_init, plain_apply, split=split)
    shared, private = problem.init(KEY)
    outputs = plain_apply(plain_init(KEY), INPUTS)
    np.testing.assert_array_equal(problem.predict(shared, private, INPUTS), outputs)
    np.testing.assert_allclose(problem.loss(shared, private, BATCH), cross_entropy(outputs).mean(), rtol=1e-5)
    assert set(problem.score(shared, private, BATCH)) == {"loss", "accuracy"}


@pytest.mark.parametrize("split", ["none", "layers/1/*", "*/bias"])
def test_equinox_computes_what_it_did(split):
    problem = from_equinox(equinox_mlp, split=split)
    shared, private = problem.init(KEY)
    module = equinox_mlp(KEY)
    np.testing.assert_allclose(problem.predict(shared, private, INPUTS), jax.vmap(module)(INPUTS), rtol=1e-6)
    ours = jax.jit(jax.grad(problem.loss, argnums=(0, 1)))(shared, private, BATCH)
    mean_loss = eqx.filter_grad(lambda module: cross_entropy(jax.vmap(module)(INPUTS)).mean())
    theirs = eqx.filter_jit(mean_loss)(module)
    for mine, other in zip(jax.tree.leaves(eqx.combine(*ours)), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("split", ["none", "Dense_1/*", "*/bias"])
def test_flax_computes_what_it_did(split):
    problem = from_flax(Net(), np.zeros((1, 4)), split=split)
    shared, private = problem.init(KEY)
    variables = Net().init(KEY, np.zeros((1, 4)))
    np.testing.assert_array_equal(problem.predict(shared, private, INPUTS), Net().apply(variables, INPUTS))


def test_globs_see_the_names_of_each_framework():
    def private(problem):
        return paths(jax.eval_shape(problem.init, KEY)[1])

    assert private(from_functions(plain_init, plain_apply, split="head/*")) == ["head/0", "head/1"]
    assert private(from_equinox(equinox_mlp, split="layers/1/*")) == ["layers/1/weight", "layers/1/bias"]
    assert private(from_flax(Net(), np.zeros((1, 4)), split="*1/*")) == ["Dense_1/bias", "Dense_1/kernel"]


def test_equinox_problem_runs_in_a_scan_over_clients():
    problem = from_equinox(equinox_mlp, split="layers/0/*")
    shared, private = jax.jit(problem.init)(KEY)
    clients = jax.tree.map(lambda leaf: np.stack([leaf, 2 * leaf, 3 * leaf]), private)

    def visit(shared, private):
        loss, gradient = jax.value_and_grad(problem.loss)(shared, private, BATCH)
        return jax.tree.map(lambda leaf, step: leaf - 0.1 * step, shared, gradient), loss

    after, losses = jax.jit(lambda *start: jax.lax.scan(visit, *start))(shared, clients)
    assert losses.shape == (3,)
    assert jax.tree.structure(after) == jax.tree.structure(shared)


def test_parameters_may_be_given_as_numpy():
    shared, _ = from_functions(lambda key: np.ones(4), lambda params, inputs: inputs @ params).init(KEY)
    assert isinstance(shared, jax.Array)
    assert shared.dtype == jnp.float32


def test_a_loss_can_be_any_function_of_outputs_and_targets():
    def absolute(outputs, targets):
        return jnp.abs(outputs[:, 0] - targets)

    problem = from_functions(plain_init, plain_apply, loss=absolute)
    params = problem.init(KEY)
    scores = problem.score(*params, BATCH)
    assert set(scores) == {"loss"}
    np.testing.assert_allclose(problem.loss(*params, BATCH), scores["loss"].mean(), rtol=1e-6)


def test_running_statistics_are_refused():
    def with_batch_norm(key):
        return eqx.nn.Sequential([eqx.nn.Linear(4, 3, key=key), eqx.nn.BatchNorm(3, "batch", mode="batch")])

    with pytest.raises(InputError, match=r"a layer with a state, .* use group or layer norm"):
        from_equinox(with_batch_norm)
    with pytest.raises(InputError, match=r"keeps batch_stats beside .* use group or layer norm"):
        from_flax(Net(norm=True), np.zeros((1, 4)))


def test_integer_parameters_are_refused():
    with pytest.raises(InputError, match="parameter 'table' has type int32, but only real numbers"):
        from_functions(lambda key: {"table": jnp.arange(3)}, lambda params, inputs: inputs)
    with pytest.raises(InputError, match="parameter 'order' has type int32"):
        from_equinox(lambda key: Table(eqx.nn.Linear(4, 3, key=key), jnp.arange(4)))


def test_what_is_no_model_is_refused():
    with pytest.raises(InputError, match="from_equinox got a module; give a function that makes one"):
        from_equinox(equinox_mlp(KEY))
    with pytest.raises(InputError, match=r"from_flax got a MLP; give a flax.linen module"):
        from_flax(equinox_mlp(KEY), np.zeros((1, 4)))
    with pytest.raises(InputError, match=r"unknown loss 'softmx'. Did you mean 'softmax'"):
        from_functions(plain_init, plain_apply, loss="softmx")
    with pytest.raises(InputError, match=r"split is 'output', but this model .* such as 'body'"):
        from_functions(plain_init, plain_apply, split="output")


def test_without_flax_the_error_gives_the_pip_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "flax.linen", None)
    with pytest.raises(InputError, match=r"pip install 'cantons\[flax\]'"):
        from_flax(Net(), np.zeros((1, 4)))


@pytest.mark.parametrize("use", [lambda: from_torch(None, INPUTS), lambda: to_torch(None, None)])
def test_without_pytorch_the_error_gives_the_pip_command(monkeypatch, use):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(InputError, match=r"pip install 'cantons\[torch\]'"):
        use()
