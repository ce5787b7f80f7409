"""Step sizes of Theorems 1, 6, 7 and 8 of the FFGG paper: their constants in closed form, and who is told of them."""

import jax
import numpy as np
import pytest

import cantons as ct
from cantons.algorithm.parts.theorem_steps import StepSizes
from cantons.protocol import Parts

pytestmark = pytest.mark.usefixtures("float64")


def problem_of(data, private=(1, 2)):
    model = ct.linear(bias=False)
    return ct.residual(data, shared_features=[0, 1, 2], private_features=list(private), shared_model=model,
                       private_model=model)


@pytest.fixture(scope="module")
def problem(numbers):
    return problem_of(numbers)


@pytest.fixture(scope="module")
def constants(numbers, own_rows):
    """(L, L_w, mu_w, A) from S_m = 2/n A'(I - B B^+)A and the other blocks."""
    found = []
    for x, _ in own_rows(numbers):
        A, B = x, x[:, [1, 2]]
        away = np.eye(len(x)) - B @ np.linalg.pinv(B)
        inner = np.linalg.eigvalsh(2 / len(x) * B.T @ B)
        found.append((np.linalg.eigvalsh(2 / len(x) * A.T @ away @ A)[-1],
                      max(inner[-1], np.linalg.norm(2 / len(x) * A.T @ B, 2)), inner[0], inner[-1],
                      np.linalg.norm(np.linalg.pinv(B) @ A, 2)))
    smooth, private, least, inner, sway = np.array(found).T
    return {"L": smooth.max(), "L_w": private.max(), "mu_w": least.min(), "inner": inner.max(), "A": sway.max()}


def test_the_constants_of_least_squares_are_exact(problem, numbers, constants, own_rows):
    found = ct.ffgg_step_sizes(problem, numbers, rounds=50)
    np.testing.assert_allclose(found[3:6], [constants["L"], constants["L_w"], constants["mu_w"]], rtol=1e-9)
    np.testing.assert_allclose(found[:2], [1 / constants["L"], 1 / constants["L_w"]], rtol=1e-9)
    # Theorem 6 with r_0 = ||F(0)|| / L and C = A r_0 + the farthest best private part there.
    best = [np.linalg.pinv(x[:, [1, 2]]) @ y for x, y in own_rows(numbers)]
    force = np.mean([2 / len(x) * x.T @ (x[:, [1, 2]] @ w - y) for (x, y), w in zip(
        own_rows(numbers), best, strict=True)], axis=0)
    r_0 = np.linalg.norm(force) / constants["L"]
    factor = 2 * constants["L_w"] / constants["L"]
    a, b = factor * constants["A"], factor * (constants["A"] * r_0 + max(map(np.linalg.norm, best)))
    tau = constants["L_w"] / constants["mu_w"] * max(
        2 * np.log(a * 50), 2 * np.log(b * 50 / r_0), np.log(b**2 * 50 / r_0**2))
    assert found.tuning_steps == np.ceil(tau)
    assert ct.ffgg_step_sizes(problem, numbers, rounds=5000).tuning_steps > found.tuning_steps


def test_the_constants_of_theorem_8_are_those_of_equation_20(least_squares, numbers, quadratics):
    found = ct.ffgg_step_sizes(least_squares, numbers)
    S = 2 * np.array(quadratics.curvature)
    mean, square = S.mean(0), np.mean([one @ one for one in S], axis=0)
    assert found.curvature == pytest.approx(np.linalg.eigvalsh(mean)[0])
    # |F_m|^2 - |F|^2 over <F, theta - theta*>, for every direction theta - theta*: at most l_sim, and once equal to it.
    ratios = np.linalg.eigvals(np.linalg.solve(mean, square - mean @ mean)).real
    assert found.dissimilarity == pytest.approx(ratios.max())
    for away in np.random.default_rng(0).normal(size=(50, len(mean))):
        spread = np.mean([np.sum((one @ away) ** 2) for one in S]) - np.sum((mean @ away) ** 2)
        assert spread <= found.dissimilarity * away @ mean @ away * (1 + 1e-9)
    assert found.dissimilarity <= found.smoothness  # as the paper says after (20)


def test_directions_that_nobody_sees_and_clients_that_are_alike(problem, numbers, own_rows):
    """Columns 1 and 2 are both shared and private: nothing is left of them in F."""
    found = ct.ffgg_step_sizes(problem, numbers)
    assert found.curvature == 0 and found.dissimilarity > 0
    assert found.robust(42, 10, c=1.0).liars == 0
    (x, y), *_ = own_rows(numbers)
    same = ct.from_clients({name: (x, y) for name in "abc"}, test=0)
    found = ct.ffgg_step_sizes(problem_of(same, private=(1,)), same)
    assert found.dissimilarity == pytest.approx(0, abs=1e-9 * found.smoothness)
    assert found.robust(42, 10, c=1.0).liars == 0.5


