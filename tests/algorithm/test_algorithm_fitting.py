"""Who has no private part of its own yet is fitted to predict; who has one keeps it; a fit that diverges is told."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import cantons as ct

FAR = 1e5  # a step size with which every fit diverges
LEAST = {"step_size": 1e-9}  # rounds that move next to nothing, so that what is fitted is all there is

FITTED = {  # methods that fit clients before they predict, those who never acted or all; steps are far too long
    "fedavg": lambda: ct.fedavg(step_size=FAR),
    "fedalt": lambda: ct.fedalt(step_size=FAR),
    "fedalt, nothing kept": lambda: ct.fedalt(**LEAST, private_step_size=FAR, state="none"),
    "fedsim, nothing kept": lambda: ct.fedsim(**LEAST, private_step_size=FAR, state="none"),
    "fedrep": lambda: ct.fedrep(step_size=FAR),
    "fedper": lambda: ct.fedper(step_size=FAR),
    "scaffold": lambda: ct.scaffold(step_size=FAR),
    "fedres": lambda: ct.fedres_avg(step_size=FAR),
    "alone": lambda: ct.independent(step_size=FAR),
    "the private part alone": lambda: ct.independent(parts="private", step_size=FAR),
    "ditto": lambda: ct.ditto(step_size=FAR),
    "fedprox": lambda: ct.fedprox(step_size=FAR, predict_with="local", mu=0.0),
    "l2gd": lambda: ct.l2gd(step_size=FAR, penalty=0.0),
    "finetune": lambda: ct.fedavg_finetune(**LEAST, tune_step_size=FAR),
}


WHOLE = ("alone", "ditto", "fedprox", "l2gd", "finetune")  # methods whose clients predict with a whole model


@pytest.fixture(scope="module")
def rows():
    random = np.random.default_rng(3)
    rows = {f"c{number}": random.normal(size=(20 + number, 3)) for number in range(6)}
    return ct.from_clients({name: (x, x @ [1.0, 2.0, 0.5]) for name, x in rows.items()}, test=0)


def residual(data):
    return ct.residual(data, shared_features=[0, 1], private_features=[2], shared_model=ct.linear(bias=False),
                       private_model=ct.linear(bias=False))


def shared_of(result):
    return jax.tree.leaves(result.model.state.server.shared)[0]


class Heard(ct.Callback):
    def __init__(self):
        self.sentences = []

    def noticed(self, sentence):
        self.sentences.append(sentence)


@pytest.mark.parametrize("name", FITTED)
def test_a_fit_that_diverges_leaves_a_client_where_it_began_and_is_counted_and_named(rows, name):
    """One client acts, and all others are as a new client is."""
    heard = Heard()
    problem = ct.regression(rows, ct.linear()) if name in WHOLE else residual(rows)
    result = ct.run(problem, rows, FITTED[name](), rounds=1, cohort=1, callbacks=[heard])
    counted = result.clients["clients.diverged_tunings"]
    assert (counted > 0).sum() >= len(counted) - 1
    assert np.isfinite(result.clients["train.personal.loss"][counted > 0]).all()
    assert any("diverged and fell back" in sentence for sentence in heard.sentences)


def test_private_parts_from_an_earlier_run_are_what_clients_predict_with(rows):
    """Nobody is fitted again: the first row of a run is the last one of the run that it goes on from."""
    problem = residual(rows)
    for recipe in (ct.fedavg(step_size=0.05), ct.fedalt(step_size=0.05), ct.fedper(step_size=0.05),
                   ct.fedrep(step_size=0.05), ct.scaffold(step_size=0.05), ct.fedres_avg(step_size=0.05),
                   ct.independent(step_size=0.05, parts="private")):
        first = ct.run(problem, rows, recipe, rounds=2, cohort=3)
        again = ct.run(problem, rows, recipe, rounds=1, cohort=1, initial=first)
        np.testing.assert_allclose(again.history[0]["train.personal.loss.mean"],
                                   first.final["train.personal.loss.mean"], rtol=1e-5, err_msg=recipe.name)


@pytest.mark.parametrize("recipe", [
    ct.fedalt(step_size=1e-9, private_step_size=0.1), ct.independent(parts="private", step_size=0.1),
    ct.independent(parts="private", tuner="exact")], ids=["fedalt", "alone", "tuned"])
def test_who_was_not_in_an_earlier_run_is_fitted_whoever_else_was(rows, recipe):
    names = rows.clients.names
    few = ct.from_clients({name: [np.asarray(part)[:20] for part in rows.train.client(number).full()[:2]]
                           for number, name in enumerate(names[:3])}, test=0)
    first = ct.run(residual(few), few, recipe, rounds=2)
    with_own, without = (ct.run(residual(rows), rows, recipe, rounds=1, cohort=1, initial=initial).clients[
        "train.personal.loss"] for initial in (first, first.model.parts()))
    np.testing.assert_allclose(with_own[3:], without[3:], rtol=1e-6)
    if recipe.options.get("tuner") is None:
        assert (np.abs(with_own[:3] / without[:3] - 1) > 1e-3).sum() >= 2  # one may have acted, and so have its own


def test_a_client_of_l2gd_that_never_acted_begins_at_the_mean():
    """400 clients alike, of which four act in a round: the mean must not be drawn back to where all began."""
    data = ct.from_clients({f"c{number}": (np.ones((1, 1)), np.ones(1)) for number in range(400)}, test=0)
    problem = ct.regression(data, ct.linear(bias=False))
    begun = jax.tree.map(jnp.zeros_like, problem.init(jax.random.key(0)))
    result = ct.run(problem, data, ct.l2gd(step_size=0.1, penalty=0.1), rounds=60, cohort=4, initial=begun)
    assert np.squeeze(shared_of(result)) > 0.9


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_the_servers_step_size_scales_its_steps_whatever_its_optimizer(rows, optimizer):
    """The first step of Adam is as long as its step size, however long the gradient."""
    problem = residual(rows)
    begun = ct.run(problem, rows, ct.ffgg(step_size=1e-12), rounds=1)
    short, long = (np.asarray(shared_of(ct.run(problem, rows, ct.ffgg(
        step_size=size, server_optimizer=optimizer, server_step_size=0.01), rounds=1)) - shared_of(begun))
        for size in (0.5, 1.0))
    np.testing.assert_allclose(long, 2 * short, rtol=1e-3)


HALVED = {"name": "step_decay", "start": 0.2, "factor": 0.5, "every": 1}
SCHEDULED = {
    "ffgg": lambda: ct.ffgg(step_size=1e-12, private_init="last", tuner={
        "name": "gd", "steps": 1, "step_size": HALVED}),
    "local_ffgg": lambda: ct.local_ffgg(step_size=1e-12, private_step_size=1e-12, private_init="last", tuner={
        "name": "sgd", "batch_size": 100, "step_size": HALVED}),
    "pfedme": lambda: ct.pfedme(step_size=1e-12, steps=1, penalty=1e-12, server_step_size=1e-12, tuner={
        "name": "gd", "steps": 1, "step_size": HALVED}),
    "independent": lambda: ct.independent(parts="private", batch_size=None, step_size=HALVED),
    "independent, with a tuner": lambda: ct.independent(parts="private", tuner={
        "name": "optimizer", "optimizer": "sgd", "steps": 1, "batch_size": None, "step_size": HALVED}),
}


@pytest.mark.parametrize("name", SCHEDULED)
def test_tuners_follow_a_schedule_in_rounds_and_take_its_first_value_outside_of_them(rows, name):
    """One step of gradient descent a round, with nothing shared that moves: the steps are 0.2, 0.1 and 0.05."""
    problem = residual(rows)
    begun = jax.tree.map(jnp.zeros_like, problem.init(jax.random.key(0)))
    result = ct.run(problem, rows, SCHEDULED[name](), rounds=3, initial=begun, evaluate_every=3)
    evaluated = name != "independent" and "tuner" not in name  # those that acted predict with what they have
    for index in range(rows.population):
        batch = rows.train.client(index).full()
        private = begun[1]
        for size in (0.2, 0.1, 0.05, *([0.2] if evaluated else [])):
            slope = jax.grad(problem.loss, 1)(begun[0], private, batch)
            kept, private = private, jax.tree.map(lambda leaf, down, size=size: leaf - size * down, private, slope)
        own = jax.tree.map(lambda leaf, index=index: leaf[index], result.model.state.clients.private)
        jax.tree.map(lambda one, other: np.testing.assert_allclose(one, other, rtol=1e-4), own,
                     kept if evaluated else private)
        if name != "pfedme":  # whose shared part is tuned too
            np.testing.assert_allclose(result.clients["train.personal.loss"][index],
                                       problem.loss(begun[0], private, batch), rtol=1e-4)


def test_only_tuners_with_a_schedule_are_told_the_round(rows):
    """A message is four bytes longer then, and never else."""
    sizes = [ct.run(residual(rows), rows, ct.ffgg(tuner={"name": "gd", "step_size": size}), rounds=1).summary[
        "down_bytes_per_message"] for size in (0.2, HALVED)]
    assert sizes[1] == sizes[0] + 4


@pytest.mark.parametrize("options, words", [
    ({"step_size": 0.3}, "step_size is of local steps, and a tuner takes their place"),
    ({"epochs": 3, "clip_norm": 1.0, "fit_epochs": 9}, "epochs and clip_norm and fit_epochs are of local steps")])
def test_steps_beside_a_tuner_that_takes_their_place_are_refused(rows, options, words):
    with pytest.raises(ct.InputError, match=words):
        ct.run(residual(rows), rows, ct.independent(parts="private", tuner="lbfgs", **options), rounds=1)


def test_a_tuner_in_place_of_local_steps_is_for_private_parts(rows):
    with pytest.raises(ct.InputError, match="tuners are for private parts"):
        ct.run(residual(rows), rows, ct.independent(tuner="lbfgs"), rounds=1)
