"""Runs with liars: what each attack sends, who is counted, and that nothing else changes."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import cantons as ct
from cantons.attack import (
    ATTACKS,
    a_little_is_enough,
    inner_product,
    label_flip,
    mimic,
    mistimed,
    noise,
    not_finite,
    scaling,
    sign_flip,
    silence,
)
from cantons.attack import corrupt as corrupted
from cantons.protocol import Attack, Average, Averages, StackRule
from cantons.recipe import attack
from cantons.study.read import check_study, read_study
from cantons.study.reading import read_clients

LIARS = np.array([False, True, False, False, True, False, False])  # by their places in `numbers`
AMONG_LABELS = np.array([True, False, True, False, False, False, False])  # and in `labels`
NAMES = ("client1", "client4")
ROWS = np.random.default_rng(0).normal(size=(7, 3))


def lie(how, **options):
    return ct.byzantine(attack=how, **(options or {"clients": NAMES}))


def seen_by_rule(how, rows, there=(1,) * 7):
    """What a rule would see of these uploads if all-knowing liars are among them."""
    seen = []

    def reduce(key, state, uploads, ids, expected):
        seen.append(uploads.value)
        return Average(uploads.value[0], uploads.weight[0]), state, None

    honest = ct.Algorithm(*[None] * 4, Averages(lambda upload: upload, StackRule(reduce)), *[None] * 2)
    rule = corrupted("it", honest, how.build(), LIARS, None).aggregate.rule
    rule.reduce(jax.random.key(0), (), Average(jnp.asarray(rows), jnp.asarray(there, float)), jnp.arange(7), 7)
    return np.asarray(seen[0])


@pytest.mark.usefixtures("float64")
def test_liars_who_see_all_send_what_their_papers_say_and_leave_others_alone():
    honest = ROWS[~LIARS]
    expected = [
        (inner_product(epsilon=5.0), -5 * honest.mean(axis=0)), (mimic(target=2), honest[2]),
        (mimic(target=99), honest[-1]), (a_little_is_enough(z=1.5), honest.mean(axis=0) - 1.5 * honest.std(axis=0)),
        # Of 7 with 2 liars a majority needs 2 honest ones: the other 3 of 5 are nearer; Phi^-1(0.6) = 0.2533.
        (a_little_is_enough(), honest.mean(axis=0) - 0.2533471 * honest.std(axis=0))]
    for how, sent in expected:
        seen = seen_by_rule(how, ROWS)
        np.testing.assert_array_equal(seen[~LIARS], honest)
        np.testing.assert_allclose(seen[LIARS], [sent] * 2, atol=1e-7)
    absent = seen_by_rule(inner_product(epsilon=1.0), ROWS, there=(1, 0, 1, 0, 1, 1, 1))
    np.testing.assert_allclose(absent[4], -ROWS[[0, 2, 5, 6]].mean(axis=0), atol=1e-12)
    np.testing.assert_array_equal(absent[1], ROWS[1])  # who is not there sends nothing


@pytest.fixture(scope="module")
def problem(labels):
    return ct.logistic(labels)


def play(problem, labels, byzantine=None, rounds=3, **options):
    return ct.run(problem, labels, ct.fedavg(step_size=0.1), rounds=rounds, byzantine=byzantine, **options)


def weights(result):
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(result.model.state.server.shared)])


@pytest.mark.usefixtures("float64")
def test_a_liar_sends_what_its_attack_makes_of_its_own_upload():
    value = {"a": jnp.arange(3.0), "b": jnp.ones(2)}

    class Handle:
        def __init__(self, liar):
            self.liar = jnp.asarray(liar)

    honest = ct.Algorithm(*[None] * 3, lambda key, message, client, data: ((value, 7.0), client),
                          Averages(lambda upload: Average(*upload), ct.mean().build()), *[None] * 2)

    def sent(how, liar=True, key=0):
        algorithm = corrupted("it", honest, how.build(), LIARS, None)
        upload, _ = algorithm.client_update(jax.random.key(key), None, (), Handle(liar))
        found = algorithm.aggregate.read(upload)
        assert found.weight == 7
        return np.concatenate([found.value["a"], found.value["b"]])

    truth = np.array([0.0, 1, 2, 1, 1])
    np.testing.assert_array_equal(sent(sign_flip()), -truth)
    np.testing.assert_array_equal(sent(scaling(factor=-4.0)), -4 * truth)
    assert np.isnan(sent(not_finite())).all()
    drawn = [sent(noise(scale=3.0), key=key) - truth for key in range(200)]
    np.testing.assert_allclose(np.std(drawn), 3, rtol=0.1)
    assert abs(np.corrcoef(np.transpose(drawn))[0, 3]) < 0.3  # one leaf's noise is not another's
    for how in (sign_flip(), noise(), not_finite()):
        np.testing.assert_array_equal(sent(how, liar=False), truth)


def test_the_uploads_of_silent_liars_do_not_count():
    from cantons.clock import rounds

    clock = mistimed(rounds(cohort=None).build(7), silence().build(), LIARS)
    plan = clock.plan(clock.arrays, jax.random.key(0), jnp.int32(0))
    np.testing.assert_array_equal(plan.counts, 1 - LIARS)
    assert plan.acts.all()


def test_a_liar_that_sends_nothing_usable_is_as_good_as_a_silent_one(problem, labels):
    silent, lost = (play(problem, labels, lie(how)) for how in (silence(), not_finite()))
    np.testing.assert_allclose(weights(silent), weights(lost), atol=1e-6)
    assert silent.final["uploads"] == 15 and silent.final["rejected_uploads"] == 0
    assert lost.final["uploads"] == 21 and lost.final["rejected_clients"] == list(NAMES)


def test_metrics_are_over_the_honest_and_the_folder_names_the_liars(problem, labels, tmp_path):
    told = []

    class Listener(ct.Callback):
        def noticed(self, sentence):
            told.append(sentence)

    result = play(problem, labels, lie(not_finite()), aggregate=ct.multi_krum(f=1), out=tmp_path / "run",
                  callbacks=[Listener()])
    columns = read_clients(tmp_path / "run")
    accuracy = np.array([float(value) for value in columns["test.shared.accuracy"]])
    assert [name for name, lies in zip(columns["client"], columns["liar"], strict=True) if lies == "1"] == list(NAMES)
    assert result.final["test.shared.accuracy.mean"] == pytest.approx(accuracy[~AMONG_LABELS].mean())
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["liars"] == list(NAMES)
    assert result.final["rule.rejected_liars"] == 0 and result.final["rule.rejected_honest"] == 3
    assert not any("NaN" in sentence for sentence in told)  # it is not the step size's fault
    loaded = ct.load(tmp_path / "run", data=labels)
    jax.tree.map(np.testing.assert_array_equal, loaded.state.server, result.model.state.server)


def test_a_run_with_liars_goes_on_to_the_same_bits(problem, labels, tmp_path):
    """Noise draws keys, clipping keeps a state, and the liars are drawn again."""
    options = {"byzantine": lie(noise(), count=2), "aggregate": ct.centred_clipping(bucket=2), "evaluate_clients": 3}
    whole = play(problem, labels, rounds=4, **options)
    play(problem, labels, rounds=2, out=tmp_path / "run", **options)
    rest = play(problem, labels, rounds=4, out=tmp_path / "run", resume=True, **options)
    jax.tree.map(np.testing.assert_array_equal, whole.model.state, rest.model.state)
    with pytest.raises(ct.InputError, match="byzantine.attack.scale is 1"):
        play(problem, labels, rounds=5, out=tmp_path / "run", resume=True, **options | {
            "byzantine": lie(noise(scale=2.0), count=2)})


def test_who_lies_follows_from_the_seed_and_fewer_are_among_more(labels):
    from cantons.study.byzantine import draw_liars

    two, three = (draw_liars(lie(sign_flip(), count=count), labels, 0) for count in (2, 3))
    assert two.sum() == 2 and three.sum() == 3 and (three | ~two).all()
    assert len({tuple(draw_liars(lie(sign_flip(), count=2), labels, seed)) for seed in range(9)}) > 3


def test_wrong_labels_are_learned_from_by_liars_alone(problem, labels):
    """A federation in which the liars' labels are flipped in the data gives the same run."""
    from dataclasses import replace

    train = labels.train
    of_liars = np.repeat(AMONG_LABELS, train.sizes)
    targets = np.where(of_liars, 2 - train.targets, train.targets)
    flipped = replace(train, targets=targets.astype(train.targets.dtype))
    by_data = play(problem, replace(labels, clients=replace(labels.clients, train=flipped)))
    by_attack = play(problem, labels, lie(label_flip()))
    np.testing.assert_array_equal(weights(by_data), weights(by_attack))
    assert by_attack.final["train.shared.loss.mean"] != by_data.final["train.shared.loss.mean"]


