"""The lookup against the product with ones and zeros that it stands for."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from click.testing import CliRunner

import cantons as ct
from cantons.cli.main import cantons
from cantons.errors import InputError
from cantons.models import architecture, embedding

RANDOM = np.random.default_rng(0)
TOKENS = RANDOM.integers(0, 7, (5, 3)).astype(np.int32)
ONES = np.eye(7, dtype=np.float32)[TOKENS]  # [example, place, token]


def drawn(model):
    return jax.tree.map(lambda leaf: RANDOM.normal(size=leaf.shape).astype(np.float32),
                        jax.eval_shape(model.init, jax.random.key(0)))


def dense(params, ones):
    """The same network of ones and zeros, in products alone."""
    values = (ones @ params["table"] if "table" in params else ones).reshape(len(ones), -1)
    layers = sorted(name for name in params if name != "table")
    for name in layers:
        values = values @ params[name]["weight"] + params[name]["bias"]
        values = values if name == layers[-1] else jax.nn.relu(values)
    return values


@pytest.mark.parametrize(("width", "hidden"), [(4, (6, 5)), (4, ()), (None, (6,)), (None, ())])
def test_outputs_and_gradients_are_those_of_ones_and_zeros(width, hidden):
    model = embedding(7, width=width, hidden=hidden)((3,), 2)
    params = drawn(model)
    ours, theirs = (jax.value_and_grad(lambda params, apply=apply, inputs=inputs: jnp.sin(
        apply(params, inputs)).sum())(params) for apply, inputs in ((model.apply, TOKENS), (dense, ONES)))
    jax.tree.map(lambda one, other: np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4), ours, theirs)
    assert model.apply(params, TOKENS).shape == (5, 2)


def test_gradient_of_every_client_is_its_own_when_vectorised():
    model = embedding(7, width=4, hidden=(6,))((3,), 2)
    clients = jax.tree.map(lambda *leaves: np.stack(leaves), drawn(model), drawn(model))
    tokens = np.stack([TOKENS, TOKENS[::-1]])
    gradient = jax.grad(lambda params, tokens: jnp.sin(model.apply(params, tokens)).sum())
    together = jax.jit(jax.vmap(gradient))(clients, tokens)
    for client in range(2):
        alone = gradient(jax.tree.map(lambda leaf, client=client: leaf[client], clients), tokens[client])
        jax.tree.map(lambda one, other, client=client: np.testing.assert_allclose(one[client], other, atol=1e-4),
                     together, alone)


def test_single_token_is_a_row_of_one():
    model = embedding(7, width=4)((), 2)
    params = drawn(model)
    np.testing.assert_array_equal(model.apply(params, TOKENS[:, 0]), embedding(7, width=4)((1,), 2).apply(
        params, TOKENS[:, :1]))


def test_table_alone_starts_at_zero():
    params = embedding(7, width=None, hidden=())((1,), 2).init(jax.random.key(0))
    assert params["layer0"]["weight"].shape == (7, 2)
    assert not any(leaf.any() for leaf in jax.tree.leaves(params))


def test_unknown_token_gives_no_number_rather_than_a_wrong_one():
    model = embedding(7, width=4)((3,), 2)
    outputs = model.apply(model.init(jax.random.key(0)), np.array([[0, 1, 2], [0, 1, 7]]))
    assert np.isfinite(outputs[0]).all()
    assert np.isnan(outputs[1]).all()


def test_inputs_that_are_no_tokens_are_refused():
    model = embedding(7)((3,), 2)
    with pytest.raises(InputError, match="type float32; tokens are numbered"):
        model.apply(model.init(jax.random.key(0)), np.zeros((5, 3), np.float32))
    with pytest.raises(InputError, match="a row of them"):
        embedding(7)((3, 4), 2)
    with pytest.raises(InputError, match="vocabulary is 0"):
        embedding(0)


def test_embedding_is_made_again_by_its_name():
    first = embedding(7, width=None, hidden=[6])
    again = architecture(first.name, **first.options)
    assert again.options == {"vocabulary": 7, "width": None, "hidden": [6]}


def test_shared_text_model_and_private_table_learn_together():
    """The next token is the last one plus a number of the client's own; the private table finds it."""
    tokens = RANDOM.integers(0, 7, (200, 3)).astype(np.int32)
    clients = np.arange(200) % 2
    data = ct.federation(tokens, (tokens[:, -1] + clients) % 7, clients, classes=7)
    problem = ct.residual(data, shared_model=embedding(7, width=4, hidden=(8,)), private_features=[2],
                          private_model=embedding(7, width=None, hidden=()))
    result = ct.run(problem, data, ct.fedres_avg(step_size=0.1, private_step_size=2.0, steps=20), rounds=10)
    assert result.final["test.personal.accuracy.mean"] == 1


