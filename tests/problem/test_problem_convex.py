"""What a problem says about its losses holds: they are convex, and curved at least as much as it says."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import cantons as ct
from cantons.problem import Shapes, problem_from_spec
from cantons.protocol import Batch

pytestmark = pytest.mark.usefixtures("float64")
RANDOM = np.random.default_rng(0)
NUMBERS, CLASSES = Shapes((3,)), Shapes((3,), 4)
SAYS_SO = {
    "half squares": (ct.target(NUMBERS), 1.0, "half_squared"),
    "absolute": (ct.target(NUMBERS, loss="absolute"), 0.0, "absolute"),
    "linear": (ct.target(NUMBERS, loss="linear"), 0.0, "linear"),
    "least squares": (ct.regression(NUMBERS, ct.linear()), 0.0, "smooth"),
    "ridge": (ct.regression(NUMBERS, ct.linear(bias=False), l2=0.3), 0.3, "smooth"),
    "logistic": (ct.logistic(CLASSES, l2=0.2), 0.2, "smooth"),
    "both halves linear": (ct.residual(NUMBERS), 0.0, "smooth"),
    "joint logits": (ct.residual(CLASSES), 0.0, "smooth"),
}
SAYS_NOTHING = {
    "network": ct.classification(CLASSES, ct.mlp(hidden=(2,))),
    "clipped": ct.residual(NUMBERS, clip=1.0),
    "half a network": ct.residual(NUMBERS, private_model=ct.mlp(hidden=(2,))),
    "anything": ct.from_functions(lambda key: jnp.zeros((3, 1)), lambda weight, inputs: inputs @ weight),
}


def loss_of(problem):
    """One example's loss as a function of all parameters in one vector, for examples drawn at random."""
    start = jax.tree.map(jnp.asarray, problem.init(jax.random.key(0)))
    vector, back = ravel_pytree(start)
    classes = (problem.spec or {}).get("classes")
    rows = jnp.asarray(RANDOM.normal(size=(1, 3)))
    targets = jnp.asarray(RANDOM.integers(0, classes, 1) if classes else RANDOM.normal(size=1))
    return vector.size, lambda point: problem.loss(*back(point), Batch(rows, targets, jnp.ones(1)))


@pytest.mark.parametrize("name", SAYS_SO)
def test_losses_lie_above_their_tangents_by_the_curvature(name):
    """l(y) >= l(x) + <l'(x), y - x> + curvature / 2 |y - x|^2 for random points and examples."""
    problem, curvature, form = SAYS_SO[name]
    assert (problem.convex.curvature, problem.convex.form) == (curvature, form)
    for _ in range(20):
        width, loss = loss_of(problem)
        one, other = jnp.asarray(RANDOM.normal(size=(2, width)))
        value, gradient = jax.value_and_grad(loss)(one)
        tangent = value + gradient @ (other - one) + curvature / 2 * ((other - one) ** 2).sum()
        assert loss(other) >= tangent - 1e-9


@pytest.mark.parametrize("name", SAYS_NOTHING)
def test_who_does_not_know_says_nothing(name):
    assert SAYS_NOTHING[name].convex is None


def plain(**options):
    """Least squares by functions, without a word about convexity unless it is among the options."""
    return ct.from_functions(lambda key: {"shared": jnp.zeros((3, 1)), "own": jnp.zeros((3, 1))},
                             lambda params, inputs: inputs @ (params["shared"] + params["own"]), loss="squared",
                             **options)


def test_functions_are_convex_if_their_author_says_so_and_nothing_is_multiplied_with_them():
    assert plain(convex=True).convex == ct.residual(NUMBERS).convex
    for options in ({}, {"convex": None}, {"convex": False}, {"convex": True, "split": "adapter"}):
        assert plain(**options).convex is None


class Heard(ct.Callback):
    def __init__(self):
        self.sentences = []

    def advised(self, sentence):
        self.sentences.append(sentence)


def test_functions_that_are_convex_have_step_sizes_and_one_notice_about_longer_ones():
    rows = {f"c{number}": RANDOM.normal(size=(6, 3)) for number in range(3)}
    data = ct.from_clients({name: (x, x @ [1.0, -2.0, 0.5]) for name, x in rows.items()}, test=0)
    problem = plain(convex=True, split="none")
    limit = ct.ffgg_step_sizes(problem, data).step_size
    assert limit == pytest.approx(1 / max(2 * 2 / 6 * np.linalg.eigvalsh(x.T @ x)[-1] for x in rows.values()))

    def told(problem, factor):
        ct.run(problem, data, ct.ffgg(step_size=factor * limit), rounds=2, callbacks=[heard := Heard()], progress=None)
        return sum("Theorem 1 proves convergence up to 1/L" in sentence for sentence in heard.sentences)

    assert [told(problem, 0.9), told(problem, 50.0), told(plain(), 50.0)] == [0, 1, 0]


@pytest.mark.parametrize("name", SAYS_SO)
def test_a_problem_that_is_built_again_says_the_same(name):
    problem = SAYS_SO[name][0]
    again = problem_from_spec(problem.spec)
    assert (again.convex, again.numeric_targets) == (problem.convex, problem.numeric_targets)


def test_only_regression_asks_for_numbers_as_targets():
    assert ct.regression(NUMBERS, ct.mlp()).numeric_targets and ct.regression(NUMBERS, ct.linear()).numeric_targets
    assert not any(problem.numeric_targets for problem in (ct.logistic(CLASSES), ct.target(NUMBERS)))