def test_online_liars_lie_and_are_not_charged(numbers):
    problem = ct.residual(numbers, shared_features=[0, 1], private_features=[1, 2])
    clock = ct.online(uplink=[0, 2, 1, 0, 3, 1, 2])
    runs = [ct.run(problem, numbers, ct.fedomd(step_size=0.05), rounds=6, clock=clock, byzantine=byzantine)
            for byzantine in (None, lie(inner_product()), lie(sign_flip()))]
    assert len({tuple(weights(run)) for run in runs}) == 3
    losses = np.asarray(runs[1].clients["online.personal.loss"])
    assert runs[1].final["online.personal.loss.mean"] == pytest.approx(losses[~LIARS].mean())
    assert not any("regret" in name for name in runs[1].final)


def test_a_study_file_names_liars_and_a_sweep_has_them_in_every_run(tmp_path):
    from cantons.study.sweep import sweep

    study = tmp_path / "study.toml"
    study.write_text("""
        rounds = 2
        aggregate = "median"
        [data]
        name = "digits"
        clients = 6
        [problem]
        name = "logistic"
        [algorithm]
        name = "fedavg"
        [byzantine]
        count = 2
        attack = "sign_flip"
    """)
    ready = read_study(study).resolved()
    assert ready.study["byzantine"]["clients"] != ready.with_seed(1).study["byzantine"]["clients"]
    assert (ready.with_seed(1).parts.data.clients.train.liars == ready.with_seed(1).liars).all()
    changes = {"byzantine.attack.name": "mimic"}
    *_, outcomes = sweep(study, {"algorithm.step_size": [0.1, 0.2]}, 1, tmp_path / "out", changes, ct.Callback(),
                         choose="train.shared.loss.mean")
    alone = read_study(study, changes | {"algorithm.step_size": outcomes[0].point["algorithm.step_size"]}).run()
    assert outcomes[0].score == pytest.approx(alone.final["train.shared.loss.mean"], rel=1e-5)


