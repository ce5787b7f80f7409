"""What every algorithm we ship must do, whoever wrote it: the registry is read, so a new file is covered at once.

The properties themselves are `cantons.checks`, for strangers' algorithms too. Here stands what they leave out: the
oracle, what exactly travels, and that a new algorithm takes one file.
"""

import functools
from dataclasses import replace

import jax
import numpy as np
import pytest
import toy_algorithm as toy

import cantons as ct
from cantons.algorithm import ROUNDS as ALGORITHMS
from cantons.checks.case import fitting_case
from cantons.checks.compare import difference
from cantons.checks.contract import CHECKS, find, sentence_of
from cantons.checks.stage import travelling
from cantons.data import pooled
from cantons.metrics import leaves, nbytes

pytestmark = pytest.mark.usefixtures("float64")

# Options that make a round short; an algorithm that is not listed runs with its defaults.
OPTIONS = {
    "central": {"steps": 2, "batch_size": 5},
    "ditto": {"batch_size": 4, "fit_epochs": 1},
    "example_transfer": {"steps": 2, "batch_size": 4, "fit_epochs": 1, "central_batch_size": 3, "central_batches": 2},
    "fedadam": {"batch_size": None, "fit_epochs": 1},
    "fedalt": {"private_steps": 2, "steps": 2, "batch_size": 4, "fit_epochs": 3},
    "fedavg": {"epochs": 2, "batch_size": 4, "fit_epochs": 1},
    "fedavg_finetune": {"batch_size": None, "tune_epochs": 1},
    "fedavgm": {"batch_size": None, "fit_epochs": 1},
    "fedopt": {"batch_size": None, "fit_epochs": 1, "client_optimizer": "momentum", "clip_norm": 1.0},
    "fedper": {"batch_size": None, "fit_epochs": 1},
    "fedprox": {"batch_size": None, "epochs": 3, "fit_epochs": 1},
    "fedrep": {"head_epochs": 2, "batch_size": 4, "fit_epochs": 3, "weighting": "examples", "clip_norm": 1.0},
    "fedres_avg": {"steps": 3, "batch_size": 4, "fit_epochs": 1},
    "fedres_naive": {"steps": 3, "batch_size": 4, "fit_epochs": 1},
    "fedres_sgd": {"steps": 3, "batch_size": 4, "fit_epochs": 1},
    "fedsgd": {"fit_epochs": 1},
    "fedsim": {"steps": 2, "batch_size": 4, "fit_epochs": 3, "state": "none", "weighting": "batches"},
    "fedyogi": {"batch_size": None, "fit_epochs": 1},
    "ffgg": {"tuner": {"name": "gd", "steps": 2}, "delta_batch_size": 3, "private_init": "last"},
    "independent": {"batch_size": None, "fit_epochs": 1},
    "l2gd": {"batch_size": None, "fit_epochs": 1},
    "local_ffgg": {"tuner": {"name": "sgd", "batch_size": 4, "epochs": 4}, "steps": 2, "batch_size": 4,
                   "private_init": "random"},
    "one_way_transfer": {"steps": 2, "batch_size": 4, "fit_epochs": 1, "central_batch_size": 3},
    "only_central": {"central_steps": 2, "central_batch_size": 3},
    "parallel_centre": {"clients": ct.ffgg(tuner={"name": "gd", "steps": 2}, delta_batch_size=3, private_init="last"),
                        "central_steps": 2, "central_batch_size": 3, "central_private": "trained"},
    "parallel_training": {"steps": 2, "batch_size": 4, "fit_epochs": 1, "central_steps": 2, "central_batch_size": 3,
                          "merge_optimizer": "adam"},
    "pfedme": {"steps": 2, "tuner": {"name": "sgd", "batch_size": 4, "epochs": 2}},
    "scaffold": {"steps": 3, "batch_size": 4, "fit_epochs": 1},
    "sequential": {"steps": 2, "batch_size": 4, "fit_epochs": 1, "central_rounds": 1, "central_steps": 2,
                   "central_batch_size": 3},
    "two_way_transfer": {"steps": 2, "batch_size": 4, "fit_epochs": 1, "central_steps": 2, "central_batch_size": 3,
                         "central_private": "trained"},
}

# A contract that holds for these holds without them too; what travels is listed without them.
HARDER = {
    "one_way_transfer": {"compression": "top_k"},
    "two_way_transfer": {"compression": "int8"},
}

