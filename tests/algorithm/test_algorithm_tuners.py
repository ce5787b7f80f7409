"""Tuners by themselves: each lowers a loss, ends in a known place, or says that it may not be asked."""

from dataclasses import replace
from typing import Any, NamedTuple, get_type_hints

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import cantons as ct
from cantons.algorithm.parts.tuners import TUNERS
from cantons.algorithm.parts.tuning import name_diverged, tuner_of
from cantons.ranges import takes_reals

pytestmark = pytest.mark.usefixtures("float64")
KEY = jax.random.key(0)
QUADRATIC = ("cg", "exact")
SECOND_ORDER = ("lbfgs", "newton", "newton_cg")
LONG = {"lbfgs": {"steps": 60}, "newton": {"steps": 10}, "newton_cg": {"steps": 20}}


def tuned(problem, tuner, start, data, shared=()):
    """All tuners as runs use them: for several clients at once, each with rows of padding."""
    tune, _ = tuner_of(problem, tuner)
    return jax.device_get(jax.vmap(lambda index: tune(KEY, shared, start, data.train.client(index)))(jnp.arange(3)))


class Loss(NamedTuple):
    """A problem that is nothing but a loss of the private part."""

    loss: Any
    shared: Any = ()

    def init(self, key):
        return self.shared, {"a": jnp.ones(2), "b": jnp.full(3, 0.5)}


def flat(tree):
    leaves = jax.tree.leaves(tree)
    return np.concatenate([np.reshape(leaf, (leaf.shape[0], -1)) for leaf in leaves], axis=1)


@pytest.fixture(scope="module")
def singular():
    """Clients with fewer rows than the private part has numbers, of which two are always the same."""
    random = np.random.default_rng(4)
    rows = {f"c{number}": random.normal(size=(size, 5)) for number, size in enumerate((2, 3, 9))}
    return ct.from_clients({name: (np.c_[x[:, :4], x[:, 3]], x[:, 4] - 3) for name, x in rows.items()}, test=0)


def linear(data):
    return ct.regression(data, ct.linear(bias=False), split="all")


@pytest.mark.parametrize("tuner", ["exact", {"name": "cg", "steps": 40}, "newton"])
def test_of_several_best_points_the_nearest_to_the_start_is_found(singular, own_rows, tuner):
    """Also with far more steps of conjugate gradients than there are directions to go."""
    start = np.arange(5.0)
    found = tuned(linear(singular), tuner, {"layer0": {"weight": jnp.asarray(start)[:, None]}}, singular,
                  {"layer0": {"weight": None}})
    for (x, y), one in zip(own_rows(singular), flat(found.private), strict=True):
        np.testing.assert_allclose(one, start + np.linalg.pinv(x) @ (y - x @ start), atol=1e-9)
    assert not found.diverged.any()


@pytest.mark.parametrize("name", sorted(TUNERS))
def test_every_tuner_lowers_the_loss(numbers, name):
    problem = linear(numbers)
    nothing, start = {"layer0": {"weight": None}}, {"layer0": {"weight": jnp.ones((3, 1))}}
    found = tuned(problem, name, start, numbers, nothing)
    for index in range(3):
        batch = numbers.train.client(index).full()
        own = jax.tree.map(lambda leaf, index=index: leaf[index], found.private)
        assert problem.loss(nothing, own, batch) < problem.loss(nothing, start, batch)


@pytest.mark.parametrize("name", SECOND_ORDER)
def test_on_a_convex_loss_that_is_not_quadratic_they_end_where_its_gradient_is_zero(labels, name):
    """Logistic regression with a penalty, everything private: the start is near enough for Newton's own steps."""
    problem = ct.logistic(labels, l2=0.1, split="all")
    shared, start = problem.init(KEY)
    found = tuned(problem, {"name": name, **LONG[name]}, start, labels, shared)
    for index in range(3):
        own = jax.tree.map(lambda leaf, index=index: leaf[index], found.private)
        gradient = jax.grad(problem.loss, 1)(shared, own, labels.train.client(index).full())
        assert max(abs(leaf).max() for leaf in jax.tree.leaves(gradient)) < 1e-7