@attack
def shouting() -> Attack:
    """Sends twice as many numbers."""
    return Attack(upload=lambda key, honest: honest._replace(value=[honest.value, honest.value]))


@pytest.mark.parametrize("change, words", [
    ({"count": 2, "clients": ["a"]}, "give one of the two"), ({}, "give one of the two"),
    ({"count": 7}, "7 liars among 7 clients; leave at least one honest"), ({"clients": ["cleint1"]}, "client1"),
    ({"count": 0}, "count"), ({"count": 1, "attack": ct.median()}, "is no attack"),
    ({"count": 1, "attack": shouting()}, "send the same shapes")])
def test_what_makes_no_sense_is_refused(change, words, problem, labels):
    with pytest.raises(ct.InputError, match=words):
        play(problem, labels, ct.byzantine(**{"attack": sign_flip(), **change}))


def test_methods_and_measurements_that_do_not_go_with_liars_are_refused(numbers):
    joint = ct.residual(numbers, shared_features=[0, 1], private_features=[1, 2])
    with pytest.raises(ct.InputError, match="no averages"):
        ct.run(joint, numbers, ct.fedres_erm(), rounds=1, clock=ct.online(), byzantine=lie(sign_flip()))
    with pytest.raises(ct.InputError, match="leave score or byzantine out"):
        ct.run(joint, numbers, ct.fedomd(), rounds=1, clock=ct.online(score="everyone"), byzantine=lie(sign_flip()))
    with pytest.raises(ct.InputError, match="nobody can lie"):
        ct.run(ct.regression(numbers, ct.linear()), numbers, ct.central(), rounds=1, byzantine=lie(sign_flip()))


@pytest.mark.parametrize("table, words", [
    ({"count": 1}, "attack is missing"), ({"count": 1, "attack": "sign_flop"}, "sign_flip"),
    ({"count": 1, "attack": {"name": "noise", "scale": -1}}, "byzantine.attack.scale"),
    ({"count": 1, "attack": "median"}, "unknown attack"), ({"cuont": 1, "attack": "noise"}, "count")])
def test_a_table_of_liars_is_checked_as_every_other(table, words):
    raw = {"rounds": 1, "data": "digits", "problem": "logistic", "algorithm": "fedavg", "byzantine": table}
    with pytest.raises(ct.InputError, match=words):
        check_study(raw, "study.toml").parts()


def test_every_attack_is_known_by_its_name():
    assert all(make().name == name for name, make in ATTACKS.items())