# What travels, down and up; {shared} and {private} stand for every array of that part of the model.
RESIDUAL = ["shared/{shared}", "step_size", "private_step_size"], ["change/{shared}"]
AVERAGING = ["shared/{shared}", "step_size"], ["change/{shared}", "weight"]
TWO_STEPS = ["shared/{shared}", "step_size", "private_step_size"], ["change/{shared}", "weight"]
BATCHES = [("batches/inputs", (2, 3, 4)), ("batches/targets", (2, 3)), ("batches/mask", (2, 3))]
TRAVELS = {
    **dict.fromkeys(("ditto", "fedadam", "fedavg", "fedavg_finetune", "fedavgm", "fedopt", "fedper", "fedprox",
                     "fedsgd", "fedyogi"), AVERAGING),
    "central": (["shared/{shared}", "private/{private}", "step_size"], []),  # private parts are one part there
    "fedres_avg": (["shared/{shared}", "control/{shared}", "step_size", "private_step_size"],
                   ["change/{shared}", "control_change/{shared}"]),
    "fedres_naive": RESIDUAL,
    "fedres_sgd": RESIDUAL,
    "ffgg": (["shared/{shared}"], ["gradient/{shared}"]),
    "fedalt": TWO_STEPS,
    "fedrep": TWO_STEPS,
    "fedsim": (["shared/{shared}", "start/{private}", "step_size", "private_step_size"], ["change/{shared}", "weight"]),
    "independent": (["step_size"], []),
    "l2gd": (["shared/{shared}", "pulls", "local_steps", "step_size"], ["{shared}"]),
    "example_transfer": (["shared/{shared}", "private/{private}", "step_size", *BATCHES],
                         ["change/{shared}", "weight"]),  # the centre's private part, not a client's
    "local_ffgg": (["shared/{shared}", "step_size", "private_step_size"], ["gradient/{shared}"]),
    "one_way_transfer": (["shared/{shared}", "step_size", "central_gradient/{shared}"], ["change/{shared}", "weight"]),
    "only_central": (["shared/{shared}", "private/{private}"], []),
    "parallel_centre": (["shared/{shared}"], ["gradient/{shared}"]),
    "parallel_training": AVERAGING,
    "sequential": AVERAGING,
    "two_way_transfer": (["shared/{shared}", "step_size", "central_gradient/{shared}"],
                         ["change/{shared}", "weight", "steps"]),
    "pfedme": (["shared/{shared}", "step_size"], ["change/{shared}"]),
    "scaffold": (["shared/{shared}", "control/{shared}", "step_size"],
                 ["change/{shared}", "control_change/{shared}"]),
}

# Whose message has a private part, which is the server's own and no client's.
SENDS_ONE_PRIVATE = ("central", "example_transfer", "fedsim", "only_central")

# Where a check has nothing to say.
SKIPPED = {(name, "a new client fits its private part before it predicts") for name in ("central", "only_central")}

each_algorithm = pytest.mark.parametrize("name", sorted(ALGORITHMS))


def recipe(name):
    return ALGORITHMS[name](**OPTIONS.get(name, {}), **HARDER.get(name, {}))


@functools.cache  # compiled once for all the checks that look at it
def case(name):
    return fitting_case(recipe(name))[1]


@pytest.mark.parametrize("check", CHECKS["rounds"], ids=sentence_of)
@each_algorithm
def test_every_check_passes(name, check):
    found = find(check, case(name))
    assert found.status == ("skipped" if (name, found.check) in SKIPPED else "ok"), found.sentence


@each_algorithm
def test_the_engine_does_what_a_plain_loop_over_the_clients_does(name, plain_loop):
    stage = case(name).stage
    after = stage.play(stage.start, stage.everybody, (1, 2, 6), rounds=3)
    loop = plain_loop(case(name).problem, case(name).data, recipe(name), seed=stage.parts.seed)
    loop.play(1).play(1, cohort=(1, 2, 6)).play(1)
    expected = loop.server, jax.tree.map(lambda *states: np.stack(states), *loop.clients)
    assert not difference((after.server, after.clients.state), expected, digits=1e-12)


# Nothing else crosses


def spelled_out(templates, shared, private):
    """(path, shape) of every array that the templates stand for."""
    parts = {"{shared}": shared, "{private}": private}
    found = []
    for template in templates:
        if isinstance(template, tuple):
            found.append(template)
            continue
        mark = next((mark for mark in parts if mark in template), None)
        found += [(template, ())] if mark is None else [
            (template.replace(mark, path), shape) for path, shape, _ in leaves(parts[mark])]
    return found