def test_a_loose_tolerance_ends_lbfgs_near_the_best_point_and_none_at_it(numbers):
    """The same loss with ever looser tolerances: the minimum, 0, is missed by more and more."""
    def loss(shared, private, batch):
        return jnp.cosh(private["a"] * jnp.array([1.0, 4.0])).sum() + jnp.cosh(2 * private["b"]).sum()

    problem, data = Loss(loss), numbers.train.client(0)

    def ends(tolerance):
        tune, _ = tuner_of(problem, {"name": "lbfgs", "steps": 80, "tolerance": tolerance})
        return tune(KEY, *problem.init(KEY), data).private

    missed = np.linalg.norm(flat(jax.jit(jax.vmap(ends))(jnp.array([0.0, 1e-2, 10.0]))), axis=1)
    assert missed[0] < 1e-7 < 1e-5 < missed[1] < 0.1 < missed[2]


def test_the_linear_systems_of_newton_cg_get_the_steps_that_it_is_given(numbers, own_rows):
    """One Newton step on a quadratic: with one step of conjugate gradients the steepest descent, with three exact."""
    nothing, start = {"layer0": {"weight": None}}, {"layer0": {"weight": jnp.ones((3, 1))}}
    one, three = (flat(tuned(linear(numbers), {"name": "newton_cg", "steps": 1, "cg_steps": steps}, start, numbers,
                             nothing).private) for steps in (1, 3))
    for number, (x, y) in enumerate(own_rows(numbers)[:3]):
        gradient, hessian = x.T @ (x @ np.ones(3) - y), x.T @ x
        steepest = 1 - gradient * (gradient @ gradient) / (gradient @ hessian @ gradient)
        np.testing.assert_allclose(one[number], steepest, atol=1e-10)
        np.testing.assert_allclose(three[number], np.linalg.solve(hessian, x.T @ y), atol=1e-8)


def bent(private, far):
    """Rosenbrock's valley, whose Hessian is not always positive, and some more numbers; the minimum is 0."""
    (x, y), rest = private["a"] - far, private["b"]
    return (1 - x) ** 2 + 10 * (y - x**2) ** 2 + ((rest - 2) ** 4).sum()


@pytest.mark.parametrize("name", SECOND_ORDER)
def test_where_a_loss_is_not_convex_it_never_rises(numbers, name):
    problem, starts = Loss(lambda shared, private, batch: bent(private, shared)), jnp.array([0.0, 2.5])
    start, data = problem.init(KEY)[1], numbers.train.client(0)
    losses = [jax.vmap(lambda far: bent(start, far))(starts)]
    for steps in (2, 60):
        tune, _ = tuner_of(problem, {"name": name, "steps": steps})
        found = jax.vmap(lambda far, tune=tune: tune(KEY, far, start, data))(starts)
        losses.append(jax.vmap(bent)(found.private, starts))
        assert not found.diverged.any()
    assert (np.diff(losses, axis=0) <= 0).all() and (losses[-1] < 1e-3).all()


@pytest.mark.parametrize("name", SECOND_ORDER)
def test_from_a_hill_they_go_down(numbers, name):
    """Newton's own steps would climb to its top."""
    problem = Loss(lambda shared, private, batch: -jnp.cos(2.5 * private["a"]).sum() + (private["b"] ** 2).sum())
    found = tuned(problem, {"name": name, "steps": 30}, problem.init(KEY)[1], numbers)
    np.testing.assert_allclose(np.cos(2.5 * found.private["a"]), 1.0, atol=1e-9)


def test_solvers_work_on_two_devices(numbers):
    """Inside shard_map, as engines call it; some solvers of others refuse to work there."""
    problem, devices = linear(numbers), jax.sharding.Mesh(jax.devices(), ("clients",))
    nothing, start = {"layer0": {"weight": None}}, {"layer0": {"weight": jnp.ones((3, 1))}}
    tunes = [tuner_of(problem, name)[0] for name in (*QUADRATIC, *SECOND_ORDER)]

    def all_tuned(ids):
        return [jax.lax.map(lambda index, tune=tune: tune(KEY, nothing, start, numbers.train.client(index)), ids)
                for tune in tunes]

    clients = jax.sharding.PartitionSpec("clients")
    apart = jax.shard_map(all_tuned, mesh=devices, in_specs=clients, out_specs=clients, check_vma=False)
    one, two = (jax.jit(work)(jnp.arange(4)) for work in (all_tuned, apart))
    jax.tree.map(lambda left, right: np.testing.assert_allclose(left, right, atol=1e-10), one, two)


