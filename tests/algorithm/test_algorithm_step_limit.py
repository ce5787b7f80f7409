"""Table 4's limits of the step, from the curvature at the start: told once, where they are proved, and rightly."""

from dataclasses import replace

import jax
import numpy as np
import pytest

import cantons as ct
from cantons.algorithm.parts.step_limit import estimate_smoothness
from cantons.data import from_sizes
from cantons.protocol import CentralLoss, Parts

pytestmark = pytest.mark.usefixtures("float64")
W_F, W_C = 0.6, 0.4


@pytest.fixture(scope="module")
def rows():
    random = np.random.default_rng(5)
    return 3 * random.normal(size=(40, 3)), random.normal(size=40)


@pytest.fixture(scope="module")
def data(numbers, rows):
    return replace(numbers, central=from_sizes(*rows, np.array([40])))


@pytest.fixture(scope="module")
def problem(least_squares):
    return ct.with_central_loss(least_squares, "same", [W_F, W_C])


@pytest.fixture(scope="module")
def curvatures(quadratics, rows):
    """The largest of each client, and of the centre."""
    each = [*(W_F * 2 * quadratics.curvature), W_C * 2 * rows[0].T @ rows[0] / 40]
    return [np.linalg.eigvalsh(matrix)[-1] for matrix in each]


def start_of(problem):
    return problem.init(jax.random.key(0))


def test_the_smoothness_of_least_squares_is_their_largest_eigenvalue(problem, data, curvatures):
    found = estimate_smoothness(problem, start_of(problem), data.train, data.central)
    assert 0.999 * max(curvatures) < found < (1 + 1e-12) * max(curvatures)
    assert max(curvatures) == curvatures[-1]  # the centre's
    of_clients = problem._replace(central=problem.central._replace(loss=lambda *given: 0.0 * problem.loss(*given)))
    found = estimate_smoothness(of_clients, start_of(problem), data.train, data.central)
    assert 0.999 * max(curvatures[:-1]) < found < (1 + 1e-12) * max(curvatures[:-1])


def test_a_central_loss_without_examples_counts_too(least_squares, numbers):
    pull = CentralLoss(lambda shared, private, batch: 50 * (shared["layer0"]["weight"] ** 2).sum(), needs_data=False)
    weighed = ct.with_central_loss(least_squares, pull, [0.5, 0.5])
    assert estimate_smoothness(weighed, start_of(weighed), numbers.train, None) == pytest.approx(50)


def advice(problem, data, recipe, cohort=None):
    algorithm = recipe.build(problem, data.population)
    parts = Parts(problem, recipe, algorithm, ct.rounds(cohort=cohort).build(data.population), data, data.central, 0)
    return list(algorithm.advice(parts, start_of(problem)))


def with_step(build, effective, **options):
    """Clients whose effective step, step_size * server_step_size * K * merge_step_size, is this."""
    merge = {} if build is ct.one_way_transfer else {"merge_step_size": 0.5, "central_step_size": 1e-9}
    return build(step_size=effective / 3 / 2 / merge.get("merge_step_size", 1), steps=3, server_step_size=2.0,
                 **{**merge, **options})


@pytest.mark.parametrize("build, factor", [(ct.parallel_training, 12), (ct.one_way_transfer, 8),
                                           (ct.two_way_transfer, 81)])
def test_a_notice_comes_above_the_limit_and_not_below(problem, data, curvatures, build, factor):
    limit = 1 / (factor * max(curvatures))
    assert not advice(problem, data, with_step(build, 0.99 * limit))
    (said,) = advice(problem, data, with_step(build, 1.01 * limit))
    assert f"effective step is {1.01 * limit:.3g}, and Table 4 allows {limit:.3g}" in said
    assert f"smoothness of {max(curvatures):.3g}" in said and said.endswith("; the run goes on.")
    if build is not ct.one_way_transfer:
        central = {"merge_step_size": 0.5, "central_steps": 4}
        assert not advice(problem, data, build(step_size=1e-9, central_step_size=0.49 * limit, **central))
        assert advice(problem, data, build(step_size=1e-9, central_step_size=0.51 * limit, **central))


def test_one_epoch_has_as_many_steps_as_the_largest_client_makes(problem, data, curvatures):
    step = 1 / (8 * max(curvatures)) / 5  # 17 examples in batches of 4
    epoch = {"epochs": 1, "steps": None, "batch_size": 4}
    assert not advice(problem, data, ct.one_way_transfer(step_size=0.99 * step, **epoch))
    assert advice(problem, data, ct.one_way_transfer(step_size=1.01 * step, **epoch))


def test_table_5_is_named_where_its_rates_are_not_kept(problem, data):
    for cohort, rate in ((4, 1.9), (None, 2.6)):
        (said,) = advice(problem, data, ct.one_way_transfer(server_step_size=rate), cohort)
        assert f"Table 5 asks for server_step_size = {np.sqrt(cohort or 7):.3g} or more" in said
    assert "Table 5" not in advice(problem, data, ct.one_way_transfer(server_step_size=2.1), cohort=4)[0]
    assert "Table 5 asks for merge_step_size = 1 or more" in advice(
        problem, data, ct.two_way_transfer(merge_step_size=0.5))[0]
    assert "Table 5" not in advice(problem, data, ct.parallel_training())[0]


def test_nothing_is_said_where_nothing_is_proved(problem, data):
    for options in ({"client_optimizer": "adam"}, {"server_optimizer": "adam"}, {"clip_norm": 1.0}):
        assert not advice(problem, data, ct.one_way_transfer(step_size=9.0, **options))
    for options in ({"central_optimizer": "momentum"}, {"merge_optimizer": "adam"}):
        assert not advice(problem, data, ct.parallel_training(step_size=9.0, **options))
    assert not advice(problem._replace(convex=None), data, ct.one_way_transfer(step_size=9.0))


class Heard(ct.Callback):
    def __init__(self):
        self.sentences = []

    def noticed(self, sentence):
        self.sentences.append(sentence)


def test_a_run_is_told_once_and_goes_on(problem, data, tmp_path):
    heard = Heard()
    options = {"rounds": 2, "callbacks": [heard], "out": tmp_path / "run", "precision": "float64"}
    recipe = ct.one_way_transfer(step_size=0.01, steps=2, batch_size=2)
    assert np.isfinite(ct.run(problem, data, recipe, **options).final["train.shared.loss.mean"])
    assert [sentence.split(":")[0] for sentence in heard.sentences] == ["one_way_transfer"]
    ct.run(problem, data, recipe, **{**options, "rounds": 3}, resume=True)
    assert len(heard.sentences) == 1  # it has been said
