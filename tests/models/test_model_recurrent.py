"""The gated recurrent unit against one in plain NumPy, and its derivative against that of the plain loop."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import cantons as ct
from cantons.errors import InputError
from cantons.models import architecture, gru
from cantons.models.recurrent import _next_state, gru_states
from cantons.problem import problem_from_spec

RANDOM = np.random.default_rng(0)
TOKENS = RANDOM.integers(0, 7, (5, 9)).astype(np.int32)


def drawn(model, kind=np.float64):
    return jax.tree.map(lambda leaf: RANDOM.normal(size=leaf.shape).astype(kind),
                        jax.eval_shape(model.init, jax.random.key(0)))


def sigmoid(values):
    return 1 / (1 + np.exp(-values))


def by_hand(params, tokens):
    """Keras's GRU with reset_after=True, one place after another."""
    units = params["recurrent"]["weight"].shape[0]
    state, answers = np.zeros((len(tokens), units)), []
    for place in range(tokens.shape[1]):
        given = params["table"][tokens[:, place]] @ params["input"]["weight"] + params["input"]["bias"]
        past = state @ params["recurrent"]["weight"] + params["recurrent"]["bias"]
        update = sigmoid(given[:, :units] + past[:, :units])
        reset = sigmoid(given[:, units : 2 * units] + past[:, units : 2 * units])
        candidate = np.tanh(given[:, 2 * units :] + reset * past[:, 2 * units :])
        state = update * state + (1 - update) * candidate
        answers.append(state @ params["output"]["weight"] + params["output"]["bias"])
    return np.stack(answers, axis=1)