@pytest.mark.parametrize("name", QUADRATIC)
def test_what_is_for_quadratic_losses_refuses_others(labels, name):
    problem = ct.classification(labels, ct.mlp(hidden=[3]), split="output")
    with pytest.raises(ct.InputError, match=f"the tuner {name} is for losses that are quadratic in the private part, "
                                            "and this one is not; use newton_cg"):
        ct.run(problem, labels, ct.ffgg(tuner=name), rounds=1)


def outputs(numbers, private):
    return numbers["rows"] @ jnp.concatenate([private["a"], private["b"]])


def quadratic(numbers, private, batch):
    return numbers["scale"] * ((outputs(numbers, private) - 1e5) ** 2).mean() + numbers["constant"]


def nearly(power):
    return lambda numbers, private, batch: quadratic(numbers, private, batch) + numbers["scale"] * numbers["small"] * (
        outputs(numbers, private) ** power).mean()


def logistic(numbers, private, batch):
    return jnp.log1p(jnp.exp(outputs(numbers, private))).mean() + numbers["constant"]


def test_quadratic_is_told_from_nearly_quadratic_whatever_is_added_in_any_precision(numbers):
    """Random losses: huge constants and small terms of higher order must not be mistaken for each other."""
    random, others = np.random.default_rng(0), (nearly(3), nearly(4), logistic)

    def refused(loss, shared=()):
        try:
            tuner_of(Loss(loss, shared), "cg")[1].examples(numbers.train)
        except ct.InputError:
            return True
        return False

    for wide in (True, False):
        with jax.enable_x64(wide):
            for _ in range(8):
                shared = {"rows": random.normal(size=(8, 5)), "scale": 10.0 ** random.integers(-4, 5),
                          "constant": 10.0 ** random.integers(0, 9), "small": 10.0 ** random.integers(-6, 0)}
                shared = {name: jnp.asarray(value, float) for name, value in shared.items()}
                assert not refused(quadratic, shared)
                assert all(refused(loss, shared) for loss in others)
    assert not refused(lambda shared, private, batch: private["a"].sum())  # linear: its curvature is 0 everywhere
    # Some client's loss is not quadratic, and it is not the first one's.
    two = ct.from_clients({"a": (np.zeros((2, 1)), np.zeros(2)), "b": (np.ones((2, 1)), np.zeros(2))}, test=0)
    with pytest.raises(ct.InputError):
        tuner_of(Loss(lambda shared, private, batch: (private["a"] ** 2).sum() + batch.inputs.sum() * (
            private["a"] ** 4).sum()), "cg")[1].examples(two.train)


def test_a_private_part_that_a_last_layer_of_zeros_hides_is_looked_at_elsewhere(numbers):
    """At such a start nothing depends on the private part, and a curvature of 0 is constant."""
    def curved(shared, private, batch):
        return ((jnp.tanh(private["a"]) * shared["head"]).sum() - 1) ** 2

    def straight(shared, private, batch):
        return ((private["a"] * shared["head"]).sum() - 1) ** 2

    head = {"head": jnp.zeros(2)}
    tuner_of(Loss(straight, head), "cg")[1].examples(numbers.train)
    with pytest.raises(ct.InputError, match="quadratic in the private part, and this one is not"):
        tuner_of(Loss(curved, head), "cg")[1].examples(numbers.train)


def test_no_steps_leave_the_private_part_as_it_is(singular):
    start = {"layer0": {"weight": jnp.arange(5.0)[:, None]}}
    found = tuned(linear(singular), {"name": "gd", "steps": 0}, start, singular, {"layer0": {"weight": None}})
    assert (flat(found.private) == np.arange(5.0)).all() and not found.diverged.any()


@pytest.mark.parametrize("options", [
    {"name": "sgd", "epochs": 2}, {"name": "optimizer", "optimizer": "sgd", "steps": 2}], ids=["sgd", "optimizer"])
@pytest.mark.parametrize(("clip_norm", "length"), [(0.5, 0.5), (20.0, 5.0), (None, 5.0)])
def test_no_step_of_a_tuner_is_longer_than_the_clip_norm_lets_it(singular, options, clip_norm, length):
    """Two steps down a slope of 3 and 4, whose gradient has length 5 everywhere."""
    problem = Loss(lambda shared, private, batch: private["a"] @ jnp.array([3.0, 4.0]))
    found = tuned(problem, {**options, "step_size": 0.1, "clip_norm": clip_norm}, problem.init(KEY)[1], singular)
    for end in found.private["a"]:
        np.testing.assert_allclose(end, 1 - 2 * 0.1 * length * np.array([0.6, 0.8]), atol=1e-12)
    np.testing.assert_array_equal(found.private["b"], 0.5)


