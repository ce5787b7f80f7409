"""Regret where clients are silent in some steps: against computations that know nothing of the library but its clock.

R_T = 1/m sum over steps and over the clients that act in them of l_t(x_i) - l_t(best), where l_t is the mean loss of
those who act.
"""

import re

import jax
import numpy as np
import pytest

import cantons as ct
from cantons.protocol import Progress
from cantons.regret import regret_of
from cantons.study.online_metrics import online_metrics

RANDOM = np.random.default_rng(0)
BOX = {"name": "box", "low": -1, "high": 1}
CLIENTS, STEPS, ROWS = 5, 24, 7
REGRET, DYNAMIC, BOUND = "online.collective_regret", "online.dynamic_regret", "online.collective_bound"
TARGETS = RANDOM.normal(0.4, 1, (CLIENTS, ROWS, 2)).astype(np.float32).astype(float)
TRACE = np.random.default_rng(1).random((9, CLIENTS)) < 0.5
TRACE[[0, 4]] = False  # steps in which nobody has anything
TRACE[:, 3] = False  # and a client that never has
ARRIVALS = {"probability": [0.2, 0.9, 0.5, 1.0, 0.3], "seed": 3}
ALONE = np.arange(CLIENTS) == np.arange(STEPS)[:, None] % CLIENTS  # as in a stream whose rows are steps
SILENT = {"trace": TRACE, "random arrivals": ARRIVALS, "one at a time": ALONE}


def federation(values=TARGETS):
    return ct.from_clients({str(number): (own, np.zeros(len(own))) for number, own in enumerate(values)}, test=0)


def trace_of(active):
    """Who acts in each step, drawn by the clock itself where it is drawn at random."""
    clock = ct.online(active=active).build(CLIENTS)
    return np.array([clock.plan(clock.arrays, jax.random.key(9), np.int32(step)).acts for step in range(STEPS)])


def met_by_hand(acts, batch=1, values=TARGETS):
    """The examples of each step: {client: rows}; a client goes through its own again and again."""
    times, found = np.zeros(CLIENTS, int), []
    for now in acts:
        found.append({client: values[client][(times[client] * batch + np.arange(batch)) % ROWS]
                      for client in np.flatnonzero(now)})
        times += now
    return found


def path_by_hand(met, size, tau):
    """FedOMD in [-1, 1]: at a meeting all go on from the mean of all points, also of those who had no examples."""
    server, points, path = np.zeros(2), np.zeros((CLIENTS, 2)), []
    for now, examples in enumerate(met):
        if now % tau == 0:
            points = np.tile(server, (CLIENTS, 1))
        path.append(points.copy())
        for client, rows in examples.items():
            points[client] = np.clip(points[client] - size * (points[client] - rows.mean(axis=0)), -1, 1)
        if (now + 1) % tau == 0:
            server = points.mean(axis=0)
    return path


def loss(point, examples):
    """l_t: the mean over the clients of this step."""
    return np.mean([((point - rows) ** 2).sum(axis=1).mean() / 2 for rows in examples.values()])


def played(active, every=STEPS, data=None, **clock):
    data = data or federation()
    return ct.run(ct.target(data), data, ct.fedomd(step_size=0.3, within=BOX), rounds=STEPS, evaluate_every=every,
                  precision="float64", clock=ct.online(score="everyone", active=active, **clock))


@pytest.mark.parametrize(("tau", "batch"), [(1, 2), (4, 1)])
@pytest.mark.parametrize("name", SILENT)
def test_collective_regret_of_silent_clients_by_hand(name, tau, batch):
    met = met_by_hand(trace_of(SILENT[name]), batch)
    path = path_by_hand(met, 0.3, tau)
    result = played(SILENT[name], every=5, sync=tau, batch=batch)
    compared = 0
    for row in result.history[1:]:
        steps = row["round"]
        some = [(points, examples) for points, examples in zip(path[:steps], met[:steps], strict=True) if examples]
        charged = sum(loss(points[client], examples) for points, examples in some for client in examples)
        everything = np.concatenate([rows for _, examples in some for rows in examples.values()])
        best = np.clip(everything.mean(axis=0), -1, 1)
        least = sum(len(examples) * loss(best, examples) for _, examples in some)
        moving = sum(len(examples) * loss(np.clip(np.concatenate(list(examples.values())).mean(axis=0), -1, 1),
                                          examples) for _, examples in some)
        assert row[REGRET] == pytest.approx((charged - least) / CLIENTS, abs=1e-10)
        assert row[DYNAMIC] == pytest.approx((charged - moving) / CLIENTS, abs=1e-10)
        assert BOUND not in row, "the theorems let everybody act in every step"
        compared += 1
    assert compared == 5


