"""Collective regret in runs: by hand on tiny streams, below its bounds, and silent where it is not known."""

import itertools
from pathlib import Path

import jax
import numpy as np
import pytest
import scipy.optimize

import cantons as ct
from cantons.protocol import Progress
from cantons.regret import regret_of
from cantons.regret.fedomd_bounds import (
    fedomd_theorem1_bound,
    fedomd_theorem1_step_size,
    fedomd_theorem2_bound,
    fedomd_theorem3_bound,
    online_to_batch,
)
from cantons.reporting import write_report
from cantons.study.read import read_study
from cantons.study.rollouts import rollouts

STUDIES = Path(__file__).parents[2] / "studies/fedomd"
BOX = {"name": "box", "low": -1, "high": 1}
REGRET, BOUND, DYNAMIC = "online.collective_regret", "online.collective_bound", "online.dynamic_regret"


def targets(clients=4, steps=30, width=1, centre=0.4, seed=0):
    return np.random.default_rng(seed).normal(centre, 1, (clients, steps, width)).astype(np.float32).astype(float)


def federation(values):
    return ct.from_clients({str(number): (own, np.zeros(len(own))) for number, own in enumerate(values)}, test=0)


def played(values, recipe, rounds=None, every=1, clock=None, problem=None, **about):
    data = federation(values)
    return ct.run(problem or ct.target(data, **about), data, recipe, rounds=rounds or len(values[0]),
                  clock=ct.online(**{"score": "everyone", **(clock or {})}), evaluate_every=every, precision="float64")


def said(values, recipe, steps=None, clock=None, problem=None, data=None, **about):
    """What would be said after some steps, had all predictions cost nothing: without a run."""
    data = data or federation(values)
    problem = problem or ct.target(data, **about)
    start, steps = problem.init(jax.random.key(0)), steps or len(values[0])
    ticking = ct.online(**{"score": "everyone", **(clock or {})}).build(data.population)
    nothing = np.zeros(data.population)
    progress = Progress(steps, 0, nothing, nothing, nothing, np.full(data.population, steps), {"global_loss": nothing})
    return regret_of(problem, recipe.build(problem, data.population), ticking, data, start, steps).measure(progress)


def path_by_hand(values, step_size, tau, start=0.0):
    """Algorithm 1 for half squares in [-1, 1]: the points that predict, [steps, clients]."""
    points, path = np.full(len(values), start), []
    for now in range(values.shape[1]):
        if now % tau == 0:
            points = np.full(len(values), points.mean())
        path.append(points)
        points = np.clip(points - step_size(now + 1) * (points - values[:, now, 0]), -1, 1)
    return np.array(path)


@pytest.mark.parametrize("tau", [1, 4])
def test_every_evaluation_has_the_regret_of_equation_2(tau):
    values = targets()
    result = played(values, ct.fedomd(step_size=0.3, within=BOX), clock={"sync": tau}, start=1.0)
    path, met = path_by_hand(values, lambda t: 0.3, tau, start=1.0), values[..., 0].T
    global_losses = ((path[:, :, None] - met[:, None]) ** 2 / 2).mean(axis=2).mean(axis=1)
    assert REGRET not in result.history[0], "nothing has been met yet"
    for steps, row in enumerate(result.history[1:], 1):
        best = scipy.optimize.minimize_scalar(lambda u, steps=steps: ((u - met[:steps]) ** 2 / 2).mean(axis=1).sum(),
                                              bounds=(-1, 1), method="bounded", options={"xatol": 1e-10}).fun
        assert row[REGRET] == pytest.approx(global_losses[:steps].sum() - best, abs=1e-8)
    each = [min(((u - now) ** 2 / 2).mean() for u in (-1, 1, np.clip(now.mean(), -1, 1))) for now in met]
    assert result.final[DYNAMIC] == pytest.approx(global_losses.sum() - sum(each), abs=1e-10)


def test_two_clients_and_two_steps_by_hand():
    """Both predict 0, meet 1 and 3, step half way to 1/2 and 1 (cut off), meet 1 and -1."""
    values = np.array([[[1.0], [1.0]], [[3.0], [-1.0]]])
    result = played(values, ct.fedomd(step_size=0.5, within=BOX), clock={"sync": 2})
    first = (1 + 9) / 4
    second = np.mean([(0.25 + 2.25) / 4, (0 + 4) / 4])
    fixed = (0 + 4 + 0 + 4) / 4  # at 1, the mean of all four, which is in the box
    assert result.history[1][REGRET] == pytest.approx(first - (0 + 4) / 4)
    assert result.final[REGRET] == pytest.approx(first + second - fixed)
    assert result.final[DYNAMIC] == pytest.approx(first + second - (0 + 4) / 4 - (1 + 1) / 4)