@pytest.mark.parametrize("options", [
    {"name": "gd"}, {"name": "optimizer", "optimizer": "sgd", "batch_size": None},
    {"name": "optimizer", "optimizer": "sgd", "batch_size": 2}, {"name": "sgd"}])
@pytest.mark.parametrize("offset", [0.0, -50.0])
def test_steps_have_diverged_where_the_loss_soars(singular, options, offset):
    """A loss may be negative: what counts is the rise."""
    def loss(shared, private, batch):
        return (private["a"] ** 2).sum() + offset

    for step_size, diverges in ((0.9, False), (1.05, False), (40.0, True)):  # 1.05 climbs, but not far
        found = tuned(Loss(loss), {**options, "step_size": step_size}, Loss(loss).init(KEY)[1], singular)
        assert (found.diverged == diverges).all()
        assert (found.private["a"] == 1).all() == diverges


@pytest.mark.parametrize("batch_size", [2, None])
@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adam", "adagrad", "rmsprop"])
def test_from_a_loss_near_zero_sound_steps_may_lead_away_and_steps_that_are_too_long_are_found(
        singular, optimizer, batch_size):
    """As where tuning begins with what a client has learned before: the next steps lead back."""
    def loss(shared, private, batch):
        return (private["a"] ** 2).sum()

    table = {"name": "optimizer", "optimizer": optimizer, "batch_size": batch_size, "steps": 3}
    for step_size, diverges in ((0.03, False), (1e3, True)):
        found = tuned(Loss(loss), {**table, "step_size": step_size}, {"a": jnp.full(2, 1e-4)}, singular)
        assert (found.diverged == diverges).all()
        assert (found.private["a"] == 1e-4).all() == diverges
    if optimizer in ("sgd", "momentum"):  # too long by less: it takes more of them
        slower = {**table, "step_size": 3.0, "steps": 10}
        assert tuned(Loss(loss), slower, {"a": jnp.full(2, 1e-4)}, singular).diverged.all()


NOISY = [{"name": "gd"}, {"name": "sgd", "batch_size": 3}, {"name": "optimizer", "optimizer": "sgd", "batch_size": 1},
         {"name": "optimizer", "optimizer": "sgd", "batch_size": None}, {"name": "optimizer", "step_size": 0.1}]


@pytest.mark.parametrize("tuner", NOISY, ids=str)
def test_noise_that_leads_away_from_a_solution_is_no_divergence(tuner):
    """Without dropout this fits exactly, so the loss it begins with is 0."""
    x = np.random.default_rng(0).normal(size=(12, 2))
    data = ct.from_clients({f"c{size}": (x[:size], x[:size].sum(1)) for size in (2, 5, 12)}, test=0)

    def loss(shared, private, batch):
        kept = 1.0 if isinstance(batch.key, tuple) else 2 * jax.random.bernoulli(batch.key, 0.5, batch.inputs.shape)
        errors = (kept * batch.inputs) @ private["a"] - batch.targets
        return (batch.mask * errors ** 2).sum() / batch.mask.sum() / 2

    tune, _ = tuner_of(Loss(loss), tuner)
    train, start = replace(data.train, keys=True), {"a": jnp.ones(2)}
    ends = jax.vmap(lambda key: jax.vmap(lambda index: tune(key, (), start, train.client(index)))(jnp.arange(3)))(
        jax.random.split(KEY, 20))
    assert not ends.diverged.any() and (ends.private["a"] != 1).any(axis=(0, 2)).all()


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_rounding_errors_of_a_solution_are_no_divergence(precision):
    """Fewer rows than numbers, and all steps that it takes: what is left of the loss goes up and down."""
    random = np.random.default_rng(0)
    data = ct.from_clients({f"client{number}": (random.normal(size=(3, 6)), random.normal(size=3))
                            for number in range(20)}, test=0)
    problem = ct.residual(data, shared_features=[0], private_features=[1, 2, 3, 4, 5], shared_model=ct.linear(),
                          private_model=ct.linear())
    result = ct.run(problem, data, ct.ffgg(tuner={"name": "gd", "steps": 500}, private_init="last"), rounds=30,
                    evaluate_every=30, precision=precision)
    assert result.clients["train.personal.loss"].max() < 1e-3
    assert not result.clients["clients.diverged_tunings"].any()