@pytest.mark.parametrize("form", ["absolute", "linear"])
def test_medians_and_corners_of_what_was_met(form):
    data, acts = federation(), trace_of(TRACE)
    result = ct.run(ct.target(data, loss=form), data, ct.fedomd(step_size=0.1, within={"name": "box", "low": -2,
                    "high": 2}), rounds=STEPS, clock=ct.online(score="everyone", active=TRACE), precision="float64")
    rows = np.concatenate([rows for examples in met_by_hand(acts) for rows in examples.values()])
    best = np.median(rows, axis=0) if form == "absolute" else -2 * np.sign(rows.sum(axis=0))
    least = (np.abs(best - rows) if form == "absolute" else best * rows).sum()
    charged = result.clients["online.personal.global_loss"] @ acts.sum(axis=0)
    assert result.final[REGRET] == pytest.approx((charged - least) / CLIENTS, abs=1e-10)


@pytest.mark.parametrize("active", [TRACE, ARRIVALS], ids=["trace", "random arrivals"])
def test_a_best_point_that_is_searched_for_is_that_of_all_rows_met(active):
    inputs = RANDOM.normal(size=(CLIENTS, ROWS, 2)).astype(np.float32)
    wanted = RANDOM.normal(size=(CLIENTS, ROWS)).astype(np.float32)
    data = ct.from_clients({str(client): (inputs[client], wanted[client]) for client in range(CLIENTS)}, test=0)
    result = ct.run(ct.regression(data, ct.linear(bias=False)), data, ct.fedomd(step_size=0.05), rounds=STEPS,
                    clock=ct.online(score="everyone", active=active), precision="float64")
    acts = trace_of(active)
    both = np.concatenate([inputs, wanted[..., None]], axis=2).astype(float)
    rows = np.concatenate([rows for examples in met_by_hand(acts, values=both) for rows in examples.values()])
    best = np.linalg.lstsq(rows[:, :2], rows[:, 2])[0]
    least = ((rows[:, :2] @ best - rows[:, 2]) ** 2).sum()
    charged = result.clients["online.personal.global_loss"] @ acts.sum(axis=0)
    assert result.final[REGRET] == pytest.approx((charged - least) / CLIENTS, abs=1e-7)


def test_a_trace_in_which_all_act_changes_nothing():
    silent, full = played(np.ones((3, CLIENTS), bool), every=4), played(None, every=4)
    for one, other in zip(silent.history, full.history, strict=True):
        for key in (REGRET, DYNAMIC):
            assert one.get(key) == (other.get(key) and pytest.approx(other[key], rel=1e-12))


def test_a_recorded_stream_has_its_regret():
    """The clock finds the trace in the data; one row in each step, so m R_T is the regret of the whole stream."""
    owners = RANDOM.integers(0, 3, 20)
    rows = [(str(owner), row, 0.0) for owner, row in zip(owners, TARGETS.reshape(-1, 2), strict=False)]
    data, active = ct.from_stream(ct.from_iterable(rows, regression=True), step="row")
    final = ct.run(ct.target(data), data, ct.fedomd(step_size=0.3, within=BOX), rounds=20, precision="float64",
                   clock=ct.online(score="everyone")).final
    point, charged, met = np.zeros(2), 0.0, np.array([row for _, row, _ in rows])
    for row in met:
        charged += ((point - row) ** 2).sum() / 2
        moved = np.clip(point - 0.3 * (point - row), -1, 1)
        point = (2 * point + moved) / 3  # the two who had no example bring their points to the meeting too
    least = ((np.clip(met.mean(axis=0), -1, 1) - met) ** 2).sum() / 2
    assert active.sum(axis=1).tolist() == [1] * 20
    assert 3 * final[REGRET] == pytest.approx(charged - least, abs=1e-9)


@pytest.mark.parametrize("weights", ["equal", "inverse"])
@pytest.mark.parametrize("active", [TRACE, ARRIVALS], ids=["trace", "random arrivals"])
def test_regret_of_pairs_where_clients_are_silent(active, weights):
    """Equation (1) of Federated Residual Learning, by dense least squares over the rows that were met."""
    inputs = RANDOM.normal(size=(CLIENTS, ROWS, 2))
    wanted = RANDOM.normal(size=(CLIENTS, ROWS))
    data = ct.from_clients({str(client): (inputs[client], wanted[client]) for client in range(CLIENTS)}, test=0)
    bare = ct.linear(bias=False)
    result = ct.run(ct.residual(data, shared_model=bare, private_model=bare), data,
                    ct.fedres_online_sgd(step_size=0.02), rounds=STEPS, precision="float64",
                    clock=ct.online(active=active, weights=weights))
    acts = trace_of(active)
    rare = np.asarray(active["probability"]) if isinstance(active, dict) else np.maximum(active.mean(axis=0), 1 / 9)
    importance = np.ones(CLIENTS) if weights == "equal" else np.float32(1 / rare).astype(float)
    both = np.concatenate([inputs, wanted[..., None]], axis=2)
    design, sought = [], []
    for examples in met_by_hand(acts, values=both):
        for client, rows in examples.items():
            row = np.zeros((CLIENTS + 1, 2))
            row[[0, 1 + client]] = rows[0, :2]
            design.append(np.sqrt(importance[client]) * row.ravel())
            sought.append(np.sqrt(importance[client]) * rows[0, 2])
    design, sought = np.array(design), np.array(sought)
    least = ((design @ np.linalg.lstsq(design, sought)[0] - sought) ** 2).sum()
    charged = (importance * acts.sum(axis=0)) @ result.clients["online.personal.loss"]
    assert result.final["online.regret"] == pytest.approx((charged - least) / (CLIENTS * STEPS), rel=1e-6)