def test_batches_and_streams_that_begin_again():
    values = targets(3, 7, 2)
    result = played(values, ct.fedomd(step_size=0.2, within=BOX), rounds=9, every=9, clock={"batch": 2, "sync": 3})
    places = np.arange(18) % 7
    met = values[:, places].reshape(3, 9, 2, 2)
    best = np.clip(met.mean(axis=(0, 1, 2)), -1, 1)
    least = ((met - best) ** 2).sum(axis=-1).mean(axis=(0, 2)).sum() / 2
    charged = result.final["online.personal.global_loss.mean"] * 9
    assert result.final[REGRET] == pytest.approx(charged - least, abs=1e-10)


HOLDS = {
    "strongly convex": (1, {"step_size": {"name": "inverse", "start": 1}, "within": BOX}, {"start": 1.0}),
    "another scale": (1, {"step_size": {"name": "inverse", "start": 2}, "within": BOX,
                          "mirror": {"name": "euclidean", "scale": 2.0}}, {}),
    "constant": (3, {"step_size": 0.05, "within": BOX}, {}),
    "ball": (3, {"step_size": 0.05, "within": {"name": "ball", "radius": 0.5}}, {}),
    "euclidean simplex": (3, {"step_size": 0.05, "within": "simplex"}, {"start": 1 / 3}),
    "experts": (3, {"step_size": 0.05, "mirror": "entropy", "within": "simplex"}, {"loss": "linear", "start": 1 / 3}),
    "halves on a simplex": (3, {"step_size": 0.05, "mirror": "entropy", "within": "simplex"}, {"start": 1 / 3}),
    "entropy in a box": (2, {"step_size": 0.05, "mirror": "entropy",
                             "within": {"name": "box", "low": 0.1, "high": 2.0}}, {"start": 1.0}),
    "linear in a box": (2, {"step_size": 0.05, "within": BOX}, {"loss": "linear"}),
    "absolute": (1, {"step_size": 0.05, "within": BOX}, {"loss": "absolute"}),
    "quadratic": (2, {"step_size": 0.05, "mirror": {"name": "quadratic", "matrix": [1.0, 3.0]}, "within": BOX}, {}),
}


@pytest.mark.parametrize(("name", "tau"), [("strongly convex", 1), *((name, 6) for name in HOLDS)], ids=str)
def test_regret_stays_below_its_bound(name, tau):
    width, options, about = HOLDS[name]
    result = played(targets(5, 120, width), ct.fedomd(**options), every=10, clock={"sync": tau}, **about)
    for row in result.history[1:]:
        assert row[REGRET] <= row[BOUND]
        assert row[REGRET] <= row[DYNAMIC] + 1e-9 if DYNAMIC in row else about.get("loss") == "absolute"
    assert result.final[REGRET] > -1e-9 or about.get("loss") == "linear"


def test_the_steepest_gradient_of_half_squares_is_exact():
    values = targets(3, 20, 2)
    recipe = ct.fedomd(step_size={"name": "inverse", "start": 1.0}, within=BOX)
    found = said(values, recipe, clock={"sync": 5})
    corners = np.array(list(itertools.product((-1, 1), repeat=2)))
    steepest = max(np.linalg.norm(corner - values, axis=-1).max() for corner in corners)
    assert found[BOUND] == pytest.approx(fedomd_theorem2_bound(steepest, 2.0, 5, 20))
    flat = said(values, ct.fedomd(step_size=0.1, within=BOX), clock={"sync": 5})
    assert flat[BOUND] == pytest.approx(fedomd_theorem1_bound(1.0, steepest, 0.1, 5, 20))  # D^2 = |(1, 1)|^2 / 2