def plain_states(projected, weight, bias):
    """The loop whose derivative is left to JAX."""
    def step(state, place):
        state, _ = _next_state(state, place, weight, bias)
        return state, state

    start = jnp.zeros((projected.shape[1], projected.shape[2] // 3), projected.dtype)
    return jax.lax.scan(step, start, projected)[1]


@pytest.mark.parametrize(("kind", "most"), [(np.float64, 1e-12), (np.float32, 2e-5)])
def test_answers_are_those_of_a_plain_loop(kind, most):
    with jax.enable_x64(kind is np.float64):
        model = gru(7, width=4, units=6)((9,), 3)
        params = drawn(model, kind)
        answers = jax.jit(model.apply)(params, TOKENS)
        assert answers.shape == (5, 9, 3) and answers.dtype == kind
        np.testing.assert_allclose(answers, by_hand(params, TOKENS), rtol=0, atol=most)


def test_derivatives_are_those_of_a_plain_loop():
    with jax.enable_x64(True):
        arguments = tuple(RANDOM.normal(size=shape) for shape in ((9, 5, 18), (6, 18), (18,)))
        directions = tuple(RANDOM.normal(size=leaf.shape) for leaf in arguments)

        def derivatives(states):
            def loss(arguments):
                return jnp.sin(states(*arguments)).sum()

            gradient = jax.grad(loss)
            return (gradient(arguments), jax.jvp(loss, (arguments,), (directions,)),
                    jax.jvp(gradient, (arguments,), (directions,)),  # a product with the Hessian, both ways
                    jax.grad(lambda at: sum((one * other).sum() for one, other in zip(
                        gradient(at), directions, strict=True)))(arguments))

        jax.tree.map(lambda one, other: np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9),
                     jax.jit(lambda: derivatives(gru_states))(), jax.jit(lambda: derivatives(plain_states))())


def test_the_weights_have_one_product_of_all_places():
    """No sum of gradients as large as the weights is carried along the places."""
    arguments = tuple(RANDOM.normal(size=shape).astype(np.float32) for shape in ((9, 5, 18), (6, 18), (18,)))
    program = jax.make_jaxpr(jax.grad(lambda *arguments: gru_states(*arguments).sum(), argnums=(0, 1, 2)))(*arguments)
    loops = [equation for equation in program.eqns if equation.primitive.name == "scan"]
    assert len(loops) == 2
    for loop in loops:
        assert all(result.aval.shape != (6, 18) for result in loop.outvars)


def test_gradient_of_every_client_is_its_own_when_vectorised():
    model = gru(7, width=4, units=6)((9,), 7)
    clients = jax.tree.map(lambda *leaves: np.stack(leaves), drawn(model, np.float32), drawn(model, np.float32))
    tokens = np.stack([TOKENS, TOKENS[::-1]])
    gradient = jax.grad(lambda params, tokens: jnp.sin(model.apply(params, tokens)).sum())
    together = jax.jit(jax.vmap(gradient))(clients, tokens)
    for client in range(2):
        alone = gradient(jax.tree.map(lambda leaf, client=client: leaf[client], clients), tokens[client])
        assert all(np.isfinite(leaf).all() and np.any(leaf) for leaf in jax.tree.leaves(alone))
        jax.tree.map(lambda one, other, client=client: np.testing.assert_allclose(
            one[client], other, rtol=1e-4, atol=1e-4), together, alone)


def test_it_has_as_many_parameters_as_the_network_of_the_keras_tutorial():
    """"Text generation with an RNN", which the mixed FL paper adapts: 66 characters, Keras's GRU as it comes."""
    shapes = jax.eval_shape(gru(66)((100,), 66).init, jax.random.key(0))
    sizes = {name: sum(leaf.size for leaf in jax.tree.leaves(part)) for name, part in shapes.items()}
    assert sizes == {"table": 16_896, "input": 3 * 1024 * 257, "recurrent": 3 * 1024 * 1025, "output": 67_650}
    assert sizes["input"] + sizes["recurrent"] == 3_938_304


def test_it_starts_as_keras_does():
    params = gru(66, width=8, units=16)((100,), 66).init(jax.random.key(0))
    assert 0.04 < np.abs(params["table"]).max() <= 0.05
    np.testing.assert_allclose(params["recurrent"]["weight"] @ params["recurrent"]["weight"].T, np.eye(16), atol=1e-5)
    assert not any(params[name]["bias"].any() for name in ("input", "recurrent", "output"))


@pytest.mark.parametrize(("split", "private"), [
    ("input", {"table"}), ("output", {"output"}), ("recurrent/*", {"recurrent"}), ("none", set())])
def test_splits_keep_a_layer_private(split, private):
    data = ct.federation(TOKENS, TOKENS, [0, 0, 1, 1, 1], classes=7)
    problem = ct.classification(data, gru(7, width=4, units=6), split=split)
    _, own = problem.init(jax.random.key(0))
    assert {name for name, part in own.items() if jax.tree.leaves(part)} == private


def test_a_problem_with_it_is_made_again_from_its_spec():
    data = ct.federation(TOKENS, TOKENS, [0, 0, 1, 1, 1], classes=7)
    problem = ct.classification(data, gru(7, width=4, units=6))
    assert problem.spec["model"] == {"name": "gru", "vocabulary": 7, "width": 4, "units": 6}
    again = problem_from_spec(problem.spec)
    first, second = (some.predict(*some.init(jax.random.key(0)), TOKENS) for some in (problem, again))
    np.testing.assert_array_equal(first, second)
    assert architecture("gru", vocabulary=7).options == {"vocabulary": 7, "width": 256, "units": 1024}


def test_it_learns_what_a_table_of_pairs_cannot():
    """What follows an `a` is what stood before it: only a state can know."""
    rows = np.array([[1, 0, 1, 0, 1, 0, 1, 0], [2, 0, 2, 0, 2, 0, 2, 0]] * 20)
    data = ct.federation(rows[:, :-1], rows[:, 1:], np.arange(40) % 4, classes=3)
    result = ct.run(ct.classification(data, gru(3, width=4, units=8)), data, ct.fedavg(step_size=2.0, steps=20),
                    rounds=30)
    assert result.final["test.shared.accuracy.mean"] == 1


def test_unknown_token_gives_no_number_from_there_on():
    model = gru(7, width=4, units=6)((3,), 2)
    answers = model.apply(model.init(jax.random.key(0)), np.array([[0, 1, 2], [0, 7, 1]]))
    np.testing.assert_array_equal(np.isnan(answers).any(-1), [[False] * 3, [False, True, True]])


def test_inputs_that_are_no_rows_of_tokens_are_refused():
    model = gru(7)((3,), 2)
    with pytest.raises(InputError, match="gru got inputs of type float32; tokens are numbered"):
        jax.eval_shape(lambda: model.apply(model.init(jax.random.key(0)), np.zeros((5, 3), np.float32)))
    for shape in ((), (3, 4)):
        with pytest.raises(InputError, match="it takes a row of tokens"):
            gru(7)(shape, 2)
    with pytest.raises(InputError, match="units is 0"):
        gru(7, units=0)


def test_one_target_for_a_whole_row_is_refused():
    data = ct.federation(TOKENS, TOKENS[:, 0], [0, 0, 1, 1, 1], classes=7)
    with pytest.raises(InputError, match=r"outputs have shape \(\d, 9, 7\) and the labels \(\d,\)"):
        ct.run(ct.classification(data, gru(7, width=4, units=6)), data, ct.fedavg(), rounds=1)