# Why there is none.


def door(problem, data, recipe=None, rounds=STEPS, **clock):
    recipe = recipe or ct.fedomd(step_size=0.1, within=BOX)
    return regret_of(problem, recipe.build(problem, data.population), ct.online(**clock).build(data.population), data,
                     problem.init(jax.random.key(0)), rounds)


def progress_of(round=2, rejected=0, met=2):
    nothing = np.zeros(CLIENTS)
    return Progress(round, 0, nothing, nothing, np.full(CLIENTS, rejected), np.full(CLIENTS, met),
                    {"global_loss": nothing, "loss": nothing})


NUMBERS = federation()
P_NORM = ct.fedomd(mirror={"name": "p_norm", "p": 1.5}, within={"name": "ball", "radius": 1, "norm": 1.5})


@pytest.mark.parametrize(("problem", "recipe", "clock", "because"), [
    (ct.target(NUMBERS), None, {"order": "shuffle"}, "no collective regret: .* order \"shuffle\""),
    (ct.target(NUMBERS, split="all"), None, {}, "no collective regret: .* private part"),
    (ct.target(NUMBERS), ct.fedomd(feedback="two_point"), {}, "no collective regret: the algorithm .* charged"),
    (ct.target(NUMBERS), ct.fedavg(), {}, "no collective regret: the algorithm does not say in which set"),
    (ct.target(NUMBERS), P_NORM, {}, "no collective regret: .* nearest point"),
    (ct.target(NUMBERS, loss="linear"), ct.fedomd(), {}, "no collective regret: .* no end"),
    (ct.regression(NUMBERS, ct.mlp(hidden=(2,))), None, {}, "no collective regret: .* convex"),
    (ct.residual(NUMBERS, loss="logistic", labels="sign"), ct.fedres_online_sgd(), {"score": "own"},
     "no regret: .* squared loss"),
    (ct.residual(NUMBERS), ct.fedres_online_sgd(), {"score": "own", "order": "sample"}, "no regret: .* \"sample\""),
], ids=["shuffled", "private", "two points", "no set", "no nearest point", "no end", "network", "logistic", "sampled"])
def test_one_sentence_says_why_there_is_none(problem, recipe, clock, because):
    found = door(problem, NUMBERS, recipe, **{"score": "everyone", **clock})
    assert re.fullmatch(rf"{because}.*\.", found.why_not), found.why_not
    assert found.measure(progress_of()) == {}


@pytest.mark.parametrize(("problem", "recipe", "clock"), [
    (ct.target(NUMBERS), None, {"score": "everyone"}),
    (ct.target(NUMBERS), None, {"score": "everyone", "active": TRACE}),
    (ct.target(NUMBERS), None, {}),
    (ct.residual(NUMBERS), ct.fedres_online_sgd(), {}),
], ids=["measured", "silent", "nobody asked", "pairs"])
def test_nothing_is_said_where_regret_is_measured_or_nobody_asked(problem, recipe, clock):
    assert door(problem, NUMBERS, recipe, **clock).why_not == ""


@pytest.mark.parametrize(("problem", "clock"), [(ct.target(NUMBERS), {"score": "everyone"}),
                                                (ct.residual(NUMBERS), {})], ids=["collective", "pairs"])
def test_a_client_that_abstained_ends_it_and_that_is_said(problem, clock):
    recipe = ct.fedomd(step_size=0.1, within=BOX) if problem.residual is None else ct.fedres_online_sgd()
    found = door(problem, NUMBERS, recipe, **clock)
    assert found.measure(progress_of()) and found.why_not == ""
    for _ in range(2):
        assert found.measure(progress_of(rejected=1)) == {}
        assert found.why_not.count("abstained") == 1, "it is said once"


def test_meetings_that_the_clock_did_not_plan_are_not_guessed():
    found = door(ct.target(NUMBERS), NUMBERS, score="everyone")
    assert found.measure(progress_of(met=1)) == {} and "clock" in found.why_not


def test_a_comparison_that_would_take_too_long_says_so(monkeypatch):
    from cantons.regret import hindsight
    monkeypatch.setattr(hindsight, "COSTLY", 10)
    found = door(ct.residual(NUMBERS), NUMBERS, ct.fedres_online_sgd())
    assert found.why_not.startswith("no regret: ") and "multiplications" in found.why_not


def test_a_run_is_told_the_sentence():
    problem = ct.target(NUMBERS, split="all")
    recipe, clock = ct.fedomd(step_size=0.1), ct.online(score="everyone")
    told = online_metrics(problem, recipe.build(problem, CLIENTS), clock.build(CLIENTS), NUMBERS,
                          problem.init(jax.random.key(0)), STEPS)
    assert "private part" in told.why_not
    rounds = online_metrics(problem, recipe.build(problem, CLIENTS), ct.rounds().build(CLIENTS), NUMBERS,
                            problem.init(jax.random.key(0)), STEPS)
    assert rounds.why_not == ""
