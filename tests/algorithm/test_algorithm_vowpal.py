"""AdaGrad steps against Vowpal Wabbit itself, example by example: `vw --adaptive` on a stream of labels -1 and 1.

Vowpal Wabbit clips predictions to the labels it has seen so far, the present one included: the second label here is not
the first, so from then on both sides clip to [-1, 1]. It computes in float32. At its default learning rate, 10,
rounding errors grow until nothing is left in common (see benchmarks/README.md): that rate is held to the beginning.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from starting import restored, start

import cantons as ct

vowpalwabbit = pytest.importorskip("vowpalwabbit", reason="vowpalwabbit is not installed: pip install cantons[vw]")

RECIPES = {"fedres_online_sgd": ct.fedres_online_sgd, "online_independent": ct.online_independent}


def stream(steps=300, width=6):
    """Features are multiples of 1/64, so that text has all their digits; some are 0."""
    random = np.random.default_rng(0)
    inputs = np.round(64 * random.normal(size=(steps, width)) * (random.random((steps, width)) < 0.8)) / 64
    labels = np.where(inputs @ random.normal(size=width) + 0.3 > 0, 1.0, -1.0)
    labels[:2] = 1, -1
    return inputs.astype(np.float32), labels.astype(np.float32)


def by_vowpal_wabbit(inputs, labels, options):
    workspace = vowpalwabbit.Workspace(f"{options} --quiet")
    said = []
    for row, label in zip(inputs, labels, strict=True):
        words = " ".join(f"f{column}:{float(value)!r}" for column, value in enumerate(row))
        example = workspace.parse(f"{int(label)} | {words}", vowpalwabbit.LabelType.SIMPLE)
        workspace.learn(example)  # tells the prediction from before it learned
        said.append(example.get_simplelabel_prediction())
        workspace.finish_example(example)
    workspace.finish()
    return np.array(said)


def by_us(inputs, labels, recipe):
    """What a single client predicts in each step, told by the engine as one more score."""
    data = ct.from_clients({"one": (inputs, labels)}, test=0)
    problem = ct.residual(data, shared_features="none", private_features="all", labels="sign", clip=1.0)

    def score(shared, private, batch):
        return {"prediction": jnp.clip(problem.predict(shared, private, batch.inputs), -1, 1)}

    told = problem._replace(score=score)
    session = start(ct.Local(), told, recipe.build(told, 1), ct.online().build(1), data, None, 0)
    state, said = session.begin(), []
    for step in range(len(labels)):
        state = session.advance(state, step + 1)
        said.append(float(state.in_flight.scores["prediction"][0]))
        nothing = jax.tree.map(jnp.zeros_like, state.in_flight.scores)  # sums lose digits
        state = restored(session, state._replace(in_flight=state.in_flight._replace(scores=nothing)))
    return np.array(said)


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize(("rate", "steps"), [(0.1, 300), (0.5, 300), (10.0, 60)])
def test_every_prediction_is_that_of_vw_adaptive(name, rate, steps):
    inputs, labels = (part[:steps] for part in stream())
    options = "--adaptive" if rate == 10 else f"--adaptive -l {rate}"
    np.testing.assert_allclose(by_us(inputs, labels, RECIPES[name](method="adagrad", step_size=rate)),
                               by_vowpal_wabbit(inputs, labels, options), atol=1e-5)