def test_theorems_7_and_8_by_hand():
    found = StepSizes(
        0.25, 1.0, 1.0, smoothness=4.0, private_smoothness=1.0, private_curvature=1.0, curvature=0.5, dissimilarity=2.0)
    assert found.asynchronous(jobs=2, longest_delay=9) == 1 / 48  # 1 / (2 * 4 * sqrt(2 * 2 * 9))
    assert found.asynchronous(jobs=1, longest_delay=0) == 1 / 8  # in turns: the 1 / (2 L) of the proof
    # 3 honest of 4: c (1 + 1 / (G - 1)) l_sim = 0.3 * 1.5 * 2 = 0.9.
    limits = found.robust(clients=4, liars=1, c=0.3)
    assert limits.liars == pytest.approx(0.5 / 1.8)  # mu / (2 * 0.9)
    assert limits.step_size == pytest.approx(1 / (4 * (4 + 2 * 0.25 * 0.9)))
    assert limits.rate == pytest.approx(1 - limits.step_size * 0.5 / 2)
    assert found.robust(4, 0, c=0.3).step_size == 1 / 16 and found.robust(4, 1, c=0.0).liars == 0.5


def test_with_nothing_private_they_are_those_of_gradient_descent(least_squares, numbers, quadratics):
    found = ct.ffgg_step_sizes(least_squares, numbers)
    assert found.smoothness == pytest.approx(max(2 * np.linalg.eigvalsh(one)[-1] for one in quadratics.curvature))
    assert found.tuning_steps == 1 and found.private_step_size == np.inf


def test_where_a_part_is_not_determined_nothing_is_asked_of_it(numbers, own_rows):
    """Two private columns that are the same, or as many private numbers as leave the shared part nothing to do."""
    twice = ct.from_clients({f"c{number}": (x[:, [0, 1, 1]], y) for number, (x, y) in enumerate(own_rows(numbers))},
                            test=0)
    assert ct.ffgg_step_sizes(problem_of(twice), twice).tuning_steps == np.inf
    assert ct.ffgg_step_sizes(problem_of(numbers, private=(0, 1, 2)), numbers).step_size == np.inf


def test_the_theorems_do_not_speak_about_other_problems(labels):
    with pytest.raises(ct.InputError, match="are for convex problems, and this one is not known to be"):
        ct.ffgg_step_sizes(ct.classification(labels, ct.mlp(hidden=[3]), split="output"), labels)
    with pytest.raises(ct.InputError, match="4500 parameters, and a Hessian is made of 2000"):
        wide = ct.from_clients({"a": (np.zeros((2, 1499)), np.array([0, 1]))}, classes=3, test=0)
        ct.ffgg_step_sizes(ct.logistic(wide), wide)


def advice(problem, data, recipe):
    algorithm = recipe.build(problem, data.population)
    parts = Parts(problem, recipe, algorithm, ct.rounds().build(data.population), data, data.central, 0)
    return list(algorithm.advice(parts, problem.init(jax.random.key(0))))


def test_a_notice_comes_above_one_over_l_and_not_below(problem, numbers, constants):
    limit = 1 / constants["L"]
    assert not advice(problem, numbers, ct.ffgg(step_size=0.49 * limit, server_step_size=2.0, tuner="exact"))
    (said,) = advice(problem, numbers, ct.ffgg(step_size=0.51 * limit, server_step_size=2.0, tuner="exact"))
    assert said.startswith(f"step_size is {1.02 * limit:.3g}, and Theorem 1 proves convergence up to 1/L = {limit:.3g}")
    for nothing_proved in ({"server_optimizer": "adam"}, {"delta_batch_size": 2}):
        assert not advice(problem, numbers, ct.ffgg(step_size=9.0, tuner="exact", **nothing_proved))
    assert not advice(problem._replace(convex=None), numbers, ct.ffgg(step_size=9.0))
    assert not advice(problem, numbers, ct.local_ffgg(step_size=9.0, tuner="exact"))  # the paper proves nothing


def test_a_tuner_by_gradient_descent_has_its_own(problem, numbers, constants):
    limit = 1 / constants["inner"]
    for build in (ct.ffgg, ct.local_ffgg):
        said = [advice(problem, numbers, build(step_size=1e-3, tuner={"name": "gd", "step_size": factor * limit}))
                for factor in (0.99, 1.01, 2.01)]
        assert [len(each) for each in said] == [0, 1, 1]
        assert f"Theorem 6 wants 1/L_w = {limit:.3g} for gradient descent, with" in said[1][0]
        assert "beyond twice that it diverges" in said[2][0]
    assert not advice(problem, numbers, ct.ffgg(step_size=1e-3, tuner={"name": "sgd", "step_size": 9.0}))


def test_losses_that_are_not_quadratic_are_estimated_at_the_best_private_part(labels):
    """The notice looks at products with vectors, the step sizes at whole Hessians: they agree."""
    problem = ct.logistic(labels, l2=0.01, split="*/bias")
    limit = ct.ffgg_step_sizes(problem, labels).step_size
    assert not advice(problem, labels, ct.ffgg(step_size=0.98 * limit, tuner="newton"))
    (said,) = advice(problem, labels, ct.ffgg(step_size=1.02 * limit, tuner="newton"))
    assert f"1/L = {limit:.2g}"[:-1] in said