def test_tokens_can_be_kept_for_empirical_risk_minimisation():
    tokens = RANDOM.integers(0, 7, (40, 3)).astype(np.int32)
    data = ct.federation(tokens, tokens[:, -1], np.arange(40) % 2, classes=7)
    problem = ct.residual(data, shared_model=embedding(7, width=4, hidden=(8,)),
                          private_model=embedding(7, width=None, hidden=()))
    result = ct.run(problem, data, ct.fedres_erm(), rounds=5, clock=ct.online())
    assert np.isfinite(result.final["test.personal.loss.mean"])


@pytest.fixture(scope="module")
def spoken(tmp_path_factory):
    """A run folder of a language model with seven tokens, of which the private model sees the last."""
    tokens = RANDOM.integers(0, 7, (40, 3)).astype(np.int32)
    data = ct.federation(tokens, tokens[:, -1], np.arange(40) % 2, classes=7)
    problem = ct.residual(data, shared_features=[0, 1], shared_model=embedding(9, width=4), private_features=[2],
                          private_model=embedding(7, width=None, hidden=()))
    folder = tmp_path_factory.mktemp("spoken") / "run"
    return ct.run(problem, data, ct.fedres_avg(), rounds=1, out=folder), folder


@pytest.mark.parametrize(("row", "token", "most"), [([9, 0, 0], 9, 8), ([0, 0, 7], 7, 6), ([0, -1, 0], -1, 8),
                                                    ([0, 0, 2**31 - 1], 2**31 - 1, 6)])
def test_tokens_beyond_the_vocabulary_are_refused_by_predict(spoken, tmp_path, row, token, most):
    result, folder = spoken
    rows = np.array([[8, 8, 6], row])
    sentence = (f"inputs hold the token {token} in row 1 (from 0), and the model has a vocabulary of {most + 1}; give "
                f"whole numbers from 0 to {most}.")
    assert np.isfinite(result.outputs(rows[:1])).all()
    with pytest.raises(InputError) as error:
        result.outputs(rows)
    assert str(error.value) == sentence
    np.save(tmp_path / "rows.npy", rows)
    done = CliRunner().invoke(cantons, ["predict", str(tmp_path / "rows.npy"), "--run", str(folder)])
    assert (done.exit_code, done.output) == (1, f"Error: {tmp_path}/rows.npy: {sentence}\n")


def test_rows_of_another_width_are_not_picked_from(spoken):
    rows = np.zeros((1, 2), int)
    with pytest.raises(InputError, match=r"the rows have shape \(1, 2\), and this model was trained on rows of shape"):
        spoken[0].outputs(rows)
    with pytest.raises(InputError, match=r"inputs have shape \(1, 2\), and shared_features picks among 3 columns"):
        spoken[0].outputs(rows, encoded=True)


def test_tokens_beyond_the_vocabulary_are_refused_before_anything_is_trained():
    data = ct.federation(TOKENS, TOKENS[:, -1], np.arange(5) % 2, classes=7, name="books")
    problem = ct.classification(data, embedding(TOKENS.max(), width=4))
    with pytest.raises(InputError, match="books: inputs hold the token .* a vocabulary of 6; give"):
        ct.run(problem, data, ct.fedavg(), rounds=1)


@pytest.mark.parametrize("model", [ct.gru, ct.transformer])
def test_there_are_as_many_tokens_as_labels_unless_a_vocabulary_is_given(model):
    rows = np.arange(40, dtype=np.int32).reshape(8, 5) % 7
    data = ct.federation(rows, rows, np.repeat([0, 1], 4), classes=7, test=0)
    left_open, given = (jax.eval_shape(ct.classification(data, model(**size, width=4)).init, jax.random.key(0))
                        for size in ({}, {"vocabulary": 7}))
    assert left_open == given
