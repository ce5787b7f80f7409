"""Before round 0 nobody has a model of its own: clients that will keep one are scored with the one all begin with."""

import jax
import numpy as np
import pytest

import cantons as ct
from cantons.engine import Batched, Local, Plain
from cantons.engine.evaluate import begins_common
from cantons.protocol import Start
from cantons.study.resolve import resolve

DATA = ct.digits(clients=3)
SPLIT = ct.classification(DATA, ct.mlp((4,)), split="output")
WHOLE = ct.logistic(DATA)


@pytest.mark.parametrize("engine", [Local(), Batched(), Plain(compile=True)])
def test_every_engine_scores_the_common_start(engine):
    session = engine.start([resolve(SPLIT, DATA, ct.fedrep(), rounds=1, engine=engine).parts])
    (before,) = session.evaluate(session.begin())
    assert before.common_start
    for found in before.scores["clients"].values():
        np.testing.assert_array_equal(found["personal"]["loss"], found["shared"]["loss"])


def test_the_record_says_so_and_new_clients_are_fitted():
    data = ct.digits(clients=4, new=1)
    result = ct.run(SPLIT, data, ct.fedrep(head_epochs=1), rounds=1, cohort=2, progress=None)
    before, after = result.history
    assert before["personal_models"] == "common start" and "personal_models" not in after
    assert before["test.personal.loss.mean"] == before["test.shared.loss.mean"]
    assert after["test.personal.loss.mean"] != after["test.shared.loss.mean"]
    assert before["new_test.personal.loss.mean"] != before["new_test.shared.loss.mean"]


@pytest.mark.parametrize("problem, recipe, common", [
    (SPLIT, ct.fedrep(), True),
    (SPLIT, ct.fedrep(state="none"), False),  # clients keep nothing, and are fitted whenever they are scored
    (WHOLE, ct.independent(), True),
    (WHOLE, ct.fedavg(), False),
    (WHOLE, ct.fedavg_finetune(), False),
])
def test_methods_that_keep_a_model_for_each_client_begin_in_common(problem, recipe, common):
    algorithm, start = recipe.build(problem, DATA.population), Start(*jax.eval_shape(problem.init, jax.random.key(0)))
    assert begins_common(algorithm, start) is common
    assert not begins_common(algorithm, start._replace(privates=start.private))  # a warm start has parts of their own