@pytest.mark.parametrize(("recipe", "clock", "about"), [
    (ct.fedomd(step_size=0.1), {}, {}),
    (ct.fedomd(step_size=0.1, within=BOX), {"sync": 4, "counted": 2}, {}),
    (ct.fedomd(step_size=0.1, within=BOX), {"uplink": 1}, {}),
    (ct.fedomd(step_size=0.1, within=BOX), {"sync": {"probability": 0.5}}, {}),
    (ct.fedomd(step_size={"name": "inverse", "start": 0.5}, within=BOX), {}, {}),
    (ct.fedomd(step_size={"name": "sqrt_decay", "start": 0.5}, within=BOX), {}, {}),
    (ct.fedomd(step_size={"name": "inverse", "start": 1.0}, within=BOX), {}, {"loss": "linear"}),
    (ct.fedomd(step_size=0.1, within=BOX, adaptive="adagrad"), {}, {}),
    (ct.fedomd(step_size=0.1, mirror={"name": "p_norm", "p": 1.5}, within={"name": "ball", "radius": 1, "norm": 1.5}),
     {}, {"loss": "linear"}),
    (ct.fedomd(step_size=0.1, mirror="log_barrier", within="simplex"), {}, {"start": 0.5}),
], ids=["no end", "few are counted", "late", "at random", "steps too short", "other steps", "not strongly convex",
        "adaptive", "p-norm", "log barrier"])
def test_no_bound_where_no_theorem_says_so(recipe, clock, about):
    found = said(targets(width=2), recipe, clock=clock, **about)
    assert REGRET in found and BOUND not in found


def test_a_list_of_synchronisations_has_its_longest_gap():
    """The last one counts too: from step 9 to the end there is none."""
    recipe = ct.fedomd(step_size=0.1, within=BOX)
    one, other = (said(targets(), recipe, clock={"sync": sync}) for sync in ([1, 5, 9], 22))
    assert one[BOUND] == pytest.approx(other[BOUND])


@pytest.mark.parametrize(("recipe", "clock", "about"), [
    (ct.fedomd(step_size=0.1), {"score": "own"}, {}),
    (ct.fedomd(step_size=0.1), {"order": "shuffle"}, {}),
    (ct.fedomd(step_size=0.1), {}, {"split": "all"}),
    (ct.fedomd(step_size=0.1, feedback="two_point"), {}, {}),
    (ct.fedomd(step_size=0.1), {}, {"loss": "linear"}),  # without an end, nothing is furthest
    (ct.fedomd(mirror={"name": "p_norm", "p": 1.5}, within={"name": "ball", "radius": 1, "norm": 1.5}), {}, {}),
], ids=["own losses", "shuffled", "private", "two points", "no corner", "no nearest point"])
def test_no_regret_where_it_cannot_be_known(recipe, clock, about):
    assert not said(targets(width=2), recipe, clock=clock, **about)


@pytest.mark.parametrize("radius", [0.5, 50.0])
def test_least_squares_in_a_ball(numbers, radius):
    problem = ct.regression(numbers, ct.linear(bias=False))
    result = ct.run(problem, numbers, ct.fedomd(step_size=0.01, within={"name": "ball", "radius": radius}), rounds=20,
                    evaluate_every=10, clock=ct.online(sync=4, score="everyone"), precision="float64",
                    initial=({"layer0": {"weight": np.zeros((3, 1))}}, {"layer0": {"weight": None}}))
    train = numbers.train
    rows = np.concatenate([start + np.arange(20) % size for start, size in zip(train.starts, train.sizes, strict=True)])
    inputs, wanted = train.inputs[rows].astype(np.float32).astype(float), train.targets[rows].astype(float)
    best = scipy.optimize.minimize(lambda w: ((inputs @ w - wanted) ** 2).sum() / 7, np.zeros(3), method="SLSQP",
                                   constraints={"type": "ineq", "fun": lambda w: radius**2 - w @ w},
                                   options={"ftol": 1e-14}).fun
    charged = result.final["online.personal.global_loss.mean"] * 20
    assert result.final[REGRET] == pytest.approx(charged - best, abs=1e-4)
    assert result.final[REGRET] <= result.final[BOUND]
    assert DYNAMIC not in result.final


def test_networks_have_no_best_point_that_could_be_found(labels):
    recipe = ct.fedomd(within={"name": "ball", "radius": 9.0})
    assert not said(None, recipe, 4, data=labels, problem=ct.classification(labels, ct.mlp(hidden=(4,))))
    assert REGRET in said(None, recipe, 4, data=labels, problem=ct.logistic(labels))