class Counting(NamedTuple):
    """Examples that count how many of them anybody looks at."""

    rows: Any
    seen: list

    def sample(self, key, size):
        self.seen.append(size)
        return self.rows.sample(key, size)

    def __getattr__(self, name):
        raise AssertionError(f"a tuner on batches asks for {name}")


@pytest.mark.parametrize("rows", [3, 5000])
def test_a_tuning_on_batches_is_judged_by_a_few_examples_however_many_there_are(rows):
    data = ct.from_clients({"a": (np.ones((rows, 1)), np.ones(rows))}, test=0)
    seen, problem = [], Loss(lambda shared, private, batch: (private["a"] ** 2).sum())
    tune, _ = tuner_of(problem, {"name": "optimizer", "steps": 4})
    assert not tune(KEY, (), {"a": jnp.ones(2)}, Counting(data.train.client(0), seen)).diverged
    assert max(seen) == 32 and len(seen) == 2  # the steps are traced once


def test_a_tuning_on_all_examples_is_judged_by_all():
    """On the first half of them alone, what is learned from the others is worse."""
    targets = np.r_[np.full(128, 0.1), np.full(172, 1.0)]
    data = ct.from_clients({name: (np.ones((300, 1)), targets) for name in "abc"}, test=0)

    def loss(shared, private, batch):
        return 1e3 * (batch.mask * (private["a"][0] - batch.targets) ** 2).sum() / batch.mask.sum()

    found = tuned(Loss(loss), {"name": "gd", "steps": 50, "step_size": 1e-4}, {"a": jnp.full(1, 0.1)}, data)
    assert not found.diverged.any()
    np.testing.assert_allclose(found.private["a"], targets.mean(), atol=1e-3)


def test_who_fell_back_is_named_most_often_first():
    names = [f"c{number}" for number in range(9)]
    (said,) = name_diverged({"diverged_tunings": np.array([0, 1, 0, 7, 0, 0, 0, 0, 1])}, names)
    assert said.startswith("9 tunings") and "of 3 clients: c3 7 times, c1 1 times, c8 1 times;" in said
    assert name_diverged({"diverged_tunings": np.zeros(9)}, names) == name_diverged({}, names) == []
    sample = np.array([np.nan, 2, np.nan, 0, np.nan, np.nan, np.nan, np.nan, np.nan])  # the others were not scored
    (said,) = name_diverged({"diverged_tunings": sample}, names)
    assert said.startswith("2 tunings") and "of 1 clients among the 2 that were scored: c1 2 times;" in said
    assert name_diverged({"diverged_tunings": np.where(sample > 0, 0, sample)}, names) == []


@pytest.mark.parametrize("name", TUNERS)
def test_real_numbers_of_a_tuner_may_be_unknown_while_a_program_is_compiled(singular, name):
    """So that sweeps over them are one program."""
    problem = linear(singular)
    hints = get_type_hints(TUNERS[name], include_extras=True)
    reals = [option for option, hint in hints.items() if option != "return" and takes_reals(hint)]

    def tune(values):
        return tuner_of(problem, {"name": name, **values})[0](KEY, *problem.init(KEY), singular.train.client(0))

    jax.eval_shape(tune, dict.fromkeys(reals, 0.1))


def test_conjugate_gradients_go_on_to_their_tolerance_where_no_count_is_given(own_rows):
    """40 private numbers: ten steps are not enough, and neither a tolerance nor a count means ten."""
    random = np.random.default_rng(0)
    scales = np.geomspace(1, 5, 40)
    rows = {f"c{number}": random.normal(size=(200, 40)) * scales for number in range(3)}
    data = ct.from_clients({name: (x, x @ np.ones(40)) for name, x in rows.items()}, test=0)
    problem = linear(data)

    def losses(options):
        shared, start = jax.tree.map(jnp.zeros_like, problem.init(KEY))
        found = tuned(problem, {"name": "cg", **options}, start, data, shared).private
        return [float(problem.loss(shared, jax.tree.map(lambda leaf, index=index: leaf[index], found),
                                   data.train.client(index).full())) for index in range(3)]

    assert max(losses({"tolerance": 1e-10})) < 1e-12 < 1e-3 < min(losses({}))
    assert losses({}) == losses({"steps": 10})
    np.testing.assert_allclose(losses({"steps": 10, "tolerance": 1e-10}), losses({}), rtol=1e-12)
    assert max(losses({"tolerance": 1e-10})) < min(losses({"tolerance": 1e-1}))
