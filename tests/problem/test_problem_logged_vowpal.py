"""The estimators against Vowpal Wabbit itself, row by row: `vw --cb_adf --cb_type ips, dr, mtr` with plain SGD.

Actions have features of their own, so that its updates for each action do not meet. It has costs, the sum over actions
where we have the mean, and for mtr the weight 1/(p K) as we do: its steps are K times ours, but for mtr.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import cantons as ct
from cantons.problem import Shapes
from cantons.protocol import Batch

vowpalwabbit = pytest.importorskip("vowpalwabbit", reason="vowpalwabbit is not installed: pip install cantons[vw]")

KINDS, WIDTH, ROWS, STEP_SIZE = 3, 4, 60, 0.05


def rounded(values):
    """Multiples of 1/64, so that text has all their digits."""
    return np.round(64 * values) / 64


RANDOM = np.random.default_rng(0)
LOG = [(context, int(action), float(cost), float(chance)) for context, action, cost, chance in zip(
    rounded(RANDOM.normal(size=(ROWS, WIDTH))), RANDOM.integers(KINDS, size=ROWS), rounded(RANDOM.random(ROWS)),
    rounded(0.2 + 0.6 * RANDOM.random(ROWS)), strict=True)]


def by_vowpal_wabbit(estimator):
    workspace = vowpalwabbit.Workspace(f"--cb_adf --cb_type {estimator} --sgd -l {STEP_SIZE} --power_t 0 --noconstant "
                                       "--min_prediction -100 --max_prediction 100 --quiet")
    said = []
    for context, action, cost, chance in LOG:
        rows = [" ".join(f"a{kind}f{place}:{float(value)!r}" for place, value in enumerate(context))
                for kind in range(KINDS)]
        said.append(workspace.predict([f"| {row}" for row in rows]))
        workspace.learn([f"{f'0:{cost!r}:{chance!r} ' if kind == action else ''}| {row}"
                         for kind, row in enumerate(rows)])
    workspace.finish()
    return np.array(said)


def by_us(estimator):
    problem = ct.logged_bandit(Shapes((WIDTH,)), ct.linear(), estimator=estimator, actions=KINDS)
    shared, private = problem.init(jax.random.key(0))
    step_size = STEP_SIZE * (1 if estimator == "mtr" else KINDS)

    @jax.jit
    def step(shared, batch):
        gradient = jax.grad(problem.loss)(shared, private, batch)
        return jax.tree.map(lambda leaf, slope: leaf - step_size * slope * (leaf.ndim > 1), shared, gradient)  # no bias

    said = []
    for context, action, cost, chance in LOG:
        inputs = jnp.asarray(context, jnp.float32)[None]
        said.append(-problem.predict(shared, private, inputs)[0])
        shared = step(shared, Batch(inputs, {"action": jnp.array([action]), "reward": jnp.array([-cost]),
                                             "propensity": jnp.array([chance])}, jnp.ones(1)))
    return np.array(said)


@pytest.mark.parametrize("estimator", ["ips", "dr", "mtr"])
def test_every_prediction_is_that_of_vw(estimator):
    np.testing.assert_allclose(by_us(estimator), by_vowpal_wabbit(estimator), atol=1e-5)