def test_rollouts_say_what_runs_say_and_regret_grows_with_the_period():
    """Equation (46), from a point away from the best one."""
    streams = [ct.drifting_targets(6, 400, spread=5.0, seed=seed) for seed in range(3)]
    recipe = ct.fedomd(step_size={"name": "inverse", "start": 1.0}, within={"name": "box", "low": -3, "high": 3})
    problem = ct.target(streams[0], start=3.0)
    clocks = [ct.online(sync=tau, score="everyone") for tau in (40, 10, 1)]
    found = rollouts(problem, streams * 3, recipe, rounds=400, evaluate_every=(20, 150), precision="float64",
                     clock=[clock for clock in clocks for _ in streams])
    assert [row["round"] for row in found[0]] == [20, 150, 400]
    regrets = np.array([history[-1][REGRET] for history in found]).reshape(3, 3)
    assert (regrets[0] > regrets[1]).all() and (regrets[1] > regrets[2]).all()
    assert all(row[REGRET] <= row[BOUND] for history in found for row in history)
    alone = ct.run(problem, streams[1], recipe, rounds=400, evaluate_every=150, precision="float64", clock=clocks[0])
    for key in (REGRET, BOUND, DYNAMIC):
        assert alone.final[key] == pytest.approx(found[1][-1][key], rel=1e-9)
        assert alone.history[1][key] == pytest.approx(found[1][1][key], rel=1e-9)


@pytest.mark.parametrize("tau", [1, 10])
def test_the_average_prediction_has_the_excess_risk_of_theorem_3(tau):
    """Targets are uniform on [-1/2, 1] and independent; the risk of x is (x - 1/4)^2 / 2 above its least."""
    clients, steps, steepest, most = 5, 600, 2.0, 2.0
    step_size = fedomd_theorem1_step_size(2.0, steepest, tau, steps)  # D^2 = (1 + 1)^2 / 2 from z = -1
    bound = fedomd_theorem3_bound(2.0, steepest, most, clients, tau, steps, failure=0.01)
    for seed in range(3):
        values = np.random.default_rng(seed).uniform(-0.5, 1, (clients, steps, 1))
        result = played(values, ct.fedomd(step_size=step_size, within=BOX), every=steps, clock={"sync": tau},
                        start=-1.0)
        average = online_to_batch(result.model.state)
        excess = float((average["point"][0] - 0.25) ** 2 / 2)
        assert excess <= bound
        # Jensen, (14): the risk of the average is at most what regret leaves per step, but for chance.
        assert excess <= result.final[REGRET] / steps + 0.05


@pytest.mark.parametrize("name", ["figure1", "simplex", "ball"])
def test_the_studies_run_and_say_what_they_are_for(name, tmp_path):
    study = read_study(STUDIES / f"{name}.toml", {"rounds": 60, "evaluate_every": 20, "data.steps": 60})
    result = study.run(out=tmp_path / name)
    assert {REGRET, DYNAMIC} <= set(result.final)
    assert (BOUND in result.final) == (name != "ball")
    for row in result.history[1:]:
        assert row[REGRET] <= row.get(BOUND, np.inf)
    page = write_report([tmp_path / name], tmp_path / "report.html").read_text("utf-8")
    assert "Collective regret so far" in page and "Dynamic regret so far" in page and "steps (log scale)" in page
    assert ("Collective regret and its bound" in page) == (name != "ball")


def test_float32_runs_have_it_too_and_leave_the_precision_as_it_was():
    data = federation(targets())
    result = ct.run(ct.target(data), data, ct.fedomd(step_size=0.1, within=BOX), rounds=30, evaluate_every=30,
                    clock=ct.online(score="everyone"))
    exact = played(targets(), ct.fedomd(step_size=0.1, within=BOX), every=30)
    assert result.final[REGRET] == pytest.approx(exact.final[REGRET], rel=1e-3)
    assert not jax.config.jax_enable_x64


@pytest.mark.parametrize("about", [{}, {"loss": "absolute"}, {"loss": "linear"}])
def test_what_a_problem_is_called_does_not_matter(about):
    data, recipe = federation(targets()), ct.fedomd(step_size=0.1, within=BOX)
    named = ct.target(data, **about)
    assert said(targets(), recipe, problem=named) == said(targets(), recipe, problem=named._replace(spec=None)) != {}


def test_a_problem_of_ones_own_has_regret_if_it_says_that_it_is_convex(numbers):
    """Least squares by hand and by name: the same numbers."""
    own = ct.from_functions(lambda key: {"w": np.zeros((3, 1))}, lambda params, inputs: inputs @ params["w"],
                            loss="squared")
    named = ct.regression(numbers, ct.linear(bias=False))
    recipe = ct.fedomd(step_size=0.01, within={"name": "ball", "radius": 0.5})
    assert not said(None, recipe, 5, data=numbers, problem=own)
    found = said(None, recipe, 5, data=numbers, problem=own._replace(convex=named.convex))
    assert found == pytest.approx(said(None, recipe, 5, data=numbers, problem=named), rel=1e-6) and found