@pytest.mark.parametrize("split", ["none", "output"])
@each_algorithm
def test_messages_and_uploads_carry_exactly_what_they_say(name, split, labels):
    assert name in TRAVELS, f"say in TRAVELS what {name} sends down and up"
    problem, data = ct.classification(labels, ct.mlp(hidden=[5]), split=split), labels
    if case(name).algorithm.needs.central:
        problem, data = ct.with_central_loss(problem), replace(labels, central=pooled(labels.train))
    algorithm = ALGORITHMS[name](**OPTIONS.get(name, {})).build(problem, labels.population)
    parts = jax.eval_shape(problem.init, jax.random.key(0))
    for tree, expected in zip(travelling(problem, algorithm, data), TRAVELS[name], strict=True):
        sent = [(path, shape) for path, shape, _ in leaves(tree)]
        assert sorted(sent) == sorted(spelled_out(expected, *parts))
        if split == "output" and name not in SENDS_ONE_PRIVATE:
            private_shapes = {shape for _, shape, _ in leaves(parts[1])}
            assert private_shapes == {(5, 3), (3,)}  # no array of the shared part looks like these
            assert not private_shapes & {shape for _, shape in sent}


@each_algorithm
def test_what_travelled_is_as_large_as_what_is_reported(name):
    session, clients = case(name).stage.session, case(name).warm.clients
    reported = [nbytes(tree) for tree in session.travel(session.begin())]
    travelled = [sum(leaf[0].nbytes for leaf in jax.tree.leaves(tree)) for tree in (clients.sent, clients.upload)]
    assert reported == travelled


def test_a_record_counts_the_bytes_of_every_travel(numbers, least_squares):
    result = ct.run(least_squares, numbers, ct.scaffold(batch_size=None), rounds=5, cohort=3, evaluate_every=5)
    weight = 3 * 4  # three inputs, four bytes
    down, up = 2 * weight + 4, 2 * weight  # model and control, and the step size on the way down
    assert (result.final["bytes_down"], result.final["bytes_up"]) == (5 * 3 * down, 5 * 3 * up)
    assert sum(result.clients["bytes_up"]) == result.final["bytes_up"]
    assert result.final["bytes_per_client"] == 5 * 3 * (down + up) / 7


# A new algorithm takes one file


@pytest.mark.parametrize("recipe, combine", [
    (toy.sign_vote(step_size=0.05), lambda gradients: np.sign(np.sign(gradients).sum(axis=0))),
    (toy.median_descent(step_size=0.05), lambda gradients: np.median(gradients, axis=0)),
], ids=["a sum of one-byte votes", "the median of a stack"])
def test_an_algorithm_from_another_file_runs_as_it_is(recipe, combine, numbers, least_squares, own_rows):
    """Some clients are never there: their slots are spare, and neither a sum nor a stack may count them."""
    there = np.array([True, False, True, True, True, False, True])
    result = ct.run(least_squares, numbers, recipe, rounds=4, evaluate_every=4, precision="float64",
                    clock=ct.rounds(available=there[None]), engine=ct.Local(devices=2, group=2))
    weight = np.zeros(3)
    for _ in range(4):
        gradients = [2 / len(x) * x.T @ (x @ weight - y) for x, y in own_rows(numbers)]
        weight = weight - 0.05 * combine(np.array(gradients)[there])
    np.testing.assert_allclose(result.model.state.server.shared["layer0"]["weight"][:, 0], weight, atol=1e-12)
    assert result.final["rejected_uploads"] == result.final["skipped_rounds"] == 0


def test_all_act_some_count_all_hear_and_the_table_stays_true(numbers, least_squares, own_rows):
    """The server's total is what its clients were told is in it, and what they will be told next."""
    rounds = 600
    result = ct.run(least_squares, numbers, toy.gradient_table(step_size=0.05), rounds=rounds,
                    evaluate_every=rounds, clock=toy.some_count(counted=3), precision="float64")
    state = result.model.state
    assert (state.downloads == rounds).all() and state.uploads.sum() == rounds * 3
    heard = state.acknowledged[:, None, None]
    known = jax.tree.map(lambda told, pending: np.where(heard, told, pending).sum(axis=0),
                         state.clients.told, state.clients.pending)
    assert not difference(known, state.server.total, digits=1e-12)
    # Every client's gradient is in the table, if late, so the limit is the optimum of the mean loss.
    curvature = sum(x.T @ x / len(x) for x, _ in own_rows(numbers))
    optimum = np.linalg.solve(curvature, sum(x.T @ y / len(x) for x, y in own_rows(numbers)))
    np.testing.assert_allclose(state.server.shared["layer0"]["weight"][:, 0], optimum, atol=1e-6)
